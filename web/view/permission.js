/**
 * How is a person asked?
 *
 * The card of the oldest pending request, with what exactly would run, who asks and the options as buttons. A card that
 * just came up takes no answer for a moment: it may have slid under a finger or a key meant for something else.
 */

import { commandOf } from "../content.js";
import {
  askedFor,
  capital,
  optionName,
  outcomeTone,
  ownVote,
  question,
  refusal,
  tallyText,
  timeLeft,
  verdict,
  whoDecides,
} from "../wording.js";
import { diffView } from "./diff.js";
import { h, present, setText } from "./dom.js";
import { icon, toolIcon } from "./icons.js";
import { commandBlock, exact, jsonBlock } from "./plain.js";

/** @typedef {import("../types").PermissionEntry} PermissionEntry */
/** @typedef {import("./conversation.js").Context} Context */

/** Longer than a double click or a key repeat, shorter than reading one word. */
const ARM_MS = 350;
/** When a card that came up while somebody typed looks again whether it may have the focus. */
const FOCUS_MS = 1300;
/** How long the verdict of somebody else stays where the question was. */
const VERDICT_MS = 6000;

/**
 * @param {HTMLElement} dock
 * @param {object} options
 * @param {Context} options.context
 * @param {() => string | undefined} options.policy
 * @param {(requestId: string, optionId: string | null) => void} options.answer
 * @param {(text: string) => void} options.announce
 * @param {() => boolean} options.mayTakeFocus
 * @param {() => void} options.giveFocusBack
 */
export function createPermissionDock(dock, options) {
  /** @type {ReturnType<typeof createCard> | null} */
  let card = null;
  /** Requests this window has shown as a question. @type {Set<string>} */
  const asked = new Set();
  let position = 0;
  /** @type {PermissionEntry[]} */
  let pending = [];
  /** @type {{ requestId: string, timer: ReturnType<typeof setTimeout> } | null} */
  let verdictShown = null;

  const ticker = setInterval(() => card?.tick(Date.now()), 1000);

  function remove() {
    if (verdictShown) clearTimeout(verdictShown.timer);
    verdictShown = null;
    const hadFocus = dock.contains(document.activeElement);
    card = null;
    dock.replaceChildren();
    dock.hidden = true;
    if (hadFocus) options.giveFocusBack();
  }

  /** @param {PermissionEntry} entry */
  function open(entry) {
    if (verdictShown) clearTimeout(verdictShown.timer);
    verdictShown = null;
    const focus = options.mayTakeFocus() || dock.contains(document.activeElement);
    card = createCard(entry, options, move);
    dock.replaceChildren(card.node);
    dock.hidden = false;
    if (focus) card.node.focus({ preventScroll: true });
    else setTimeout(offerFocus, FOCUS_MS, card);
    if (!asked.has(entry.requestId)) {
      asked.add(entry.requestId);
      options.announce(spoken(entry, options.context));
    }
  }

  /** Once more, when whoever was typing has stopped. @param {ReturnType<typeof createCard>} to */
  function offerFocus(to) {
    if (card === to && pending.length > 0 && options.mayTakeFocus()) to.node.focus({ preventScroll: true });
  }

  function move(/** @type {number} */ by) {
    position = (position + by + pending.length) % Math.max(1, pending.length);
    show();
  }

  function show() {
    const entry = pending[position];
    if (!entry) return;
    if (card?.requestId !== entry.requestId) open(entry);
    card?.update(entry, position, pending.length);
  }

  return {
    /** @param {import("../types").State} state */
    render(state) {
      const before = card?.requestId;
      pending = state.entries.filter((entry) => entry.kind === "permission").filter((entry) => entry.pending);
      for (const id of asked) if (asked.size > 512 && !pending.some((entry) => entry.requestId === id)) asked.delete(id);
      const at = pending.findIndex((entry) => entry.requestId === before);
      position = at >= 0 ? at : Math.min(position, Math.max(0, pending.length - 1));
      const resolved = state.entries.findLast((entry) => entry.kind === "permission" && entry.requestId === before);

      if (pending.length > 0) {
        if (resolved?.kind === "permission" && !resolved.pending) {
          options.announce(verdict(resolved, options.context.name));
        }
        show();
      } else if (card && resolved?.kind === "permission") {
        card.update(resolved, 0, 0);
        if (verdictShown?.requestId !== resolved.requestId) {
          options.announce(verdict(resolved, options.context.name));
          const brief = resolved.vote?.status === "recorded" || resolved.vote?.status === "sending";
          verdictShown = { requestId: resolved.requestId, timer: setTimeout(remove, brief ? VERDICT_MS / 6 : VERDICT_MS) };
          if (dock.contains(document.activeElement)) options.giveFocusBack();
        }
      } else {
        remove();
      }
    },
    /** Puts the focus on the card. @returns {boolean} Whether there is one. */
    focus() {
      if (!card || pending.length === 0) return false;
      card.node.focus();
      return true;
    },
    /** Answers the shown card with its nth option, from 1. @param {number} nth @returns {boolean} Whether there was one to press. */
    press: (nth) => (pending.length > 0 && card ? card.press(nth) : false),
    /** @param {Node | null} node */
    contains: (node) => dock.contains(node),
    close() {
      clearInterval(ticker);
      remove();
    },
  };
}

/** What a screen reader says when the card comes up. @param {PermissionEntry} entry @param {Context} context */
function spoken(entry, context) {
  const what = commandOf(entry.tool) ?? entry.tool.diffs.map((diff) => diff.path).join(", ") ?? entry.tool.title;
  const choices = entry.options.map((option, index) => `${index + 1}, ${option.name}`).join("; ");
  return `Permission needed. ${askedFor(entry, context.name)}. ${question(entry)} ${what || entry.tool.title}. ${choices}.`;
}

/**
 * @param {PermissionEntry} first
 * @param {Parameters<typeof createPermissionDock>[1]} options
 * @param {(by: number) => void} move
 */
function createCard(first, options, move) {
  const { context } = options;
  const id = `ask-${first.requestId}`;
  const eyebrow = h("span", { class: "ask-eyebrow-text" });
  const mark = h("span", { class: "ask-mark" }, icon("shield"));
  const clock = h("span", { class: "ask-clock" });
  const of = h("span", { class: "ask-of" });
  const pager = h(
    "span",
    { class: "ask-pager", hidden: true },
    h("button", { type: "button", class: "quiet", "aria-label": "Previous request", onclick: () => move(-1) }, "‹"),
    of,
    h("button", { type: "button", class: "quiet", "aria-label": "Next request", onclick: () => move(1) }, "›"),
  );
  const title = h("h2", { id, class: "ask-title" });
  const by = h("p", { class: "ask-by" });
  const body = h("div", { class: "ask-body" });
  const status = h("div", { class: "ask-status" });
  const tally = h("div", { class: "ask-tally", hidden: true });
  const actions = h("div", { class: "ask-actions" });
  const node = h(
    "section",
    { class: "ask", role: "group", tabindex: -1, "aria-labelledby": id, "data-request": first.requestId },
    h("header", { class: "ask-head" }, h("p", { class: "ask-eyebrow" }, mark, eyebrow, clock, pager), title, by),
    body,
    tally,
    status,
    actions,
  );

  let current = first;
  let armed = false;
  body.append(...bodyNodes(first));
  const buttons = optionButtons(first, (optionId) => {
    if (armed && current.pending) options.answer(current.requestId, optionId);
  });
  actions.append(...buttons);
  const arm = () => {
    armed = true;
    refresh();
  };
  let arming = setTimeout(arm, ARM_MS);
  node.addEventListener("keydown", () => {
    if (armed) return;
    // Somebody is typing what was meant for another place.
    clearTimeout(arming);
    arming = setTimeout(arm, ARM_MS);
  });

  function refresh() {
    const busy = current.vote?.status === "sending";
    for (const button of buttons) {
      // `aria-disabled` for the moment of sending keeps the focus where it is; `disabled` before the card is armed.
      button.disabled = !armed;
      button.setAttribute("aria-disabled", String(busy || !current.pending));
      button.classList.toggle("chosen", current.vote?.optionId === button.dataset.option && current.vote?.status !== "failed");
    }
    actions.hidden = !current.pending;
  }

  return {
    requestId: first.requestId,
    node,
    /** @param {PermissionEntry} entry @param {number} position @param {number} total */
    update(entry, position, total) {
      current = entry;
      const tone = outcomeTone(entry);
      node.dataset.tone = tone;
      setText(eyebrow, entry.pending ? "Permission needed" : "Answered");
      mark.replaceChildren(icon(tone === "allowed" ? "check" : tone === "denied" ? "cross" : tone === "withdrawn" ? "clock" : "shield"));
      setText(title, entry.pending ? question(entry) : verdict(entry, context.name));
      const rule = whoDecides(options.policy(), entry, context.name);
      setText(
        by,
        entry.pending
          ? [askedFor(entry, context.name), rule].filter(Boolean).join(" · ")
          : [question(entry), optionName(entry, entry.outcome?.optionId ?? null)].filter(Boolean).join(" — "),
      );
      pager.hidden = total < 2;
      setText(of, `${position + 1} of ${total}`);
      drawTally(entry);
      drawStatus(entry);
      refresh();
      this.tick(Date.now());
    },
    /** @param {number} now */
    tick(now) {
      setText(clock, current.pending && current.deadline !== null ? timeLeft(current.deadline - now) : "");
    },
    /** @param {number} nth */
    press(nth) {
      const button = buttons[nth - 1];
      if (!button || !armed || !current.pending) return false;
      button.click();
      return true;
    },
  };

  function drawTally(/** @type {PermissionEntry} */ entry) {
    tally.hidden = !entry.tally || !entry.pending;
    if (!entry.tally) return;
    const best = Math.max(0, ...Object.values(entry.tally.byOption).map(Number));
    tally.replaceChildren(
      h("progress", { max: Math.max(1, entry.tally.quorum), value: best, "aria-label": tallyText(entry.tally) }),
      h("span", {}, tallyText(entry.tally)),
      ...Object.entries(entry.tally.byOption).map(([optionId, count]) => h("span", { class: "chip" }, `${optionName(entry, optionId)}: ${count}`)),
    );
  }

  function drawStatus(/** @type {PermissionEntry} */ entry) {
    const own = ownVote(entry, context.name);
    const problem = entry.vote?.status === "failed" || entry.vote?.status === "forbidden";
    // A refusal of this window is said by its own vote already.
    const refusals = entry.refusals.filter((item) => !(problem && context.name(item.by) === "this window"));
    status.replaceChildren(
      ...present([
        own !== null && h("p", { class: problem ? "ask-problem" : "ask-own" }, own),
        ...refusals.map((item) => h("p", { class: "ask-refused" }, `${capital(context.name(item.by))} was refused: ${refusal(item.reason)}`)),
      ]),
    );
    status.hidden = status.childElementCount === 0;
  }
}

/** @param {PermissionEntry} entry @param {(optionId: string | null) => void} choose */
function optionButtons(entry, choose) {
  const choices = entry.options.map((option) => ({ ...option, optionId: /** @type {string | null} */ (option.optionId) }));
  // Without a single option there must still be a way out.
  if (choices.length === 0) choices.push({ optionId: null, name: "Dismiss", kind: "reject_once" });
  const primary = choices.findIndex((choice) => choice.kind === "allow_once");
  return choices.map((choice, index) =>
    h(
      "button",
      {
        type: "button",
        class: `choice ${choice.kind.startsWith("reject") ? "reject" : index === primary ? "primary" : "allow"}`,
        "data-option": choice.optionId,
        "data-kind": choice.kind,
        "aria-keyshortcuts": index < 9 ? String(index + 1) : null,
        disabled: true,
        onclick: (/** @type {Event} */ event) => {
          if (event.currentTarget instanceof Element && event.currentTarget.getAttribute("aria-disabled") !== "true") choose(choice.optionId);
        },
      },
      index < 9 && h("kbd", { "aria-hidden": "true" }, String(index + 1)),
      h("span", {}, ...exact(choice.name)),
    ),
  );
}

/** What exactly would happen. @param {PermissionEntry} entry @returns {Node[]} */
function bodyNodes(entry) {
  const { tool } = entry;
  const command = commandOf(tool);
  /** @type {Node[]} */
  const nodes = [];
  const description = tool.rawInput?.description;
  if (typeof description === "string" && description !== "") nodes.push(h("p", { class: "ask-why" }, ...exact(description)));
  if (command !== null) {
    nodes.push(commandBlock(command));
  } else if (tool.title && !tool.diffs.some((diff) => diff.path.endsWith(tool.title))) {
    nodes.push(h("p", { class: "ask-what" }, toolIcon(tool.toolKind), h("span", {}, ...exact(tool.title))));
  }
  for (const diff of tool.diffs) nodes.push(diffView(diff));
  for (const text of tool.texts) nodes.push(h("p", { class: "ask-text" }, ...exact(text)));

  const facts = Object.entries({
    Tool: tool.toolName,
    Directory: tool.rawInput?.directory ?? tool.rawInput?.dir_path ?? tool.rawInput?.cwd,
    "In the background": tool.rawInput?.is_background === true ? "yes" : "",
    Files: tool.diffs.length > 0 ? "" : tool.locations.join("\n"),
  }).filter(([, value]) => typeof value === "string" && value !== "");
  if (facts.length > 0) {
    nodes.push(
      h("dl", { class: "ask-facts" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, ...exact(String(value)))])),
    );
  }
  if (tool.rawInput && Object.keys(tool.rawInput).length > 0) {
    // Without a command or a diff the arguments are all there is to judge by.
    const only = command === null && tool.diffs.length === 0;
    nodes.push(h("details", { class: "arguments", open: only }, h("summary", {}, "All arguments"), jsonBlock(tool.rawInput)));
  }
  return nodes;
}
