import assert from "node:assert/strict";
import { test } from "node:test";
import { backoff, FIRST_MS, LONGEST_MS } from "../backoff.js";
import { Marked } from "../vendor/marked/marked.esm.js";
import { spellOut, withoutAnsi } from "../visible.js";
import { clientName, connectionText, noteText, refusal, timeLeft, verdict, whoDecides } from "../wording.js";

const shown = (text) => spellOut(text).map((piece) => (piece.hidden ? `[${piece.text}]` : piece.text)).join("");

test("what a reader would not see is spelled out, the rest is untouched", () => {
  assert.equal(shown("rm -rf ./a\u202e # b"), "rm -rf ./a[U+202E] # b");
  assert.equal(shown("a\u200bb\u00a0c\u{e0041}d\u0007\rx"), "a[U+200B]b[U+00A0]c[U+E0041]d[U+0007][U+000D]x");
  const plain = "ls\t-l\n# größe 日本 ✔️ 🎉";
  assert.deepEqual(spellOut(plain), [{ text: plain, hidden: false }]);
  assert.deepEqual(spellOut(""), [{ text: "", hidden: false }]);
});

test("terminal colours and titles are taken out of output", () => {
  assert.equal(withoutAnsi("\u001b[1;32mok\u001b[0m \u001b]0;title\u0007done"), "ok done");
});

test("delays grow, are capped and jittered between half and whole", () => {
  assert.equal(backoff(0, 0), FIRST_MS / 2);
  assert.equal(backoff(0, 0.999999), FIRST_MS);
  assert.equal(backoff(99, 0), LONGEST_MS / 2);
  for (let attempt = 1; attempt < 20; attempt++) assert.ok(backoff(attempt, 0.5) >= backoff(attempt - 1, 0.5));
});

test("the parser accounts for every character: the incremental view relies on it", () => {
  const marked = new Marked({ gfm: true });
  const samples = ["# a\n\ntext\n\n- x\n- y\n\n\n```rust\nfn\n", "| a |\n|-|\n| 1 |\n\n> q\n> r\n\nend", "[a]: http://x\n\n[a]\n\n1. x\n\n   y\n", "<div>\n\nx\n</div>\n\n\ttab\n"];
  for (const sample of samples) {
    for (let cut = 0; cut <= sample.length; cut++) {
      const part = sample.slice(0, cut);
      assert.equal(marked.lexer(part).map((token) => token.raw).join("").trimEnd(), part.trimEnd());
    }
  }
});

const request = (over) => ({ kind: "permission", options: [{ optionId: "yes", name: "Yes", kind: "allow_once" }, { optionId: "no", name: "No", kind: "reject_once" }], outcome: null, tally: null, ...over });
const name = (id) => clientName(id, new Set(["client_me"]));

test("clients have short names", () => {
  assert.equal(name("client_me"), "this window");
  assert.equal(name("client_c663ecf1-3971-4b1f-b1a0-73a4fa8fcfae"), "window c663");
  assert.equal(name(undefined), "an unnamed client");
});

test("verdicts say who and what", () => {
  assert.equal(verdict(request({ outcome: { optionId: "yes" }, voter: "client_abcd" }), name), "Allowed by window abcd");
  assert.equal(verdict(request({ outcome: { optionId: "no" }, voter: "client_me" }), name), "Denied by this window");
  assert.equal(verdict(request({ outcome: { optionId: "yes" } }), name), "Allowed by a client without a name");
  assert.match(verdict(request({ outcome: { optionId: null }, cause: "timeout" }), name), /in time/);
  assert.match(verdict(request({ outcome: { optionId: null }, cause: "turn-cancelled" }), name), /turn was cancelled/);
});

test("policies, refusals, notes, connection and time", () => {
  assert.equal(whoDecides("designated", request({ originator: "client_abcd" }), name), "only window abcd can answer");
  assert.equal(whoDecides("designated", request({}), name), "first answer wins");
  assert.equal(whoDecides("unheard-of", request({}), name), null);
  assert.match(refusal("remote_not_allowed"), /own machine/);
  assert.equal(refusal("something_new"), "something_new");
  assert.equal(noteText({ what: "cancelled", by: "client_abcd" }, name), "Turn cancelled by window abcd");
  assert.equal(connectionText({ state: "waiting", retryAt: 2500, reason: "" }, 1000), "Reconnecting in 2 s");
  assert.equal(timeLeft(61_000), "1 min 1 s left");
  assert.equal(timeLeft(-5), "0 s left");
});
