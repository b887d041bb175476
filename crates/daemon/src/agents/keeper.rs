//! One agent from its start to its end: the task that calls it and listens to it.
//!
//! What the agent says is reported before the end of the turn it belongs to: a prompt's answer is held back until the
//! events before it were taken, and this task reports those first.

use std::ffi::OsString;
use std::sync::Arc;

use convoke_acp::{
    AgentChild, AgentCommand, AgentError, AgentEvents, AgentOptions, ChildEvent, PermissionReply, RpcError, StartError,
};
use convoke_bridge::{AgentKey, CreationId, Resolution, StartFailure, TurnOutcome};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::AgentsOptions;
use super::order::{Order, Report, Started};
use super::served::Desk;
use super::start::{NewSession, agent_failure, load_session, new_session, start_failure};
use crate::options::{AgentSource, SECRET_VARIABLES};

/// Keeps one agent until it ends or `stop` asks for that. The last report is its end, exactly once.
pub(super) async fn keep(
    key: AgentKey,
    options: Arc<AgentsOptions>,
    source: AgentSource,
    orders: mpsc::Receiver<Order>,
    reports: mpsc::Sender<(AgentKey, Report)>,
    stop: CancellationToken,
) {
    let started = tokio::select! {
        started = start(&options, source) => started.map_err(|error| start_failure(&error)),
        // Dropping the start ends a child that is half up.
        () = stop.cancelled() => Err(StartFailure::Unavailable { message: "it is being ended".to_owned() }),
    };
    let keeper = Keeper { key, options, reports, stop };
    match started {
        Ok((agent, events)) => {
            keeper.tell(Report::Up { loads: agent.loads_sessions() }).await;
            keeper.run(agent, events, orders).await;
        }
        Err(failure) => {
            tracing::warn!(agent = key.0, %failure, "an agent did not start");
            keeper.tell(Report::NotUp(failure)).await;
        }
    }
}

async fn start(options: &AgentsOptions, source: AgentSource) -> Result<(AgentChild, AgentEvents), StartError> {
    let limits = AgentOptions {
        initialize_timeout: options.limits.initialize_timeout,
        cancel_timeout: options.limits.cancel_timeout,
        close_grace: options.limits.agent_grace,
        client: ("convoke".to_owned(), options.version.clone()),
        serves: true,
        ..AgentOptions::default()
    };
    match source {
        AgentSource::Command(mut command) => {
            scrub(&mut command);
            command.cwd.clone_from(&options.workspace);
            AgentChild::start(command, &options.spawner, limits).await
        }
        AgentSource::Streams(open) => {
            let streams = open();
            AgentChild::connect(streams.output, streams.input, limits).await
        }
    }
}

/// Takes the daemon's own secrets out of what a child inherits, however it came to its command line.
fn scrub(command: &mut AgentCommand) {
    let secrets = || SECRET_VARIABLES.iter().map(OsString::from);
    command.env_remove.extend(secrets());
    command.env_set.retain(|(name, _)| !secrets().any(|secret| secret == *name));
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
        let mut desk = Desk::new(self.options.workspace.clone(), self.options.spawner.clone());
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(ChildEvent::Call(call)) => desk.take(*call, &mut calls),
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
                Some(order) = orders.recv() => {
                    if let Order::Close { session } = &order {
                        desk.close(session);
                    }
                    self.carry_out(order, &agent, &mut calls);
                }
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
            Order::New { creation, wish, mode, model } => {
                calls.spawn(async move {
                    let result = new_session(&agent, &options, NewSession { wish, mode, model }).await;
                    started(creation, result)
                });
            }
            Order::Load { creation, session, agent_session } => {
                calls.spawn(async move {
                    let result = load_session(&agent, &options, session, agent_session).await;
                    started(creation, result)
                });
            }
            Order::Prompt { session, prompt_id, blocks } => {
                calls.spawn(async move {
                    let end = agent.prompt(&session, Value::Array(blocks), None).await;
                    let stuck = matches!(end, Err(AgentError::CancelIgnored { .. }));
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
                    Some(Report::TurnEnded { session, prompt_id, outcome, stuck })
                });
            }
            Order::Cancel { session } => {
                if let Err(error) = agent.cancel(&session) {
                    tracing::debug!(%session, %error, "a cancel found no agent");
                }
            }
            Order::Close { session } => {
                calls.spawn(async move {
                    match timeout(options.limits.cancel_timeout, agent.close_session(&session)).await {
                        Ok(Ok(())) => None,
                        Ok(Err(error)) => {
                            tracing::debug!(%session, %error, "the agent did not close a session");
                            None
                        }
                        Err(_) => Some(Report::Stuck),
                    }
                });
            }
            Order::Change(change) => {
                calls.spawn(async move {
                    let limits = &options.limits;
                    let limit = if change.wish.is_long() { limits.restore_timeout } else { limits.cancel_timeout };
                    let method = change.ask.method;
                    let answer = timeout(limit, agent.request(method, change.ask.params.clone())).await;
                    let stuck = answer.is_err();
                    let result = match answer {
                        Ok(result) => result.map_err(|error| agent_failure(&error)),
                        Err(_) => {
                            let message = format!("it did not answer {method} within {} ms", limit.as_millis());
                            Err(StartFailure::Unavailable { message })
                        }
                    };
                    Some(Report::Changed { change, result, stuck })
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

/// What came of a start; nothing if the agent is gone, which is reported on its own and ends its starts.
fn started(creation: CreationId, result: Result<Option<Started>, StartFailure>) -> Option<Report> {
    let result = result.map(|started| started.map(Box::new)).transpose()?;
    Some(Report::Started { creation, result })
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
