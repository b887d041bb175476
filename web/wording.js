/** Which sentences does the page say? All of them that depend on data, in one place. Pure. */

import { commandOf } from "./content.js";

/** @typedef {import("./types").PermissionEntry} PermissionEntry */
/** @typedef {import("./types").NoteEntry} NoteEntry */
/** @typedef {import("./types").Connection} Connection */
/** @typedef {(clientId: string | undefined) => string} Namer */

/**
 * A short name for a client, stable in all windows: the daemon's ids are `client_<uuid>`.
 * @param {string | undefined} clientId
 * @param {ReadonlySet<string>} mine Ids this window has had.
 */
export function clientName(clientId, mine) {
  if (!clientId) return "an unnamed client";
  if (mine.has(clientId)) return "this window";
  return `window ${clientId.replace(/^client_/, "").slice(0, 4)}`;
}

/** @param {string} sentence */
export const capital = (sentence) => sentence.charAt(0).toUpperCase() + sentence.slice(1);

/** What the agent wants, as a question. @param {PermissionEntry} entry */
export function question(entry) {
  const { tool } = entry;
  if (commandOf(tool) !== null) return "Run this command?";
  if (tool.diffs.length === 1) return tool.diffs[0]?.oldText === null ? "Create this file?" : "Change this file?";
  if (tool.diffs.length > 1) return `Change ${tool.diffs.length} files?`;
  switch (tool.toolKind) {
    case "delete":
      return "Delete this?";
    case "move":
      return "Move this?";
    case "fetch":
      return "Fetch this address?";
    case "read":
      return "Read this?";
    case "switch_mode":
      return "Switch mode?";
    default:
      return tool.toolName ? `Use ${tool.toolName}?` : "Allow this?";
  }
}

/** Whose prompt led to the request. @param {PermissionEntry} entry @param {Namer} name */
export function askedFor(entry, name) {
  return entry.originator ? `The agent asks, working for ${name(entry.originator)}` : "The agent asks";
}

/** Who may answer, under the daemon's policy. @param {string | undefined} policy @param {PermissionEntry} entry @param {Namer} name */
export function whoDecides(policy, entry, name) {
  switch (policy) {
    case "first-responder":
      return "first answer wins";
    case "designated":
      return entry.originator ? `only ${name(entry.originator)} can answer` : "first answer wins";
    case "consensus":
      return entry.tally ? `${entry.tally.quorum} matching votes decide` : "a majority of the windows decides";
    case "local-only":
      return "only the daemon's own machine can answer";
    default:
      return null;
  }
}

/** @param {PermissionEntry} entry @param {string | null} optionId */
export function optionName(entry, optionId) {
  return entry.options.find((option) => option.optionId === optionId)?.name ?? optionId ?? "";
}

/** @param {PermissionEntry} entry */
export function outcomeTone(entry) {
  if (!entry.outcome) return "pending";
  if (entry.outcome.optionId === null) return "withdrawn";
  const kind = entry.options.find((option) => option.optionId === entry.outcome?.optionId)?.kind ?? "";
  return kind.startsWith("reject") ? "denied" : "allowed";
}

/** How the request ended and who ended it. @param {PermissionEntry} entry @param {Namer} name */
export function verdict(entry, name) {
  if (!entry.outcome) return "Waiting for an answer";
  const { optionId } = entry.outcome;
  if (optionId === null) {
    if (entry.voter) return `Dismissed by ${name(entry.voter)}`;
    switch (entry.cause) {
      case "turn-cancelled":
        return "Withdrawn: the turn was cancelled";
      case "timeout":
        return "Nobody answered in time, so it was not allowed";
      case "session-ended":
        return "Withdrawn: the session ended";
      default:
        return "Withdrawn without an answer";
    }
  }
  const word = outcomeTone(entry) === "denied" ? "Denied" : "Allowed";
  return entry.voter ? `${word} by ${name(entry.voter)}` : `${word} by a client without a name`;
}

/** @param {string} reason */
export function refusal(reason) {
  switch (reason) {
    case "designated_mismatch":
      return "this answer is reserved for other clients";
    case "remote_not_allowed":
      return "only the daemon's own machine can answer";
    default:
      return reason || "not allowed";
  }
}

/** What happened to this window's own vote, or null if the verdict says it. @param {PermissionEntry} entry @param {Namer} name */
export function ownVote(entry, name) {
  const { vote } = entry;
  if (!vote) return null;
  switch (vote.status) {
    case "sending":
      return "Sending your answer…";
    case "recorded":
      return entry.pending ? `Your vote is counted: ${optionName(entry, vote.optionId)}` : null;
    case "late":
      if (entry.pending) return "This request is no longer pending";
      return entry.voter ? `${capital(name(entry.voter))} answered first` : "It was already answered";
    case "forbidden":
      return `Your answer was refused: ${refusal(vote.detail ?? "")}`;
    case "failed":
      return `Your answer did not get through: ${vote.detail ?? "the daemon could not be reached"}`;
  }
}

/** @param {import("./types").Tally} tally */
export function tallyText(tally) {
  const more = Math.max(0, tally.needed);
  const votes = `${tally.received} ${tally.received === 1 ? "vote" : "votes"}`;
  switch (tally.split) {
    case "lost":
      return `${votes}, and ${tally.quorum} can't agree any more: cancel it, or let its time run out`;
    case "unless moved":
      return `${votes} that don't agree (quorum ${tally.quorum}): somebody has to change a vote`;
    default:
      return `${votes} so far, ${more} more needed (quorum ${tally.quorum})`;
  }
}

/** @param {NoteEntry} note @param {Namer} name */
export function noteText(note, name) {
  const by = note.by ? ` by ${name(note.by)}` : "";
  switch (note.what) {
    case "cancelled":
      return `Turn cancelled${by}`;
    case "stopped":
      return `The turn stopped: ${(note.detail ?? "").replaceAll("_", " ")}`;
    case "turn-error":
      return `The turn failed${note.detail ? `: ${note.detail}` : ""}`;
    case "model":
      return `Model is now ${note.detail ?? "another one"}`;
    case "model-failed":
      return `The model was not switched${note.detail ? `: ${note.detail}` : ""}`;
    case "mode":
      return `Approval mode is now ${note.detail ?? "another one"}`;
    case "rewound":
      return `Gone back${by} to before prompt ${note.detail ?? ""}`;
    case "evicted":
      return "This window fell behind and was disconnected; it is catching up";
    case "closed":
      return `Session closed${by}`;
    case "died":
      return note.detail === "daemon_shutdown" ? "The daemon shut down" : `The agent stopped${note.detail ? ` (${note.detail})` : ""}`;
    default:
      return note.detail ?? note.what;
  }
}

/** @param {Connection} connection @param {number} now */
export function connectionText(connection, now) {
  switch (connection.state) {
    case "connecting":
      return "Connecting";
    case "live":
      return "Live";
    case "waiting":
      return `Reconnecting in ${Math.max(1, Math.ceil((connection.retryAt - now) / 1000))} s`;
    case "ended":
      return "Ended";
    case "gone":
      return "Session is gone";
    case "unauthorized":
      return "Token refused";
  }
}

/** @param {number} ms */
export function timeLeft(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds < 60) return `${seconds} s left`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${seconds % 60} s left` : `${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
}
