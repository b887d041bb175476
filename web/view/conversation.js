/**
 * How does the list of entries become the conversation?
 *
 * Keyed by entry and compared by identity: an entry that the reducer did not replace is not touched, and new ones are
 * appended. Keeps the end in view as long as the reader is there.
 */

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { agentView, noteView, planView, thoughtView, userView } from "./message.js";
import { toolView } from "./toolcard.js";
import { verdictView } from "./verdict.js";

/** @typedef {import("../types").Entry} Entry */
/** @typedef {import("../types").State} State */
/** @typedef {{ node: HTMLElement, update: (entry: Entry) => void }} View */
/** @typedef {{ name: (clientId: string | undefined) => string }} Context */

/** Within this of the end, in CSS pixels, the reader is taken to follow: about two lines. */
const NEAR_PX = 60;

/** @param {Entry} entry @param {Context} context @returns {View} */
function viewOf(entry, context) {
  switch (entry.kind) {
    case "user":
      return userView(entry, context);
    case "agent":
      return agentView(entry);
    case "thought":
      return thoughtView(entry);
    case "plan":
      return planView(entry);
    case "tool":
      return toolView(entry);
    case "permission":
      return verdictView(entry, context);
    case "note":
      return noteView(entry, context);
  }
}

/**
 * @param {HTMLElement} scroller
 * @param {HTMLElement} list
 * @param {HTMLElement} jump Where the button to the end appears.
 * @param {Context} context
 */
export function createConversation(scroller, list, jump, context) {
  /** @type {Map<string, { entry: Entry, view: View }>} */
  const shown = new Map();
  const lead = h("div", { class: "lead" });
  const working = h("div", { class: "working", hidden: true }, h("span", { class: "spinner" }), h("span", {}, "Working"));
  const toEnd = h("button", { type: "button", class: "to-end", onclick: () => follow(true) }, icon("down"), "Latest");
  list.append(lead, working);
  jump.replaceChildren(toEnd);
  jump.hidden = true;

  let following = true;

  scroller.addEventListener(
    "scroll",
    () => {
      following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
      jump.hidden = following;
    },
    { passive: true },
  );
  // The dock or the keyboard of a phone makes the room smaller: the end stays in view.
  new ResizeObserver(() => follow(false)).observe(scroller);
  new ResizeObserver(() => follow(false)).observe(list);

  function follow(/** @type {boolean} */ always) {
    if (always) following = true;
    if (following) scroller.scrollTop = scroller.scrollHeight;
    jump.hidden = following;
  }

  return {
    /** @param {State} state @param {Node | null} welcome Shown while there is nothing else. */
    render(state, welcome) {
      const keep = new Set(state.entries.map((entry) => entry.key));
      for (const [key, { view }] of shown) {
        if (keep.has(key)) continue;
        view.node.remove();
        shown.delete(key);
      }
      /** @type {ChildNode | null} */
      let cursor = lead.nextSibling;
      for (const entry of state.entries) {
        const known = shown.get(entry.key);
        if (known && known.entry.kind !== entry.kind) {
          // A rebuild may give a key to something else.
          if (cursor === known.view.node) cursor = cursor.nextSibling;
          known.view.node.remove();
          shown.delete(entry.key);
        }
        const kept = shown.get(entry.key);
        const view = kept?.view ?? viewOf(entry, context);
        if (kept && kept.entry !== entry) view.update(entry);
        shown.set(entry.key, { entry, view });
        if (view.node === cursor) cursor = cursor.nextSibling;
        else list.insertBefore(view.node, cursor);
      }
      renderLead(state, welcome);
      working.hidden = !state.turn || state.entries.at(-1)?.kind === "permission" || state.ended !== null;
      follow(false);
    },
    toEnd: () => follow(true),
  };

  function renderLead(/** @type {State} */ state, /** @type {Node | null} */ welcome) {
    if (state.truncated || state.dropped > 0) {
      const text = state.truncated
        ? "The beginning of this session is no longer in the daemon's memory."
        : `${state.dropped} earlier entries are not shown.`;
      if (lead.textContent !== text) lead.replaceChildren(h("p", { class: "note" }, text));
    } else if (state.entries.length === 0 && welcome && state.caughtUp) {
      if (lead.firstChild !== welcome) lead.replaceChildren(welcome);
    } else if (lead.firstChild) {
      lead.replaceChildren();
    }
  }
}
