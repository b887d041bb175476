//! One agent from its start to its end: the task that calls it and listens to it.
//!
//! What the agent says is reported before the end of the turn it belongs to: a prompt's answer is held back until the
//! events before it were taken, and this task reports those first.

use std::sync::Arc;
use std::time::Duration;

use convoke_acp::{
    AgentChild, AgentError, AgentEvents, AgentOptions, ChildEvent, PermissionReply, RpcError, StartError,
    StartedSession,
};
use convoke_bridge::{AgentKey, Resolution, StartFailure, TurnOutcome};
use convoke_protocol::{ApprovalMode, SessionId};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{AgentsOptions, Order, Report, Started};
use crate::options::AgentSource;

/// Keeps one agent until it ends or `stop` asks for that. The last report is its end, exactly once.
pub(super) async fn keep(
    key: AgentKey,
    options: Arc<AgentsOptions>,
    orders: mpsc::Receiver<Order>,
    reports: mpsc::Sender<(AgentKey, Report)>,
    stop: CancellationToken,
) {
    let started = tokio::select! {
        started = start(&options) => started.map_err(|error| start_failure(&error)),
        // Dropping the start ends a child that is half up.
        () = stop.cancelled() => Err(StartFailure::Unavailable { message: "it is being ended".to_owned() }),
    };
    let keeper = Keeper { key, options, reports, stop };
    match started {
        Ok((agent, events)) => {
            keeper.tell(Report::Up).await;
            keeper.run(agent, events, orders).await;
        }
        Err(failure) => {
            tracing::warn!(agent = key.0, %failure, "an agent did not start");
            keeper.tell(Report::NotUp(failure)).await;
        }
    }
}

async fn start(options: &AgentsOptions) -> Result<(AgentChild, AgentEvents), StartError> {
    let limits = AgentOptions {
        initialize_timeout: options.limits.initialize_timeout,
        client: ("convoke".to_owned(), options.version.clone()),
        ..AgentOptions::default()
    };
    match &options.source {
        AgentSource::Command(command) => {
            let mut command = command.clone();
            command.cwd.clone_from(&options.workspace);
            AgentChild::start(command, &options.spawner, limits).await
        }
        AgentSource::Streams(open) => {
            let streams = open();
            AgentChild::connect(streams.output, streams.input, limits).await
        }
    }
}

struct Keeper {
    key: AgentKey,
    options: Arc<AgentsOptions>,
    reports: mpsc::Sender<(AgentKey, Report)>,
    stop: CancellationToken,
}

impl Keeper {
    /// Reports, and waits while the driver is behind: then the agent's pipe fills up, and the agent waits, too.
    async fn tell(&self, report: Report) {
        // The driver is gone only when the daemon ends.
        let _ = self.reports.send((self.key, report)).await;
    }

    async fn run(&self, agent: AgentChild, mut events: AgentEvents, mut orders: mpsc::Receiver<Order>) {
        let mut calls: JoinSet<Option<Report>> = JoinSet::new();
        let mut stopping = false;
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => {
                        let last = matches!(event, ChildEvent::Exited(_));
                        self.tell(Report::Said(event)).await;
                        if last {
                            break;
                        }
                    }
                    None => break,
                },
                Some(done) = calls.join_next() => {
                    if let Ok(Some(report)) = done {
                        self.tell(report).await;
                    }
                }
                Some(order) = orders.recv() => self.carry_out(order, &agent, &mut calls),
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    // Answers and cancels that were given before the end still go out.
                    while let Ok(order) = orders.try_recv() {
                        self.carry_out(order, &agent, &mut calls);
                    }
                    let agent = agent.clone();
                    calls.spawn(async move {
                        agent.shutdown().await;
                        None
                    });
                }
            }
        }
        calls.shutdown().await;
    }

    fn carry_out(&self, order: Order, agent: &AgentChild, calls: &mut JoinSet<Option<Report>>) {
        let agent = agent.clone();
        let options = Arc::clone(&self.options);
        match order {
            Order::New { creation, wish, mode } => {
                calls.spawn(async move {
                    let result = new_session(&agent, &options, wish, mode).await;
                    Some(Report::Started { creation, result })
                });
            }
            Order::Load { creation, session } => {
                calls.spawn(async move {
                    let result = load_session(&agent, &options, session).await;
                    Some(Report::Started { creation, result })
                });
            }
            Order::Prompt { session, prompt_id, blocks } => {
                calls.spawn(async move {
                    let end = agent.prompt(&session, Value::Array(blocks), None).await;
                    let outcome = match end {
                        Ok(end) => TurnOutcome::Complete { stop_reason: end.stop_reason },
                        // Its sessions end with it, and that is reported on its own.
                        Err(AgentError::Gone { .. }) => return None,
                        Err(AgentError::Refused { error, .. }) => {
                            TurnOutcome::Failed { message: error.message, code: Some(json!(error.code)) }
                        }
                        Err(error @ (AgentError::Answer { .. } | AgentError::CancelIgnored { .. })) => {
                            TurnOutcome::Failed { message: error.to_string(), code: None }
                        }
                    };
                    Some(Report::TurnEnded { session, prompt_id, outcome })
                });
            }
            Order::Cancel { session } => {
                if let Err(error) = agent.cancel(&session) {
                    tracing::debug!(%session, %error, "a cancel found no agent");
                }
            }
            Order::Close { session } => {
                calls.spawn(async move {
                    if let Err(error) = agent.close_session(&session).await {
                        tracing::debug!(%session, %error, "the agent did not close a session");
                    }
                    None
                });
            }
            Order::SetMode(order) => {
                calls.spawn(async move {
                    let result = agent.set_mode(&order.agent_session, &order.mode_id).await;
                    Some(Report::ModeSet(*order, result.map(drop).map_err(|error| agent_failure(&error))))
                });
            }
            Order::Reply(reply, resolution) => answer(*reply, resolution),
            Order::Watch(reply, withdrawal) => {
                calls.spawn(async move {
                    // An agent that is gone is reported as such, and takes its questions with it.
                    let withdrawn = withdrawal.wait().await && !withdrawal.agent_is_gone();
                    withdrawn.then_some(Report::Withdrawn(reply))
                });
            }
        }
    }
}

/// Answers a question of the agent.
fn answer(reply: PermissionReply, resolution: Resolution) {
    match resolution {
        Resolution::Selected { option_id, extras } => {
            let extras = match extras {
                Some(Value::Object(fields)) => fields,
                Some(_) | None => Map::new(),
            };
            reply.selected_with(&option_id, extras);
        }
        Resolution::Cancelled(reason) => reply.cancelled(Some(reason.name())),
        Resolution::SentinelCollision => reply.error(RpcError {
            code: -32602,
            message: "the option id \"__cancelled__\" is reserved".to_owned(),
            data: None,
        }),
    }
}

async fn new_session(
    agent: &AgentChild,
    options: &AgentsOptions,
    wish: Option<SessionId>,
    mode: ApprovalMode,
) -> Result<Started, StartFailure> {
    let start = async {
        let session = agent.new_session(&options.workspace, wish.as_ref()).await?;
        let mut started = describe(session, wish);
        if started.mode != mode
            && let Some((_, mode_id)) = started.mode_ids.iter().find(|(offered, _)| *offered == mode)
        {
            agent.set_mode(&started.agent_session, mode_id).await?;
            started.mode = mode;
        }
        Ok(started)
    };
    let limit = options.limits.session_start_timeout;
    match timeout(limit, start).await {
        Ok(result) => result.map_err(|error: AgentError| agent_failure(&error)),
        Err(_) => Err(StartFailure::InitTimeout { timeout_ms: millis(limit), phase: "session/new".to_owned() }),
    }
}

/// Restores a session through ACP's `session/load`, whose replay is reported as ordinary updates.
async fn load_session(
    agent: &AgentChild,
    options: &AgentsOptions,
    session: SessionId,
) -> Result<Started, StartFailure> {
    if agent.about().capabilities.get("loadSession") != Some(&Value::Bool(true)) {
        return Err(StartFailure::NotStored { session });
    }
    let params = json!({"sessionId": session, "cwd": options.workspace, "mcpServers": []});
    let limit = options.limits.restore_timeout;
    match timeout(limit, agent.request("session/load", params)).await {
        Ok(Ok(raw)) => {
            let part = |name: &str| raw.get(name).filter(|value| !value.is_null()).cloned();
            let loaded = StartedSession {
                session_id: session.clone(),
                modes: part("modes"),
                models: part("models"),
                config_options: part("configOptions"),
                raw: raw.clone(),
            };
            Ok(describe(loaded, Some(session)))
        }
        // ACP v1 has no code of its own for this; agents answer "not found" or bad params.
        Ok(Err(AgentError::Refused { error, .. })) if matches!(error.code, -32002 | -32602) => {
            Err(StartFailure::NotStored { session })
        }
        Ok(Err(error)) => Err(agent_failure(&error)),
        Err(_) => Err(StartFailure::RestoreTimeout { timeout_ms: millis(limit) }),
    }
}

fn describe(session: StartedSession, wish: Option<SessionId>) -> Started {
    let StartedSession { session_id, modes, models, config_options: _, raw: _ } = session;
    let modes = modes.unwrap_or_default();
    let current = modes.get("currentModeId").and_then(Value::as_str).and_then(ApprovalMode::parse);
    let offered = modes.get("availableModes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ids = offered.iter().filter_map(|mode| mode.get("id").and_then(Value::as_str));
    let mode_ids = ids.filter_map(|id| Some((ApprovalMode::parse(id)?, id.to_owned()))).collect();
    let model_id = models.as_ref().and_then(|models| models.get("currentModelId")?.as_str().map(str::to_owned));
    Started { agent_session: session_id, wish, model_id, mode: current.unwrap_or_default(), mode_ids }
}

fn start_failure(error: &StartError) -> StartFailure {
    match error {
        StartError::InitializeTimeout { after, .. } => {
            StartFailure::InitTimeout { timeout_ms: millis(*after), phase: "initialize".to_owned() }
        }
        StartError::Refused(error) => {
            StartFailure::Agent { code: error.code.into(), message: error.message.clone(), data: error.data.clone() }
        }
        StartError::Spawn { .. } | StartError::Exited(_) | StartError::Version(_) => {
            StartFailure::Unavailable { message: error.to_string() }
        }
    }
}

fn agent_failure(error: &AgentError) -> StartFailure {
    match error {
        AgentError::Refused { error, .. } => {
            StartFailure::Agent { code: error.code.into(), message: error.message.clone(), data: error.data.clone() }
        }
        AgentError::Gone { .. } | AgentError::Answer { .. } | AgentError::CancelIgnored { .. } => {
            StartFailure::Unavailable { message: error.to_string() }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
