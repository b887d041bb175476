/** The official SDK of the protocol as a client of our daemon, over each transport that it publishes. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { client, ndJsonStream } from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { eventually } from "../page/expect.mjs";

export const workspace = process.env.CONVOKE_WORKSPACE;
const base = process.env.CONVOKE_BASE_URL;
const token = process.env.CONVOKE_TOKEN;

/** Only bounds a failing test. */
const PATIENCE_MS = 60_000;

export const overHttp = () => ({
  stream: createHttpStream(`${base}/acp`, { headers: { Authorization: `Bearer ${token}` } }),
});

/** As a browser does it: the token is a subprotocol, since there it can't be a header. */
export const overWebSocket = () => {
  const bearer = `qwen-bearer.${Buffer.from(token).toString("base64url")}`;
  const url = `${base.replace(/^http/, "ws")}/acp`;
  return { stream: createWebSocketStream(url, { protocols: ["qwen-ws", bearer] }) };
};

/** The editor's way: a command that speaks on stdin and stdout. */
export const overStdio =
  (...args) =>
  () => {
    const relay = spawn(process.env.CONVOKE_PROGRAM, ["attach", "--stdio", base, ...args], {
      env: { ...process.env, CONVOKE_TOKEN: token },
      stdio: ["pipe", "pipe", "inherit"],
    });
    const ended = new Promise((resolve) => relay.once("exit", resolve));
    const stream = ndJsonStream(Writable.toWeb(relay.stdin), Readable.toWeb(relay.stdout));
    return { stream, hangUp: () => relay.stdin.end(), ended };
  };

/** One client: what it is asked waits for the test, what it is told is kept. */
export class Client {
  constructor(transport) {
    const { stream, hangUp, ended } = transport();
    this.hangUp = hangUp;
    this.ended = ended;
    this.updates = [];
    this.notices = [];
    this.questions = [];
    const app = client({ name: "interop" })
      .onRequest("session/request_permission", ({ params, signal }) =>
        new Promise((resolve, reject) => {
          const question = { params, withdrawn: false, answer: (outcome) => resolve({ outcome }) };
          signal?.addEventListener("abort", () => {
            question.withdrawn = true;
            reject(signal.reason);
          });
          this.questions.push(question);
        }),
      )
      .onNotification("session/update", ({ params }) => void this.updates.push(params))
      .onNotification("_qwen/notify", (params) => params, ({ params }) => void this.notices.push(params));
    this.connection = app.connect(stream);
    this.agent = this.connection.agent;
  }

  static async open(transport) {
    const opened = new Client(transport);
    opened.about = await opened.agent.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
    assert.equal(opened.about.protocolVersion, 1);
    return opened;
  }

  async session() {
    const { sessionId } = await this.agent.request("session/new", { cwd: workspace, mcpServers: [] });
    return sessionId;
  }

  prompt(sessionId, text) {
    return this.agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  }

  question() {
    return eventually(() => {
      assert.notEqual(this.questions.length, 0, "no question came");
      return this.questions.shift();
    }, PATIENCE_MS);
  }

  texts(kind) {
    const updates = this.updates.map(({ update }) => update).filter((update) => update.sessionUpdate === kind);
    return updates.map((update) => update.content.text);
  }

  async close() {
    this.connection.close();
    this.hangUp?.();
    const code = await this.ended;
    assert.ok(code === undefined || code === 0, `the relay ended with ${code}`);
  }
}

export const chosen = (optionId) => ({ outcome: "selected", optionId });

/** A call of our REST routes. */
export async function rest(method, path, body) {
  const response = await fetch(base + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, body: text && JSON.parse(text) };
}
