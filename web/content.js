/**
 * What do ACP's content blocks and tool calls say?
 *
 * Reads the parts of the relayed ACP JSON that the page shows. Everything is optional on that wire and comes from an
 * agent, so that each field is checked and an unknown block is left out. Pure.
 */

/** @typedef {import("./types").Json} Json */
/** @typedef {import("./types").ToolFacts} ToolFacts */
/** @typedef {import("./types").Diff} Diff */

/** Output kept per tool call, in UTF-16 units. Beyond the daemon's own cut of tool output (40 000), in case it has none. */
export const OUTPUT_CHARS_MAX = 200_000;

/** Only formats that a browser draws without running anything; an SVG may hold scripts. */
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** @param {unknown} value @returns {value is Json} */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** The text of a content block, or the empty string. @param {unknown} block */
export function textOf(block) {
  if (!isObject(block)) return "";
  if (block.type === "text") return String(block.text ?? "");
  if (block.type === "resource" && isObject(block.resource) && typeof block.resource.text === "string") {
    return block.resource.text;
  }
  return "";
}

/** A picture or a link to a resource. @param {unknown} block @returns {import("./types").Attachment | null} */
export function attachmentOf(block) {
  if (!isObject(block)) return null;
  if (block.type === "image" && IMAGE_TYPES.includes(block.mimeType) && /^[A-Za-z0-9+/=\s]+$/.test(String(block.data))) {
    return { kind: "image", value: `data:${block.mimeType};base64,${block.data}`, label: "image from the conversation" };
  }
  if (block.type === "resource_link") {
    return { kind: "link", value: String(block.uri ?? ""), label: String(block.name ?? block.uri ?? "resource") };
  }
  return null;
}

/**
 * The facts in a `tool_call` or in the `toolCall` of a permission request.
 * @param {string} toolCallId
 * @param {Json} call
 * @returns {ToolFacts}
 */
export function toolFacts(toolCallId, call) {
  /** @type {ToolFacts} */
  const nothing = {
    toolCallId,
    title: "",
    toolKind: "other",
    toolName: "",
    status: "pending",
    rawInput: null,
    rawOutput: undefined,
    texts: [],
    diffs: [],
    locations: [],
  };
  return mergeTool(nothing, call);
}

/**
 * Later facts over earlier ones. As in ACP, what is absent stays and a list replaces the list; but a diff once shown is
 * kept, because agents replace it by a line of text when the edit is done.
 * @param {ToolFacts} known
 * @param {Json} update
 * @returns {ToolFacts}
 */
export function mergeTool(known, update) {
  const meta = isObject(update._meta) ? update._meta : {};
  const texts = contentTexts(update.content);
  const diffs = contentDiffs(update.content);
  return {
    toolCallId: known.toolCallId,
    title: filled(update.title) ?? known.title,
    toolKind: filled(update.kind) ?? known.toolKind,
    toolName: filled(meta.toolName) ?? known.toolName,
    status: filled(update.status) ?? known.status,
    rawInput: isObject(update.rawInput) && Object.keys(update.rawInput).length > 0 ? update.rawInput : known.rawInput,
    rawOutput: update.rawOutput ?? known.rawOutput,
    texts: Array.isArray(update.content) ? texts : known.texts,
    diffs: diffs.length > 0 ? diffs : known.diffs,
    locations: Array.isArray(update.locations) && update.locations.length > 0 ? paths(update.locations) : known.locations,
  };
}

/** The command of a shell call, word for word, or null. @param {ToolFacts} tool */
export function commandOf(tool) {
  const command = tool.rawInput?.command ?? tool.rawInput?.cmd;
  if (typeof command === "string") return command;
  if (Array.isArray(command) && command.every((word) => typeof word === "string")) return command.join(" ");
  return null;
}

/** @param {unknown} content @returns {string[]} */
function contentTexts(content) {
  const texts = [];
  let left = OUTPUT_CHARS_MAX;
  for (const item of Array.isArray(content) ? content : []) {
    const piece = isObject(item) && item.type === "content" ? textOf(item.content) : "";
    if (piece === "" || left <= 0) continue;
    texts.push(piece.slice(0, left));
    left -= piece.length;
  }
  return texts;
}

/** @param {unknown} content @returns {Diff[]} */
function contentDiffs(content) {
  return (Array.isArray(content) ? content : [])
    .filter((item) => isObject(item) && item.type === "diff")
    .map((item) => ({
      path: String(item.path ?? ""),
      oldText: typeof item.oldText === "string" ? item.oldText : null,
      newText: String(item.newText ?? ""),
    }));
}

/** @param {unknown[]} locations */
function paths(locations) {
  return locations
    .filter(isObject)
    .map((location) => String(location.path ?? "") + (typeof location.line === "number" ? `:${location.line}` : ""))
    .filter((path) => path !== "");
}

/** @param {unknown} value */
const filled = (value) => (typeof value === "string" && value !== "" ? value : undefined);
