/** What the recordings do not have: races, three voters, anonymous voters, and the queue, through the SDK. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { DaemonSessionClient, asKnownDaemonEvent } from "@qwen-code/sdk/daemon";
import { Seat, allow, ask, connect, failure, policy, reject, workspace } from "./seat.mjs";

const thread = { workspaceCwd: workspace, sessionScope: "thread" };

/** A session of its own with `count` clients, all following. */
async function seats(count) {
  const connection = connect();
  const first = await Seat.take(connection, thread);
  const others = [];
  for (let n = 1; n < count; n += 1) others.push(await join(connection, first));
  await first.follow();
  return [first, ...others];
}

async function join(connection, seat) {
  const joined = new Seat(connection, await DaemonSessionClient.resume(connection.client, seat.session.sessionId, { workspaceCwd: workspace }));
  await joined.follow();
  return joined;
}

const vote = (seat, requestId, response) => seat.session.respondToSessionPermission(requestId, response);

test("two votes at once: one decides, the other is late", { skip: policy === "designated" || policy === "consensus" }, async () => {
  const [a, b] = await seats(2);
  for (let round = 0; round < 20; round += 1) {
    const { answer, requestId } = await a.question();
    const votes = await Promise.all([vote(a, requestId, allow), vote(b, requestId, reject)]);
    assert.deepEqual([...votes].sort(), [false, true]);
    const { data } = await a.next("permission_resolved");
    assert.equal(data.voterClientId, votes[0] ? a.id : b.id);
    assert.equal(data.outcome.optionId, votes[0] ? "proceed_once" : "cancel");
    await answer;
  }
  const resolved = a.events.filter(({ type }) => type === "permission_resolved");
  assert.equal(resolved.length, 20);
  await a.session.close();
});

test("designated: who asked anonymously is answered by anybody", { skip: policy !== "designated" }, async () => {
  const [a, b] = await seats(2);
  const prompt = a.client.prompt(a.session.sessionId, ask("run the approval scenario"));
  const request = await b.next("permission_request");
  assert.equal(request.originatorClientId, undefined);
  assert.equal(await vote(b, request.data.requestId, allow), true);
  assert.equal((await a.next("permission_resolved")).data.voterClientId, b.id);
  // No stream of the anonymous caller waits for the end; the prompt was taken, and that is all it hears.
  await a.next("turn_complete");
  await prompt.catch(() => {});
  await a.session.close();
});

test("designated: the one who asked decides, whoever else tries", { skip: policy !== "designated" }, async () => {
  const [a, b, c] = await seats(3);
  const { answer, requestId } = await b.question();
  for (const other of [a, c]) assert.equal((await failure(vote(other, requestId, allow))).status, 403);
  const anonymous = await failure(a.client.respondToSessionPermission(a.session.sessionId, requestId, allow));
  assert.deepEqual([anonymous.status, anonymous.body.reason], [403, "designated_mismatch"]);
  assert.equal(await vote(b, requestId, reject), true);
  await answer;
  const refusals = a.events.filter(({ type }) => type === "permission_forbidden").map(({ data }) => data.clientId);
  assert.deepEqual(refusals, [a.id, c.id, undefined]);
  await a.session.close();
});

test("consensus: two of three decide, a vote moves, a late comer has none", { skip: policy !== "consensus" }, async () => {
  const [a, b, c] = await seats(3);
  const { answer, requestId } = await a.question();
  const tallies = async () => {
    const event = await a.next("permission_partial_vote");
    assert.equal(asKnownDaemonEvent(event)?.type, "permission_partial_vote");
    const { votesReceived, votesNeeded, quorum, optionTallies } = event.data;
    return { votesReceived, votesNeeded, quorum, ...optionTallies };
  };
  assert.equal(await vote(a, requestId, allow), true);
  assert.deepEqual(await tallies(), { votesReceived: 1, votesNeeded: 1, quorum: 2, proceed_once: 1 });
  assert.equal(await vote(b, requestId, reject), true);
  assert.deepEqual(await tallies(), { votesReceived: 2, votesNeeded: 1, quorum: 2, proceed_once: 1, cancel: 1 });
  const d = await join({ client: a.client, wire: a.wire }, a);
  assert.deepEqual((await failure(vote(d, requestId, allow))).body.reason, "designated_mismatch");
  // Ours alone: the peer keeps a client's first vote.
  assert.equal(await vote(b, requestId, { outcome: { outcome: "selected", optionId: "proceed_always_user" } }), true);
  assert.deepEqual(await tallies(), { votesReceived: 2, votesNeeded: 1, quorum: 2, proceed_once: 1, proceed_always_user: 1 });
  assert.equal(await vote(c, requestId, allow), true);
  const { data } = await a.next("permission_resolved");
  assert.deepEqual([data.outcome.optionId, data.voterClientId], ["proceed_once", c.id]);
  assert.equal((await answer).stopReason, "end_turn");
  await a.session.close();
});

test("local-only: from this machine even a nameless vote counts", { skip: policy !== "local-only" }, async () => {
  const [a] = await seats(1);
  const { answer, requestId } = await a.question();
  assert.equal(await a.client.respondToSessionPermission(a.session.sessionId, requestId, allow), true);
  const resolved = await a.next("permission_resolved");
  assert.deepEqual([resolved.data.voterClientId, resolved.originatorClientId], [undefined, undefined]);
  await answer;
  await a.session.close();
});

test("prompts wait for their turn, and each hears its own end", async () => {
  const [a, b] = await seats(2);
  const first = a.session.prompt(ask("hang"));
  await a.next("user_message_chunk");
  const second = b.session.prompt(ask("echo the second"));
  await a.next("pending_prompt_added");
  const { pendingPrompts } = await b.session.getPendingPrompts();
  assert.deepEqual(pendingPrompts.map(({ state, text }) => [state, text]), [["running", "hang"], ["queued", "echo the second"]]);
  await a.session.cancel();
  assert.equal((await first).stopReason, "cancelled");
  assert.equal((await second).stopReason, "end_turn");
  await a.next("pending_prompt_started");
  assert.equal((await a.next("agent_message_chunk")).data.update.content.text, "echo the second");
  await a.next("pending_prompt_completed");
  await a.session.close();
});

test("a failed turn is an error that says why", async () => {
  const [a] = await seats(1);
  // Behind another prompt: the SDK misses the end of a turn that is over before it has read the 202.
  const first = a.session.prompt(ask("hang"));
  await a.next("user_message_chunk");
  const failing = failure(a.session.prompt(ask("fail")));
  await a.next("pending_prompt_added");
  assert.equal((await a.session.getPendingPrompts()).pendingPrompts.length, 2);
  await a.session.cancel();
  await first;
  const error = await failing;
  assert.match(error.message, /quota exceeded/);
  const event = await a.next("turn_error");
  assert.equal(asKnownDaemonEvent(event)?.type, "turn_error");
  await a.session.close();
});

test("a mode is switched, and everybody hears it", async () => {
  const [a, b] = await seats(2);
  const switched = await a.client.setSessionApprovalMode(a.session.sessionId, "plan", { clientId: a.id });
  assert.deepEqual([switched.mode, switched.previous], ["plan", "default"]);
  const event = await b.next("approval_mode_changed");
  assert.equal(asKnownDaemonEvent(event)?.type, "approval_mode_changed");
  await a.session.close();
});

test("a model is switched, or refused in the agent's words", async () => {
  const [a, b] = await seats(2);
  await a.session.setModel("large");
  const event = await b.next("model_switched");
  assert.equal(asKnownDaemonEvent(event)?.type, "model_switched");
  assert.equal((await b.session.context()).state.models.currentModelId, "large");
  const refusal = await failure(a.session.setModel("no-such-model"));
  assert.deepEqual([refusal.status, refusal.body.code], [500, -32603]);
  assert.match(refusal.body.data.details, /no-such-model/);
  assert.equal(asKnownDaemonEvent(await b.next("model_switch_failed"))?.type, "model_switch_failed");
  await a.session.close();
});
