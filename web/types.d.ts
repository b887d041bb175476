/** Shapes shared by the page's modules. Nothing here exists at run time. */

/** Whatever JSON the wire carries; read field by field, never trusted. */
export type Json = Record<string, any>;

/** One event of `GET /session/:id/events`. Synthetic frames have no `id`. */
export interface Frame {
  id?: number;
  v: number;
  type: string;
  promptId?: string;
  data: Json;
  originatorClientId?: string;
  _meta?: { serverTimestamp?: number };
}

export interface Diff {
  path: string;
  oldText: string | null;
  newText: string;
}

export interface Attachment {
  kind: "image" | "link";
  /** A `data:` URL for an image, the address as text for a link. */
  value: string;
  label: string;
}

export interface PermissionOption {
  optionId: string;
  name: string;
  kind: string;
}

export interface ToolFacts {
  toolCallId: string;
  title: string;
  toolKind: string;
  toolName: string;
  status: string;
  rawInput: Json | null;
  rawOutput: unknown;
  /** Text blocks of the call, in order. */
  texts: string[];
  diffs: Diff[];
  locations: string[];
}

interface Keyed {
  key: string;
  at: number | null;
}

export interface UserEntry extends Keyed {
  kind: "user";
  text: string;
  promptId?: string;
  by?: string;
  attachments: Attachment[];
}

export interface AgentEntry extends Keyed {
  kind: "agent";
  text: string;
  promptId?: string;
  open: boolean;
  attachments: Attachment[];
}

export interface ThoughtEntry extends Keyed {
  kind: "thought";
  text: string;
  promptId?: string;
  open: boolean;
}

export interface PlanEntry extends Keyed {
  kind: "plan";
  promptId?: string;
  items: { content: string; status: string }[];
}

export interface ToolEntry extends Keyed, ToolFacts {
  kind: "tool";
  promptId?: string;
  /** The pending permission request about this call, if any. */
  waitingFor: string | null;
  /** Whether somebody said no: the failure that follows is the answer, not an accident. */
  denied: boolean;
}

export interface Tally {
  received: number;
  needed: number;
  quorum: number;
  byOption: Record<string, number>;
  /** Whether the votes can still agree: `unless moved` needs somebody to change a vote, `lost` only a cancel or the time. */
  split: "no" | "unless moved" | "lost";
}

/** What became of this window's own vote. */
export interface OwnVote {
  status: "sending" | "recorded" | "late" | "forbidden" | "failed";
  optionId: string | null;
  detail?: string;
}

export interface PermissionEntry extends Keyed {
  kind: "permission";
  promptId?: string;
  requestId: string;
  tool: ToolFacts;
  options: PermissionOption[];
  /** Who sent the prompt that led here; absent for an anonymous prompt. */
  originator?: string;
  /** Epoch milliseconds at which the daemon gives up waiting. */
  deadline: number | null;
  pending: boolean;
  /** Set once resolved; `optionId` is null for a cancelled request. */
  outcome: { optionId: string | null } | null;
  voter?: string;
  /** Why nobody answered, as far as the stream tells. */
  cause?: "turn-cancelled" | "timeout" | "session-ended";
  tally: Tally | null;
  refusals: { by?: string; reason: string }[];
  vote: OwnVote | null;
}

export interface NoteEntry extends Keyed {
  kind: "note";
  tone: "info" | "warn" | "error";
  what: string;
  by?: string;
  detail?: string;
}

export type Entry =
  | UserEntry
  | AgentEntry
  | ThoughtEntry
  | PlanEntry
  | ToolEntry
  | PermissionEntry
  | NoteEntry;

export interface State {
  sessionId: string;
  entries: Entry[];
  /** How many old entries were let go to stay within the bound. */
  dropped: number;
  /** True when the daemon no longer had the beginning of the stream. */
  truncated: boolean;
  lastEventId: number;
  /** False until the first `replay_complete` after a (re)build. */
  caughtUp: boolean;
  turn: { promptId: string; by?: string } | null;
  lastEndedPromptId: string | null;
  /** Who asked to cancel the running prompt, once somebody did. */
  cancelling: { promptId: string; by?: string } | null;
  queue: { promptId: string; text: string; by?: string }[];
  title: string | null;
  ended: { how: "closed" | "died"; reason: string; by?: string } | null;
  slow: boolean;
}

export type Action =
  | { type: "frame"; frame: Frame }
  | { type: "rebuild"; truncated: boolean }
  | { type: "status"; status: Json }
  | { type: "vote"; requestId: string; vote: OwnVote };

export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "waiting"; retryAt: number; reason: string }
  | { state: "ended" }
  | { state: "gone" }
  | { state: "unauthorized" };

export interface SessionSummary {
  sessionId: string;
  workspaceCwd?: string;
  createdAt?: string;
  updatedAt?: string;
  displayName?: string;
  clientCount?: number;
  hasActivePrompt?: boolean;
  isWaitingForPermission?: boolean;
}

export interface Capabilities {
  workspaceCwd?: string;
  qwenCodeVersion?: string;
  features?: string[];
  policy?: { permission?: string };
  sessionLiveStatePollIntervalMs?: number;
}
