//! The demo without a page: three clients act the story out, and the transcript is printed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::client::Client;

const PROMPT: &str = "Greet in German as well, try it out, and push it.";

/// Who answers which request, in the order of the requests.
struct Act {
    voters: &'static [(&'static str, &'static str)],
    comment: &'static str,
}

const ACTS: &[Act] = &[
    Act {
        voters: &[("alice", "proceed_once"), ("bob", "proceed_once")],
        comment: "alice and bob both say yes at the same moment; one of them is first",
    },
    Act { voters: &[("carol", "proceed_once")], comment: "carol allows it from her phone" },
    Act { voters: &[("bob", "cancel")], comment: "nobody pushes without a review: bob says no" },
];

/// Plays the story on the daemon at `address`, printing as it goes.
pub(super) async fn play(address: SocketAddr, token: &str) -> anyhow::Result<()> {
    let mut stage = Stage::set(address, token).await?;
    say(&format!("\nalice prompts: {PROMPT}"));
    let prompt = json!({"prompt": [{"type": "text", "text": PROMPT}]});
    let path = format!("/session/{}/prompt", stage.session);
    stage.client("alice")?.expect(Method::POST, &path, Some(&prompt)).await?;
    let mut acts = ACTS.iter();
    while let Some((watcher, event)) = stage.events.recv().await {
        let event = event?;
        let id = event["id"].as_u64();
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        if let Some(id) = id {
            stage.seen.entry(watcher).or_default().push(id);
        }
        if watcher != "alice" {
            if stage.over && stage.agreed() {
                break;
            }
            continue;
        }
        stage.transcript.add(&event);
        if let Some(line) = describe(&event, &stage.names) {
            stage.transcript.flush();
            say(&format!("{:>5}  {line}", id.map_or(String::new(), |id| id.to_string())));
        }
        match kind.as_str() {
            "permission_request" => {
                let act = acts.next().context("more requests than the story has")?;
                stage.vote(act, &event).await?;
            }
            "turn_error" => bail!("the turn failed: {}", event["data"]),
            "turn_complete" => {
                stage.over = true;
                if stage.agreed() {
                    break;
                }
            }
            _ => {}
        }
    }
    ensure!(stage.over, "the stream ended before the turn did");
    ensure!(acts.next().is_none(), "fewer requests than the story has");
    let count = stage.seen.get("alice").map_or(0, Vec::len);
    say(&format!("\nAll three clients saw the same {count} events in the same order."));
    stage.close().await
}

struct Stage {
    session: String,
    clients: BTreeMap<&'static str, Client>,
    /// Client ids and whose they are.
    names: BTreeMap<String, &'static str>,
    events: mpsc::Receiver<(&'static str, anyhow::Result<Value>)>,
    watchers: JoinSet<()>,
    seen: BTreeMap<&'static str, Vec<u64>>,
    transcript: Chunks,
    over: bool,
}

impl Stage {
    /// Three clients attach to one session and follow its events.
    async fn set(address: SocketAddr, token: &str) -> anyhow::Result<Self> {
        // A few hundred events make the whole story; a full channel only makes a watcher wait.
        let (sender, events) = mpsc::channel(256);
        let mut stage = Self {
            session: String::new(),
            clients: BTreeMap::new(),
            names: BTreeMap::new(),
            events,
            watchers: JoinSet::new(),
            seen: BTreeMap::new(),
            transcript: Chunks::default(),
            over: false,
        };
        for name in ["alice", "bob", "carol"] {
            let mut client = Client::new(address, token);
            let created = client.expect(Method::POST, "/session", Some(&json!({}))).await?;
            let (session, id) = (text(&created, "sessionId")?, text(&created, "clientId")?);
            let verb = if created["attached"] == true { "attaches to" } else { "creates" };
            say(&format!("{name} {verb} session {session} as {id}"));
            client.identify(&id);
            let mut stream = client.events(&session).await?;
            let sender = sender.clone();
            stage.watchers.spawn(async move {
                loop {
                    let event = stream.next().await.transpose();
                    let Some(event) = event else { return };
                    let failed = event.is_err();
                    if sender.send((name, event)).await.is_err() || failed {
                        return;
                    }
                }
            });
            stage.session = session;
            stage.names.insert(id, name);
            stage.clients.insert(name, client);
        }
        Ok(stage)
    }

    fn client(&mut self, name: &str) -> anyhow::Result<&mut Client> {
        self.clients.get_mut(name).with_context(|| format!("no client {name}"))
    }

    /// Whether everybody saw the same numbered events.
    fn agreed(&self) -> bool {
        let mut seen = self.clients.keys().map(|name| self.seen.get(name));
        let first = seen.next().flatten();
        first.is_some() && seen.all(|other| other == first)
    }

    /// All voters of an act vote at the same time.
    async fn vote(&mut self, act: &Act, request: &Value) -> anyhow::Result<()> {
        say(&format!("      · {}", act.comment));
        let request_id = text(&request["data"], "requestId")?;
        let path = format!("/session/{}/permission/{request_id}", self.session);
        let voting = self.clients.iter_mut().filter_map(|(name, client)| {
            let (_, option) = act.voters.iter().find(|(voter, _)| voter == name)?;
            let path = &path;
            Some(async move {
                let body = json!({"outcome": {"outcome": "selected", "optionId": option}});
                (*name, *option, client.call(Method::POST, path, Some(&body)).await)
            })
        });
        for (name, option, answer) in futures::future::join_all(voting).await {
            let (status, body) = answer?;
            let code = body["code"].as_str().map_or(String::new(), |code| format!(" {code}"));
            let result = if status == 200 { "wins" } else { "is late" };
            say(&format!("      {name} votes {option} → {status}{code}: {name} {result}"));
        }
        Ok(())
    }

    async fn close(mut self) -> anyhow::Result<()> {
        let path = format!("/session/{}", self.session);
        self.client("alice")?.expect(Method::DELETE, &path, None).await?;
        self.watchers.shutdown().await;
        Ok(())
    }
}

/// Pieces of text that belong together, printed as one line with the ids of all of them.
#[derive(Default)]
struct Chunks {
    kind: String,
    text: String,
    ids: Option<(u64, u64)>,
}

impl Chunks {
    fn add(&mut self, event: &Value) {
        let update = &event["data"]["update"];
        let (Some(kind), Some(id)) = (update["sessionUpdate"].as_str(), event["id"].as_u64()) else { return };
        if !matches!(kind, "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk") {
            return;
        }
        if kind != self.kind {
            self.flush();
            kind.clone_into(&mut self.kind);
        }
        self.text.push_str(update["content"]["text"].as_str().unwrap_or_default());
        self.ids = Some((self.ids.map_or(id, |(first, _)| first), id));
    }

    fn flush(&mut self) {
        let Self { kind, text, ids } = std::mem::take(self);
        let Some((first, last)) = ids else { return };
        let ids = if first == last { first.to_string() } else { format!("{first}-{last}") };
        let words: Vec<&str> = text.split_whitespace().collect();
        say(&format!("{ids:>5}  {:<28} {kind}: {}", "session_update", words.join(" ")));
    }
}

/// One line about an event, under its wire name; `None` for those that say nothing to a person by themselves.
fn describe(event: &Value, names: &BTreeMap<String, &'static str>) -> Option<String> {
    let who = |value: &Value| value.as_str().map_or("somebody", |id| names.get(id).copied().unwrap_or("somebody"));
    let data = &event["data"];
    let kind = event["type"].as_str()?;
    let rest = match kind {
        "session_update" => describe_update(&data["update"])?,
        "permission_request" => {
            let options: Vec<&str> =
                data["options"].as_array()?.iter().filter_map(|option| option["optionId"].as_str()).collect();
            format!("{} [{}]", data["toolCall"]["title"].as_str()?, options.join(" | "))
        }
        "permission_resolved" => {
            let outcome = data["outcome"]["optionId"].as_str().unwrap_or("cancelled");
            format!("{outcome}, by {}", who(&data["voterClientId"]))
        }
        "permission_already_resolved" => "to everybody: a vote came late".to_owned(),
        "turn_complete" => data["stopReason"].as_str()?.to_owned(),
        "turn_error" => data["message"].as_str()?.to_owned(),
        "replay_complete" => return None,
        _ => String::new(),
    };
    Some(format!("{kind:<28} {rest}").trim_end().to_owned())
}

/// A tool call's beginning and end; what lies between is for progress bars.
fn describe_update(update: &Value) -> Option<String> {
    let kind = update["sessionUpdate"].as_str()?;
    match (kind, update["status"].as_str()) {
        ("tool_call", _) => Some(format!("{kind}: {}", update["title"].as_str()?)),
        ("tool_call_update", Some(status @ ("completed" | "failed"))) => Some(format!("{kind}: {status}")),
        _ => None,
    }
}

fn text(value: &Value, key: &str) -> anyhow::Result<String> {
    value[key].as_str().map(ToOwned::to_owned).with_context(|| format!("the daemon's answer has no {key}"))
}

#[expect(clippy::print_stdout, reason = "the transcript is what this command is for")]
fn say(line: &str) {
    println!("{line}");
}
