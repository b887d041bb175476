/** How does one tool call look, from its first word to its result? */

import { commandOf } from "../content.js";
import { withoutAnsi } from "../visible.js";
import { diffView } from "./diff.js";
import { h, setText } from "./dom.js";
import { icon, toolIcon } from "./icons.js";
import { copyButton } from "./message.js";
import { commandBlock, exact, jsonBlock } from "./plain.js";

/** @typedef {import("../types").ToolEntry} ToolEntry */
/** @typedef {import("../types").ToolFacts} ToolFacts */
/** @typedef {import("./conversation.js").View} View */

/** @param {ToolEntry} entry */
function stateOf(entry) {
  if (entry.waitingFor !== null) return { name: "waiting", text: "Waiting for an answer" };
  switch (entry.status) {
    case "completed":
      return { name: "done", text: "Done" };
    case "failed":
      if (entry.denied) return { name: "denied", text: "Denied" };
      return { name: "failed", text: "Failed" };
    case "in_progress":
      return { name: "running", text: "Running" };
    default:
      return { name: "pending", text: "Preparing" };
  }
}

/** One line that says what the call does. @param {ToolFacts} tool */
export function headline(tool) {
  const command = commandOf(tool);
  if (command !== null) return command.split("\n")[0] ?? "";
  return tool.title || tool.locations[0] || tool.toolName || "Tool";
}

/** @param {ToolEntry} first @returns {View} */
export function toolView(first) {
  const title = h("span", { class: "tool-title" });
  const mark = h("span", { class: "tool-mark" });
  const picture = h("span", { class: "tool-icon" });
  const state = h("span", { class: "tool-state" });
  const exit = h("span", { class: "tool-exit" });
  const toggle = h(
    "button",
    { type: "button", class: "tool-head", "aria-expanded": "false", onclick: () => show(!opened) },
    picture,
    title,
    exit,
    state,
    mark,
  );
  const body = h("div", { class: "tool-body", hidden: true });
  const node = h("section", { class: "entry tool", "data-call": first.toolCallId }, toggle, body);

  let chosen = false;
  let opened = false;
  let current = first;
  let stale = true;

  function show(/** @type {boolean} */ open) {
    chosen = true;
    expand(open);
  }

  function expand(/** @type {boolean} */ open) {
    opened = open;
    body.hidden = !open;
    toggle.setAttribute("aria-expanded", String(open));
    if (open && stale) {
      stale = false;
      body.replaceChildren(...details(current));
    }
  }

  const update = (/** @type {import("../types").Entry} */ entry) => {
    if (entry.kind !== "tool") return;
    if (entry.toolKind !== current.toolKind || entry === first) picture.replaceChildren(toolIcon(entry.toolKind));
    current = entry;
    stale = true;
    const is = stateOf(entry);
    node.dataset.state = is.name;
    node.classList.toggle("is-command", commandOf(entry) !== null);
    title.replaceChildren(...exact(headline(entry)));
    setText(state, is.text);
    mark.replaceChildren(is.name === "running" || is.name === "pending" ? h("span", { class: "spinner" }) : icon(MARKS[is.name] ?? "clock"));
    const code = exitCode(entry);
    setText(exit, code === null || code === 0 ? "" : `exit ${code}`);
    toggle.setAttribute("aria-label", `${entry.toolName || entry.toolKind}: ${headline(entry)}, ${is.text}`);
    // Results worth a look open by themselves; a person's own choice stays.
    const output = entry.texts.length > 0 && ["done", "failed"].includes(is.name) && ["execute", "other"].includes(entry.toolKind);
    expand(chosen ? opened : is.name !== "waiting" && is.name !== "denied" && (entry.diffs.length > 0 || is.name === "failed" || output));
  };
  update(first);
  return { node, update };
}

/** @type {Record<string, string>} */
const MARKS = { done: "check", failed: "cross", denied: "cross", waiting: "shield" };

/** @param {ToolFacts} tool */
function exitCode(tool) {
  const raw = tool.rawOutput;
  const code = typeof raw === "object" && raw !== null && "exitCode" in raw ? raw.exitCode : null;
  return typeof code === "number" ? code : null;
}

/** @param {ToolFacts} tool @returns {Node[]} */
function details(tool) {
  const command = commandOf(tool);
  const output = withoutAnsi(tool.texts.join("\n"));
  /** @type {Node[]} */
  const nodes = [];
  if (command?.includes("\n")) nodes.push(commandBlock(command));
  for (const diff of tool.diffs) nodes.push(diffView(diff));
  if (output !== "") {
    nodes.push(
      h("div", { class: "output" }, h("pre", { tabindex: 0, "aria-label": "Output" }, output), copyButton(() => output)),
    );
  }
  if (tool.rawInput && command === null && tool.diffs.length === 0) {
    nodes.push(h("details", { class: "arguments" }, h("summary", {}, "Arguments"), jsonBlock(tool.rawInput)));
  }
  if (tool.locations.length > 0 && tool.diffs.length === 0) {
    nodes.push(h("p", { class: "locations" }, ...exact(tool.locations.join("  "))));
  }
  if (nodes.length === 0) nodes.push(h("p", { class: "empty" }, "Nothing to show yet."));
  return nodes;
}
