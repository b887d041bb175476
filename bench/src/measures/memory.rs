//! What stays in memory: clients that wait, prompts that are kept, our own agent, sessions that are over.

use std::time::Duration;

use anyhow::Context;
use convoke_bench::script::Script;
use tokio::time::{sleep, timeout};

use crate::daemon::{Agent, Attached, Daemon, PATIENCE};
use crate::http::{Connection, EventStream, event_type};
use crate::measures::Effort;
use crate::proc::{descendants, pss_kib};
use crate::run::{Pair, Programs, Subject};
use crate::table::{Row, Target};

/// Clients that are added; the daemon's default limit is 64.
const CLIENTS: usize = 60;
/// Sessions that are added; the default limit is 32.
const SESSIONS: usize = 20;
/// A prompt with a file in it.
const PROMPT_BYTES: usize = 38 * 1024;
/// How long memory gets to settle before it is read.
const SETTLE: Duration = Duration::from_millis(700);

/// A client that follows a session in which nothing happens, and a session that heard one long prompt.
pub(crate) async fn clients(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let (mut client, mut session) = <(Pair, Pair)>::default();
    for _ in 0..effort.daemons.min(3) {
        for subject in Subject::BOTH {
            let daemon = Daemon::start(programs, subject).await?;
            let mut connection = Connection::open(&daemon.server).await?;
            let first = daemon.attach(&mut connection).await?;
            // Everything that is made on first use.
            let mut streams = vec![follow(&daemon, &first).await?];
            let before = settled(&daemon).await?;
            for _ in 0..CLIENTS {
                streams.push(follow(&daemon, &first).await?);
            }
            client.push(subject, (settled(&daemon).await? - before) / CLIENTS as f64);
            drop(streams);

            prompted(&daemon, &mut connection).await?;
            let before = settled(&daemon).await?;
            for _ in 0..SESSIONS {
                prompted(&daemon, &mut connection).await?;
            }
            session.push(subject, (settled(&daemon).await? - before) / SESSIONS as f64);
            daemon.stop().await?;
        }
    }
    let target = Some(Target::at_most(0.1, 0.04));
    // The floor keeps nothing of a session, so there is nothing to compare the second row with.
    Ok(vec![
        Row::new("an idle client with its stream, MiB", &client.ours, &client.floor, None),
        Row::new("a further session, one prompt of 38 KB, MiB", &session.ours, &[], target),
    ])
}

/// Our own agent behind the daemon, idle: the child, and what a session costs it.
pub(crate) async fn our_agent(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let (mut child, mut further) = (Vec::new(), Vec::new());
    for _ in 0..effort.daemons.min(3) {
        let daemon = Daemon::start_with(programs, Subject::Ours, Agent::Ours, &[]).await?;
        let mut connection = Connection::open(&daemon.server).await?;
        daemon.create(&mut connection).await?;
        let one = settled_children(&daemon).await?;
        for _ in 0..SESSIONS {
            daemon.create(&mut connection).await?;
        }
        child.push(one);
        further.push((settled_children(&daemon).await? - one) / SESSIONS as f64);
        daemon.stop().await?;
    }
    Ok(vec![
        Row::new("our agent behind the daemon, one session: PSS with its guard, MiB", &child, &[], None),
        Row::new("… a further session in it, MiB", &further, &[], None),
    ])
}

/// Sessions that are opened, prompted and closed, one after the other: what do the later ones add?
pub(crate) async fn soak(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let (mut growth, mut seconds) = (Vec::new(), Vec::new());
    for _ in 0..effort.daemons.min(2) {
        let daemon = Daemon::start(programs, Subject::Ours).await?;
        let mut connection = Connection::open(&daemon.server).await?;
        let (early, late) = (effort.lives / 4, effort.lives - effort.lives / 4);
        for _ in 0..early {
            prompted(&daemon, &mut connection).await?.close(&mut connection).await?;
        }
        let before = settled(&daemon).await?;
        let began = std::time::Instant::now();
        for _ in 0..late {
            prompted(&daemon, &mut connection).await?.close(&mut connection).await?;
        }
        seconds.push(began.elapsed().as_secs_f64() * 1000.0 / f64::from(late));
        growth.push(settled(&daemon).await? - before);
        daemon.stop().await?;
    }
    let name = format!("the last three quarters of {} sessions, opened, prompted, closed: growth, MiB", effort.lives);
    Ok(vec![
        // As much as one session with a full ring of chunks may hold.
        Row::new(name, &growth, &[], Some(Target::at_most(4.0, 4.0))),
        Row::new("… each from open to closed, ms", &seconds, &[], None),
    ])
}

/// A new session that has heard one long prompt and answered it.
async fn prompted(daemon: &Daemon, connection: &mut Connection) -> anyhow::Result<Attached> {
    let session = daemon.create(connection).await?;
    let mut stream = follow(daemon, &session).await?;
    let script = Script::Chunks { count: 20, per_second: 0, bytes: 80 };
    session.prompt_with(connection, script, &"word ".repeat(PROMPT_BYTES / 5)).await?;
    let mut over = false;
    while !over {
        timeout(PATIENCE, stream.read(|event, _| over |= event_type(event) == b"turn_complete")).await??;
    }
    Ok(session)
}

async fn follow(daemon: &Daemon, session: &Attached) -> anyhow::Result<EventStream> {
    let stream = Connection::open(&daemon.server).await?.events(&session.path("events")).await?;
    stream.context("no room for another subscriber")
}

async fn settled(daemon: &Daemon) -> anyhow::Result<f64> {
    sleep(SETTLE).await;
    Ok(pss_kib(daemon.pid)? as f64 / 1024.0)
}

async fn settled_children(daemon: &Daemon) -> anyhow::Result<f64> {
    sleep(SETTLE).await;
    let mut kib = 0;
    for child in descendants(daemon.pid)? {
        kib += pss_kib(child)?;
    }
    Ok(kib as f64 / 1024.0)
}
