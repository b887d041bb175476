//! What is said of each route: a dictionary, read by the OpenAPI document and by the page in `docs/`.

/// One route, described.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) details: Option<&'static str>,
    /// Names of [`PARAMETERS`] besides those of the path.
    pub(super) takes: &'static [&'static str],
    /// The schema of the body, if it reads one.
    pub(super) body: Option<&'static str>,
    pub(super) success: Success,
    /// Status and codes of the answers that say no; those of the wall in front of all routes are not repeated.
    pub(super) refusals: &'static [(u16, &'static [&'static str])],
}

/// The answer that says yes.
pub(super) struct Success {
    pub(super) status: u16,
    pub(super) says: &'static str,
    pub(super) media_type: &'static str,
    pub(super) schema: Option<&'static str>,
}

const fn json(status: u16, says: &'static str, schema: &'static str) -> Success {
    Success { status, says, media_type: "application/json", schema: Some(schema) }
}

const fn text(says: &'static str, media_type: &'static str, schema: &'static str) -> Success {
    Success { status: 200, says, media_type, schema: Some(schema) }
}

const DONE: Success = Success { status: 204, says: "Done.", media_type: "", schema: None };

/// Where a parameter stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Query,
    Header,
}

/// Something that routes take outside of their bodies.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) kind: &'static str,
    pub(super) says: &'static str,
}

const fn parameter(name: &'static str, place: Place, kind: &'static str, says: &'static str) -> Parameter {
    Parameter { name, place, kind, says }
}

pub(super) const PARAMETERS: &[Parameter] = &[
    parameter("id", Place::Path, "string", "The session; for `/workspace/…` the workspace's id or its path, encoded."),
    parameter("requestId", Place::Path, "string", "The permission request."),
    parameter("promptId", Place::Path, "string", "The prompt, or `current` for the running one."),
    parameter(
        "X-Qwen-Client-Id",
        Place::Header,
        "string",
        "The client: an id that a create, load or resume of this session gave out. Without it the caller is anonymous.",
    ),
    parameter("Last-Event-ID", Place::Header, "integer", "Replays what came after this event; without it live only."),
    parameter("X-Qwen-Event-Epoch", Place::Header, "string", "The bus that numbered `Last-Event-ID`."),
    parameter("maxQueued", Place::Query, "integer", "Frames that may wait for this stream: 16 to 2048, 256 if absent."),
    parameter("snapshot", Place::Query, "string", "`1`: begin with a `session_snapshot`."),
    parameter("connectReason", Place::Query, "string", "Why the stream is opened; for logs."),
    parameter("previousStreamId", Place::Query, "string", "The stream before; for logs."),
    parameter("deep", Place::Query, "string", "`1`: also how much there is, and whether the agent is up."),
    parameter("detail", Place::Query, "string", "`summary` or `full`."),
    parameter("size", Place::Query, "integer", "Entries per page: 1 to 1000, 20 if absent."),
    parameter("cursor", Place::Query, "string", "`nextCursor` of the page before."),
    parameter("archiveState", Place::Query, "string", "`archived` lists none: nothing is archived."),
    parameter("Acp-Connection-Id", Place::Header, "string", "The connection that `initialize` opened."),
    parameter("Acp-Session-Id", Place::Header, "string", "A session of the connection: its own stream."),
];

const CLIENT: &[&str] = &["X-Qwen-Client-Id"];
const GONE: (u16, &[&str]) = (404, &["session_not_found", "session_closing"]);
const STRANGER: (u16, &[&str]) = (400, &["invalid_client_id"]);

/// What is said of a route.
pub(super) fn of(method: &str, path: &str) -> Option<&'static Operation> {
    OPERATIONS.iter().find(|operation| operation.method == method && operation.path == path)
}

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "GET",
        path: "/health",
        id: "health",
        tag: "Daemon",
        summary: "Whether requests are accepted.",
        details: Some("Needs no token on a loopback address, unless `--require-auth` is given."),
        takes: &["deep"],
        body: None,
        success: json(200, "They are.", "Health"),
        refusals: &[],
    },
    Operation {
        method: "GET",
        path: "/capabilities",
        id: "capabilities",
        tag: "Daemon",
        summary: "What this daemon can do: feature tags, policy, limits.",
        details: None,
        takes: &[],
        body: None,
        success: json(200, "The envelope.", "Capabilities"),
        refusals: &[],
    },
    Operation {
        method: "GET",
        path: "/daemon/status",
        id: "daemonStatus",
        tag: "Daemon",
        summary: "The operator's snapshot.",
        details: None,
        takes: &["detail"],
        body: None,
        success: json(200, "The snapshot.", "DaemonStatus"),
        refusals: &[(400, &["invalid_detail"])],
    },
    Operation {
        method: "GET",
        path: "/audit",
        id: "audit",
        tag: "Daemon",
        summary: "Who decided what: the last 512 records, oldest first.",
        details: Some("Only where a token is configured."),
        takes: &[],
        body: None,
        success: json(200, "The records.", "Audit"),
        refusals: &[(401, &["token_required"])],
    },
    Operation {
        method: "GET",
        path: "/metrics",
        id: "metrics",
        tag: "Daemon",
        summary: "Figures for a monitor, in the OpenMetrics text format.",
        details: None,
        takes: &[],
        body: None,
        success: text("The figures.", "application/openmetrics-text", "Text"),
        refusals: &[],
    },
    Operation {
        method: "GET",
        path: "/openapi.json",
        id: "openapi",
        tag: "Daemon",
        summary: "This document.",
        details: None,
        takes: &[],
        body: None,
        success: json(200, "An OpenAPI 3.1 document.", "Object"),
        refusals: &[],
    },
    Operation {
        method: "GET",
        path: "/workspace/:id/sessions",
        id: "listSessions",
        tag: "Sessions",
        summary: "The sessions of the workspace, newest first.",
        details: None,
        takes: &["size", "cursor", "archiveState"],
        body: None,
        success: json(200, "One page.", "SessionList"),
        refusals: &[(400, &["workspace_mismatch"])],
    },
    Operation {
        method: "POST",
        path: "/session",
        id: "createSession",
        tag: "Sessions",
        summary: "Joins the workspace's shared session, or starts one.",
        details: Some(
            "`sessionScope: \"thread\"` and a chosen `sessionId` always start a session of their own. The answer's \
             `clientId` is the caller's name on this session from then on.",
        ),
        takes: CLIENT,
        body: Some("CreateSession"),
        success: json(200, "The session, and the caller's id on it.", "SessionCreated"),
        refusals: &[
            (
                400,
                &[
                    "workspace_mismatch",
                    "invalid_session_scope",
                    "invalid_session_id",
                    "invalid_client_id",
                    "invalid_approval_mode",
                ],
            ),
            (409, &["session_id_conflict"]),
            (503, &["session_limit_exceeded", "client_limit_exceeded", "acp_channel_unavailable", "daemon_draining"]),
            (504, &["init_timeout"]),
        ],
    },
    Operation {
        method: "POST",
        path: "/session/:id/load",
        id: "loadSession",
        tag: "Sessions",
        summary: "Joins a session and gets what was said: live ones from memory, others from the agent's storage.",
        details: None,
        takes: CLIENT,
        body: Some("RestoreSession"),
        success: json(200, "The session, its state and its history.", "SessionLoaded"),
        refusals: &[
            (400, &["workspace_mismatch", "invalid_client_id"]),
            GONE,
            (409, &["restore_in_progress"]),
            (503, &["session_limit_exceeded", "acp_channel_unavailable", "daemon_draining"]),
            (504, &["session_restore_timeout", "init_timeout"]),
        ],
    },
    Operation {
        method: "POST",
        path: "/session/:id/resume",
        id: "resumeSession",
        tag: "Sessions",
        summary: "Joins a session without its history.",
        details: None,
        takes: CLIENT,
        body: Some("RestoreSession"),
        success: json(200, "The session and its state.", "SessionResumed"),
        refusals: &[
            (400, &["workspace_mismatch", "invalid_client_id"]),
            GONE,
            (409, &["restore_in_progress"]),
            (503, &["session_limit_exceeded", "acp_channel_unavailable", "daemon_draining"]),
            (504, &["session_restore_timeout", "init_timeout"]),
        ],
    },
    Operation {
        method: "DELETE",
        path: "/session/:id",
        id: "closeSession",
        tag: "Sessions",
        summary: "Closes a session for everyone.",
        details: Some("Pending permission requests are cancelled and the running turn ends before the answer."),
        takes: CLIENT,
        body: None,
        success: DONE,
        refusals: &[STRANGER, GONE],
    },
    Operation {
        method: "GET",
        path: "/session/:id/status",
        id: "sessionStatus",
        tag: "Sessions",
        summary: "How a session is, and what it asks.",
        details: None,
        takes: &[],
        body: None,
        success: json(200, "The status.", "SessionStatus"),
        refusals: &[GONE],
    },
    Operation {
        method: "GET",
        path: "/session/:id/context",
        id: "sessionContext",
        tag: "Sessions",
        summary: "Models, modes and options of a session, and how full its context is where the agent tells.",
        details: None,
        takes: &[],
        body: None,
        success: json(200, "The context.", "SessionContext"),
        refusals: &[GONE],
    },
    Operation {
        method: "GET",
        path: "/session/:id/supported-commands",
        id: "supportedCommands",
        tag: "Sessions",
        summary: "The slash commands that the agent offers.",
        details: None,
        takes: &[],
        body: None,
        success: json(200, "The commands.", "SupportedCommands"),
        refusals: &[GONE],
    },
    Operation {
        method: "PATCH",
        path: "/session/:id/metadata",
        id: "setMetadata",
        tag: "Sessions",
        summary: "Names a session; an empty object asks for the name.",
        details: Some("A name over 256 UTF-16 units is cut."),
        takes: CLIENT,
        body: Some("SetMetadata"),
        success: json(200, "The name now.", "Metadata"),
        refusals: &[(400, &["invalid_metadata", "invalid_client_id"]), GONE],
    },
    Operation {
        method: "POST",
        path: "/session/:id/approval-mode",
        id: "setApprovalMode",
        tag: "Sessions",
        summary: "Changes what the agent asks about.",
        details: None,
        takes: CLIENT,
        body: Some("SetApprovalMode"),
        success: json(200, "The mode now and before.", "ApprovalModeSet"),
        refusals: &[(400, &["invalid_approval_mode", "invalid_client_id"]), GONE, (503, &["acp_channel_unavailable"])],
    },
    Operation {
        method: "POST",
        path: "/session/:id/model",
        id: "setModel",
        tag: "Sessions",
        summary: "Changes the model.",
        details: Some("What the agent refuses is passed on: its message, code and data, with status 500."),
        takes: CLIENT,
        body: Some("SetModel"),
        success: json(200, "The agent's answer.", "Object"),
        refusals: &[STRANGER, GONE, (500, &[]), (503, &["acp_channel_unavailable"])],
    },
    Operation {
        method: "GET",
        path: "/session/:id/rewind/snapshots",
        id: "rewindSnapshots",
        tag: "Sessions",
        summary: "The prompts that the session can go back to, oldest first.",
        details: Some(
            "`diffStats` is about the turn of the prompt; `filesSince` and `lasting` about all that follows.",
        ),
        takes: &[],
        body: None,
        success: json(200, "The points.", "RewindSnapshots"),
        refusals: &[(400, &["rewind_unsupported"]), GONE, (503, &["acp_channel_unavailable"])],
    },
    Operation {
        method: "POST",
        path: "/session/:id/rewind",
        id: "rewind",
        tag: "Sessions",
        summary: "Takes a session back to before a prompt: what was said, files, or both.",
        details: Some("Permissions and their audit stay as they are. Everybody hears `session_rewound`."),
        takes: CLIENT,
        body: Some("Rewind"),
        success: json(200, "What was taken back.", "Rewound"),
        refusals: &[
            (
                400,
                &[
                    "missing_prompt_id",
                    "invalid_rewind_files_flag",
                    "invalid_rewind_what",
                    "invalid_force_flag",
                    "rewind_unsupported",
                    "invalid_client_id",
                ],
            ),
            (404, &["rewind_point_not_found", "session_not_found", "session_closing"]),
            (409, &["session_busy", "rewind_conflict"]),
            (500, &["rewind_failed"]),
            (503, &["acp_channel_unavailable"]),
        ],
    },
    Operation {
        method: "POST",
        path: "/session/:id/heartbeat",
        id: "heartbeat",
        tag: "Clients",
        summary: "Tells that the client is alive.",
        details: None,
        takes: CLIENT,
        body: None,
        success: json(200, "When it was seen.", "Heartbeat"),
        refusals: &[STRANGER, GONE],
    },
    Operation {
        method: "POST",
        path: "/session/:id/detach",
        id: "detach",
        tag: "Clients",
        summary: "Leaves a session. Unknown sessions and clients are no error.",
        details: Some("A session that nobody is left on, that nobody watches and that has no work is closed."),
        takes: CLIENT,
        body: None,
        success: DONE,
        refusals: &[STRANGER],
    },
    Operation {
        method: "GET",
        path: "/session/:id/events",
        id: "events",
        tag: "Events",
        summary: "The session's events, as server-sent events.",
        details: Some(
            "Each `data:` line is one `Event`. With `Last-Event-ID`: `state_resync_required` if something is lost, then \
             the kept events, then `replay_complete`, then pending permission requests that were not among them, \
             then live. The response names its bus in `X-Qwen-Event-Epoch`.",
        ),
        takes: &[
            "Last-Event-ID",
            "X-Qwen-Event-Epoch",
            "X-Qwen-Client-Id",
            "maxQueued",
            "snapshot",
            "connectReason",
            "previousStreamId",
        ],
        body: None,
        success: text("The stream.", "text/event-stream", "Event"),
        refusals: &[(400, &["invalid_max_queued"]), GONE, (429, &["subscriber_limit_exceeded"])],
    },
    Operation {
        method: "POST",
        path: "/session/:id/prompt",
        id: "prompt",
        tag: "Prompts",
        summary: "Queues a prompt. Its end comes as `turn_complete` or `turn_error` with the same `promptId`.",
        details: None,
        takes: CLIENT,
        body: Some("Prompt"),
        success: json(202, "Accepted.", "PromptAccepted"),
        refusals: &[
            (400, &["invalid_deadline_ms", "invalid_client_id"]),
            GONE,
            (503, &["prompt_queue_full", "daemon_draining"]),
        ],
    },
    Operation {
        method: "POST",
        path: "/session/:id/cancel",
        id: "cancel",
        tag: "Prompts",
        summary: "Cancels the running prompt; the next one starts.",
        details: None,
        takes: CLIENT,
        body: None,
        success: DONE,
        refusals: &[STRANGER, GONE],
    },
    Operation {
        method: "GET",
        path: "/session/:id/pending-prompts",
        id: "pendingPrompts",
        tag: "Prompts",
        summary: "The running prompt and those behind it.",
        details: None,
        takes: &[],
        body: None,
        success: json(200, "The prompts.", "PendingPrompts"),
        refusals: &[GONE],
    },
    Operation {
        method: "GET",
        path: "/session/:id/turns/:promptId",
        id: "turn",
        tag: "Prompts",
        summary: "How a prompt's turn is or was, for clients that poll.",
        details: None,
        takes: &[],
        body: None,
        success: json(200, "The turn, or `{sessionId, state: \"idle\"}`.", "Turn"),
        refusals: &[(404, &["session_not_found", "prompt_not_found"])],
    },
    Operation {
        method: "POST",
        path: "/session/:id/permission/:requestId",
        id: "vote",
        tag: "Permissions",
        summary: "Votes on a permission request.",
        details: Some(
            "200 says that the vote counted: it decided, or it was recorded. Who may decide is the policy's matter. An \
             unknown request, one of another session and one that is forgotten are answered alike.",
        ),
        takes: CLIENT,
        body: Some("Vote"),
        success: json(200, "Counted.", "Object"),
        refusals: &[
            (400, &["invalid_option_id", "invalid_client_id"]),
            (403, &["permission_forbidden"]),
            (404, &["session_not_found", "permission_already_resolved"]),
        ],
    },
    Operation {
        method: "POST",
        path: "/permission/:requestId",
        id: "voteByRequest",
        tag: "Permissions",
        summary: "Votes on a permission request without naming its session.",
        details: None,
        takes: CLIENT,
        body: Some("Vote"),
        success: json(200, "Counted.", "Object"),
        refusals: &[
            (400, &["invalid_option_id", "invalid_client_id"]),
            (403, &["permission_forbidden"]),
            (404, &["permission_already_resolved"]),
        ],
    },
    Operation {
        method: "POST",
        path: "/acp",
        id: "acpMessage",
        tag: "ACP",
        summary: "One JSON-RPC message of an ACP client.",
        details: Some(
            "`initialize` opens a connection and is answered here, with `Acp-Connection-Id`. Everything else names its \
             connection, is accepted with 202, and is answered on a stream: the session's for what concerns one, else \
             the connection's. An answer to `session/request_permission` is a vote. Errors are JSON-RPC errors.",
        ),
        takes: &["Acp-Connection-Id"],
        body: Some("Object"),
        success: json(200, "The answer to `initialize`; 202 without a body for everything else.", "Object"),
        refusals: &[(400, &[]), (404, &[]), (415, &[]), (501, &[]), (503, &["acp_connection_limit"])],
    },
    Operation {
        method: "GET",
        path: "/acp",
        id: "acpStream",
        tag: "ACP",
        summary: "A stream of JSON-RPC messages to an ACP client, or with `Upgrade: websocket` a WebSocket.",
        details: Some(
            "With `Acp-Session-Id` the stream of that session, else the connection's. Each `data:` line is one message; \
             `id:` is the number of the event that it tells. A WebSocket carries the same messages as text frames, both \
             ways, and begins with `initialize`; a browser shows the token as the subprotocol \
             `qwen-bearer.<base64url of the token>` beside `qwen-ws`.",
        ),
        takes: &["Acp-Connection-Id", "Acp-Session-Id", "Last-Event-ID", "X-Qwen-Event-Epoch"],
        body: None,
        success: text("The messages.", "text/event-stream", "Object"),
        refusals: &[(400, &[]), (403, &[]), (404, &[]), (406, &[]), (503, &["acp_connection_limit"])],
    },
    Operation {
        method: "DELETE",
        path: "/acp",
        id: "acpLeave",
        tag: "ACP",
        summary: "Ends an ACP connection. A session goes on while somebody else is in it.",
        details: None,
        takes: &["Acp-Connection-Id"],
        body: None,
        success: Success { status: 202, says: "It will.", media_type: "", schema: None },
        refusals: &[(400, &[]), (404, &[])],
    },
];
