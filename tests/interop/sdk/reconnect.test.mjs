/** The way back after the network was gone, against a daemon that remembers few frames. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { DaemonSessionClient, createDaemonSessionViewState, reduceDaemonSessionEvents } from "@qwen-code/sdk/daemon";
import { Seat, allow, ask, connect, workspace } from "./seat.mjs";

const thread = { workspaceCwd: workspace, sessionScope: "thread" };

test("a short cut: the rest is replayed, nothing twice, nothing lost", async () => {
  const a = await Seat.take(connect(), thread);
  await a.follow();
  const { promptId } = await a.session.submitPrompt(ask("run the approval scenario"));
  await a.next("permission_request");
  const seen = a.events.at(-1).id;
  a.wire.cut();
  await a.end();
  // Decided while the client was away, by its own hand from another connection.
  assert.equal(await a.session.respondToSessionPermission(a.events.at(-1).data.requestId, allow), true);
  await a.follow();
  await a.next("permission_resolved");
  const complete = await a.next("turn_complete");
  assert.equal(complete.data.promptId, promptId);
  const again = a.streams().at(-1);
  assert.equal(again.after, String(seen));
  assert.match(again.epoch, /^[0-9a-f-]{36}$/);
  const ids = a.events.map(({ id }) => id).filter((id) => id !== undefined);
  assert.deepEqual(ids, ids.map((_, n) => n + 1));
  const state = reduceDaemonSessionEvents(a.events, createDaemonSessionViewState());
  assert.deepEqual(Object.keys(state.pendingPermissions), []);
  await a.session.close();
});

test("too long away: the client is told, loads, and goes on", async () => {
  const a = await Seat.take(connect(), thread);
  await a.follow();
  await a.session.submitPrompt(ask("echo before"));
  await a.next("turn_complete");
  a.wire.cut();
  await a.end();
  // Somebody else keeps the session busy meanwhile: more frames than the daemon keeps.
  const other = connect();
  const b = new Seat(other, await DaemonSessionClient.resume(other.client, a.session.sessionId, { workspaceCwd: workspace }));
  await b.follow();
  await b.session.submitPrompt(ask("flood scenario n=60 pad=10"));
  await b.next("turn_complete");
  await b.leave();

  await a.follow();
  const resync = await a.next("state_resync_required");
  assert.equal(resync.data.reason, "ring_evicted");
  assert.ok(resync.data.earliestAvailableId > resync.data.lastDeliveredId + 1);
  const latched = reduceDaemonSessionEvents(a.events, createDaemonSessionViewState());
  assert.equal(latched.awaitingResync, true);
  await a.leave();

  const connection = connect();
  const back = new Seat(connection, await DaemonSessionClient.load(connection.client, a.session.sessionId, { workspaceCwd: workspace }));
  assert.ok(back.session.replaySnapshotComplete);
  const { liveJournal } = back.session.replaySnapshot;
  assert.equal(liveJournal.at(-1).type, "turn_complete");
  assert.equal(back.session.lastEventId, liveJournal.at(-1).id);
  await back.follow();
  await back.session.submitPrompt(ask("echo after"));
  assert.equal((await back.next("agent_message_chunk")).data.update.content.text, "echo after");
  await back.next("turn_complete");
  const state = reduceDaemonSessionEvents(back.events, createDaemonSessionViewState());
  assert.equal(state.awaitingResync ?? false, false);
  await back.session.close();
});

test("a daemon's session that is gone stays gone", async () => {
  const a = await Seat.take(connect(), thread);
  await a.follow();
  await a.session.detach();
  await a.leave();
  const again = await DaemonSessionClient.createOrAttach(connect().client, { workspaceCwd: workspace });
  assert.notEqual(again.sessionId, a.session.sessionId);
  await again.close();
});
