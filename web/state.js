/**
 * What does a session look like after these frames?
 *
 * The page's referee: a pure function from state and action to state. No DOM, no clock, no network, no randomness.
 * Objects are replaced, never changed, so that a view can tell by identity what it has to draw again.
 *
 * Invariants, checked by `checkInvariants` after every step of the tests:
 * I1 entry keys are unique; I2 at most ENTRIES_MAX entries are not pending permissions; I3 a request id has at most one
 * entry, and once resolved it stays resolved; I4 a tool call waits for a request only while that request is pending;
 * I5 only the last agent or thought entry is open; I6 a numbered frame is taken at most once; I7 after the session
 * ended nothing is pending and no turn runs.
 */

import { attachmentOf, mergeTool, textOf, toolFacts } from "./content.js";

/** @typedef {import("./types").State} State */
/** @typedef {import("./types").Action} Action */
/** @typedef {import("./types").Entry} Entry */
/** @typedef {import("./types").Frame} Frame */
/** @typedef {import("./types").Json} Json */
/** @typedef {import("./types").PermissionEntry} PermissionEntry */
/** @typedef {import("./types").ToolEntry} ToolEntry */

/** About what the daemon's ring of 8000 events makes of a chatty session; keeps a phone's page under ~50 000 nodes. */
export const ENTRIES_MAX = 1500;
/** One message. A model's longest answer is a few hundred kilobytes; Markdown is parsed over this much at most. */
export const MESSAGE_CHARS_MAX = 512 * 1024;
/** Refusals kept per request: enough to see who tried, while a client that retries in a loop can't grow the page. */
export const REFUSALS_MAX = 20;
/** The daemon queues 5 prompts per session by default; generous for daemons that allow more. */
export const QUEUE_MAX = 64;

/**
 * @param {string} sessionId
 * @returns {State}
 */
export function initialState(sessionId) {
  return {
    sessionId,
    entries: [],
    dropped: 0,
    truncated: false,
    lastEventId: 0,
    caughtUp: false,
    turn: null,
    lastEndedPromptId: null,
    cancelling: null,
    queue: [],
    title: null,
    ended: null,
    slow: false,
  };
}

/**
 * @param {State} state
 * @param {Action} action
 * @returns {State}
 */
export function reduce(state, action) {
  switch (action.type) {
    case "frame":
      return takeFrame(state, action.frame);
    case "rebuild":
      return { ...initialState(state.sessionId), truncated: action.truncated };
    case "status":
      return takeStatus(state, action.status);
    case "vote":
      return editPermission(state, action.requestId, (entry) =>
        entry.pending || entry.vote ? { ...entry, vote: action.vote } : entry,
      );
  }
}

/** The permission requests that wait for an answer, oldest first. @param {State} state */
export function pendingPermissions(state) {
  return state.entries.filter((entry) => entry.kind === "permission" && entry.pending).map((entry) => /** @type {PermissionEntry} */ (entry));
}

/** @param {State} state @param {Frame} frame @returns {State} */
function takeFrame(state, frame) {
  if (typeof frame.id === "number") {
    if (frame.id <= state.lastEventId) return state;
    state = { ...state, lastEventId: frame.id };
  }
  const { data } = frame;
  switch (frame.type) {
    case "session_update":
      return isObject(data.update) ? takeUpdate(state, frame, data.update) : state;
    case "permission_request":
      return requested(state, frame);
    case "permission_resolved":
    case "permission_already_resolved":
      return resolved(state, frame);
    case "permission_partial_vote":
      return editPermission(state, String(data.requestId), (entry) => ({ ...entry, tally: tallyOf(data) }));
    case "permission_forbidden":
      return editPermission(state, String(data.requestId), (entry) => ({
        ...entry,
        refusals: [...entry.refusals, { by: text(data.clientId), reason: String(data.reason ?? "") }].slice(-REFUSALS_MAX),
      }));
    case "prompt_cancelled": {
      const promptId = frame.promptId ?? state.turn?.promptId;
      if (!promptId || data.reason === "forward_failed") return state;
      return { ...state, cancelling: { promptId, by: frame.originatorClientId } };
    }
    case "turn_complete":
      return endTurn(state, frame, turnNote(state, frame));
    case "turn_error":
      return endTurn(state, frame, { tone: "error", what: "turn-error", detail: String(data.message ?? data.code ?? "") });
    case "pending_prompt_added":
      if (state.queue.some((item) => item.promptId === data.promptId)) return state;
      return {
        ...state,
        queue: [
          ...state.queue,
          { promptId: String(data.promptId), text: String(data.text ?? ""), by: frame.originatorClientId },
        ].slice(-QUEUE_MAX),
      };
    case "pending_prompt_started":
    case "pending_prompt_completed":
      return { ...state, queue: state.queue.filter((item) => item.promptId !== data.promptId) };
    case "session_metadata_updated":
      return { ...state, title: text(data.displayName) ?? state.title };
    case "model_switched":
      return note(state, frame, { tone: "info", what: "model", detail: text(data.modelId) ?? text(data.currentModelId) });
    case "model_switch_failed":
      return note(state, frame, { tone: "warn", what: "model-failed", detail: text(data.error) });
    case "approval_mode_changed":
      return note(state, frame, { tone: "info", what: "mode", detail: text(data.next) });
    case "session_rewound":
      return note(state, frame, { tone: "info", what: "rewound", detail: rewoundTo(data) });
    case "slow_client_warning":
      return { ...state, slow: true };
    case "client_evicted":
      return note({ ...state, slow: true }, frame, { tone: "warn", what: "evicted", detail: text(data.reason) });
    case "replay_complete":
      return { ...state, caughtUp: true };
    case "session_closed":
      return ended(state, frame, { how: "closed", reason: String(data.reason ?? ""), by: text(data.closedBy) });
    case "session_died":
      return ended(state, frame, { how: "died", reason: String(data.signalCode ?? data.reason ?? "") });
    default:
      return state;
  }
}

/** Which prompt, and what went back if not all of it. @param {Json} data @returns {string} */
function rewoundTo(data) {
  const number = Number(data.targetTurnIndex ?? 0) + 1;
  return data.what === "files" || data.what === "conversation" ? `${number} (${data.what} only)` : `${number}`;
}

/** One `session/update` of ACP. @param {State} state @param {Frame} frame @param {Json} update @returns {State} */
function takeUpdate(state, frame, update) {
  state = openTurn(state, frame, update);
  switch (update.sessionUpdate) {
    case "user_message_chunk":
      return userChunk(state, frame, update);
    case "agent_message_chunk":
      return agentChunk(state, frame, update.content);
    case "agent_thought_chunk":
      return thoughtChunk(state, frame, textOf(update.content));
    case "tool_call":
    case "tool_call_update":
      return toolUpdate(state, frame, update);
    case "plan":
      return plan(state, frame, update);
    case "session_info_update":
      return { ...state, title: text(update.title) ?? state.title };
    case "current_mode_update":
      return note(state, frame, { tone: "info", what: "mode", detail: text(update.currentModeId) });
    default:
      return state;
  }
}

/** A turn runs from the first update that carries its prompt's id. @param {State} state @param {Frame} frame @param {Json} update @returns {State} */
function openTurn(state, frame, update) {
  const { promptId } = frame;
  if (!promptId || state.ended || promptId === state.lastEndedPromptId || promptId === state.turn?.promptId) return state;
  // A tool may report after its turn has ended; only the prompt itself replaces a turn that is known to run.
  if (state.turn && update.sessionUpdate !== "user_message_chunk") return state;
  return { ...state, turn: { promptId, by: frame.originatorClientId } };
}

/** @param {State} state @param {Frame} frame @param {Json} update @returns {State} */
function userChunk(state, frame, update) {
  const piece = textOf(update.content);
  const attachment = attachmentOf(update.content);
  const last = state.entries.at(-1);
  if (last?.kind === "user" && last.promptId === frame.promptId && frame.promptId) {
    // The daemon echoes a prompt block by block; an agent that replays streams one block in pieces.
    const between = isObject(update._meta) && update._meta.source === "bridge-echo" && last.text && piece ? "\n" : "";
    return replaceLast(state, {
      ...last,
      text: clip(last.text + between + piece),
      attachments: attachment ? [...last.attachments, attachment] : last.attachments,
    });
  }
  return append(state, {
    kind: "user",
    key: entryKey(frame, "u"),
    at: time(frame),
    text: clip(piece),
    promptId: frame.promptId,
    by: frame.originatorClientId,
    attachments: attachment ? [attachment] : [],
  });
}

/** @param {State} state @param {Frame} frame @param {unknown} content @returns {State} */
function agentChunk(state, frame, content) {
  const piece = textOf(content);
  const attachment = attachmentOf(content);
  // Chunks without text only carry usage figures.
  if (piece === "" && !attachment) return state;
  const last = state.entries.at(-1);
  if (last?.kind === "agent" && last.open && last.promptId === frame.promptId) {
    return replaceLast(state, {
      ...last,
      text: clip(last.text + piece),
      attachments: attachment ? [...last.attachments, attachment] : last.attachments,
    });
  }
  return append(state, {
    kind: "agent",
    key: entryKey(frame, "a"),
    at: time(frame),
    text: clip(piece),
    promptId: frame.promptId,
    open: true,
    attachments: attachment ? [attachment] : [],
  });
}

/** @param {State} state @param {Frame} frame @param {string} piece @returns {State} */
function thoughtChunk(state, frame, piece) {
  if (piece === "") return state;
  const last = state.entries.at(-1);
  if (last?.kind === "thought" && last.open && last.promptId === frame.promptId) {
    return replaceLast(state, { ...last, text: clip(last.text + piece) });
  }
  return append(state, {
    kind: "thought",
    key: entryKey(frame, "t"),
    at: time(frame),
    text: clip(piece),
    promptId: frame.promptId,
    open: true,
  });
}

/** @param {State} state @param {Frame} frame @param {Json} update @returns {State} */
function toolUpdate(state, frame, update) {
  const toolCallId = text(update.toolCallId);
  if (!toolCallId) return state;
  const index = lastIndex(state, (entry) => entry.kind === "tool" && entry.toolCallId === toolCallId);
  if (index >= 0) {
    const entry = /** @type {ToolEntry} */ (state.entries[index]);
    return replaceAt(state, index, { ...entry, ...mergeTool(entry, update) });
  }
  return append(state, {
    kind: "tool",
    key: `tool:${toolCallId}`,
    at: time(frame),
    promptId: frame.promptId,
    waitingFor: null,
    denied: false,
    ...toolFacts(toolCallId, update),
  });
}

/** @param {State} state @param {Frame} frame @param {Json} update @returns {State} */
function plan(state, frame, update) {
  const items = (Array.isArray(update.entries) ? update.entries : []).filter(isObject).map((item) => ({
    content: String(item.content ?? ""),
    status: String(item.status ?? "pending"),
  }));
  const index = lastIndex(state, (entry) => entry.kind === "plan" && entry.promptId === frame.promptId);
  const known = state.entries[index];
  if (known?.kind === "plan") return replaceAt(state, index, { ...known, items });
  return append(state, { kind: "plan", key: entryKey(frame, "plan"), at: time(frame), promptId: frame.promptId, items });
}

/** @param {State} state @param {Frame} frame @returns {State} */
function requested(state, frame) {
  const { data } = frame;
  const requestId = text(data.requestId);
  if (!requestId || state.ended) return state;
  // A daemon repeats the request without a number for whoever joined late; the same request is one card.
  if (findPermission(state, requestId) >= 0) return state;
  const call = isObject(data.toolCall) ? data.toolCall : {};
  const toolCallId = text(call.toolCallId) ?? requestId;
  const index = lastIndex(state, (entry) => entry.kind === "tool" && entry.toolCallId === toolCallId);
  const known = state.entries[index];
  const asked = toolFacts(toolCallId, call);
  if (known?.kind === "tool") {
    // What is asked about is what would run: it also tells the tool card, which may have begun without arguments. The
    // texts of a request explain the question and are not output of the tool.
    const merged = mergeTool(known, { ...call, status: undefined });
    state = replaceAt(state, index, { ...known, ...merged, texts: known.texts, waitingFor: requestId });
  }
  return append(state, {
    kind: "permission",
    key: `permission:${requestId}`,
    at: time(frame),
    promptId: frame.promptId,
    requestId,
    tool: known?.kind === "tool" ? { ...asked, toolName: asked.toolName || known.toolName } : asked,
    options: optionsOf(data.options),
    originator: frame.originatorClientId,
    deadline: deadlineOf(frame),
    pending: true,
    outcome: null,
    tally: isObject(data.partialVote) ? tallyOf(data.partialVote) : null,
    refusals: [],
    vote: null,
  });
}

/** How far the votes are, as a partial vote tells it. @param {Json} data @returns {import("./types").Tally} */
function tallyOf(data) {
  return {
    received: number(data.votesReceived),
    needed: number(data.votesNeeded),
    quorum: number(data.quorum),
    byOption: isObject(data.optionTallies) ? data.optionTallies : {},
    split: data.quorumLost === true ? "lost" : data.quorumUnreachable === true ? "unless moved" : "no",
  };
}

/** @param {State} state @param {Frame} frame @returns {State} */
function resolved(state, frame) {
  const { data } = frame;
  const requestId = String(data.requestId);
  const selected = isObject(data.outcome) && data.outcome.outcome === "selected";
  return editPermission(state, requestId, (entry) => {
    if (!entry.pending) return entry;
    return {
      ...entry,
      pending: false,
      outcome: { optionId: selected ? String(data.outcome.optionId) : null },
      // The late-vote event names no voter; its envelope has none either.
      voter: text(data.voterClientId),
      cause: selected || data.voterClientId ? undefined : causeOf(state, entry, frame),
    };
  });
}

/** @param {State} state @param {PermissionEntry} entry @param {Frame} frame @returns {PermissionEntry["cause"]} */
function causeOf(state, entry, frame) {
  if (state.cancelling && state.cancelling.promptId === entry.promptId) return "turn-cancelled";
  const at = time(frame);
  return entry.deadline !== null && at !== null && at >= entry.deadline - 1000 ? "timeout" : undefined;
}

/**
 * What a daemon that does not repeat pending requests says about them, after a replay that had lost its beginning.
 * @param {State} state @param {Json} status @returns {State}
 */
function takeStatus(state, status) {
  for (const item of Array.isArray(status.pendingInteractions) ? status.pendingInteractions : []) {
    if (!isObject(item) || item.kind !== "permission" || !isObject(item.action)) continue;
    const { action } = item;
    const created = Date.parse(String(item.createdAt));
    state = requested(state, {
      v: 1,
      type: "permission_request",
      promptId: state.turn?.promptId,
      data: {
        requestId: item.requestId,
        expiresAt: item.expiresAt,
        partialVote: item.partialVote,
        toolCall: {
          toolCallId: action.toolCallId,
          title: action.title,
          kind: action.type,
          content: action.content,
          locations: action.locations,
          rawInput: action.input,
        },
        options: (Array.isArray(item.options) ? item.options : []).map((/** @type {Json} */ option) => ({
          ...option,
          name: option.label ?? option.name,
        })),
      },
      _meta: Number.isNaN(created) ? {} : { serverTimestamp: created },
    });
  }
  return state.title ? state : { ...state, title: text(status.displayName) ?? null };
}

/** @param {State} state @param {Frame} frame @param {Omit<import("./types").NoteEntry, "kind" | "key" | "at"> | null} what @returns {State} */
function endTurn(state, frame, what) {
  const promptId = text(frame.data.promptId) ?? frame.promptId ?? null;
  const mine = !state.turn || !promptId || state.turn.promptId === promptId;
  let next = closeOpen(state);
  if (what) next = note(next, frame, what);
  return {
    ...next,
    turn: mine ? null : next.turn,
    cancelling: mine ? null : next.cancelling,
    lastEndedPromptId: promptId ?? next.lastEndedPromptId,
  };
}

/** @param {State} state @param {Frame} frame @returns {Omit<import("./types").NoteEntry, "kind" | "key" | "at"> | null} */
function turnNote(state, frame) {
  const reason = String(frame.data.stopReason ?? "end_turn");
  if (reason === "end_turn") return null;
  if (reason === "cancelled") return { tone: "info", what: "cancelled", by: state.cancelling?.by };
  return { tone: "warn", what: "stopped", detail: reason };
}

/** @param {State} state @param {Frame} frame @param {NonNullable<State["ended"]>} how @returns {State} */
function ended(state, frame, how) {
  let next = closeOpen(state);
  for (const open of pendingPermissions(next)) {
    next = editPermission(next, open.requestId, (entry) => ({
      ...entry,
      pending: false,
      outcome: { optionId: null },
      cause: "session-ended",
    }));
  }
  next = note(next, frame, { tone: how.how === "died" ? "error" : "info", what: how.how, by: how.by, detail: how.reason });
  return { ...next, ended: how, turn: null, cancelling: null, queue: [] };
}

/** @param {State} state @param {Frame} frame @param {Omit<import("./types").NoteEntry, "kind" | "key" | "at">} what @returns {State} */
function note(state, frame, what) {
  return append(state, { kind: "note", key: entryKey(frame, "n"), at: time(frame), ...what });
}

/** @param {State} state @param {Entry} entry @returns {State} */
function append(state, entry) {
  const closed = closeOpen(state);
  const taken = closed.entries.some((other) => other.key === entry.key);
  // Synthetic frames have no number to make a key of.
  const keyed = taken ? { ...entry, key: `${entry.key}~${closed.entries.length + closed.dropped}` } : entry;
  return trim({ ...closed, entries: [...closed.entries, keyed] });
}

/** Lets the oldest entries go, but never a question that still waits. @param {State} state @returns {State} */
function trim(state) {
  const surplus = state.entries.filter((entry) => !isPending(entry)).length - ENTRIES_MAX;
  if (surplus <= 0) return state;
  let left = surplus;
  const entries = state.entries.filter((entry) => isPending(entry) || left-- <= 0);
  return { ...state, entries, dropped: state.dropped + surplus };
}

/** @param {State} state @returns {State} */
function closeOpen(state) {
  const last = state.entries.at(-1);
  if ((last?.kind === "agent" || last?.kind === "thought") && last.open) return replaceLast(state, { ...last, open: false });
  return state;
}

/** @param {State} state @param {string} requestId @param {(entry: PermissionEntry) => PermissionEntry} edit @returns {State} */
function editPermission(state, requestId, edit) {
  const index = findPermission(state, requestId);
  const entry = state.entries[index];
  if (entry?.kind !== "permission") return state;
  const changed = edit(entry);
  if (changed === entry) return state;
  const next = replaceAt(state, index, changed);
  if (changed.pending) return next;
  const tool = lastIndex(next, (other) => other.kind === "tool" && other.waitingFor === requestId);
  const waiting = next.entries[tool];
  return waiting?.kind === "tool" ? replaceAt(next, tool, { ...waiting, waitingFor: null, denied: isRejected(changed) }) : next;
}

/** @param {State} state @param {string} requestId */
function findPermission(state, requestId) {
  return lastIndex(state, (entry) => entry.kind === "permission" && entry.requestId === requestId);
}

/** @param {State} state @param {(entry: Entry) => boolean} test */
function lastIndex(state, test) {
  return state.entries.findLastIndex(test);
}

/** @param {State} state @param {Entry} entry @returns {State} */
function replaceLast(state, entry) {
  return replaceAt(state, state.entries.length - 1, entry);
}

/** @param {State} state @param {number} index @param {Entry} entry @returns {State} */
function replaceAt(state, index, entry) {
  return { ...state, entries: state.entries.with(index, entry) };
}

/** @param {unknown} options @returns {import("./types").PermissionOption[]} */
function optionsOf(options) {
  return (Array.isArray(options) ? options : [])
    .filter((option) => isObject(option) && typeof option.optionId === "string" && option.optionId !== "")
    .map((option) => ({
      optionId: option.optionId,
      name: String(option.name ?? option.optionId),
      kind: String(option.kind ?? ""),
    }));
}

/** When the daemon stops waiting, if the frame says so. @param {Frame} frame */
function deadlineOf(frame) {
  const { expiresAt, timeoutMs } = frame.data;
  if (typeof expiresAt === "number" && expiresAt > 0) return expiresAt;
  if (typeof expiresAt === "string" && !Number.isNaN(Date.parse(expiresAt))) return Date.parse(expiresAt);
  const at = time(frame);
  return typeof timeoutMs === "number" && timeoutMs > 0 && at !== null ? at + timeoutMs : null;
}

/** @param {PermissionEntry} entry */
const isRejected = (entry) =>
  entry.options.some((option) => option.optionId === entry.outcome?.optionId && option.kind.startsWith("reject"));
/** @param {Entry} entry */
const isPending = (entry) => entry.kind === "permission" && entry.pending;
/** @param {string} value */
const clip = (value) => (value.length > MESSAGE_CHARS_MAX ? value.slice(0, MESSAGE_CHARS_MAX) : value);
/** @param {Frame} frame @param {string} prefix */
const entryKey = (frame, prefix) => `${prefix}:${frame.id ?? "synthetic"}`;
/** @param {Frame} frame */
const time = (frame) => frame._meta?.serverTimestamp ?? null;
/** @param {unknown} value */
const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : 0);
/** @param {unknown} value */
const text = (value) => (typeof value === "string" && value !== "" ? value : undefined);
/** @param {unknown} value @returns {value is Json} */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Throws if an invariant of the module doc is broken. For tests. @param {State} state */
export function checkInvariants(state) {
  const fail = (/** @type {string} */ what) => {
    throw new Error(`state: ${what}`);
  };
  const keys = new Set(state.entries.map((entry) => entry.key));
  if (keys.size !== state.entries.length) fail("I1: two entries share a key");
  if (state.entries.filter((entry) => !isPending(entry)).length > ENTRIES_MAX) fail("I2: too many entries");
  const requests = new Map();
  for (const entry of state.entries) {
    if (entry.kind !== "permission") continue;
    if (requests.has(entry.requestId)) fail("I3: a request has two entries");
    requests.set(entry.requestId, entry);
    if (entry.pending !== (entry.outcome === null)) fail("I3: pending and resolved at once");
  }
  state.entries.forEach((entry, index) => {
    if (entry.kind === "tool" && entry.waitingFor !== null && !requests.get(entry.waitingFor)?.pending) {
      fail("I4: a tool call waits for a request that is not pending");
    }
    if ((entry.kind === "agent" || entry.kind === "thought") && entry.open && index !== state.entries.length - 1) {
      fail("I5: an entry is open although it is not the last");
    }
  });
  if (state.ended && (state.turn || pendingPermissions(state).length > 0)) fail("I7: something goes on after the end");
}
