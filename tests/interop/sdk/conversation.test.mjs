/**
 * The conversation that was recorded with the peer, held again with our daemon under the policy in CONVOKE_POLICY: the
 * SDK gets what it expects at each step, and at the end every call and status is that of the recording.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  DaemonHttpError,
  DaemonSessionClient,
  asKnownDaemonEvent,
  createDaemonSessionViewState,
  reduceDaemonSessionEvents,
} from "@qwen-code/sdk/daemon";
import { Seat, allow, ask, cancelled, connect, failure, kind, policy, workspace } from "./seat.mjs";
import { assertAsRecorded } from "./wire.mjs";

/** Tags without which the SDK, or the page that is made with it, refuses to try. */
const TAGS = [
  "health", "capabilities", "session_create", "session_list", "session_prompt", "session_cancel", "session_events",
  "session_load", "session_resume", "session_close", "session_metadata", "session_permission_vote", "permission_vote",
  "permission_mediation", "client_identity", "client_heartbeat", "session_context", "session_supported_commands",
  "session_set_model", "session_source_metadata", "non_blocking_prompt",
];

test(`the recorded conversation, ${policy}`, async (t) => {
  const connection = connect();
  const { client, wire } = connection;

  assert.deepEqual(await client.health(), { status: "ok" });
  const about = await client.capabilities();
  assert.deepEqual([about.v, about.mode, about.workspaceCwd, about.policy.permission], [1, "http-bridge", workspace, policy]);
  assert.deepEqual(TAGS.filter((tag) => !about.features.includes(tag)), []);

  const a = await Seat.take(connection);
  const b = await Seat.take(connection);
  assert.deepEqual([a.session.attached, b.session.attached], [false, true]);
  assert.equal(a.session.sessionId, b.session.sessionId);
  assert.match(a.id, /^client_[0-9a-f-]{36}$/);
  assert.notEqual(a.id, b.id);
  await a.follow();
  await b.follow();

  await t.test("a question reaches both, and one answer decides", async () => {
    const { answer, request, requestId } = await a.question();
    const seen = await b.next("permission_request");
    assert.deepEqual(seen, request);
    assert.equal(request.originatorClientId, a.id);
    assert.equal(request.data.sessionId, a.session.sessionId);
    assert.deepEqual(Object.keys(request.data.options[0]).sort(), ["kind", "name", "optionId"]);
    assert.equal(asKnownDaemonEvent(request)?.type, "permission_request");
    assert.deepEqual([typeof request.id, request.v, typeof request._meta.serverTimestamp], ["number", 1, "number"]);

    const status = await a.session.status();
    assert.deepEqual([status.hasActivePrompt, status.isWaitingForPermission, status.pendingInteractionCount], [true, true, 1]);

    for (const optionId of ["definitely-not-an-option", "__cancelled__"]) {
      const refusal = await failure(b.session.respondToSessionPermission(requestId, { outcome: { outcome: "selected", optionId } }));
      assert.ok(refusal instanceof DaemonHttpError);
      assert.deepEqual([refusal.status, refusal.body.code], [400, "invalid_option_id"]);
    }
    assert.equal(await b.session.respondToSessionPermission("no-such-request", allow), false);

    const winner = policy === "designated" ? a : b;
    if (policy === "designated") {
      const refusal = await failure(b.session.respondToSessionPermission(requestId, allow));
      assert.deepEqual([refusal.status, refusal.body.code, refusal.body.reason], [403, "permission_forbidden", "designated_mismatch"]);
      assert.equal((await a.next("permission_forbidden")).data.clientId, b.id);
    }
    if (policy === "consensus") {
      assert.equal(await a.session.respondToSessionPermission(requestId, allow), true);
      const { data } = await b.next("permission_partial_vote");
      assert.deepEqual([data.votesReceived, data.votesNeeded, data.quorum, data.optionTallies], [1, 1, 2, { proceed_once: 1 }]);
    }
    assert.equal(await winner.session.respondToSessionPermission(requestId, allow), true);
    const resolved = await a.next("permission_resolved");
    assert.deepEqual(resolved.data.outcome, allow.outcome);
    assert.equal(resolved.data.voterClientId, winner.id);
    assert.equal(resolved.originatorClientId, winner.id);
    assert.equal((await b.next("permission_resolved")).id, resolved.id);

    // Late: the SDK says false, and everybody is told by what it was decided.
    assert.equal(await a.session.respondToSessionPermission(requestId, allow), false);
    const late = await b.next("permission_already_resolved");
    assert.deepEqual([late.data.requestId, late.data.outcome], [requestId, allow.outcome]);
    assert.equal(await b.session.respondToPermission(requestId, allow), false);
    assert.equal((await answer).stopReason, "end_turn");
  });

  await t.test("anybody may cancel", async () => {
    const { answer, requestId } = await a.question();
    assert.equal(await b.session.respondToSessionPermission(requestId, cancelled), true);
    const { data } = await a.next("permission_resolved");
    assert.deepEqual([data.outcome, data.voterClientId], [cancelled.outcome, b.id]);
    assert.equal((await answer).stopReason, "end_turn");
  });

  await t.test("a cancelled turn takes its question along", async () => {
    const { answer, requestId } = await a.question();
    await a.session.cancel();
    const resolved = await a.next("permission_resolved");
    assert.deepEqual([resolved.data.requestId, resolved.data.outcome], [requestId, cancelled.outcome]);
    assert.equal(resolved.data.voterClientId, undefined);
    assert.ok(a.events.some((event) => event.type === "prompt_cancelled" && event.id < resolved.id));
    assert.equal((await answer).stopReason, "cancelled");
  });

  await t.test("what a client asks about its session", async () => {
    const beat = await a.session.heartbeat();
    assert.deepEqual([beat.clientId, typeof beat.lastSeenAt], [a.id, "number"]);
    assert.equal((await a.session.updateMetadata({ displayName: "conformance" })).displayName, "conformance");
    assert.equal((await b.next("session_metadata_updated")).data.displayName, "conformance");
    const sessions = await client.listWorkspaceSessions(workspace);
    assert.ok(sessions.some(({ sessionId }) => sessionId === a.session.sessionId));
    const context = await a.session.context();
    assert.deepEqual([context.v, context.sessionId, context.workspaceCwd], [1, a.session.sessionId, workspace]);
    assert.equal(context.state.modes.currentModeId, "default");
    const commands = await a.session.supportedCommands();
    assert.deepEqual([commands.v, commands.availableCommands.map(({ name }) => name)], [1, ["init", "review"]]);
    assert.deepEqual((await a.session.getPendingPrompts()).pendingPrompts, []);
    const refusal = await failure(client.heartbeat(a.session.sessionId, "mallory-not-registered"));
    assert.deepEqual([refusal.status, refusal.body.code], [400, "invalid_client_id"]);
  });

  const last = a.events.at(-1).id;
  await t.test("resume replays what came after a cursor", async () => {
    const c = new Seat(connection, await DaemonSessionClient.resume(client, a.session.sessionId, { workspaceCwd: workspace }));
    assert.equal(c.session.lastEventId, last);
    await c.follow({ lastEventId: last - 3 });
    const complete = await c.next("replay_complete");
    assert.deepEqual([complete.id, complete.data.replayedCount], [undefined, 3]);
    assert.deepEqual(c.events.slice(0, 3).map(({ id }) => id), [last - 2, last - 1, last]);
    assert.deepEqual(c.events.slice(0, 3), a.events.slice(-3));
    await c.leave();
    await c.session.detach();
  });

  await t.test("load carries what was said", async () => {
    const d = await DaemonSessionClient.load(client, a.session.sessionId, { workspaceCwd: workspace });
    assert.ok(d.replaySnapshotComplete);
    const said = [...d.replaySnapshot.compactedReplay, ...d.replaySnapshot.liveJournal];
    assert.ok(said.some((event) => event.data?.update?.content?.text === "Done after the tool."));
    assert.equal(d.lastEventId, last);
    await d.detach();
  });

  await t.test("the stream is gapless, and leaves nothing pending", async () => {
    const ids = a.events.map(({ id }) => id).filter((id) => id !== undefined);
    assert.deepEqual(ids, ids.map((_, n) => n + 1));
    // B was told only what came after it: without a cursor a stream is live.
    const shared = b.events.filter(({ id }) => id);
    assert.deepEqual(shared, a.events.filter(({ id }) => id >= shared[0].id));
    assert.ok(shared.some(({ type }) => type === "permission_request"));
    // Commands are announced when the agent likes. The two late votes race with what it says next.
    const kinds = a.events.filter(({ id }) => id).map(kind).filter((name) => name !== "available_commands_update");
    const late = (name) => name === "permission_already_resolved";
    assert.equal(kinds.filter(late).length, 2);
    assert.deepEqual(kinds.filter((name) => !late(name)), asEvents(policy));
    const state = reduceDaemonSessionEvents(a.events, createDaemonSessionViewState());
    assert.deepEqual(Object.keys(state.pendingPermissions), []);
    assert.equal(state.awaitingResync ?? false, false);
  });

  await t.test("closing ends the question, the turn and the streams, in this order", async () => {
    const { answer, requestId } = await a.question();
    await a.session.close();
    const resolved = await a.next("permission_resolved");
    assert.deepEqual([resolved.data.requestId, resolved.data.outcome], [requestId, cancelled.outcome]);
    const closed = await a.next("session_closed");
    assert.deepEqual([closed.data.reason, closed.data.closedBy], ["client_close", a.id]);
    assert.equal((await answer).stopReason, "cancelled");
    assert.equal(await a.end(), "end");
    assert.equal(await b.end(), "end");
    assert.equal(a.events.at(-1).type, "session_closed");
    const refusal = await failure(client.sessionStatus(a.session.sessionId));
    assert.deepEqual([refusal.status, refusal.body.code], [404, "session_not_found"]);
  });

  await t.test("every call is the recorded one", () => assertAsRecorded(wire.calls, policy, workspace));
});

/**
 * The kinds of the frames in the peer's transcripts of these turns. Left out: lists of commands and suggested
 * follow-ups, which its agent sends when it likes.
 */
function asEvents(policy) {
  const asked = ["user_message_chunk", "tool_call", "agent_message_chunk", "permission_request"];
  const before = { designated: ["permission_forbidden"], consensus: ["permission_partial_vote"] }[policy] ?? [];
  const done = ["tool_call_update", "agent_message_chunk", "agent_message_chunk", "turn_complete"];
  return [
    ...asked, ...before, "permission_resolved", ...done,
    ...asked, "permission_resolved", "tool_call_update", "turn_complete",
    ...asked, "prompt_cancelled", "permission_resolved", "tool_call_update", "turn_complete",
    "session_metadata_updated",
  ];
}
