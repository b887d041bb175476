/** Which sessions are there, and which of them wants something? */

import { h, setText } from "./dom.js";
import { icon } from "./icons.js";

/** @typedef {import("../types").SessionSummary} SessionSummary */

/**
 * @param {HTMLElement} root
 * @param {object} on
 * @param {(sessionId: string) => void} on.open
 * @param {() => void} on.create
 * @param {(sessionId: string) => void} on.close
 */
export function createSessionList(root, on) {
  const list = h("ul", { class: "session-list" });
  const empty = h("p", { class: "session-empty", hidden: true }, "The daemon does not list its sessions.");
  root.replaceChildren(
    h("button", { type: "button", class: "new-session", onclick: () => on.create() }, icon("plus"), "New session"),
    h("h2", { class: "session-heading" }, "Sessions"),
    list,
    empty,
  );
  /** What was drawn, to leave the list alone while nothing changed. */
  let drawn = "";
  /** @type {string | null} */
  let confirming = null;

  /** @param {SessionSummary[] | null} sessions @param {string | null} current @param {string | null} title */
  function render(sessions, current, title) {
    const all = sessions ?? [];
    const known = current && !all.some((session) => session.sessionId === current) ? [{ sessionId: current }, ...all] : all;
    empty.hidden = sessions !== null;
    const signature = JSON.stringify([known, current, title, confirming]);
    if (signature === drawn) return;
    drawn = signature;
    const focused = document.activeElement?.closest("[data-session]")?.getAttribute("data-session");
    const role = document.activeElement?.getAttribute("data-role");
    list.replaceChildren(...known.map((session) => item(session, session.sessionId === current, title)));
    if (focused && role) {
      const again = list.querySelector(`[data-session="${CSS.escape(focused)}"] [data-role="${role}"]`);
      if (again instanceof HTMLElement) again.focus();
    }

    /** @param {SessionSummary} session @param {boolean} isCurrent @param {string | null} shownTitle */
    function item(session, isCurrent, shownTitle) {
      const name = (isCurrent && shownTitle) || session.displayName || `Session ${session.sessionId.slice(0, 4)}`;
      const state = session.isWaitingForPermission ? "waiting" : session.hasActivePrompt ? "busy" : "idle";
      const sure = confirming === session.sessionId;
      return h(
        "li",
        { class: "session", "data-session": session.sessionId, "data-state": state },
        h(
          "button",
          {
            type: "button",
            class: "session-open",
            "data-role": "open",
            "aria-current": isCurrent ? "page" : null,
            onclick: () => on.open(session.sessionId),
          },
          h("span", { class: "session-dot" }),
          h("span", { class: "session-name" }, name),
          h("span", { class: "session-meta" }, meta(session, state)),
        ),
        h(
          "button",
          {
            type: "button",
            class: sure ? "session-close sure" : "session-close",
            "data-role": "close",
            "aria-label": sure ? `Really close ${name}?` : `Close ${name}`,
            title: sure ? "Press again to close it for everybody" : "Close session",
            onclick: () => {
              if (sure) {
                confirming = null;
                on.close(session.sessionId);
              } else {
                confirming = session.sessionId;
                setTimeout(() => {
                  confirming = null;
                  render(sessions, current, title);
                }, 4000);
              }
              render(sessions, current, title);
            },
          },
          sure ? h("span", {}, "Close?") : icon("cross"),
        ),
      );
    }
  }
  return { render, setEmpty: (/** @type {string} */ text) => setText(empty, text) };
}

/** @param {SessionSummary} session @param {string} state */
function meta(session, state) {
  const parts = [];
  if (state === "waiting") parts.push("needs an answer");
  else if (state === "busy") parts.push("working");
  else if (session.createdAt) parts.push(new Date(session.createdAt).toLocaleString([], { weekday: "short", hour: "2-digit", minute: "2-digit" }));
  if ((session.clientCount ?? 0) > 1) parts.push(`${session.clientCount} clients`);
  return parts.join(" · ");
}
