import assert from "node:assert/strict";
import { test } from "node:test";
import { changedPart, CONTEXT, diffLines } from "../diff.js";

/** A seeded generator, so that a failure can be repeated. */
function generator(seed) {
  return () => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed / 2 ** 32;
  };
}

function lcs(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let x = a.length - 1; x >= 0; x--)
    for (let y = b.length - 1; y >= 0; y--) table[x][y] = a[x] === b[y] ? table[x + 1][y + 1] + 1 : Math.max(table[x + 1][y], table[x][y + 1]);
  return table[0][0];
}

test("the script is a shortest one, and its rows rebuild both texts", () => {
  const random = generator(7);
  for (let round = 0; round < 1500; round++) {
    const make = () => Array.from({ length: Math.floor(random() * 14) }, () => "abc"[Math.floor(random() * 3)]);
    const [a, b] = [make(), make()];
    const text = (lines) => lines.map((line) => line + "\n").join("");
    const result = diffLines(text(a), text(b));
    const common = lcs(a, b);
    assert.equal(result.removed, a.length - common, `${a}|${b}`);
    assert.equal(result.added, b.length - common);
    for (const { rows } of result.hunks) {
      const old = rows.filter((row) => row.kind !== "add");
      const now = rows.filter((row) => row.kind !== "del");
      for (const row of old) assert.equal(row.text, a[row.oldLine - 1]);
      for (const row of now) assert.equal(row.text, b[row.newLine - 1]);
      for (let at = 1; at < old.length; at++) assert.equal(old[at].oldLine, old[at - 1].oldLine + 1);
      for (let at = 1; at < now.length; at++) assert.equal(now[at].newLine, now[at - 1].newLine + 1);
    }
  }
});

test("distant changes are separate hunks with context; near ones are one", () => {
  const lines = Array.from({ length: 40 }, (_, index) => `line ${index}`);
  const change = (...at) => lines.map((line, index) => (at.includes(index) ? line + "!" : line)).join("\n");
  const far = diffLines(lines.join("\n"), change(5, 30));
  assert.equal(far.hunks.length, 2);
  assert.equal(far.hunks[0].rows.length, 2 + 2 * CONTEXT);
  assert.equal(diffLines(lines.join("\n"), change(5, 5 + 2 * CONTEXT)).hunks.length, 1);
});

test("a new file is all added, an equal one has no hunk", () => {
  assert.deepEqual([diffLines(null, "a\nb\n").added, diffLines(null, "a\nb\n").removed], [2, 0]);
  assert.deepEqual(diffLines("a\n", "a\n"), { hunks: [], added: 0, removed: 0, endings: null });
});

test("changes that lines don't show are named", () => {
  assert.match(diffLines("a\nb\n", "a\r\nb\r\n").endings, /line endings/);
  assert.match(diffLines("a\n", "a").endings, /newline at the end of the file is removed/);
});

test("texts too different for the search are still shown whole", () => {
  const text = (prefix) => Array.from({ length: 3000 }, (_, index) => `${prefix}${index}`).join("\n");
  const result = diffLines(text("a"), text("b"));
  assert.deepEqual([result.added, result.removed], [3000, 3000]);
});

test("the changed part of a line, unless nearly all changed", () => {
  assert.deepEqual(changedPart("let a = 1;", "let a = 22;"), { a: [8, 9], b: [8, 10] });
  assert.equal(changedPart("completely", "different!"), null);
  assert.equal(changedPart("same", "same"), null);
});
