//! A daemon nobody works with: how soon is it there, what does it hold, how fast are its small answers?

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hyper::StatusCode;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::daemon::Daemon;
use crate::http::Connection;
use crate::measures::Effort;
use crate::proc::{cpu_nanos, descendants, pss_kib};
use crate::run::{Pair, Programs, Subject};
use crate::stats::percentile;
use crate::table::{Row, Target};

/// Connections of the request load.
const CONNECTIONS: usize = 8;
/// Sessions that are added to see what one costs; fewer than the daemon's default limit of 32.
const SESSIONS: usize = 20;
/// How long a daemon is left alone before its memory is read.
const SETTLE: Duration = Duration::from_millis(700);

/// Start, first session, memory.
pub(crate) async fn standing(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let (mut healthy, mut first, mut own, mut others, mut further) = <(Pair, Pair, Pair, Pair, Pair)>::default();
    for round in 0..=effort.daemons {
        for subject in Subject::BOTH {
            let started = Instant::now();
            let daemon = Daemon::start(programs, subject).await?;
            let mut connection = Connection::open(&daemon.server).await?;
            let answer = connection.get("/health").await?;
            if answer.status != StatusCode::OK {
                bail!("measure a daemon: /health says {}", answer.status);
            }
            let ready_ms = ms(started);
            sleep(SETTLE).await;
            let idle_kib = pss_kib(daemon.pid)?;
            let mut children_kib = 0;
            for child in descendants(daemon.pid)? {
                children_kib += pss_kib(child)?;
            }

            let asked = Instant::now();
            daemon.create(&mut connection).await?;
            let session_ms = ms(asked);
            sleep(SETTLE).await;
            let with_one_kib = pss_kib(daemon.pid)?;
            for _ in 0..SESSIONS {
                daemon.create(&mut connection).await?;
            }
            sleep(SETTLE).await;
            let with_all_kib = pss_kib(daemon.pid)?;
            daemon.stop().await?;
            // The first daemon of each reads the binary from disk and does not count.
            if round > 0 {
                healthy.push(subject, ready_ms);
                first.push(subject, session_ms);
                own.push(subject, idle_kib as f64 / 1024.0);
                others.push(subject, children_kib as f64 / 1024.0);
                let growth_kib = with_all_kib.saturating_sub(with_one_kib) as f64;
                further.push(subject, growth_kib / 1024.0 / SESSIONS as f64);
            }
        }
    }
    // The floor keeps nothing of a session, so there is nothing to compare the last row with.
    Ok(vec![
        Row::new("daemon: spawn → healthy, ms", &healthy.ours, &healthy.floor, Some(Target::at_most(25.0, 18.0))),
        Row::new("daemon: → first session, ms", &first.ours, &first.floor, Some(Target::at_most(5.0, 1.2))),
        Row::new("daemon idle: PSS, MiB", &own.ours, &own.floor, Some(Target::at_most(15.0, 1.3))),
        Row::new("… PSS of its children (guard and agent), MiB", &others.ours, &others.floor, None),
        Row::new("a further session, never prompted, MiB", &further.ours, &[], Some(Target::at_most(0.1, 0.04))),
    ])
}

/// `GET /capabilities`, as fast as it is answered.
pub(crate) async fn small_requests(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let (mut rate, mut delay, mut cpu) = <(Pair, Pair, Pair)>::default();
    for _ in 0..effort.daemons {
        for subject in Subject::BOTH {
            let daemon = Daemon::start(programs, subject).await?;
            let single = load(&daemon, 1, effort.load).await?;
            delay.push(subject, percentile(&single, 50).context("measure requests: none was answered")?);
            let before = cpu_nanos(daemon.pid)?;
            let many = load(&daemon, CONNECTIONS, effort.load).await?;
            cpu.push(subject, (cpu_nanos(daemon.pid)? - before) as f64 / 1000.0 / many.len() as f64);
            rate.push(subject, many.len() as f64 / effort.load.as_secs_f64());
            daemon.stop().await?;
        }
    }
    Ok(vec![
        Row::new(
            "small GET, 8 connections, req/s",
            &rate.ours,
            &rate.floor,
            Some(Target::at_least(25_000.0, 41_000.0)),
        ),
        Row::new("small GET, 8 connections: daemon CPU, µs per request", &cpu.ours, &cpu.floor, None),
        Row::new("small GET, 1 connection, p50 µs", &delay.ours, &delay.floor, Some(Target::at_most(55.0, 37.0))),
    ])
}

/// Microseconds of every request.
async fn load(daemon: &Daemon, connections: usize, duration: Duration) -> anyhow::Result<Vec<f64>> {
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let mut connection = Connection::open(&daemon.server).await?;
        // Everything that is made on first use.
        connection.get("/capabilities").await?;
        tasks.spawn(async move {
            let mut delays = Vec::new();
            let started = Instant::now();
            while started.elapsed() < duration {
                let asked = Instant::now();
                let answer = connection.get("/capabilities").await?;
                if answer.status != StatusCode::OK {
                    bail!("measure requests: {}", answer.status);
                }
                delays.push(ms(asked) * 1000.0);
            }
            Ok(delays)
        });
    }
    let mut all = Vec::new();
    while let Some(delays) = tasks.join_next().await {
        all.extend(delays??);
    }
    Ok(all)
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
