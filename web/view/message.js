/** How do messages of people, of the agent and of the system look? */

import { highlight } from "../highlight.js";
import { growingMarkdown } from "../markdown.js";
import { capital, noteText } from "../wording.js";
import { h, present, setText } from "./dom.js";
import { icon } from "./icons.js";

/** @typedef {import("../types").Entry} Entry */
/** @typedef {import("./conversation.js").View} View */
/** @typedef {import("./conversation.js").Context} Context */

/** @param {number | null} at */
export function timeNode(at) {
  if (at === null) return null;
  const date = new Date(at);
  return h(
    "time",
    { datetime: date.toISOString(), title: date.toLocaleString() },
    date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }),
  );
}

/** @param {import("../types").Attachment[]} attachments */
function attachmentNodes(attachments) {
  return attachments.map((attachment) =>
    attachment.kind === "image"
      ? h("img", { class: "attachment", src: attachment.value, alt: attachment.label })
      : h("span", { class: "chip", title: attachment.value }, attachment.label),
  );
}

/** @param {import("../types").UserEntry} first @param {Context} context @returns {View} */
export function userView(first, context) {
  const text = h("div", { class: "user-text" });
  const extras = h("div", { class: "attachments" });
  const node = h(
    "article",
    { class: "entry user" },
    h("header", { class: "byline" }, h("span", { class: "who" }, capital(context.name(first.by))), timeNode(first.at)),
    text,
    extras,
  );
  const update = (/** @type {Entry} */ entry) => {
    if (entry.kind !== "user") return;
    setText(text, entry.text);
    extras.replaceChildren(...attachmentNodes(entry.attachments));
  };
  update(first);
  return { node, update };
}

/** @param {import("../types").AgentEntry} first @returns {View} */
export function agentView(first) {
  const body = h("div", { class: "markdown" });
  const extras = h("div", { class: "attachments" });
  const node = h("article", { class: "entry agent" }, body, extras);
  const markdown = growingMarkdown(body, decorate);
  let attachments = 0;
  const update = (/** @type {Entry} */ entry) => {
    if (entry.kind !== "agent") return;
    markdown.update(entry.text, entry.open);
    node.classList.toggle("open", entry.open);
    if (entry.attachments.length !== attachments) {
      attachments = entry.attachments.length;
      extras.replaceChildren(...attachmentNodes(entry.attachments));
    }
  };
  update(first);
  return { node, update };
}

/** Code gets colours and a copy button, wide tables a box to scroll in. @param {ParentNode} root */
function decorate(root) {
  const inside = (/** @type {string} */ tag) => [
    ...(root instanceof Element && root.matches(tag) ? [root] : []),
    ...root.querySelectorAll(tag),
  ];
  for (const pre of inside("pre")) {
    const code = pre.querySelector("code");
    if (!code) continue;
    const language = /language-(\S+)/.exec(code.className)?.[1];
    const bar = h("div", { class: "code-bar" }, h("span", {}, language ?? "text"), copyButton(() => code.textContent ?? ""));
    const box = h("div", { class: "code" });
    pre.replaceWith(box);
    box.append(bar, pre);
    pre.setAttribute("tabindex", "0");
    void highlight(code);
  }
  for (const table of inside("table")) {
    const box = h("div", { class: "table", tabindex: 0 });
    table.replaceWith(box);
    box.append(table);
  }
}

/** @param {() => string} text */
export function copyButton(text) {
  const label = h("span", {}, "Copy");
  return h(
    "button",
    {
      type: "button",
      class: "quiet copy",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(text());
          setText(label, "Copied");
        } catch {
          setText(label, "Not allowed");
        }
        setTimeout(() => setText(label, "Copy"), 1600);
      },
    },
    icon("copy"),
    label,
  );
}

/** @param {import("../types").ThoughtEntry} first @returns {View} */
export function thoughtView(first) {
  const text = h("div", { class: "thought-text" });
  const label = h("summary", {}, "Thinking");
  const node = h("details", { class: "entry thought" }, label, text);
  const update = (/** @type {Entry} */ entry) => {
    if (entry.kind !== "thought") return;
    setText(text, entry.text);
    setText(label, entry.open ? "Thinking…" : "Thought");
    node.classList.toggle("open", entry.open);
  };
  update(first);
  return { node, update };
}

/** @param {import("../types").PlanEntry} first @returns {View} */
export function planView(first) {
  const list = h("ol", { class: "plan-items" });
  const node = h("section", { class: "entry plan", "aria-label": "Plan" }, h("h3", {}, "Plan"), list);
  const update = (/** @type {Entry} */ entry) => {
    if (entry.kind !== "plan") return;
    list.replaceChildren(
      ...entry.items.map((item) =>
        h(
          "li",
          { class: `plan-${item.status === "completed" ? "done" : item.status === "in_progress" ? "doing" : "todo"}` },
          h("span", { class: "visually-hidden" }, `${item.status.replaceAll("_", " ")}: `),
          item.content,
        ),
      ),
    );
  };
  update(first);
  return { node, update };
}

/** @param {import("../types").NoteEntry} first @param {Context} context @returns {View} */
export function noteView(first, context) {
  const node = h(
    "p",
    { class: `entry note ${first.tone}` },
    ...present([first.tone !== "info" && icon("alert"), h("span", {}, noteText(first, context.name))]),
  );
  return { node, update() {} };
}
