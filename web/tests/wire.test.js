import assert from "node:assert/strict";
import { test } from "node:test";
import { createWire, WireError } from "../wire.js";

function recording(status, body, headers = {}) {
  const calls = [];
  const fetch = async (url, init) => {
    calls.push({ url, ...init });
    return new Response(status === 204 ? null : body, { status, headers });
  };
  return { calls, fetch };
}

test("requests carry the token in the header and nowhere else, and the window's id once it has one", async () => {
  const { calls, fetch } = recording(200, "{}");
  const wire = createWire({ token: "s3cret", fetch });
  await wire.create({});
  wire.clientId = "client_1";
  await wire.vote("a/b", "r?1", "proceed_once");
  await wire.events("s", { lastEventId: 4, epoch: "e", reason: "stream_end", signal: new AbortController().signal });
  assert.equal(calls[0].headers.Authorization, "Bearer s3cret");
  assert.equal(calls[0].headers["X-Qwen-Client-Id"], undefined);
  assert.equal(calls[1].url, "/session/a%2Fb/permission/r%3F1");
  assert.deepEqual(JSON.parse(calls[1].body), { outcome: { outcome: "selected", optionId: "proceed_once" } });
  assert.equal(calls[1].headers["X-Qwen-Client-Id"], "client_1");
  assert.equal(calls[2].headers["Last-Event-ID"], "4");
  assert.equal(calls[2].headers["X-Qwen-Event-Epoch"], "e");
  for (const call of calls) assert.ok(!call.url.includes("s3cret") && !String(call.body ?? "").includes("s3cret"));
});

test("a withdrawn vote has the cancelled shape", async () => {
  const { calls, fetch } = recording(200, "{}");
  await createWire({ token: null, fetch }).vote("s", "r", null);
  assert.deepEqual(JSON.parse(calls[0].body), { outcome: { outcome: "cancelled" } });
  assert.equal(calls[0].headers.Authorization, undefined);
});

test("refusals become errors with code and delay; HTML 404 has no code", async () => {
  const full = createWire({ token: null, fetch: recording(503, '{"error":"full","code":"prompt_queue_full"}', { "Retry-After": "5" }).fetch });
  await assert.rejects(full.prompt("s", "x"), (error) => error instanceof WireError && error.status === 503 && error.code === "prompt_queue_full" && error.retryAfterMs === 5000);
  const html = createWire({ token: null, fetch: recording(404, "<!DOCTYPE html>Cannot GET").fetch });
  await assert.rejects(html.sessions("/w"), (error) => error.status === 404 && error.code === null && error.message === "HTTP 404");
});

test("204 is an empty answer; a list that is none is empty", async () => {
  assert.deepEqual(await createWire({ token: null, fetch: recording(204, "").fetch }).cancel("s"), {});
  assert.deepEqual(await createWire({ token: null, fetch: recording(200, "{}").fetch }).sessions("/w"), []);
});
