/** How does a change look? A unified diff with the line numbers of both sides. */

import { changedPart, diffLines } from "../diff.js";
import { h } from "./dom.js";
import { exact } from "./plain.js";

/** @typedef {import("../diff.js").Row} Row */

/** Rows drawn at once; the rest comes with a button, so that a generated file of 100 000 lines doesn't stop the page. */
const ROWS_MAX = 1200;

/** @param {import("../types").Diff} diff */
export function diffView(diff) {
  const { hunks, added, removed, endings } = diffLines(diff.oldText, diff.newText);
  const total = hunks.reduce((sum, hunk) => sum + hunk.rows.length, 0);
  const body = h("tbody");
  const rows = drawRows(hunks);
  /** @param {number} count */
  const draw = (count) => {
    for (let drawn = 0; drawn < count; drawn++) {
      const next = rows.next();
      if (next.done) return;
      body.append(next.value);
    }
  };
  draw(ROWS_MAX);
  const figure = h(
    "figure",
    { class: "diff", "data-added": added, "data-removed": removed },
    h(
      "figcaption",
      { class: "diff-head" },
      h("span", { class: "diff-path" }, ...exact(diff.path)),
      diff.oldText === null && h("span", { class: "chip" }, "new file"),
      h("span", { class: "diff-count" }, h("span", { class: "plus" }, `+${added}`), " ", h("span", { class: "minus" }, `−${removed}`)),
    ),
    h(
      "div",
      { class: "diff-body", tabindex: 0, role: "region", "aria-label": `Changes to ${diff.path}` },
      h("table", {}, h("caption", { class: "visually-hidden" }, `${added} lines added, ${removed} removed`), body),
    ),
    endings && h("p", { class: "diff-note" }, endings),
    total === 0 && !endings && h("p", { class: "diff-note" }, "No line differs."),
  );
  if (total > ROWS_MAX) {
    const more = h("button", { type: "button", class: "quiet", onclick: () => (draw(total), more.remove()) }, `Show all ${total} lines`);
    figure.append(more);
  }
  return figure;
}

/** @param {import("../diff.js").Hunk[]} hunks @returns {Generator<HTMLTableRowElement, void>} */
function* drawRows(hunks) {
  for (const [at, hunk] of hunks.entries()) {
    if (at > 0) yield h("tr", { class: "gap" }, h("td", { colspan: 4 }, "⋯"));
    const { rows } = hunk;
    for (let index = 0; index < rows.length; index++) {
      const row = rows[index];
      if (!row) continue;
      yield draw(row, partner(rows, index));
    }
  }
}

/**
 * The line that a removed or added line became or came from: the one at the same place in the neighbouring block of the
 * other kind, if both blocks are equally long.
 * @param {Row[]} rows @param {number} index @returns {Row | null}
 */
function partner(rows, index) {
  const kind = rows[index]?.kind;
  if (kind !== "add" && kind !== "del") return null;
  let start = index;
  while (rows[start - 1]?.kind === kind) start--;
  let end = index;
  while (rows[end + 1]?.kind === kind) end++;
  const length = end - start + 1;
  const from = kind === "del" ? end + 1 : start - length;
  const other = kind === "del" ? "add" : "del";
  for (let at = from; at < from + length; at++) if (rows[at]?.kind !== other) return null;
  if (rows[kind === "del" ? from + length : from - 1]?.kind === other) return null;
  return rows[from + index - start] ?? null;
}

/** @param {Row} row @param {Row | null} other */
function draw(row, other) {
  const sign = row.kind === "add" ? "+" : row.kind === "del" ? "−" : " ";
  return h(
    "tr",
    { class: row.kind },
    h("td", { class: "no" }, row.oldLine === null ? "" : String(row.oldLine)),
    h("td", { class: "no" }, row.newLine === null ? "" : String(row.newLine)),
    h("td", { class: "sign" }, sign),
    h("td", { class: "line" }, h("code", {}, ...marked(row, other))),
  );
}

/** @param {Row} row @param {Row | null} other */
function marked(row, other) {
  if (!other) return exact(row.text);
  const part = row.kind === "del" ? changedPart(row.text, other.text)?.a : changedPart(other.text, row.text)?.b;
  if (!part || part[0] === part[1]) return exact(row.text);
  return [
    ...exact(row.text.slice(0, part[0])),
    h("mark", {}, ...exact(row.text.slice(part[0], part[1]))),
    ...exact(row.text.slice(part[1])),
  ];
}
