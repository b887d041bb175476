import assert from "node:assert/strict";
import { test } from "node:test";
import { checkInvariants, ENTRIES_MAX, initialState, MESSAGE_CHARS_MAX, pendingPermissions, reduce, REFUSALS_MAX } from "../state.js";

const ALICE = "client_a11ce";
const BOB = "client_b0b";

/** A session that numbers its frames as the daemon does. */
function session() {
  let state = initialState("s1");
  let next = 1;
  const apply = (action) => {
    state = reduce(state, action);
    checkInvariants(state);
    return state;
  };
  return {
    get state() {
      return state;
    },
    get entries() {
      return state.entries;
    },
    kinds: () => state.entries.map((entry) => entry.kind).join(" "),
    apply,
    frame: (frame) => apply({ type: "frame", frame: { v: 1, data: {}, ...frame } }),
    numbered: (type, data, over = {}) => apply({ type: "frame", frame: { id: next++, v: 1, type, data, promptId: "p1", originatorClientId: ALICE, _meta: { serverTimestamp: 1000 + next }, ...over } }),
    update(update, over) {
      return this.numbered("session_update", { sessionId: "s1", update }, over);
    },
    say(text, over) {
      return this.update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } }, over);
    },
    prompt(text, over) {
      return this.update({ sessionUpdate: "user_message_chunk", content: { type: "text", text }, _meta: { source: "bridge-echo" } }, over);
    },
    ask(requestId, over = {}, data = {}) {
      return this.numbered("permission_request", { requestId, sessionId: "s1", toolCall: call(requestId), options: OPTIONS, ...data }, over);
    },
    resolve(requestId, optionId, voter = BOB) {
      return this.numbered("permission_resolved", { requestId, outcome: optionId ? { outcome: "selected", optionId } : { outcome: "cancelled" }, ...(voter ? { voterClientId: voter } : {}) }, { originatorClientId: voter });
    },
    permission: (requestId) => state.entries.find((entry) => entry.kind === "permission" && entry.requestId === requestId),
    tool: (id) => state.entries.find((entry) => entry.kind === "tool" && entry.toolCallId === id),
  };
}

const OPTIONS = [
  { optionId: "proceed_once", name: "Allow", kind: "allow_once" },
  { optionId: "cancel", name: "Reject", kind: "reject_once" },
];
const call = (requestId) => ({ toolCallId: `call-${requestId}`, kind: "execute", title: "touch x (make it)", status: "pending", content: [], locations: [], rawInput: { command: "touch x", description: "make it" }, _meta: { toolName: "run_shell_command" } });

test("a turn as recorded: prompt, call, question, answer, result, text", () => {
  const s = session();
  s.prompt("run it");
  assert.deepEqual(s.state.turn, { promptId: "p1", by: ALICE });
  s.update({ sessionUpdate: "tool_call", toolCallId: "call-r1", title: "Shell", kind: "execute", status: "pending", content: [], rawInput: {}, _meta: { toolName: "run_shell_command" } });
  s.say("");
  s.ask("r1");
  assert.equal(s.kinds(), "user tool permission");
  assert.equal(s.tool("call-r1").waitingFor, "r1");
  assert.equal(s.tool("call-r1").rawInput.command, "touch x");
  s.resolve("r1", "proceed_once");
  assert.deepEqual([s.permission("r1").pending, s.permission("r1").voter, s.permission("r1").outcome.optionId], [false, BOB, "proceed_once"]);
  assert.equal(s.tool("call-r1").waitingFor, null);
  s.update({ sessionUpdate: "tool_call_update", toolCallId: "call-r1", status: "completed", content: [{ type: "content", content: { type: "text", text: "Exit Code: 0" } }] });
  assert.deepEqual([s.tool("call-r1").status, s.tool("call-r1").texts], ["completed", ["Exit Code: 0"]]);
  s.say("Done ");
  s.say("now.");
  assert.equal(s.entries.at(-1).text, "Done now.");
  s.numbered("turn_complete", { promptId: "p1", stopReason: "end_turn" });
  assert.equal(s.state.turn, null);
  assert.equal(s.entries.at(-1).open, false);
  assert.equal(s.kinds(), "user tool permission agent");
});

test("only what changed is replaced: views compare by identity", () => {
  const s = session();
  s.prompt("a");
  s.say("b");
  const [user, agent] = s.entries;
  s.say("c");
  assert.equal(s.entries[0], user);
  assert.notEqual(s.entries[1], agent);
  assert.equal(agent.text, "b");
});

test("a repeated number changes nothing, a repeated request is one card", () => {
  const s = session();
  s.prompt("a");
  const before = s.state;
  s.frame({ id: 1, type: "session_update", data: { update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "again" } } } });
  assert.equal(s.state, before);
  s.ask("r1");
  s.frame({ type: "permission_request", data: { requestId: "r1", toolCall: call("r1"), options: OPTIONS } });
  assert.equal(pendingPermissions(s.state).length, 1);
  s.resolve("r1", "cancel");
  s.frame({ type: "permission_request", data: { requestId: "r1", toolCall: call("r1"), options: OPTIONS } });
  assert.equal(pendingPermissions(s.state).length, 0);
  assert.equal(s.permission("r1").outcome.optionId, "cancel");
});

test("the first resolution stands; a late one only fills in what was missed", () => {
  const s = session();
  s.ask("r1");
  s.apply({ type: "vote", requestId: "r1", vote: { status: "sending", optionId: "proceed_once" } });
  s.resolve("r1", "cancel");
  s.numbered("permission_already_resolved", { requestId: "r1", outcome: { outcome: "selected", optionId: "proceed_once" } });
  assert.deepEqual([s.permission("r1").outcome.optionId, s.permission("r1").voter], ["cancel", BOB]);
  s.apply({ type: "vote", requestId: "r1", vote: { status: "late", optionId: "proceed_once" } });
  assert.equal(s.permission("r1").vote.status, "late");
  s.ask("r2");
  s.numbered("permission_already_resolved", { requestId: "r2", outcome: { outcome: "selected", optionId: "proceed_once" } }, { originatorClientId: undefined });
  assert.deepEqual([s.permission("r2").pending, s.permission("r2").voter], [false, undefined]);
});

test("partial votes and refusals gather on the request", () => {
  const s = session();
  s.ask("r1");
  s.numbered("permission_partial_vote", { requestId: "r1", votesReceived: 1, votesNeeded: 1, quorum: 2, optionTallies: { proceed_once: 1 } });
  assert.deepEqual(s.permission("r1").tally, { received: 1, needed: 1, quorum: 2, byOption: { proceed_once: 1 }, split: "no" });
  const split = { votesReceived: 2, votesNeeded: 1, quorum: 2, optionTallies: { proceed_once: 1, cancel: 1 }, quorumUnreachable: true };
  s.numbered("permission_partial_vote", { requestId: "r1", ...split });
  assert.equal(s.permission("r1").tally.split, "unless moved");
  s.numbered("permission_partial_vote", { requestId: "r1", ...split, quorumLost: true });
  assert.equal(s.permission("r1").tally.split, "lost");
  for (let n = 0; n < REFUSALS_MAX + 5; n++) s.numbered("permission_forbidden", { requestId: "r1", clientId: BOB, reason: "designated_mismatch" });
  assert.equal(s.permission("r1").refusals.length, REFUSALS_MAX);
  assert.deepEqual(s.permission("r1").refusals[0], { by: BOB, reason: "designated_mismatch" });
});

test("a denied call is marked; its failure is the answer", () => {
  const s = session();
  s.update({ sessionUpdate: "tool_call", toolCallId: "call-r1", title: "Shell", kind: "execute", status: "pending" });
  s.ask("r1");
  s.resolve("r1", "cancel");
  assert.equal(s.tool("call-r1").denied, true);
});

test("why nobody answered: cancelled turn, time, end of the session", () => {
  const cancelled = session();
  cancelled.prompt("a");
  cancelled.ask("r1");
  cancelled.numbered("prompt_cancelled", {}, { originatorClientId: BOB });
  cancelled.resolve("r1", null, null);
  assert.equal(cancelled.permission("r1").cause, "turn-cancelled");
  cancelled.numbered("turn_complete", { promptId: "p1", stopReason: "cancelled" });
  assert.deepEqual([cancelled.entries.at(-1).what, cancelled.entries.at(-1).by], ["cancelled", BOB]);
  assert.equal(cancelled.state.cancelling, null);

  const late = session();
  late.ask("r1", { _meta: { serverTimestamp: 10_000 } }, { timeoutMs: 5000 });
  assert.equal(late.permission("r1").deadline, 15_000);
  late.numbered("permission_resolved", { requestId: "r1", outcome: { outcome: "cancelled" } }, { _meta: { serverTimestamp: 15_003 } });
  assert.equal(late.permission("r1").cause, "timeout");

  const over = session();
  over.ask("r1");
  over.numbered("session_died", { reason: "channel_closed", signalCode: "SIGKILL" });
  assert.equal(over.permission("r1").cause, "session-ended");
  assert.deepEqual(over.state.ended, { how: "died", reason: "SIGKILL" });
});

test("a deadline as a point in time, in both spellings", () => {
  const s = session();
  s.ask("r1", {}, { expiresAt: 99 });
  s.ask("r2", {}, { expiresAt: "1970-01-01T00:00:01.000Z" });
  s.ask("r3");
  assert.deepEqual(["r1", "r2", "r3"].map((id) => s.permission(id).deadline), [99, 1000, null]);
});

test("queued prompts come and go; the next turn replaces the old one", () => {
  const s = session();
  s.prompt("one");
  s.numbered("pending_prompt_added", { promptId: "p2", text: "two" }, { promptId: "p2", originatorClientId: BOB });
  assert.deepEqual(s.state.queue, [{ promptId: "p2", text: "two", by: BOB }]);
  s.numbered("turn_complete", { promptId: "p1", stopReason: "end_turn" });
  s.numbered("pending_prompt_started", { promptId: "p2" }, { promptId: "p2" });
  s.prompt("two", { promptId: "p2", originatorClientId: BOB });
  assert.deepEqual([s.state.queue.length, s.state.turn], [0, { promptId: "p2", by: BOB }]);
  s.say("straggler", { promptId: "p1" });
  assert.equal(s.state.turn.promptId, "p2");
});

test("blocks of one prompt are lines of one message; pictures only in harmless formats", () => {
  const s = session();
  s.prompt("a");
  s.prompt("b");
  s.update({ sessionUpdate: "user_message_chunk", content: { type: "image", mimeType: "image/png", data: "aGk=" } });
  s.update({ sessionUpdate: "user_message_chunk", content: { type: "image", mimeType: "image/svg+xml", data: "aGk=" } });
  s.update({ sessionUpdate: "user_message_chunk", content: { type: "image", mimeType: "image/png", data: '"><script>' } });
  assert.equal(s.entries.length, 1);
  assert.equal(s.entries[0].text, "a\nb");
  assert.deepEqual(s.entries[0].attachments.map((item) => item.value), ["data:image/png;base64,aGk="]);
});

test("a diff stays when the agent replaces it by a line of text", () => {
  const s = session();
  const diff = { type: "diff", path: "/a", oldText: null, newText: "x" };
  s.update({ sessionUpdate: "tool_call", toolCallId: "c", title: "Edit", kind: "edit", content: [diff] });
  s.update({ sessionUpdate: "tool_call_update", toolCallId: "c", status: "completed", content: [{ type: "content", content: { type: "text", text: "ok" } }] });
  assert.deepEqual([s.tool("c").diffs.length, s.tool("c").texts, s.tool("c").kind], [1, ["ok"], "tool"]);
});

test("old entries go, pending questions stay, the count is kept", () => {
  const s = session();
  s.ask("r1");
  for (let n = 0; n < ENTRIES_MAX + 20; n++) s.numbered("approval_mode_changed", { next: `m${n}` });
  assert.equal(s.state.entries.length, ENTRIES_MAX + 1);
  assert.equal(s.state.dropped, 20);
  assert.equal(s.permission("r1").pending, true);
});

test("a way back is told", () => {
  const s = session();
  s.numbered("session_rewound", { targetTurnIndex: 1, what: "both" });
  s.numbered("session_rewound", { targetTurnIndex: 0, what: "files" });
  const told = s.entries.map((entry) => [entry.what, entry.detail]);
  assert.deepEqual(told, [["rewound", "2"], ["rewound", "1 (files only)"]]);
});

test("a message has an end", () => {
  const s = session();
  s.say("x".repeat(MESSAGE_CHARS_MAX));
  s.say("y");
  assert.equal(s.entries.at(-1).text.length, MESSAGE_CHARS_MAX);
});

test("a rebuild forgets everything but the session", () => {
  const s = session();
  s.prompt("a");
  s.apply({ type: "rebuild", truncated: true });
  assert.deepEqual(s.state, { ...initialState("s1"), truncated: true });
});

test("status fills in requests that the stream no longer has", () => {
  const s = session();
  s.apply({ type: "status", status: { displayName: "Named", pendingInteractions: [{ requestId: "r9", kind: "permission", createdAt: "2026-01-01T00:00:00Z", expiresAt: "2026-01-01T00:05:00Z", action: { type: "execute", title: "touch x", content: [], locations: [], input: { command: "touch x" } }, options: [{ optionId: "a", label: "Allow", kind: "allow_once" }] }, { kind: "question" }, null] } });
  assert.equal(s.permission("r9").options[0].name, "Allow");
  assert.equal(s.permission("r9").tool.rawInput.command, "touch x");
  assert.equal(s.permission("r9").deadline, Date.parse("2026-01-01T00:05:00Z"));
  assert.equal(s.state.title, "Named");
});

test("wrong shapes from an agent are survived", () => {
  const s = session();
  const odd = [undefined, null, 1, "x", [], {}, { type: "text" }, { type: "diff" }, [null], [{ type: "diff" }], [{ type: "content" }]];
  for (const value of odd) {
    for (const kind of ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "nonsense"]) {
      s.update({ sessionUpdate: kind, content: value, toolCallId: "odd", entries: value, title: value, kind: value, status: value, rawInput: value, locations: value, _meta: value });
    }
    for (const type of ["permission_request", "permission_resolved", "permission_partial_vote", "permission_forbidden", "turn_error", "pending_prompt_added", "unheard_of", "session_metadata_updated"]) {
      s.numbered(type, { requestId: "odd", outcome: value, options: value, toolCall: value, optionTallies: value, votesReceived: value, reason: value, displayName: value });
    }
  }
  assert.equal(s.permission("odd").options.length, 0);
});

test("random walks keep the invariants, and a resolved request never comes back", () => {
  let seed = 42;
  const random = (below) => {
    seed = (seed * 1664525 + 1013904223) >>> 0;
    return seed % below;
  };
  for (let walk = 0; walk < 60; walk++) {
    const s = session();
    const settled = new Map();
    for (let step = 0; step < 120; step++) {
      const request = `r${random(5)}`;
      const promptId = `p${random(3)}`;
      switch (random(14)) {
        case 0: s.prompt("x", { promptId }); break;
        case 1: case 2: s.say("y", { promptId }); break;
        case 3: s.update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: "z" } }, { promptId }); break;
        case 4: s.update({ sessionUpdate: "tool_call", toolCallId: `call-${request}`, title: "t", kind: "execute", status: "in_progress" }, { promptId }); break;
        case 5: s.ask(request, { promptId }); break;
        case 6: s.frame({ type: "permission_request", data: { requestId: request, toolCall: call(request), options: OPTIONS } }); break;
        case 7: s.resolve(request, ["proceed_once", "cancel", null][random(3)], [BOB, null][random(2)]); break;
        case 8: s.numbered("permission_already_resolved", { requestId: request, outcome: { outcome: "cancelled" } }); break;
        case 9: s.apply({ type: "vote", requestId: request, vote: { status: ["sending", "recorded", "late", "failed"][random(4)], optionId: "proceed_once" } }); break;
        case 10: s.numbered("turn_complete", { promptId, stopReason: ["end_turn", "cancelled"][random(2)] }, { promptId }); break;
        case 11: s.numbered("prompt_cancelled", {}, { promptId }); break;
        case 12: if (random(8) === 0) { s.apply({ type: "rebuild", truncated: random(2) === 0 }); settled.clear(); } break;
        case 13: if (random(12) === 0) s.numbered(["session_closed", "session_died"][random(2)], { reason: "x" }); break;
      }
      for (const entry of s.entries) {
        if (entry.kind !== "permission") continue;
        const before = settled.get(entry.requestId);
        if (before !== undefined) assert.deepEqual(entry.outcome, before);
        if (!entry.pending) settled.set(entry.requestId, entry.outcome);
      }
    }
  }
});
