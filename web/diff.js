/**
 * Which lines changed between two texts?
 *
 * Myers' O(ND) algorithm on lines (E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986), cut into
 * hunks with context, as in a unified diff. Pure.
 */

/** Lines around a change. The custom of `diff -u`. */
export const CONTEXT = 3;
/**
 * Edit distance up to which the shortest script is searched; its trace needs D² integers (16 MB at 2000). Beyond, the
 * differing middle is shown as removed and added whole: still true, only longer.
 */
export const DISTANCE_MAX = 2000;

/**
 * @typedef {object} Row
 * @property {"same" | "add" | "del"} kind
 * @property {number | null} oldLine From 1.
 * @property {number | null} newLine From 1.
 * @property {string} text Without its line ending.
 */

/** @typedef {{ rows: Row[] }} Hunk */
/** @typedef {{ hunks: Hunk[], added: number, removed: number, endings: string | null }} LineDiff */

/**
 * @param {string | null} oldText null for a new file.
 * @param {string} newText
 * @returns {LineDiff}
 */
export function diffLines(oldText, newText) {
  const before = lines(oldText ?? "");
  const after = lines(newText);
  const rows = script(before, after);
  return {
    hunks: cut(rows),
    added: rows.filter((row) => row.kind === "add").length,
    removed: rows.filter((row) => row.kind === "del").length,
    endings: oldText === null ? null : endingsNote(oldText, newText),
  };
}

/**
 * The part of two lines that differs, as [start, end) in each; used to mark words within a changed line.
 * @param {string} a
 * @param {string} b
 * @returns {{ a: [number, number], b: [number, number] } | null} null if nearly everything differs: a mark would only be noise.
 */
export function changedPart(a, b) {
  let start = 0;
  const shorter = Math.min(a.length, b.length);
  while (start < shorter && a[start] === b[start]) start++;
  let end = 0;
  while (end < shorter - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  if ((start + end) * 3 < shorter || a === b) return null;
  return { a: [start, a.length - end], b: [start, b.length - end] };
}

/** @param {string} text */
function lines(text) {
  if (text === "") return [];
  const parts = text.split(/\r\n|\n/);
  if (parts.at(-1) === "") parts.pop();
  return parts;
}

/** Changes that lines without their endings would hide. @param {string} oldText @param {string} newText */
function endingsNote(oldText, newText) {
  if (oldText === "" || newText === "") return null;
  const notes = [];
  if (oldText.includes("\r\n") !== newText.includes("\r\n")) notes.push("line endings change");
  if (oldText.endsWith("\n") !== newText.endsWith("\n")) {
    notes.push(newText.endsWith("\n") ? "a newline is added at the end of the file" : "the newline at the end of the file is removed");
  }
  return notes.length > 0 ? notes.join("; ") : null;
}

/** @param {string[]} a @param {string[]} b @returns {Row[]} */
function script(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;

  /** @type {Row[]} */
  const rows = [];
  let oldLine = 1;
  let newLine = 1;
  const same = (/** @type {string} */ text) => rows.push({ kind: "same", oldLine: oldLine++, newLine: newLine++, text });
  const del = (/** @type {string} */ text) => rows.push({ kind: "del", oldLine: oldLine++, newLine: null, text });
  const add = (/** @type {string} */ text) => rows.push({ kind: "add", oldLine: null, newLine: newLine++, text });

  a.slice(0, head).forEach(same);
  const midA = a.slice(head, a.length - tail);
  const midB = b.slice(head, b.length - tail);
  for (const step of myers(midA, midB)) {
    if (step.kind === "same") same(step.text);
    else if (step.kind === "del") del(step.text);
    else add(step.text);
  }
  a.slice(a.length - tail).forEach(same);
  return rows;
}

/** @param {string[]} a @param {string[]} b @returns {{ kind: "same" | "del" | "add", text: string }[]} */
function myers(a, b) {
  const whole = () => [
    ...a.map((text) => ({ kind: /** @type {const} */ ("del"), text })),
    ...b.map((text) => ({ kind: /** @type {const} */ ("add"), text })),
  ];
  if (a.length === 0 || b.length === 0) return whole();
  const max = Math.min(a.length + b.length, DISTANCE_MAX);
  /** The furthest x on each diagonal k, per distance d. @type {Int32Array[]} */
  const trace = [];
  let furthest = new Int32Array(3);
  for (let d = 0; d <= max; d++) {
    // Diagonals −d−1 … d+1, stored from 0.
    const next = new Int32Array(2 * d + 3);
    for (let k = -d; k <= d; k += 2) {
      const down = furthest[k + 1 + d] ?? 0;
      const right = furthest[k - 1 + d] ?? 0;
      let x = d === 0 ? 0 : k === -d || (k !== d && right < down) ? down : right + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x++;
        y++;
      }
      next[k + d + 1] = x;
      if (x >= a.length && y >= b.length) {
        trace.push(next);
        return walkBack(a, b, trace);
      }
    }
    trace.push(next);
    furthest = next;
  }
  return whole();
}

/** @param {string[]} a @param {string[]} b @param {Int32Array[]} trace */
function walkBack(a, b, trace) {
  /** @type {{ kind: "same" | "del" | "add", text: string }[]} */
  const steps = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d > 0; d--) {
    const before = trace[d - 1] ?? new Int32Array(0);
    const k = x - y;
    const at = (/** @type {number} */ diagonal) => before[diagonal + d] ?? 0;
    const down = k === -d || (k !== d && at(k - 1) < at(k + 1));
    const fromK = down ? k + 1 : k - 1;
    const fromX = at(fromK);
    const startX = down ? fromX : fromX + 1;
    while (x > startX) {
      steps.push({ kind: "same", text: a[--x] ?? "" });
      y--;
    }
    if (down) steps.push({ kind: "add", text: b[--y] ?? "" });
    else steps.push({ kind: "del", text: a[--x] ?? "" });
  }
  while (x > 0 && y > 0) {
    steps.push({ kind: "same", text: a[--x] ?? "" });
    y--;
  }
  return steps.reverse();
}

/** @param {Row[]} rows @returns {Hunk[]} */
function cut(rows) {
  /** @type {Hunk[]} */
  const hunks = [];
  let open = -1;
  let lastChange = -1;
  rows.forEach((row, index) => {
    if (row.kind === "same") return;
    if (open < 0 || index - lastChange > 2 * CONTEXT + 1) {
      if (open >= 0) hunks.push({ rows: rows.slice(open, lastChange + CONTEXT + 1) });
      open = Math.max(0, index - CONTEXT);
    }
    lastChange = index;
  });
  if (open >= 0) hunks.push({ rows: rows.slice(open, lastChange + CONTEXT + 1) });
  return hunks;
}
