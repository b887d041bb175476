/** The official SDK as an editor of `convoke acp`: a child on two pipes, whose model is a file. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { after, test } from "node:test";
import { client, ndJsonStream } from "@agentclientprotocol/sdk";
import { eventually } from "../page/expect.mjs";

const home = await mkdtemp(join(tmpdir(), "convoke-acp-"));
const workspace = join(home, "workspace");
await mkdir(workspace);
after(() => rm(home, { recursive: true, force: true }));

const call = (name, args) => [{ functionCall: { name, args } }];
const say = (text) => [{ text }];

/** An editor with its agent. What it is asked waits for the test, what it is told is kept. */
class Editor {
  constructor(answers, clientCapabilities = {}) {
    this.answers = answers;
    this.clientCapabilities = clientCapabilities;
    this.updates = [];
    this.questions = [];
    this.files = new Map();
  }

  async open() {
    const lines = this.answers.map((parts) =>
      JSON.stringify({
        method: "generateContentStream",
        response: [{ candidates: [{ content: { role: "model", parts }, finishReason: "STOP" }] }],
      }),
    );
    const responses = join(home, "responses.jsonl");
    await writeFile(responses, lines.join("\n"));
    const args = ["acp", "--model", "gemini-2.5-flash", "--fake-responses", responses];
    this.child = spawn(process.env.CONVOKE_PROGRAM, args, {
      cwd: workspace,
      env: { PATH: process.env.PATH, HOME: home, CONVOKE_HOME: home, GEMINI_CLI_HOME: home, GEMINI_API_KEY: "not-a-key" },
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.ended = new Promise((resolve) => this.child.once("exit", resolve));
    const app = client({ name: "interop" })
      .onRequest("session/request_permission", ({ params }) =>
        new Promise((resolve) => {
          const answer = (optionId) => resolve({ outcome: { outcome: "selected", optionId } });
          this.questions.push({ params, answer });
        }),
      )
      .onRequest("fs/read_text_file", ({ params }) => ({ content: this.files.get(params.path) ?? "" }))
      .onRequest("fs/write_text_file", ({ params }) => {
        this.files.set(params.path, params.content);
        return {};
      })
      .onNotification("session/update", ({ params }) => void this.updates.push(params));
    this.connection = app.connect(ndJsonStream(Writable.toWeb(this.child.stdin), Readable.toWeb(this.child.stdout)));
    this.agent = this.connection.agent;
    const { clientCapabilities } = this;
    this.about = await this.agent.request("initialize", { protocolVersion: 1, clientCapabilities });
    return this;
  }

  new() {
    return this.agent.request("session/new", { cwd: workspace, mcpServers: [] });
  }

  prompt(sessionId, text) {
    return this.agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  }

  question() {
    return eventually(() => {
      assert.notEqual(this.questions.length, 0, "no question came");
      return this.questions.shift();
    }, 60_000);
  }

  of(kind) {
    return this.updates.map(({ update }) => update).filter(({ sessionUpdate }) => sessionUpdate === kind);
  }

  said(kind) {
    return this.of(kind).map(({ content }) => content.text).join("");
  }

  /** The SDK hands updates on in its own time, which may be after the answer that they came before. */
  answered(words) {
    return eventually(() => assert.equal(this.said("agent_message_chunk"), words), 60_000);
  }

  async close() {
    this.child.stdin.end();
    assert.equal(await this.ended, 0);
    this.connection.close();
  }
}

const refused = (promise, code) =>
  assert.rejects(promise, (error) => (assert.equal(error.code, code, error.message), true));

let recorded;

test("a turn with a plan, a question and a file, and its settings", async () => {
  const path = join(workspace, "a.txt");
  const todos = [{ description: "write", status: "in_progress" }];
  const editor = await new Editor([
    call("write_todos", { todos }),
    call("write_file", { file_path: "a.txt", content: "one\n" }),
    say("Written."),
  ]).open();
  assert.equal(editor.about.protocolVersion, 1);
  assert.equal(editor.about.agentInfo.name, "convoke");
  assert.equal(editor.about.agentCapabilities.loadSession, true);
  const { sessionId, modes, configOptions } = await editor.new();
  assert.equal(modes.currentModeId, "default");
  const end = editor.prompt(sessionId, "write a.txt");
  const question = await editor.question();
  assert.equal(question.params.toolCall.kind, "edit");
  assert.ok(question.params.options.some(({ kind }) => kind === "allow_once"));
  question.answer("proceed_once");
  assert.equal((await end).stopReason, "end_turn");
  assert.equal(await readFile(path, "utf8"), "one\n");
  await editor.answered("Written.");
  await eventually(() => assert.equal(editor.of("plan").length, 1), 60_000);
  assert.deepEqual(editor.of("plan")[0].entries, [{ content: "write", priority: "medium", status: "in_progress" }]);
  await editor.agent.request("session/set_mode", { sessionId, modeId: "autoEdit" });
  await refused(editor.agent.request("session/set_mode", { sessionId, modeId: "nonsense" }), -32602);
  const mode = configOptions.find(({ category }) => category === "mode");
  const set = (value) =>
    editor.agent.request("session/set_config_option", { sessionId, configId: mode.id, value });
  const told = await set("default");
  assert.equal(told.configOptions.find(({ id }) => id === mode.id).currentValue, "default");
  await refused(set("nonsense"), -32602);
  await editor.close();
  recorded = sessionId;
});

test("a cancelled turn ends, and the session goes on", async () => {
  const editor = await new Editor([call("run_shell_command", { command: "sleep 1000" }), say("Again.")]).open();
  const { sessionId } = await editor.new();
  const end = editor.prompt(sessionId, "sleep");
  await editor.question();
  await editor.agent.notify("session/cancel", { sessionId });
  assert.equal((await end).stopReason, "cancelled");
  assert.equal((await editor.prompt(sessionId, "and now")).stopReason, "end_turn");
  await editor.answered("Again.");
  await editor.close();
});

test("a recorded session is listed, loaded with its past, closed, resumed and deleted", async () => {
  const editor = await new Editor([say("I know.")]).open();
  const list = async () => (await editor.agent.request("session/list", { cwd: workspace })).sessions;
  const stored = (await list()).find(({ sessionId }) => sessionId === recorded);
  assert.equal(stored.title, "write a.txt");
  await refused(editor.agent.request("session/list", { cursor: "of another agent" }), -32602);
  const which = { sessionId: recorded, cwd: workspace, mcpServers: [] };
  const loaded = await editor.agent.request("session/load", which);
  assert.equal(loaded.modes.currentModeId, "default");
  // The title is the last of what was said before the answer.
  await eventually(() => assert.equal(editor.of("session_info_update").length, 1), 60_000);
  assert.equal(editor.said("user_message_chunk"), "write a.txt");
  await editor.answered("Written.");
  assert.deepEqual(editor.of("tool_call_update").map(({ status }) => status), ["completed", "completed"]);
  assert.equal(editor.of("plan").length, 1);
  await refused(editor.agent.request("session/load", which), -32600);
  await editor.agent.request("session/close", { sessionId: recorded });
  editor.updates.length = 0;
  await editor.agent.request("session/resume", which);
  assert.equal(editor.said("user_message_chunk"), "");
  assert.equal((await editor.prompt(recorded, "what did you do?")).stopReason, "end_turn");
  await editor.answered("I know.");
  await editor.agent.request("session/close", { sessionId: recorded });
  await editor.agent.request("session/delete", { sessionId: recorded });
  assert.ok((await list()).every(({ sessionId }) => sessionId !== recorded));
  await refused(editor.agent.request("session/load", which), -32002);
  await editor.close();
});

test("files are read and written as the editor has them", async () => {
  const path = join(workspace, "open.txt");
  await writeFile(path, "on the disk\n");
  const capabilities = { fs: { readTextFile: true, writeTextFile: true } };
  const editor = await new Editor(
    [
      call("replace", { file_path: "open.txt", instruction: "x", old_string: "not saved", new_string: "changed" }),
      say("Done."),
    ],
    capabilities,
  ).open();
  editor.files.set(path, "not saved\n");
  const { sessionId } = await editor.new();
  await editor.agent.request("session/set_mode", { sessionId, modeId: "yolo" });
  assert.equal((await editor.prompt(sessionId, "change it")).stopReason, "end_turn");
  assert.equal(editor.files.get(path), "changed\n");
  await editor.close();
});

test("a question in one session holds up no other", async () => {
  const editor = await new Editor([call("write_file", { file_path: "b.txt", content: "b" }), say("Done.")]).open();
  const [first, second] = [await editor.new(), await editor.new()];
  const waiting = editor.prompt(first.sessionId, "write");
  const question = await editor.question();
  await editor.agent.request("session/set_mode", { sessionId: second.sessionId, modeId: "yolo" });
  assert.equal((await editor.prompt(second.sessionId, "write")).stopReason, "end_turn");
  question.answer("proceed_once");
  assert.equal((await waiting).stopReason, "end_turn");
  await editor.close();
});
