/** How is text shown that a person decides by? Word for word, with what would be invisible spelled out. */

import { spellOut } from "../visible.js";
import { h } from "./dom.js";

/** @param {string} text @returns {(Node | string)[]} */
export function exact(text) {
  return spellOut(text).map((piece) =>
    piece.hidden ? h("span", { class: "hidden-char", title: "a character that would not be visible" }, piece.text) : piece.text,
  );
}

/** A command as it would be given to the shell. @param {string} command */
export function commandBlock(command) {
  const lines = command.split("\n").length;
  return h(
    "div",
    { class: "command" },
    h("pre", { class: "command-text", tabindex: lines > 8 ? 0 : null }, h("code", {}, ...exact(command))),
  );
}

/** @param {unknown} value */
export function jsonBlock(value) {
  return h("pre", { class: "json" }, h("code", {}, ...exact(JSON.stringify(value, null, 2) ?? "")));
}
