//! Fan-out: how long from the agent writing a chunk until every subscriber has it, and how many a second?

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use convoke_bench::script::{Script, read_stamp};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::daemon::{Agent, Attached, Daemon, PATIENCE};
use crate::http::{Connection, EventStream, event_type};
use crate::measures::Effort;
use crate::proc::cpu_nanos;
use crate::run::{Pair, Programs, Subject};
use crate::stats::percentile;
use crate::table::{Row, Target};

/// Chunks a second of a paced stream: a fast model.
const PER_SECOND: u32 = 200;
/// Length of a chunk's text: a few words.
const BYTES: usize = 80;
/// Chunks of one burst. With the events around it, under the 256 frames that a subscriber's queue holds: nobody is
/// evicted for the bench's own slowness.
const BURST: u32 = 200;

/// A limit, and the floor of the day on which it was set.
type Promise = (f64, f64);

/// A paced stream to so many subscribers.
pub(crate) async fn paced(programs: &Programs, effort: Effort, subscribers: usize) -> anyhow::Result<Vec<Row>> {
    // The 50th percentile, and the daemon's time per chunk, in µs.
    let (p50_us, cpu_us): (Promise, Option<Promise>) = match subscribers {
        1 => ((350.0, 274.0), Some((180.0, 117.0))),
        50 => ((1000.0, 780.0), Some((950.0, 750.0))),
        _ => ((3500.0, 2400.0), None),
    };
    let (mut p50, mut p99, mut cpu) = <(Pair, Pair, Pair)>::default();
    for _ in 0..effort.daemons.min(3) {
        for subject in Subject::BOTH {
            let stream = Hall::open(programs, subject, subscribers).await?.stream(effort.chunks).await?;
            p50.push(subject, percentile(&stream.delays_us, 50).context("no chunk came")?);
            p99.push(subject, percentile(&stream.delays_us, 99).context("no chunk came")?);
            cpu.push(subject, stream.cpu_us);
        }
    }
    let name = format!("fan-out to {subscribers}");
    let target = |(limit, floor_then)| Target::at_most(limit, floor_then);
    Ok(vec![
        Row::new(format!("{name}: p50, µs"), &p50.ours, &p50.floor, Some(target(p50_us))),
        Row::new(format!("{name}: p99, µs"), &p99.ours, &p99.floor, None),
        Row::new(format!("{name}: daemon CPU, µs per chunk"), &cpu.ours, &cpu.floor, cpu_us.map(target)),
    ])
}

/// Bursts, each as fast as the agent writes, the next when everybody has the last.
pub(crate) async fn saturated(programs: &Programs, effort: Effort, subscribers: usize) -> anyhow::Result<Vec<Row>> {
    let promise: Option<Promise> = match subscribers {
        1 => None,
        50 => Some((110_000.0, 135_000.0)),
        _ => Some((125_000.0, 155_000.0)),
    };
    let mut rate = Pair::default();
    for _ in 0..effort.daemons.min(3) {
        for subject in Subject::BOTH {
            let hall = Hall::open(programs, subject, subscribers).await?;
            rate.push(subject, hall.bursts(effort.bursts).await?);
        }
    }
    let name = format!("saturation at {subscribers}, delivered frames/s");
    let target = promise.map(|(limit, floor_then)| Target::at_least(limit, floor_then));
    Ok(vec![Row::new(name, &rate.ours, &rate.floor, target)])
}

/// A daemon, one session, its subscribers.
struct Hall {
    daemon: Daemon,
    speaker: Connection,
    session: Attached,
    streams: Vec<EventStream>,
}

struct Streamed {
    /// For each chunk, until the last subscriber had it.
    delays_us: Vec<f64>,
    /// Of the daemon alone, per chunk.
    cpu_us: f64,
}

impl Hall {
    async fn open(programs: &Programs, subject: Subject, subscribers: usize) -> anyhow::Result<Self> {
        // Everything else is as it is by default.
        let limit = subscribers.to_string();
        let args: &[&str] = if subscribers > 64 { &["--max-subscribers-per-session", &limit] } else { &[] };
        let daemon = Daemon::start_with(programs, subject, Agent::Scripted, args).await?;
        let mut speaker = Connection::open(&daemon.server).await?;
        let session = daemon.attach(&mut speaker).await?;
        let mut streams = Vec::new();
        for _ in 0..subscribers {
            let connection = Connection::open(&daemon.server).await?;
            let stream = connection.events(&session.path("events")).await?;
            streams.push(stream.context("no room for another subscriber")?);
        }
        Ok(Self { daemon, speaker, session, streams })
    }

    /// A turn of `count` chunks at an even pace.
    async fn stream(mut self, count: u32) -> anyhow::Result<Streamed> {
        // Everything that is made on first use.
        self = self.turn(Script::Chunks { count: 20, per_second: PER_SECOND, bytes: BYTES }).await?.0;
        let before = cpu_nanos(self.daemon.pid)?;
        let (hall, received) = self.turn(Script::Chunks { count, per_second: PER_SECOND, bytes: BYTES }).await?;
        let cpu_us = (cpu_nanos(hall.daemon.pid)? - before) as f64 / 1e3 / f64::from(count);
        let mut delays_us = vec![0.0_f64; usize::try_from(count)?];
        for chunks in received {
            if chunks.len() != delays_us.len() {
                bail!("stream to subscribers: one has {} of {count} chunks", chunks.len());
            }
            for (slowest, (sent, had)) in delays_us.iter_mut().zip(chunks) {
                *slowest = slowest.max(had.saturating_sub(sent) as f64 / 1e3);
            }
        }
        hall.daemon.stop().await?;
        Ok(Streamed { delays_us, cpu_us })
    }

    /// Plays one turn and returns, for each subscriber, when each chunk was written and when it was there.
    async fn turn(mut self, script: Script) -> anyhow::Result<(Self, Vec<Vec<(u64, u64)>>)> {
        let mut tasks = JoinSet::new();
        for mut stream in std::mem::take(&mut self.streams) {
            tasks.spawn(async move {
                let (mut chunks, mut over) = (Vec::new(), false);
                while !over {
                    let read = stream.read(|event, now| match read_stamp(event) {
                        Some(sent) => chunks.push((sent, now)),
                        None => over |= event_type(event) == b"turn_complete",
                    });
                    timeout(PATIENCE, read).await??;
                }
                anyhow::Ok((stream, chunks))
            });
        }
        self.session.prompt(&mut self.speaker, script).await?;
        let mut received = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (stream, chunks) = done?.with_context(|| self.daemon.complaints())?;
            self.streams.push(stream);
            received.push(chunks);
        }
        Ok((self, received))
    }

    /// Frames delivered a second over `bursts` turns.
    async fn bursts(mut self, bursts: u32) -> anyhow::Result<f64> {
        // All subscribers and the speaker meet after each burst.
        let barrier = Arc::new(Barrier::new(self.streams.len() + 1));
        let mut tasks = JoinSet::new();
        for mut stream in std::mem::take(&mut self.streams) {
            let barrier = Arc::clone(&barrier);
            tasks.spawn(async move {
                let mut chunks = 0_u32;
                for _ in 0..bursts {
                    let mut over = false;
                    while !over {
                        let read = stream.read(|event, _| match read_stamp(event) {
                            Some(_) => chunks += 1,
                            None => over |= event_type(event) == b"turn_complete",
                        });
                        timeout(PATIENCE, read).await??;
                    }
                    barrier.wait().await;
                }
                anyhow::Ok(chunks)
            });
        }
        let started = Instant::now();
        for _ in 0..bursts {
            let script = Script::Chunks { count: BURST, per_second: 0, bytes: BYTES };
            self.session.prompt(&mut self.speaker, script).await?;
            tokio::select! {
                biased;
                _ = barrier.wait() => {}
                // Before the barrier opens only a failure ends a task, and nobody would get past it then.
                Some(done) = tasks.join_next() => bail!("saturate subscribers: {:?}\n{}", done?, self.daemon.complaints()),
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let mut delivered = 0;
        while let Some(chunks) = tasks.join_next().await {
            let chunks = chunks??;
            if chunks != bursts * BURST {
                bail!("saturate subscribers: one has {chunks} of {} chunks", bursts * BURST);
            }
            delivered += chunks;
        }
        self.daemon.stop().await?;
        Ok(f64::from(delivered) / seconds)
    }
}
