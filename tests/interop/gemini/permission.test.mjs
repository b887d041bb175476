/** The Gemini CLI, as published and with canned answers of its model, asks through our daemon and is answered over REST. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { DaemonSessionClient } from "@qwen-code/sdk/daemon";
import { Seat, allow, cancelled, connect, kind, reject, workspace } from "../sdk/seat.mjs";

const made = join(workspace, "made-by-gemini");

/** A session of its own with two clients, and the question that its first turn leads to. */
async function asked() {
  const connection = connect();
  const asker = await Seat.take(connection, { workspaceCwd: workspace, sessionScope: "thread" });
  const voter = new Seat(connection, await DaemonSessionClient.resume(connection.client, asker.session.sessionId, { workspaceCwd: workspace }));
  await asker.follow();
  await voter.follow();
  const question = await asker.question();
  const seen = await voter.next("permission_request");
  assert.deepEqual(seen, question.request);
  return { asker, voter, ...question };
}

test("a refused call does not run", async () => {
  const { asker, voter, answer, request, requestId } = await asked();
  assert.equal(request.originatorClientId, asker.id);
  assert.equal(request.data.toolCall.kind, "execute");
  assert.match(request.data.toolCall.title, /touch made-by-gemini/);
  assert.deepEqual(request.data.options.map((option) => option.kind).sort(), ["allow_always", "allow_once", "reject_once"]);
  assert.equal(await voter.session.respondToSessionPermission(requestId, reject), true);
  assert.equal((await asker.next("permission_resolved")).data.voterClientId, voter.id);
  assert.equal((await answer).stopReason, "end_turn");
  assert.equal(existsSync(made), false);
  await asker.session.close();
});

test("an allowed call runs, and the turn goes on with its result", async () => {
  const { asker, voter, answer, requestId } = await asked();
  const { pendingInteractions } = await voter.session.status();
  assert.deepEqual(pendingInteractions.map((pending) => pending.requestId), [requestId]);
  assert.equal(await voter.session.respondToSessionPermission(requestId, allow), true);
  assert.equal(await asker.session.respondToSessionPermission(requestId, reject), false);
  assert.equal((await answer).stopReason, "end_turn");
  assert.equal(existsSync(made), true);
  const said = asker.events.filter((event) => kind(event) === "agent_message_chunk").map((event) => event.data.update.content.text);
  assert.equal(said.join(""), "I make the file.That is what became of the file.");
  const updates = asker.events.filter((event) => kind(event) === "tool_call_update").map((event) => event.data.update.status);
  assert.equal(updates.at(-1), "completed");
  await asker.session.close();
});

test("a cancelled turn ends its question, and the agent heeds it", async () => {
  const { asker, voter, answer, requestId } = await asked();
  await voter.session.cancel();
  const { data } = await asker.next("permission_resolved");
  assert.deepEqual([data.requestId, data.outcome], [requestId, cancelled.outcome]);
  assert.equal((await answer).stopReason, "cancelled");
  await asker.session.close();
});
