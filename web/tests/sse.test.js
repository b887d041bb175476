import assert from "node:assert/strict";
import { test } from "node:test";
import { createParser, EVENT_CHARS_MAX } from "../sse.js";

function parse(...pieces) {
  const events = [];
  const seen = { events, retries: [], comments: 0 };
  const parser = createParser({ event: (event) => events.push(event), retry: (ms) => seen.retries.push(ms), comment: () => seen.comments++ });
  for (const piece of pieces) parser.push(piece);
  return seen;
}

test("the daemon's first bytes, an event, a heartbeat", () => {
  const seen = parse('retry: 3000\n\nid: 7\nevent: session_update\ndata: {"a":1}\n\n: heartbeat\n\n');
  assert.deepEqual(seen.events, [{ type: "session_update", data: '{"a":1}', lastEventId: "7" }]);
  assert.deepEqual(seen.retries, [3000]);
  assert.equal(seen.comments, 1);
});

test("every way to cut the stream gives the same events, for LF, CR and CRLF", () => {
  for (const end of ["\n", "\r", "\r\n"]) {
    const stream = ["\ufeffid: 1", "data: one", "data:two", "", ": note", "event: x", "data", "data:  lead", "", "data: tail", ""].join(end) + end;
    const whole = parse(stream).events;
    assert.deepEqual(whole, [
      { type: "message", data: "one\ntwo", lastEventId: "1" },
      { type: "x", data: "\n lead", lastEventId: "1" },
      { type: "message", data: "tail", lastEventId: "1" },
    ]);
    for (let cut = 0; cut <= stream.length; cut++) assert.deepEqual(parse(stream.slice(0, cut), stream.slice(cut)).events, whole);
    assert.deepEqual(parse(...stream).events, whole);
  }
});

test("an unfinished event is not given out; an event without data is none", () => {
  assert.deepEqual(parse("data: half\n").events, []);
  assert.deepEqual(parse("event: nothing\nid: 4\n\ndata: x\n\n").events, [{ type: "message", data: "x", lastEventId: "4" }]);
});

test("malformed retry and NUL ids are ignored, unknown fields too", () => {
  const seen = parse("retry: 3s\nid: a\0b\nfoo: bar\ndata: x\n\n");
  assert.deepEqual(seen.retries, []);
  assert.deepEqual(seen.events, [{ type: "message", data: "x", lastEventId: "" }]);
});

test("an endless line or event is given up", () => {
  assert.throws(() => parse("data: " + "x".repeat(EVENT_CHARS_MAX)), /longer than the bound/);
  const line = "data: " + "x".repeat(1 << 20) + "\n";
  assert.throws(() => parse(...Array.from({ length: 17 }, () => line)), /longer than the bound/);
});
