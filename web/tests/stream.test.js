import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFrame, subscribe } from "../stream.js";

const frame = (id, type = "session_update", data = {}) => `${id === null ? "" : `id: ${id}\n`}data: ${JSON.stringify({ ...(id === null ? {} : { id }), v: 1, type, data })}\n\n`;

/** A daemon of prepared connections: each is a list of texts, then the end of the stream, an error, or silence. */
function harness(connections, options = {}) {
  const log = { opened: [], frames: [], rebuilds: [], states: [] };
  let stop = () => {};
  const subscription = subscribe({
    random: () => 0,
    now: () => 0,
    ...options,
    connect: async ({ lastEventId, epoch, reason, signal }) => {
      log.opened.push({ lastEventId, epoch, reason });
      const next = connections.shift();
      if (!next) {
        stop();
        return new Response(null, { status: 404 });
      }
      if (next instanceof Error) throw next;
      if (typeof next === "number") return new Response("{}", { status: next, headers: { "Retry-After": "0" } });
      const { epoch: served = "e1", pieces, hang = false } = next;
      const body = new ReadableStream({
        start(controller) {
          for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
          if (!hang) controller.close();
          signal.addEventListener("abort", () => {
            try {
              controller.error(new Error("aborted"));
            } catch {
              // Closed already.
            }
          });
        },
      });
      return new Response(body, { status: 200, headers: { "X-Qwen-Event-Epoch": served } });
    },
    onFrame: (next) => log.frames.push(next.id ?? next.type),
    onRebuild: (truncated) => log.rebuilds.push(truncated),
    onConnection: (connection) => {
      log.states.push(connection.state);
      // No test waits for a delay.
      if (connection.state === "waiting") queueMicrotask(() => subscription.nudge());
    },
  });
  stop = () => subscription.close();
  return { log, subscription, finished: subscription.finished };
}

test("the first connection asks for everything and ends with the session", async () => {
  const { log, finished } = harness([{ pieces: [frame(1), frame(2), frame(3, "session_closed")] }]);
  await finished;
  assert.deepEqual(log.opened, [{ lastEventId: 0, epoch: null, reason: "initial" }]);
  assert.deepEqual(log.frames, [1, 2, 3]);
  assert.deepEqual(log.rebuilds, [false]);
  assert.equal(log.states.at(-1), "ended");
});

test("a dropped stream goes on from the last id, with its epoch; repeated frames are dropped", async () => {
  const { log, finished } = harness([
    { pieces: [frame(1), frame(2)] },
    new Error("network"),
    { pieces: [frame(2), frame(3), frame(null, "replay_complete"), frame(4, "session_died")] },
  ]);
  await finished;
  assert.deepEqual(log.opened.map(({ lastEventId, epoch }) => [lastEventId, epoch]), [[0, null], [2, "e1"], [2, "e1"]]);
  assert.deepEqual(log.opened.map(({ reason }) => reason), ["initial", "stream_end", "transport_error"]);
  assert.deepEqual(log.frames, [1, 2, 3, "replay_complete", 4]);
  assert.deepEqual(log.rebuilds, [false]);
});

test("a resync after a gap starts again from nothing, once", async () => {
  const { log, finished } = harness([
    { pieces: [frame(5)] },
    { pieces: [frame(null, "state_resync_required", { reason: "ring_evicted" }), frame(90)] },
    { pieces: [frame(null, "state_resync_required", { reason: "ring_evicted" }), frame(90), frame(91, "session_closed")] },
  ]);
  await finished;
  assert.deepEqual(log.opened.map(({ lastEventId }) => lastEventId), [0, 5, 0]);
  assert.deepEqual(log.frames, [5, 90, 91]);
  assert.deepEqual(log.rebuilds, [false, false, true]);
});

test("another epoch in the answer means another life: from nothing", async () => {
  const { log, finished } = harness([
    { pieces: [frame(7)], epoch: "e1" },
    { pieces: [frame(8)], epoch: "e2" },
    { pieces: [frame(1), frame(2, "session_closed")], epoch: "e2" },
  ]);
  await finished;
  assert.deepEqual(log.opened.map(({ lastEventId, epoch }) => [lastEventId, epoch]), [[0, null], [7, "e1"], [0, null]]);
  assert.deepEqual(log.frames, [7, 1, 2]);
});

test("a cut replay is fetched further; without progress it waits", async () => {
  const cut = frame(null, "state_resync_required", { reason: "replay_budget_exceeded" });
  const { log, finished } = harness([
    { pieces: [frame(1), frame(2), cut] },
    { pieces: [cut] },
    { pieces: [frame(3, "session_closed")] },
  ]);
  await finished;
  assert.deepEqual(log.opened.map(({ lastEventId }) => lastEventId), [0, 2, 2]);
  assert.deepEqual(log.rebuilds, [false]);
  assert.equal(log.states.filter((state) => state === "waiting").length, 1);
});

test("eviction is told and answered by coming back", async () => {
  const { log, finished } = harness([
    { pieces: [frame(1), frame(null, "client_evicted", { reason: "queue_overflow" })], hang: true },
    { pieces: [frame(2, "session_closed")] },
  ]);
  await finished;
  assert.deepEqual(log.frames, [1, "client_evicted", 2]);
  assert.deepEqual(log.opened.map(({ lastEventId }) => lastEventId), [0, 1]);
});

test("refusals: 429 and 503 are waited for, 401 and 404 are final", async () => {
  for (const [status, state] of [[401, "unauthorized"], [404, "gone"]]) {
    const { log, finished } = harness([429, 503, status]);
    await finished;
    assert.equal(log.opened.length, 3);
    assert.equal(log.states.at(-1), state);
  }
});

test("a silent connection is given up", async () => {
  const { log, finished } = harness([{ pieces: [frame(1)], hang: true }, { pieces: [frame(2, "session_closed")] }], { silenceMs: 5 });
  await finished;
  assert.deepEqual(log.frames, [1, 2]);
  assert.equal(log.opened[1].reason, "transport_error");
});

test("closing stops for good", async () => {
  const { log, subscription, finished } = harness([{ pieces: [], hang: true }]);
  subscription.close();
  await finished;
  assert.equal(log.opened.length, 1);
});

test("what is no frame is none", () => {
  for (const text of ["", "null", "[]", "{}", '{"type":3}', "{"]) assert.equal(parseFrame(text), null);
  assert.deepEqual(parseFrame('{"type":"x","data":null}'), { type: "x", data: {} });
});
