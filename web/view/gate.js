/** What stands in the way of a conversation? A missing token, a daemon that can't be reached, a session that is gone. */

import { h } from "./dom.js";

/**
 * The form that asks for a token.
 * @param {boolean} refused Whether one was tried and refused.
 * @param {(token: string) => void} use
 */
export function tokenGate(refused, use) {
  const field = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  return h(
    "form",
    {
      class: "gate",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        if (field.value.trim() !== "") use(field.value.trim());
      },
    },
    h("h2", {}, refused ? "The daemon refused this token" : "A token is needed"),
    h("p", {}, "Open the whole address that the daemon printed, including what follows #token=, or use “Copy link” in a window that works. You can also paste the token here."),
    h("label", { for: "token" }, "Token"),
    h("div", { class: "gate-row" }, field, h("button", { type: "submit", class: "choice primary" }, "Connect")),
  );
}

/**
 * @param {string} title
 * @param {string} text
 * @param {{ label: string, act: () => void } | null} action
 */
export function messageGate(title, text, action) {
  return h(
    "div",
    { class: "gate" },
    h("h2", {}, title),
    h("p", {}, text),
    action && h("button", { type: "button", class: "choice primary", onclick: () => action.act() }, action.label),
  );
}

/** What an empty session says. @param {(text: string) => void} use */
export function welcome(use) {
  const ideas = ["What is in this folder?", "Run the tests and tell me what fails", "Explain how this project is built"];
  return h(
    "div",
    { class: "welcome" },
    h("h2", {}, "What shall we do?"),
    h("p", {}, "Everybody with this address sees the same conversation. When the agent wants to change something, it asks here, and whoever may answer can."),
    h("ul", {}, ...ideas.map((idea) => h("li", {}, h("button", { type: "button", class: "idea", onclick: () => use(idea) }, idea)))),
  );
}
