//! Permission: how long from a vote until every client knows the decision, and until every vote is answered?

use std::collections::HashMap;

use anyhow::{Context, bail};
use convoke_bench::clock::monotonic_nanos;
use convoke_bench::script::Script;
use hyper::StatusCode;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::daemon::{Attached, Daemon, PATIENCE};
use crate::http::{Connection, event_text, event_type};
use crate::measures::Effort;
use crate::run::{Pair, Programs, Subject};
use crate::stats::percentile;
use crate::table::{Row, Target};

/// Longer than a round takes, so that a question does not meet the answers to the votes before it.
const GAP_MS: u64 = 10;
const VOTE: &str = r#"{"outcome":{"outcome":"selected","optionId":"proceed_once"}}"#;

/// Who votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voters {
    /// One client, another each time.
    One,
    /// All at once.
    All,
}

/// So many clients, of which one votes each time, or all race.
pub(crate) async fn votes(
    programs: &Programs,
    effort: Effort,
    clients: usize,
    voters: Voters,
) -> anyhow::Result<Vec<Row>> {
    let (mut p50, mut p99, mut answered) = <(Pair, Pair, Pair)>::default();
    for _ in 0..effort.daemons.min(3) {
        for subject in Subject::BOTH {
            let rounds = Room::open(programs, subject, clients).await?.rounds(voters, effort.asks).await?;
            let resolved: Vec<f64> = rounds.iter().map(|round| round.resolved_ms).collect();
            let all: Vec<f64> = rounds.iter().map(|round| round.answered_ms).collect();
            p50.push(subject, percentile(&resolved, 50).context("no round was played")?);
            p99.push(subject, percentile(&resolved, 99).context("no round was played")?);
            answered.push(subject, percentile(&all, 50).context("no round was played")?);
        }
    }
    let racing = voters == Voters::All;
    let name = match voters {
        Voters::One => format!("one vote → resolved at all {clients}"),
        Voters::All => format!("{clients} racing votes → resolved at all"),
    };
    // What ten were promised holds for one voter among them all the more.
    let target = |limit, floor_then| (clients == 10).then(|| Target::at_most(limit, floor_then));
    let mut rows = vec![
        Row::new(format!("{name}: p50, ms"), &p50.ours, &p50.floor, target(3.6, 3.3)),
        Row::new(format!("{name}: p99, ms"), &p99.ours, &p99.floor, target(9.0, 7.2)),
    ];
    if racing {
        let name = format!("{clients} racing votes: all answered, ms");
        rows.push(Row::new(name, &answered.ours, &answered.floor, target(4.0, 3.6)));
    }
    Ok(rows)
}

struct Round {
    /// From the first vote until the last client saw the decision.
    resolved_ms: f64,
    /// From the first vote until the last answer to a vote.
    answered_ms: f64,
}

/// What one client saw.
struct Sighting {
    kind: Kind,
    request: String,
    at_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Asked,
    Resolved,
}

/// A daemon, one session, its clients: each with a stream and a connection to vote on.
struct Room {
    daemon: Daemon,
    voters: Vec<(Connection, Attached)>,
    sightings: mpsc::Receiver<Sighting>,
    /// How many saw it, and when the last did.
    seen: HashMap<(Kind, String), (usize, u64)>,
    /// Requests in the order in which they came up.
    requests: Vec<String>,
    watchers: JoinSet<anyhow::Result<()>>,
}

impl Room {
    async fn open(programs: &Programs, subject: Subject, clients: usize) -> anyhow::Result<Self> {
        let daemon = Daemon::start(programs, subject).await?;
        let (report, sightings) = mpsc::channel(256);
        let (mut voters, mut watchers) = (Vec::new(), JoinSet::new());
        for _ in 0..clients {
            let mut connection = Connection::open(&daemon.server).await?;
            let attached = daemon.attach(&mut connection).await?;
            let stream = Connection::open(&daemon.server).await?.events(&attached.path("events")).await?;
            let mut stream = stream.context("no room for another subscriber")?;
            let report = report.clone();
            watchers.spawn(async move {
                loop {
                    let mut seen = Vec::new();
                    stream
                        .read(|event, at_ns| {
                            let kind = match event_type(event) {
                                b"permission_request" => Kind::Asked,
                                b"permission_resolved" => Kind::Resolved,
                                _ => return,
                            };
                            let request = event_text(event, "requestId").unwrap_or_default();
                            seen.push(Sighting { kind, request, at_ns });
                        })
                        .await?;
                    for sighting in seen {
                        report.send(sighting).await?;
                    }
                }
            });
            voters.push((connection, attached));
        }
        Ok(Self { daemon, voters, sightings, seen: HashMap::new(), requests: Vec::new(), watchers })
    }

    async fn rounds(mut self, voters: Voters, count: u32) -> anyhow::Result<Vec<Round>> {
        let mut speaker = Connection::open(&self.daemon.server).await?;
        let (_, attached) = self.voters.first().context("a room without clients")?;
        attached.clone().prompt(&mut speaker, Script::Ask { count, gap_ms: GAP_MS }).await?;
        let mut rounds = Vec::new();
        for number in 0..usize::try_from(count)? {
            let request = self.asked(number).await?;
            self.all_saw(Kind::Asked, &request).await?;
            rounds.push(self.round(voters, number, &request).await?);
        }
        self.watchers.shutdown().await;
        self.daemon.stop().await?;
        // The first makes everything that is made on first use.
        rounds.remove(0);
        Ok(rounds)
    }

    async fn round(&mut self, voters: Voters, number: usize, request: &str) -> anyhow::Result<Round> {
        let all = std::mem::take(&mut self.voters);
        let turn = number % all.len().max(1);
        let (voting, waiting): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(index, _)| voters == Voters::All || *index == turn);
        let voters = voting.len();
        self.voters.extend(waiting.into_iter().map(|(_, voter)| voter));

        let began_ns = monotonic_nanos();
        let mut votes = JoinSet::new();
        for (_, (mut connection, attached)) in voting {
            let path = attached.path(&format!("permission/{request}"));
            votes.spawn(async move {
                let answer = connection.post(&path, VOTE, &attached.client).await?;
                anyhow::Ok(((connection, attached), answer.status, monotonic_nanos()))
            });
        }
        let (mut won, mut lost, mut answered_ns) = (0, 0, began_ns);
        while let Some(vote) = timeout(PATIENCE, votes.join_next()).await? {
            let (voter, status, at_ns) = vote??;
            self.voters.push(voter);
            answered_ns = answered_ns.max(at_ns);
            match status {
                StatusCode::OK => won += 1,
                StatusCode::NOT_FOUND => lost += 1,
                other => bail!("vote: {other}"),
            }
        }
        if (won, lost) != (1, voters - 1) {
            bail!("vote: {won} of {voters} votes won and {lost} lost");
        }
        let resolved_ns = self.all_saw(Kind::Resolved, request).await?;
        let ms = |until: u64| until.saturating_sub(began_ns) as f64 / 1e6;
        Ok(Round { resolved_ms: ms(resolved_ns), answered_ms: ms(answered_ns) })
    }

    /// The id of the request that came up as `number`.
    async fn asked(&mut self, number: usize) -> anyhow::Result<String> {
        loop {
            if let Some(request) = self.requests.get(number) {
                return Ok(request.clone());
            }
            self.see().await?;
        }
    }

    /// Waits until every client saw it; returns when the last one did.
    async fn all_saw(&mut self, kind: Kind, request: &str) -> anyhow::Result<u64> {
        let key = (kind, request.to_owned());
        loop {
            match self.seen.get(&key) {
                Some((count, last_ns)) if *count == self.voters.len() => return Ok(*last_ns),
                _ => self.see().await?,
            }
        }
    }

    async fn see(&mut self) -> anyhow::Result<()> {
        let sighting = tokio::select! {
            sighting = timeout(PATIENCE, self.sightings.recv()) => sighting?.context("nobody watches")?,
            Some(ended) = self.watchers.join_next() => {
                bail!("watch a session: {ended:?}\n{}", self.daemon.complaints())
            }
        };
        if sighting.kind == Kind::Asked && !self.requests.contains(&sighting.request) {
            self.requests.push(sighting.request.clone());
        }
        let (count, last_ns) = self.seen.entry((sighting.kind, sighting.request)).or_default();
        *count += 1;
        *last_ns = (*last_ns).max(sighting.at_ns);
        Ok(())
    }
}
