/** The official SDK drives `/acp` over HTTP and over WebSocket, and an unchanged stdio client works through `attach`. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually } from "../page/expect.mjs";
import { Client, chosen, overHttp, overStdio, overWebSocket, rest, workspace } from "./clients.mjs";

const transports = { http: overHttp, websocket: overWebSocket, stdio: overStdio() };

for (const [name, transport] of Object.entries(transports)) {
  test(`${name}: a conversation`, async () => {
    const client = await Client.open(transport);
    assert.equal(client.about.agentInfo.name, "convoke");
    const session = await client.session();
    const end = await client.prompt(session, "echo hello there");
    assert.equal(end.stopReason, "end_turn");
    assert.equal(client.texts("agent_message_chunk").join(""), "echo hello there");
    const { sessions } = await client.agent.request("session/list", {});
    assert.ok(sessions.some(({ sessionId, cwd }) => sessionId === session && cwd === workspace));
    await client.close();
  });

  test(`${name}: it is asked, and answers`, async () => {
    const client = await Client.open(transport);
    const session = await client.session();
    for (const [option, said] of [["proceed_once", "Done after the tool."], ["cancel", undefined]]) {
      client.updates.length = 0;
      const end = client.prompt(session, "approval please");
      const question = await client.question();
      assert.equal(question.params.sessionId, session);
      assert.equal(question.params.toolCall.kind, "execute");
      question.answer(chosen(option));
      assert.equal((await end).stopReason, "end_turn");
      assert.equal(client.texts("agent_message_chunk").find((text) => text), said);
    }
    await client.close();
  });

  test(`${name}: somebody else is faster`, async () => {
    const client = await Client.open(transport);
    const session = await client.session();
    const end = client.prompt(session, "approval please");
    const question = await client.question();
    const { requestId } = question.params._meta.qwen;
    const vote = await rest("POST", `/session/${session}/permission/${requestId}`, { outcome: chosen("proceed_once") });
    assert.equal(vote.status, 200);
    assert.equal((await end).stopReason, "end_turn");
    await eventually(() => assert.ok(question.withdrawn, "the question is still open"));
    await client.close();
  });

  test(`${name}: a turn is cancelled`, async () => {
    const client = await Client.open(transport);
    const session = await client.session();
    const end = client.prompt(session, "approval please");
    const question = await client.question();
    await client.agent.notify("session/cancel", { sessionId: session });
    assert.equal((await end).stopReason, "cancelled");
    await eventually(() => assert.ok(question.withdrawn, "the question is still open"));
    await client.close();
  });

  test(`${name}: what can't be done is an error with a reason`, async () => {
    const client = await Client.open(transport);
    const asked = (method, params) => client.agent.request(method, params);
    await assert.rejects(asked("session/new", { cwd: "/elsewhere", mcpServers: [] }), (error) => {
      assert.deepEqual([error.code, error.data.errorKind], [-32602, "workspace_mismatch"]);
      return true;
    });
    await assert.rejects(asked("_nobody/knows", {}), (error) => error.code === -32601);
    const session = await client.session();
    await assert.rejects(client.prompt(session, "fail"), (error) => {
      assert.equal(error.code, 429);
      assert.match(error.message, /quota exceeded/);
      return true;
    });
    await client.close();
  });
}

for (const name of ["websocket", "stdio"]) {
  test(`${name}: a session of others is loaded with its past`, async () => {
    const made = await rest("POST", "/session", { sessionScope: "thread" });
    const session = made.body.sessionId;
    const first = await Client.open(overWebSocket);
    await first.agent.request("session/resume", { sessionId: session, cwd: workspace, mcpServers: [] });
    await first.prompt(session, "echo before");
    const second = await Client.open(transports[name]);
    await second.agent.request("session/load", { sessionId: session, cwd: workspace, mcpServers: [] });
    assert.deepEqual(second.texts("user_message_chunk"), ["echo before"]);
    const end = first.prompt(session, "approval please");
    (await second.question()).answer(chosen("proceed_once"));
    assert.equal((await end).stopReason, "end_turn");
    await first.close();
    await second.close();
  });
}

/**
 * The SDK opens a session's stream before it posts `session/load`. Our daemon, as the peer, grants no stream of a session
 * that the connection is not in yet, and the SDK gives the connection up.
 */
test("http: loading a session of others is not what the SDK does", async () => {
  const made = await rest("POST", "/session", { sessionScope: "thread" });
  const client = await Client.open(overHttp);
  const params = { sessionId: made.body.sessionId, cwd: workspace, mcpServers: [] };
  await assert.rejects(client.agent.request("session/load", params), /403|closed/);
});

test("stdio: the first new session is the one that was named", async () => {
  const made = await rest("POST", "/session", { sessionScope: "thread" });
  const client = await Client.open(overStdio("--session", made.body.sessionId));
  assert.equal(await client.session(), made.body.sessionId);
  assert.notEqual(await client.session(), made.body.sessionId);
  const { body } = await rest("GET", `/session/${made.body.sessionId}/status`);
  assert.equal(body.clientCount, 2);
  await client.close();
});

/** Three clients of three transports answer the same question at once: one decides, and the turn goes on once. */
test("racing clients of every transport", async () => {
  const owner = await Client.open(overHttp);
  const session = await owner.session();
  const others = [];
  for (const transport of [overWebSocket, overStdio()]) {
    const client = await Client.open(transport);
    await client.agent.request("session/resume", { sessionId: session, cwd: workspace, mcpServers: [] });
    others.push(client);
  }
  for (let turn = 0; turn < 5; turn += 1) {
    const end = owner.prompt(session, "approval please");
    const questions = await Promise.all([owner, ...others].map((client) => client.question()));
    questions.forEach((question) => question.answer(chosen("proceed_once")));
    assert.equal((await end).stopReason, "end_turn");
  }
  const decided = owner.notices.filter(({ kind }) => kind === "permission_resolved");
  assert.equal(decided.length, 5);
  for (const client of [owner, ...others]) await client.close();
});
