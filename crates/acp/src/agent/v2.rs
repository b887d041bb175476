//! How does a client of draft version 2 of ACP see our sessions, which speak version 1?
//!
//! ```text
//! client ⇄ relay (lines, no others wait) ⇄ bridge (sans-IO: one message in, some out) ⇄ the agent end of version 1
//! ```
//! Nothing of this runs unless the host asks for it, and then only once a client begins with version 2 or later: the
//! lines of any other client pass as they are. What version 2 changed and what becomes of it (source: the crate
//! `agent-client-protocol-schema` 1.15, `v2` against `v1`):
//!
//! | Version 2 | Version 1 | What the bridge does |
//! |---|---|---|
//! | `initialize`: `info`, `capabilities`; `session.*` are objects | `clientInfo`, `clientCapabilities`; booleans | rewrites both ways; files and terminals of the client are gone |
//! | `auth/login`, `auth/logout`; `methodId` of a method | `authenticate`, `logout`; `id` | renames |
//! | `session/new` with tagged stdio servers, no SSE, and lists that may be missing | untagged, lists required | rewrites; another transport is refused |
//! | modes are a config option | `modes`, `session/set_mode`, `current_mode_update` | left out: ours are options, too |
//! | `configId`, typed values | `id`, untyped | renames, checks the type |
//! | `session/resume` with `replayFrom`, a state before its answer | `session/load`, `session/resume` | chooses; `{"type": "start"}` is the only cursor |
//! | `session/prompt` is answered with a message id once its message is in | answered when the turn ends | checks it, answers, echoes `user_message`; a prompt during a turn is held for the turn's end |
//! | `state_update`: `running`, `requires_action`, `idle` with the stop reason, of which `error` is one | the prompt's answer or error | made from prompts, questions and answers |
//! | `session/cancel` and `session/close` end held prompts with −32800; closing what is not open succeeds | there are none; −32002 | does so |
//! | every chunk has a `messageId` | optional | one is made for words without; an empty chunk goes with the last message |
//! | `tool_call_update` is all there is, with `name` | `tool_call`, `tool_call_update` | one kind |
//! | a diff is a list of changes and a patch | both texts | a Git patch of one hunk |
//! | `plan_update` of items with an id; commands have types | `plan`; none | wraps |
//! | a permission request has a title and a subject | a tool call | wraps |
//! | −32002 names the session in `data` | it may | adds it |
//!
//! `tool_call/cancel` and `terminal/cancel` are answered as unknown: no call offers to be cancelled, and no terminal of
//! ours is shown.

mod answers;
mod bridge;
mod patch;
mod relay;
mod requests;
#[cfg(test)]
mod tests;
mod turns;
mod updates;

pub use relay::serve_with_v2;
