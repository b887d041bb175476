/** How does a person write to the agent? Enter sends, Shift+Enter makes a line, a running turn can be stopped. */

import { h, setText } from "./dom.js";
import { icon } from "./icons.js";

/** After this long without a key, an empty box is not being typed into. */
const TYPING_MS = 1200;

/**
 * @param {HTMLElement} root
 * @param {object} on
 * @param {(text: string) => Promise<string | null>} on.send Resolves to what went wrong, or null.
 * @param {() => void} on.cancel
 * @param {() => boolean} on.up Called for ArrowUp in an empty box.
 */
export function createComposer(root, on) {
  const box = h("textarea", {
    id: "prompt",
    rows: 1,
    placeholder: "Ask the agent…",
    "aria-label": "Message to the agent",
    autocomplete: "off",
    enterkeyhint: "send",
  });
  const problem = h("p", { class: "composer-problem", role: "alert", hidden: true });
  const queue = h("ul", { class: "queue", "aria-label": "Waiting prompts", hidden: true });
  const sendLabel = h("span", { class: "visually-hidden" }, "Send");
  const send = h("button", { type: "submit", class: "send" }, icon("up"), sendLabel);
  const stop = h("button", { type: "button", class: "stop", hidden: true, title: "Stop (Esc)", onclick: () => on.cancel() }, icon("stop"), h("span", {}, "Stop"));
  const hint = h("p", { class: "hint" });
  const form = h("form", { class: "composer" }, h("div", { class: "composer-box" }, box, h("div", { class: "composer-buttons" }, stop, send)));
  root.replaceChildren(queue, problem, form, hint);

  let lastKey = 0;
  let sending = false;
  let usable = true;

  function fit() {
    // Browsers with `field-sizing: content` do this alone; setting it does no harm there.
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight}px`;
    send.disabled = !usable || sending || box.value.trim() === "";
  }

  async function submit() {
    const text = box.value.trim();
    if (text === "" || sending || !usable) return;
    sending = true;
    fit();
    const wrong = await on.send(text);
    sending = false;
    problem.hidden = wrong === null;
    setText(problem, wrong ?? "");
    // What was typed meanwhile stays.
    if (wrong === null && box.value.trim() === text) box.value = "";
    fit();
  }

  box.addEventListener("input", fit);
  box.addEventListener("keydown", (event) => {
    lastKey = performance.now();
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey) {
      event.preventDefault();
      void submit();
    } else if (event.key === "ArrowUp" && box.value === "" && on.up()) {
      event.preventDefault();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void submit();
  });
  fit();

  return {
    /** @param {import("../types").State} state @param {(clientId: string | undefined) => string} name @param {boolean} ready */
    render(state, name, ready) {
      const running = state.turn !== null && state.ended === null;
      usable = ready && state.ended === null;
      box.disabled = state.ended !== null;
      stop.hidden = !running;
      const stopping = running && state.cancelling?.promptId === state.turn?.promptId;
      stop.disabled = stopping;
      setText(sendLabel, running ? "Queue" : "Send");
      setText(hint, hintFor(state, running, stopping));
      const placeholder = state.ended ? "This session has ended" : "Ask the agent…";
      if (box.placeholder !== placeholder) box.placeholder = placeholder;
      queue.hidden = state.queue.length === 0;
      queue.replaceChildren(
        ...state.queue.map((item) => h("li", {}, h("span", { class: "chip" }, "Queued"), h("span", { class: "queue-text" }, item.text), h("span", { class: "queue-by" }, name(item.by)))),
      );
      fit();
    },
    /** Not on touch screens, where the focus brings up a keyboard over half of the conversation. */
    focus() {
      if (!matchMedia("(pointer: coarse)").matches) box.focus({ preventScroll: true });
    },
    /** @param {string} text */
    fill(text) {
      box.value = text;
      fit();
      box.focus();
    },
    /** Whether the card may take the focus from here: nothing written, no key for a moment. */
    idle: () => box.value === "" && performance.now() - lastKey > TYPING_MS,
    /** @param {Element | null} element */
    is: (element) => element === box,
  };
}

/** @param {import("../types").State} state @param {boolean} running @param {boolean} stopping */
function hintFor(state, running, stopping) {
  if (state.ended) return "";
  if (stopping) return "Stopping…";
  return running ? "Enter queues · Esc stops the turn" : "Enter sends · Shift+Enter makes a new line";
}
