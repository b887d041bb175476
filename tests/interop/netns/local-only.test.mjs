/**
 * Who is on the daemon's own machine? Judged from a second machine: a network namespace with an address of its own, tied
 * to the daemon's namespace by a pair of virtual cables. Runs inside of `unshare --net`, so nothing leaves the machine.
 */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

const NEAR = "192.0.2.1";
const FAR = "192.0.2.2";
const TOKEN = "netns-only-token";
const PATIENCE_MS = 60_000;

const program = process.env.CONVOKE_PROGRAM;
const agent = process.env.CONVOKE_AGENT;
const here = import.meta.dirname;

let neighbour;
let daemon;
let port;
let home;

const ip = (...args) => execFileSync("ip", args);
const farIp = (...args) => execFileSync("nsenter", ["--target", String(neighbour.pid), "--net", "ip", ...args]);
const namespace = (pid) => readlinkSync(`/proc/${pid}/ns/net`);

/** Waits until something is so. */
async function until(what, fact) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await fact();
    if (value) return value;
    assert.ok(Date.now() < deadline, `${what} did not come`);
    await pause(20);
  }
}

before(async () => {
  neighbour = spawn("unshare", ["--net", "sleep", "600"], { stdio: "ignore" });
  await until("a second namespace", () => namespace(neighbour.pid) !== namespace("self"));
  ip("link", "set", "lo", "up");
  ip("link", "add", "near", "type", "veth", "peer", "name", "far");
  ip("link", "set", "far", "netns", String(neighbour.pid));
  ip("addr", "add", `${NEAR}/24`, "dev", "near");
  ip("link", "set", "near", "up");
  farIp("addr", "add", `${FAR}/24`, "dev", "far");
  farIp("link", "set", "far", "up");

  home = mkdtempSync(join(tmpdir(), "convoke-netns-"));
  mkdirSync(join(home, ".convoke"));
  mkdirSync(join(home, "workspace"));
  writeFileSync(join(home, ".convoke/settings.json"), JSON.stringify({ policy: { permissionStrategy: "local-only" } }));
  const args = ["serve", "--hostname", "0.0.0.0", "--port", "0", "--workspace", join(home, "workspace"), "--agent", agent];
  const env = { ...process.env, CONVOKE_HOME: home, QWEN_SERVER_TOKEN: TOKEN, NO_COLOR: "1" };
  daemon = spawn(program, args, { env, cwd: home, stdio: ["ignore", "pipe", "ignore"] });
  for await (const line of createInterface({ input: daemon.stdout })) {
    port = Number(/:(\d+) /.exec(line)?.[1]);
    break;
  }
  assert.ok(port > 0, "the daemon did not say where it listens");
});

after(() => {
  daemon?.kill("SIGKILL");
  neighbour?.kill("SIGKILL");
  if (home) rmSync(home, { recursive: true, force: true });
});

const request = (host, path, { method, body, client, headers = {} } = {}) => ({
  url: `http://${host}:${port}${path}`,
  method,
  body,
  headers: {
    authorization: `Bearer ${TOKEN}`,
    ...(body === undefined ? {} : { "content-type": "application/json" }),
    ...(client === undefined ? {} : { "x-qwen-client-id": client }),
    ...headers,
  },
});

/** Calls from the daemon's own namespace. */
function near(path, options = {}, host = "127.0.0.1") {
  const described = JSON.stringify(request(host, path, options));
  return JSON.parse(execFileSync(process.execPath, [join(here, "far.mjs"), described], { encoding: "utf8" }));
}

/** Calls from the other one. */
function far(path, options = {}) {
  const described = JSON.stringify(request(NEAR, path, options));
  const command = ["--target", String(neighbour.pid), "--net", process.execPath, join(here, "far.mjs"), described];
  return JSON.parse(execFileSync("nsenter", command, { encoding: "utf8" }));
}

const post = (body = {}, rest = {}) => ({ method: "POST", body, ...rest });
const selected = { outcome: { outcome: "selected", optionId: "proceed_once" } };

/** A session of the caller's own with one pending request. */
async function pending(call) {
  const session = call("/session", post({ sessionScope: "thread" })).body;
  const { sessionId, clientId } = session;
  const prompt = { prompt: [{ type: "text", text: "approval please" }] };
  assert.equal(call(`/session/${sessionId}/prompt`, post(prompt, { client: clientId })).status, 202);
  const request = await until("a permission request", () => {
    const { body } = call(`/session/${sessionId}/status`);
    return body.pendingInteractions[0]?.requestId;
  });
  return { sessionId, clientId, vote: `/session/${sessionId}/permission/${request}` };
}

test("a vote from another machine is refused, whatever its headers say, and one from this machine decides", async () => {
  const { sessionId, clientId, vote } = await pending(far);
  const forged = [
    {},
    { "x-forwarded-for": "127.0.0.1" },
    { forwarded: "for=127.0.0.1;host=localhost" },
    { "x-real-ip": "::1" },
    { "x-client-ip": "127.0.0.1", "true-client-ip": "127.0.0.1" },
  ];
  for (const headers of forged) {
    const answer = far(vote, post(selected, { client: clientId, headers }));
    assert.equal(answer.status, 403, JSON.stringify(headers));
    assert.equal(answer.body.code, "permission_forbidden");
    assert.equal(answer.body.reason, "remote_not_allowed");
  }
  assert.equal(far(vote, post(selected)).status, 403, "an anonymous vote from afar");
  // This machine, but by its address on the network: the socket's peer is no loopback address.
  assert.equal(near(vote, post(selected, { client: clientId }), NEAR).status, 403);
  assert.equal(near(`/session/${sessionId}/status`).body.pendingInteractionCount, 1);
  assert.equal(near(vote, post(selected, { client: clientId })).status, 200);
});

test("an unknown request looks the same from afar as a foreign one", async () => {
  const mine = await pending(far);
  const other = far("/session", post({ sessionScope: "thread" })).body;
  const request = mine.vote.split("/").at(-1);
  const foreign = far(`/session/${other.sessionId}/permission/${request}`, post(selected, { client: other.clientId }));
  const unknown = far(`/session/${other.sessionId}/permission/none`, post(selected, { client: other.clientId }));
  assert.deepEqual([foreign.status, unknown.status], [404, 404]);
  assert.deepEqual({ ...foreign.body, requestId: "" }, { ...unknown.body, requestId: "" });
});

test("nothing is served to another machine without the token, /health included", () => {
  for (const path of ["/health", "/capabilities", "/session/x/status", "/nope"]) {
    const answer = far(path, { headers: { authorization: "Bearer wrong" } });
    assert.deepEqual(answer, { status: 401, body: { error: "Unauthorized" } }, path);
  }
});
