/**
 * A daemon whose agent and accidents are scripted.
 *
 * Speaks the part of the v1 wire that the page uses, with the same statuses, headers, orders and frames as the real one,
 * and adds what a test can't get from the real one on demand: dropped streams, eviction, a lost ring, another epoch,
 * refusals. For tests only.
 */

import { randomUUID } from "node:crypto";
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const WEB = fileURLToPath(new URL("../../../web/", import.meta.url));
const CSP =
  "default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const CLIENT_ID = /^[A-Za-z0-9._:-]{1,128}$/;

const OPTIONS = [
  { optionId: "proceed_once", name: "Allow once", kind: "allow_once" },
  { optionId: "proceed_always", name: "Always allow in this project: cargo test *", kind: "allow_always" },
  { optionId: "cancel", name: "Deny", kind: "reject_once" },
];

class Session {
  constructor(daemon, id) {
    this.daemon = daemon;
    this.id = id;
    this.createdAt = new Date().toISOString();
    this.epoch = randomUUID();
    this.events = [];
    this.nextId = 1;
    this.clients = new Map();
    this.subscribers = new Set();
    this.pending = new Map();
    this.remembered = new Map();
    this.queue = [];
    this.running = null;
    this.displayName = undefined;
  }

  publish(type, data, { promptId, originator, synthetic = false } = {}) {
    const frame = { v: 1, type, data, _meta: { serverTimestamp: Date.now() } };
    if (promptId) frame.promptId = promptId;
    if (originator) frame.originatorClientId = originator;
    if (!synthetic) {
      frame.id = this.nextId++;
      this.events.push(frame);
    }
    for (const subscriber of this.subscribers) write(subscriber, frame);
    return frame;
  }

  update(update, turn) {
    this.publish("session_update", { sessionId: this.id, update }, { promptId: turn.promptId, originator: turn.originator });
  }

  say(text, turn) {
    this.update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } }, turn);
  }

  /** Asks for permission; resolves to the outcome. */
  ask(toolCall, turn, { options = OPTIONS, extra = {} } = {}) {
    const requestId = randomUUID();
    const frame = this.publish(
      "permission_request",
      { requestId, sessionId: this.id, toolCall, options, ...extra },
      { promptId: turn.promptId, originator: turn.originator },
    );
    return new Promise((resolve) => {
      this.pending.set(requestId, {
        requestId,
        frame,
        options,
        turn,
        resolve,
        voters: new Set(this.clients.keys()),
        votes: new Map(),
      });
    });
  }

  settle(request, outcome, voter) {
    this.pending.delete(request.requestId);
    this.publish(
      "permission_resolved",
      { requestId: request.requestId, outcome, ...(voter ? { voterClientId: voter } : {}) },
      { promptId: request.turn.promptId, originator: voter },
    );
    this.remembered.set(request.requestId, outcome);
    request.resolve(outcome);
  }

  prompt(text, originator) {
    const turn = { promptId: randomUUID(), originator, text, cancelled: false, stop: () => {} };
    turn.stopped = new Promise((resolve) => (turn.stop = resolve));
    const lastEventId = this.nextId - 1;
    if (this.running) {
      this.queue.push(turn);
      this.publish(
        "pending_prompt_added",
        { sessionId: this.id, promptId: turn.promptId, text, queuedAt: Date.now() },
        { promptId: turn.promptId, originator },
      );
    } else {
      void this.run(turn);
    }
    return { promptId: turn.promptId, lastEventId, eventEpoch: this.epoch };
  }

  async run(turn) {
    this.running = turn;
    this.update(
      { sessionUpdate: "user_message_chunk", content: { type: "text", text: turn.text }, _meta: { source: "bridge-echo" } },
      turn,
    );
    try {
      await script(this, turn);
    } catch (error) {
      this.publish("turn_error", { sessionId: this.id, message: String(error.message), promptId: turn.promptId }, { promptId: turn.promptId });
      turn.failed = true;
    }
    if (!turn.failed && this.daemon.sessions.has(this.id)) {
      this.publish(
        "turn_complete",
        {
          sessionId: this.id,
          stopReason: turn.cancelled ? "cancelled" : "end_turn",
          promptId: turn.promptId,
          ...(turn.cancelled ? { promptCancelled: { cancelledAt: Date.now(), elapsedMs: 1 } } : {}),
        },
        { promptId: turn.promptId, originator: turn.originator },
      );
    }
    this.running = null;
    const next = this.queue.shift();
    if (next) {
      this.publish(
        "pending_prompt_started",
        { sessionId: this.id, promptId: next.promptId, text: next.text },
        { promptId: next.promptId, originator: next.originator },
      );
      void this.run(next);
    }
  }

  cancel(by) {
    const turn = this.running;
    if (!turn) return;
    turn.cancelled = true;
    this.publish("prompt_cancelled", { sessionId: this.id }, { promptId: turn.promptId, originator: by });
    for (const request of [...this.pending.values()]) this.settle(request, { outcome: "cancelled" });
    turn.stop();
  }

  close(by) {
    this.cancel(by);
    this.publish("session_closed", { sessionId: this.id, reason: "client_close", ...(by ? { closedBy: by } : {}) }, { originator: by });
    this.daemon.sessions.delete(this.id);
    if (this.daemon.shared === this.id) this.daemon.shared = null;
    for (const subscriber of this.subscribers) subscriber.end();
  }

  summary() {
    return {
      sessionId: this.id,
      workspaceCwd: this.daemon.cwd,
      createdAt: this.createdAt,
      displayName: this.displayName,
      clientCount: this.clients.size,
      hasActivePrompt: this.running !== null,
      activeWorkState: this.running ? "active" : "idle",
      isWaitingForPermission: this.pending.size > 0,
      isWaitingForUserQuestion: false,
      pendingInteractionCount: this.pending.size,
      hasTurnError: false,
      pendingInteractions: [...this.pending.values()].map(({ requestId, frame }) => ({
        requestId,
        kind: "permission",
        createdAt: new Date(frame._meta.serverTimestamp).toISOString(),
        action: {
          type: frame.data.toolCall.kind,
          title: frame.data.toolCall.title,
          content: frame.data.toolCall.content,
          locations: frame.data.toolCall.locations,
          input: frame.data.toolCall.rawInput,
        },
        options: frame.data.options.map(({ optionId, name, kind }) => ({ optionId, label: name, kind })),
      })),
    };
  }

  /** Test control: cuts every stream without a word. */
  dropStreams() {
    for (const subscriber of this.subscribers) subscriber.destroy();
  }

  /** Test control: as after a queue overflow whose frame got through. */
  evict() {
    for (const subscriber of this.subscribers) {
      write(subscriber, { v: 1, type: "client_evicted", data: { reason: "queue_overflow", droppedAfter: this.nextId - 1, queueSize: 256, maxQueued: 256 }, _meta: { serverTimestamp: Date.now() } });
      subscriber.end();
    }
  }

  /** Test control: the ring forgets all but the last n events. */
  forget(keep) {
    this.events = keep === 0 ? [] : this.events.slice(-keep);
  }

  /** Test control: another life of the bus, with its numbers from 1 again and only what is given. */
  newEpoch() {
    this.epoch = randomUUID();
    const kept = this.events.map((frame, index) => ({ ...frame, id: index + 1 }));
    this.events = kept;
    this.nextId = kept.length + 1;
    for (const subscriber of this.subscribers) subscriber.destroy();
  }
}

function write(response, frame) {
  const id = frame.id === undefined ? "" : `id: ${frame.id}\n`;
  response.write(`${id}event: ${frame.type}\ndata: ${JSON.stringify(frame)}\n\n`);
}

const shell = (command, description = "") => ({ command, description, is_background: false });

/** What the agent does, chosen by a word of the prompt. */
async function script(session, turn) {
  const { text } = turn;
  const call = `call_${randomUUID().slice(0, 8)}`;
  const begin = (kind, title, toolName) =>
    session.update(
      { sessionUpdate: "tool_call", toolCallId: call, kind, title, status: "pending", content: [], locations: [], rawInput: {}, _meta: { toolName, phase: "preparing" } },
      turn,
    );
  const finish = (status, output, extra = {}) =>
    session.update(
      { sessionUpdate: "tool_call_update", toolCallId: call, status, content: [{ type: "content", content: { type: "text", text: output } }], ...extra },
      turn,
    );
  const command = async (rawInput, options = {}, content = []) => {
    begin("execute", "Shell", "run_shell_command");
    const outcome = await session.ask(
      { toolCallId: call, kind: "execute", title: rawInput.command, status: "pending", content, locations: [], rawInput, _meta: { toolName: "run_shell_command" } },
      turn,
      options,
    );
    if (outcome.outcome !== "selected" || outcome.optionId === "cancel") {
      finish("failed", "User denied execution.");
      return false;
    }
    finish("completed", "running 41 tests\ntest result: ok. 41 passed; 0 failed", { rawOutput: { exitCode: 0 } });
    return true;
  };

  if (text.startsWith("command")) {
    const ran = await command(shell("cargo test -p bridge --quiet", "Run the tests of the bridge"));
    if (!turn.cancelled) session.say(ran ? "All **41** tests pass." : "I left it alone.", turn);
  } else if (text.startsWith("diff")) {
    begin("edit", "Edit", "replace");
    const diff = {
      type: "diff",
      path: "/workspace/demo/src/greeting.rs",
      oldText: 'fn main() {\n    let name = "world";\n    println!("Hello, {name}");\n}\n\n// one\n// two\n// three\n// four\n// five\n// six\n// seven\n// eight\nfn end() {}\n',
      newText: 'fn main() {\n    let name = "everybody";\n    println!("Hello, {name}!");\n}\n\n// one\n// two\n// three\n// four\n// five\n// six\n// seven\n// eight\nfn end() {}\nfn added() {}\n',
    };
    const outcome = await session.ask(
      { toolCallId: call, kind: "edit", title: "src/greeting.rs", status: "pending", content: [diff], locations: [{ path: diff.path }], rawInput: { file_path: diff.path, old_string: "world", new_string: "everybody" }, _meta: { toolName: "replace" } },
      turn,
    );
    const allowed = outcome.outcome === "selected" && outcome.optionId !== "cancel";
    finish(allowed ? "completed" : "failed", allowed ? "Edited." : "User denied the edit.");
    if (!turn.cancelled) session.say(allowed ? "Changed." : "Not changed.", turn);
  } else if (text.startsWith("two")) {
    const ask = (n) =>
      session.ask({ toolCallId: `${call}_${n}`, kind: "execute", title: `echo ${n}`, status: "pending", content: [], locations: [], rawInput: shell(`echo ${n}`), _meta: { toolName: "run_shell_command" } }, turn);
    await Promise.all([ask("first"), ask("second")]);
    if (!turn.cancelled) session.say("Both answered.", turn);
  } else if (text.startsWith("deadline")) {
    await command(shell("sleep 1"), { extra: { timeoutMs: 90_000 } });
  } else if (text.startsWith("hidden")) {
    await command(shell("rm -rf ./build\u202e # dliub"));
  } else if (text.startsWith("xss")) {
    const evil = `<img src=x onerror="window.__xss=1"><script>window.__xss=2</script><svg onload="window.__xss=3"></svg><a href="javascript:window.__xss=4">j</a>`;
    session.say(`${evil}\n\n[click](javascript:window.__xss=5) ![p](http://evil.invalid/a.png) ![q](x" onerror="window.__xss=6)\n\n`, turn);
    session.say("```html\" onmouseover=\"window.__xss=7\n" + evil + "\n```\n\n| a |\n|---|\n| " + evil + " |\n\n<style>body{display:none}</style><div style=\"position:fixed\">x</div>", turn);
    session.update({ sessionUpdate: "plan", entries: [{ content: evil, status: "pending" }] }, turn);
    session.update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: evil } }, turn);
    await command(shell(`echo '${evil}'`, evil), { options: [{ optionId: "proceed_once", name: evil, kind: "allow_once" }] }, [
      { type: "content", content: { type: "text", text: evil } },
      { type: "diff", path: evil, oldText: evil, newText: `${evil}\n${evil}` },
    ]);
    session.publish("turn_error", { sessionId: session.id, message: evil, promptId: turn.promptId }, { promptId: turn.promptId });
    turn.failed = true;
  } else if (text.startsWith("markdown")) {
    for (const piece of MARKDOWN.match(/[\s\S]{1,9}/g)) {
      session.say(piece, turn);
      await new Promise((resolve) => setImmediate(resolve));
    }
  } else if (text.startsWith("slow")) {
    session.say("Working until I am stopped. ", turn);
    await turn.stopped;
  } else if (text.startsWith("long")) {
    for (let n = 0; n < 400; n++) session.say(`Paragraph ${n} of a long answer.\n\n`, turn);
  } else if (text.startsWith("fail")) {
    throw new Error("the model refused");
  } else {
    session.say(`You said: ${text}`, turn);
  }
}

const MARKDOWN = `## What I found

The mediator keeps **one** entry per request and answers \`404\` to late votes. See the [specification](https://example.org/spec).

1. First, the vote is *counted*
2. then it is published
   - to every window
   - once

\`\`\`rust
/// Quorum of a snapshot of \`members\`.
fn quorum(members: usize) -> usize {
    members / 2 + 1 // a strict majority
}
\`\`\`

| Policy | Decides |
|---|---|
| first-responder | the first answer |
| consensus | a majority |

> Nothing is lost when a window closes.

- [x] read
- [ ] write

Done.
`;

/**
 * @param {{ token?: string, policy?: string, quorum?: number }} [options]
 */
export async function startMockDaemon({ token = "t0ken-for-tests", policy = "first-responder" } = {}) {
  const daemon = {
    token,
    policy,
    quorum: 2,
    version: "0.0.0-mock",
    cwd: "/workspace/demo",
    sessions: new Map(),
    shared: null,
    /** Answers to the next GET …/events, used up one by one. */
    refuseStreams: [],
    /** Route names that answer as if unknown. */
    missing: new Set(),
    requests: [],
    session: (id) => daemon.sessions.get(id),
    url: "",
    close: () => {
      for (const session of daemon.sessions.values()) session.dropStreams();
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };

  const server = createServer(async (request, response) => {
    const url = new URL(request.url, daemon.url);
    const path = url.pathname;
    daemon.requests.push({ method: request.method, path, headers: request.headers, search: url.search });
    const json = (status, body, headers = {}) => {
      response.writeHead(status, { "Content-Type": "application/json; charset=utf-8", ...headers });
      response.end(status === 204 ? undefined : JSON.stringify(body));
    };
    const unknown = () => {
      response.writeHead(404, { "Content-Type": "text/html; charset=utf-8" });
      response.end(`<!DOCTYPE html><pre>Cannot ${request.method} ${path}</pre>`);
    };

    if (request.method === "GET" && serveStatic(request, response, path)) return;
    if (request.headers.authorization !== `Bearer ${daemon.token}`) return json(401, { error: "Unauthorized" });

    let body = {};
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    try {
      if (chunks.length > 0) body = JSON.parse(Buffer.concat(chunks).toString());
    } catch {
      return json(400, { error: "Invalid JSON in request body" });
    }
    const clientId = request.headers["x-qwen-client-id"];
    const mint = (session) => {
      const kept = clientId && session.clients.has(clientId);
      const id = kept ? clientId : `client_${randomUUID()}`;
      session.clients.set(id, (session.clients.get(id) ?? 0) + 1);
      return id;
    };

    if (request.method === "GET" && path === "/capabilities") {
      return json(200, {
        v: 1,
        protocolVersions: { current: "v1", supported: ["v1"] },
        qwenCodeVersion: daemon.version,
        mode: "http-bridge",
        features: [],
        workspaceCwd: daemon.cwd,
        transports: ["rest"],
        policy: { permission: daemon.policy },
        sessionLiveStatePollIntervalMs: 300,
      });
    }
    const workspace = /^\/workspace\/([^/]+)\/sessions$/.exec(path);
    if (workspace && request.method === "GET") {
      if (daemon.missing.has("list")) return unknown();
      if (decodeURIComponent(workspace[1]) !== daemon.cwd) return json(400, { error: "Workspace mismatch", code: "workspace_mismatch" });
      return json(200, { sessions: [...daemon.sessions.values()].reverse().map((session) => session.summary()) });
    }
    if (path === "/session" && request.method === "POST") {
      let session = body.sessionScope === "thread" ? null : daemon.sessions.get(daemon.shared);
      const attached = Boolean(session);
      if (!session) {
        session = new Session(daemon, randomUUID());
        daemon.sessions.set(session.id, session);
        if (body.sessionScope !== "thread") daemon.shared = session.id;
      }
      return json(200, { sessionId: session.id, workspaceCwd: daemon.cwd, attached, clientId: mint(session), createdAt: session.createdAt });
    }

    const match = /^\/session\/([^/]+)(?:\/(.+))?$/.exec(path);
    if (!match) return unknown();
    const session = daemon.sessions.get(decodeURIComponent(match[1]));
    const route = match[2] ?? "";
    if (!session) return json(404, { error: `No session with id "${match[1]}"`, code: "session_not_found", sessionId: match[1] });

    if (request.method === "GET" && route === "events") return events(daemon, session, request, response, json);
    if (request.method === "GET" && route === "status") return json(200, session.summary());
    if (request.method === "POST" && (route === "resume" || route === "load")) {
      if (daemon.missing.has(route)) return unknown();
      return json(200, { sessionId: session.id, workspaceCwd: daemon.cwd, attached: true, clientId: mint(session), createdAt: session.createdAt, lastEventId: session.nextId - 1, eventEpoch: session.epoch });
    }
    const vote = /^permission\/([^/]+)$/.exec(route);
    if (vote && request.method === "POST") return json(...voted(daemon, session, vote[1], clientId, body));
    if (clientId !== undefined && !session.clients.has(clientId)) {
      return json(400, { error: `Client id "${clientId}" is not registered for session ${session.id}`, code: "invalid_client_id", sessionId: session.id, clientId });
    }
    if (request.method === "POST" && route === "heartbeat") return json(200, { sessionId: session.id, clientId, lastSeenAt: Date.now() });
    if (request.method === "POST" && route === "prompt") {
      if (!Array.isArray(body.prompt) || body.prompt.length === 0) return json(400, { error: "`prompt` is required" });
      if (session.queue.length >= 4) return json(503, { error: "Prompt queue full", code: "prompt_queue_full", limit: 5 }, { "Retry-After": "5" });
      return json(202, session.prompt(body.prompt.map((block) => block.text ?? "").join("\n"), clientId));
    }
    if (request.method === "POST" && route === "cancel") {
      session.cancel(clientId);
      return json(204);
    }
    if (request.method === "DELETE" && route === "") {
      session.close(clientId);
      return json(204);
    }
    return unknown();
  });

  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  daemon.url = `http://127.0.0.1:${server.address().port}`;
  return daemon;
}

function serveStatic(request, response, path) {
  const page = path === "/" || (/^\/session\/[^/]+$/.test(path) && String(request.headers.accept).includes("text/html"));
  if (!page && !path.startsWith("/assets/")) return false;
  const file = page ? join(WEB, "index.html") : normalize(join(WEB, decodeURIComponent(path.slice("/assets/".length))));
  const shipped = file.startsWith(WEB) && TYPES[extname(file)] && !file.startsWith(join(WEB, "tests"));
  if (!shipped || !existsSync(file) || !statSync(file).isFile()) return false;
  response.writeHead(200, {
    "Content-Type": `${TYPES[extname(file)]}; charset=utf-8`,
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
  });
  createReadStream(file).pipe(response);
  return true;
}

function events(daemon, session, request, response, json) {
  const refusal = daemon.refuseStreams.shift();
  if (refusal) return json(refusal.status, { error: "refused by the test", code: refusal.code }, refusal.headers);
  response.writeHead(200, {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "X-Qwen-Event-Epoch": session.epoch,
    "X-Qwen-SSE-Stream-Id": randomUUID(),
  });
  response.write("retry: 3000\n\n");
  const synthetic = (type, data) => write(response, { v: 1, type, data, _meta: { serverTimestamp: Date.now() } });
  const sent = new Set();
  const header = request.headers["last-event-id"];
  if (/^\d+$/.test(header ?? "")) {
    let from = Number(header);
    const epoch = request.headers["x-qwen-event-epoch"];
    const first = session.events[0]?.id ?? session.nextId;
    const resync = (reason, detail) =>
      synthetic("state_resync_required", { reason, ...(detail ? { detail } : {}), lastDeliveredId: from, earliestAvailableId: first });
    if (epoch && epoch !== session.epoch) {
      resync("epoch_reset", "epoch_mismatch");
      from = 0;
    } else if (from >= session.nextId && from > 0) {
      resync("epoch_reset");
      from = 0;
    } else if (first > from + 1) {
      resync("ring_evicted");
    }
    const replay = session.events.filter((frame) => frame.id > from);
    for (const frame of replay) {
      if (frame.type === "permission_request") sent.add(frame.data.requestId);
      write(response, frame);
    }
    synthetic("replay_complete", { lastReplayedEventId: replay.at(-1)?.id, lastEventId: session.nextId - 1, replayedCount: replay.length });
  }
  for (const { requestId, frame } of session.pending.values()) {
    if (sent.has(requestId)) continue;
    const { id: _, ...rest } = frame;
    if (daemon.missing.has("late-joiner")) continue;
    write(response, rest);
  }
  session.subscribers.add(response);
  response.on("close", () => session.subscribers.delete(response));
}

function voted(daemon, session, requestId, clientId, body) {
  const outcome = body?.outcome;
  const selected = outcome?.outcome === "selected" && typeof outcome.optionId === "string" && outcome.optionId !== "";
  if (!selected && outcome?.outcome !== "cancelled") return [400, { error: "Invalid outcome" }];
  if (clientId !== undefined && !CLIENT_ID.test(clientId)) return [400, { error: "bad client id", code: "invalid_client_id" }];
  const plain = { error: "No pending permission request for session", sessionId: session.id, requestId };
  const request = session.pending.get(requestId);
  const known = clientId !== undefined && session.clients.has(clientId);
  if (!request) {
    if (!session.remembered.has(requestId) || !known) return [404, plain];
    session.publish("permission_already_resolved", { requestId, sessionId: session.id, outcome: session.remembered.get(requestId) });
    return [404, { ...plain, code: "permission_already_resolved" }];
  }
  if (clientId !== undefined && !known) {
    return [400, { error: `Client id "${clientId}" is not registered for session ${session.id}`, code: "invalid_client_id" }];
  }
  if (outcome.outcome === "cancelled") {
    session.settle(request, { outcome: "cancelled" });
    return [200, {}];
  }
  if (!request.options.some((option) => option.optionId === outcome.optionId)) return [400, { error: "Invalid option", code: "invalid_option_id", requestId, optionId: outcome.optionId }];
  const forbid = (reason) => {
    session.publish("permission_forbidden", { requestId, sessionId: session.id, clientId, reason }, { promptId: request.turn.promptId, originator: request.turn.originator });
    return [403, { error: "Forbidden", code: "permission_forbidden", requestId, sessionId: session.id, reason }];
  };
  if (daemon.policy === "designated" && request.turn.originator && clientId !== request.turn.originator) return forbid("designated_mismatch");
  if (daemon.policy === "local-only" && daemon.pretendRemote) return forbid("remote_not_allowed");
  if (daemon.policy === "consensus") {
    if (!known || !request.voters.has(clientId)) return forbid("designated_mismatch");
    if (request.votes.get(clientId) === outcome.optionId) return [200, {}];
    request.votes.set(clientId, outcome.optionId);
    const tallies = {};
    for (const option of request.votes.values()) tallies[option] = (tallies[option] ?? 0) + 1;
    const quorum = Math.min(daemon.quorum, Math.max(1, request.voters.size));
    const best = Math.max(...Object.values(tallies));
    if (best < quorum) {
      session.publish(
        "permission_partial_vote",
        { requestId, sessionId: session.id, votesReceived: request.votes.size, votesNeeded: Math.max(1, quorum - best), quorum, optionTallies: tallies },
        { promptId: request.turn.promptId, originator: request.turn.originator },
      );
      return [200, {}];
    }
  }
  session.settle(request, { outcome: "selected", optionId: outcome.optionId }, clientId);
  return [200, {}];
}

// Started by hand: a daemon to look at.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const daemon = await startMockDaemon();
  console.log(`${daemon.url}/#token=${daemon.token}`);
}
