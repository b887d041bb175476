//! Many at once: readers of one session, sessions, voters, readers that stand still. What does each get, and what is
//! left when they are gone?
//!
//! Nothing here looks at a clock: these are counts of what must be there, whatever the machine's hour.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::client::{Block, Events, Line, soon};
use crate::rig::{Member, Rig};

/// Chunks of one turn. With what is around them under three quarters of a reader's queue: a reader that reads is not
/// even warned, however slow the machine.
const BURST: u64 = 150;

/// What one reader heard; equal for readers that heard the same, byte for byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    frames: u64,
    chunks: u64,
    last: u64,
    digest: u64,
}

impl Heard {
    /// Reads one turn to its end. Every frame must be the next one, of `session`, and the agent's chunks in their order.
    async fn turn(mut self, stream: &mut Events, session: &str) -> Self {
        let mut digest = DefaultHasher::new();
        self.digest.hash(&mut digest);
        let mut next_chunk = 0;
        loop {
            let block = match stream.block().await {
                Block::Whole(block) => block,
                end => panic!("the stream ended: {end:?} after {self:?}"),
            };
            let Some(id) = block.strip_prefix("id: ").and_then(|rest| rest.split('\n').next()) else {
                assert!(block.starts_with("retry:") || block.starts_with(':'), "not asked for: {block}");
                continue;
            };
            let id: u64 = id.parse().unwrap();
            assert!(self.last == 0 || id == self.last + 1, "{id} after {}", self.last);
            assert!(block.contains(session), "of another session: {block}");
            (self.last, self.frames) = (id, self.frames + 1);
            block.hash(&mut digest);
            if let Some(chunk) = chunk_number(&block) {
                assert_eq!(chunk, next_chunk, "{block}");
                (next_chunk, self.chunks) = (next_chunk + 1, self.chunks + 1);
            }
            if kind(&block) == "turn_complete" {
                self.digest = digest.finish();
                return self;
            }
        }
    }
}

fn kind(block: &str) -> &str {
    block.lines().find_map(|line| line.strip_prefix("event: ")).unwrap_or_default()
}

/// The number that a chunk of the flood begins with.
fn chunk_number(block: &str) -> Option<u64> {
    if !block.contains("agent_message_chunk") {
        return None;
    }
    let (_, text) = block.split_once("\"text\":\"")?;
    text.split(' ').next()?.parse().ok()
}

/// What the operator is shown of what the daemon holds.
async fn held(rig: &Rig) -> Value {
    rig.client.get("/daemon/status").await.json()["runtime"].clone()
}

/// Waits until nothing is held any more: connections end when the daemon notices, not when their client does.
async fn all_is_gone(rig: &Rig) {
    let nothing = json!({
        "sessions": {"active": 0, "admissionInFlight": 0},
        "pending": 0,
        "transport": {"restSseActive": 0, "queuedFrames": 0, "queuedBytes": 0},
        "events": {"keptFrames": 0, "keptBytes": 0},
        "calls": {"waiting": 0},
        "clients": 0,
    });
    soon(async {
        loop {
            let held = held(rig).await;
            let seen = json!({
                "sessions": held["sessions"],
                "pending": held["permissions"]["pending"],
                "transport": held["transport"],
                "events": held["events"],
                "calls": held["calls"],
                "clients": held["activity"]["connectedClients"],
            });
            if seen == nothing {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_readers_get_every_frame_in_order() {
    const READERS: usize = 200;
    const TURNS: u64 = 4;
    const CHUNKS: u64 = BURST;
    let rig = Rig::with(|options| options.bridge.limits.subscribers = READERS).await;
    let member = rig.join("single").await;
    // Everybody has the last turn before the next one begins.
    let barrier = Arc::new(Barrier::new(READERS + 1));
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let (mut stream, barrier, session) = (member.events().await, Arc::clone(&barrier), member.session.clone());
        readers.spawn(async move {
            let mut heard = Heard::default();
            for _ in 0..TURNS {
                heard = heard.turn(&mut stream, &session).await;
                barrier.wait().await;
            }
            heard
        });
    }
    let refused = member.client.get(&member.path("events")).await;
    assert_eq!((refused.status, &refused.json()["limit"]), (429, &json!(READERS)));
    for turn in 1..=TURNS {
        member.prompt(&format!("flood scenario n={CHUNKS} pad=100")).await;
        tokio::select! {
            biased;
            _ = soon(barrier.wait()) => {}
            // After the last turn they end, and may do so before this task is told of it.
            Some(ended) = readers.join_next(), if turn < TURNS => panic!("a reader ended early: {ended:?}"),
        }
    }
    let heard = readers.join_all().await;
    let first = heard[0];
    assert_eq!((first.frames, first.chunks), (TURNS * (CHUNKS + 2), TURNS * CHUNKS));
    assert!(heard.iter().all(|other| *other == first), "{heard:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_sessions_at_once_do_not_mix() {
    const SESSIONS: usize = 50;
    const CHUNKS: u64 = BURST;
    let rig = Rig::with(|options| options.bridge.limits.sessions_per_workspace = SESSIONS).await;
    let mut members = Vec::new();
    for _ in 0..SESSIONS {
        members.push(rig.join("thread").await);
    }
    let mut readers = JoinSet::new();
    for member in &members {
        for _ in 0..3 {
            let (mut stream, session) = (member.events().await, member.session.clone());
            readers.spawn(async move { (session.clone(), Heard::default().turn(&mut stream, &session).await) });
        }
    }
    let text = format!("flood scenario n={CHUNKS} pad=50");
    futures::future::join_all(members.iter().map(|member| member.prompt(&text))).await;
    let mut by_session: BTreeMap<String, Vec<Heard>> = BTreeMap::new();
    for (session, heard) in soon(readers.join_all()).await {
        by_session.entry(session).or_default().push(heard);
    }
    assert_eq!(by_session.len(), SESSIONS);
    for heard in by_session.values() {
        assert_eq!((heard[0].frames, heard[0].chunks, heard[0].last), (CHUNKS + 2, CHUNKS, CHUNKS + 2));
        assert!(heard.iter().all(|other| *other == heard[0]), "{heard:?}");
    }
}

/// A client of the race: a connection to vote on, a stream to see what happens.
struct Racer {
    line: Line,
    stream: Events,
    path: String,
    /// Registered, empty for anonymous, or made up.
    id: String,
    seen: BTreeMap<String, u64>,
}

/// One answer to a vote: the request, the status, the code.
type Answered = (String, u16, Option<String>);

impl Racer {
    async fn new(member: &Member, id: &str) -> Self {
        let (line, stream) = (member.client.line().await, member.events().await);
        Self { line, stream, path: member.path("permission"), id: id.to_owned(), seen: BTreeMap::new() }
    }

    /// Reads on until an event of a kind, and counts everything on the way.
    async fn until(&mut self, wanted: &str) -> Value {
        loop {
            let block = match self.stream.block().await {
                Block::Whole(block) => block,
                end => panic!("the stream of {:?} ended: {end:?}, {:?}", self.id, self.seen),
            };
            let kind = kind(&block).to_owned();
            *self.seen.entry(kind.clone()).or_default() += 1;
            if kind == wanted {
                let data = block.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    async fn race(mut self, rounds: usize, start: Arc<Barrier>) -> (Self, Vec<Answered>) {
        let mut answers = Vec::new();
        for _ in 0..rounds {
            let asked = self.until("permission_request").await;
            let request = asked["data"]["requestId"].as_str().unwrap().to_owned();
            start.wait().await;
            let path = format!("{}/{request}", self.path);
            let vote = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
            let answer = self.line.call("POST", &path, &self.id, vote).await;
            let code = answer.json()["code"].as_str().map(str::to_owned);
            answers.push((request, answer.status, code));
        }
        self.until("turn_complete").await;
        (self, answers)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_races_each_has_one_winner_and_every_loser_its_code() {
    const MEMBERS: usize = 10;
    const ROUNDS: usize = 1000;
    let rig = Rig::new().await;
    let mut racers = Vec::new();
    let mut first = None;
    for _ in 0..MEMBERS {
        let member = rig.join("single").await;
        racers.push(Racer::new(&member, &member.id).await);
        first.get_or_insert(member);
    }
    let first = first.unwrap();
    // Beside the members, one that names nobody and one that names somebody who never registered.
    racers.push(Racer::new(&first, "").await);
    racers.push(Racer::new(&first, "mallory").await);
    let start = Arc::new(Barrier::new(racers.len()));
    let mut tasks = JoinSet::new();
    for racer in racers {
        tasks.spawn(racer.race(ROUNDS, Arc::clone(&start)));
    }
    first.prompt(&format!("many approvals n={ROUNDS}")).await;

    let mut winners: BTreeMap<String, usize> = BTreeMap::new();
    let (mut late, mut seen) = (0, Vec::new());
    for (racer, answers) in tasks.join_all().await {
        assert_eq!(answers.len(), ROUNDS);
        for (request, status, code) in answers {
            match (racer.id.as_str(), status, code.as_deref()) {
                ("mallory", 400, Some("invalid_client_id")) | ("mallory" | "", 404, None) => {}
                (id, 200, None) if id != "mallory" => *winners.entry(request).or_default() += 1,
                (id, 404, Some("permission_already_resolved")) if !id.is_empty() && id != "mallory" => late += 1,
                other => panic!("{other:?}"),
            }
        }
        seen.push(racer.seen);
    }
    assert_eq!(winners.len(), ROUNDS);
    assert!(winners.values().all(|count| *count == 1), "{winners:?}");
    for seen in seen {
        let count = |kind: &str| seen.get(kind).copied().unwrap_or_default();
        assert_eq!((count("permission_request"), count("permission_resolved")), (ROUNDS as u64, ROUNDS as u64));
        // Answers to the last votes may still be on their way when the turn ends.
        assert!(count("permission_already_resolved") <= late, "{seen:?}");
        assert_eq!((count("slow_client_warning"), count("client_evicted")), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_stand_still_are_let_go_and_nobody_else_notices() {
    const FAST: usize = 10;
    const SLOW: usize = 3;
    const CHUNKS: u64 = BURST;
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut fast = Vec::new();
    for _ in 0..FAST {
        fast.push((member.events().await, Heard::default()));
    }
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        slow.push(member.events().await);
    }
    let mut turns = 0;
    // What the sockets of a loopback connection hold has to be filled first.
    while held(&rig).await["transport"]["restSseActive"] != json!(FAST) {
        turns += 1;
        assert!(turns < 60, "nobody was let go: {}", held(&rig).await);
        member.prompt(&format!("flood scenario n={CHUNKS} pad=6000")).await;
        let session = member.session.as_str();
        let reading = fast.into_iter().map(|(mut stream, heard)| async move {
            let heard = heard.turn(&mut stream, session).await;
            (stream, heard)
        });
        fast = futures::future::join_all(reading).await;
    }
    let first = fast[0].1;
    assert_eq!(first.chunks, turns * CHUNKS);
    assert!(fast.iter().all(|(_, heard)| *heard == first));
    for mut stream in slow {
        loop {
            match stream.block().await {
                Block::Whole(_) => {}
                end => break assert_eq!(end, Block::Broken),
            }
        }
    }
    soon(async {
        while held(&rig).await["transport"] != json!({"restSseActive": FAST, "queuedFrames": 0, "queuedBytes": 0}) {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_over_leave_nothing() {
    const AT_ONCE: usize = 16;
    let rig = Rig::new().await;
    for _ in 0..12 {
        let lives = (0..AT_ONCE).map(|_| async {
            let member = rig.join("thread").await;
            let (mut stream, other) = (member.events().await, member.events().await);
            member.prompt("two approvals").await;
            for _ in 0..2 {
                let asked = stream.until("permission_request").await;
                member.vote(asked["data"]["requestId"].as_str().unwrap(), "proceed_once").await;
            }
            stream.until("turn_complete").await;
            drop(other);
            // One that nobody decides: it ends with its session.
            member.prompt("approval").await;
            stream.until("permission_request").await;
            let path = format!("/session/{}", member.session);
            assert_eq!(member.client.call("DELETE", &path, &member.id, json!({})).await.status, 204);
            stream.until("session_closed").await;
        });
        futures::future::join_all(lives).await;
        all_is_gone(&rig).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_goes_on_keeps_within_its_bounds() {
    const FRAMES: u64 = 300;
    const BYTES: u64 = 192 * 1024;
    let rig = Rig::with(|options| {
        options.bridge.limits.ring_frames = FRAMES as usize;
        options.bridge.limits.ring_bytes = BYTES as usize;
    })
    .await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    let (mut heard, mut most) = (Heard::default(), (0, 0));
    // Short chunks fill the ring by number, long ones by bytes.
    for turn in 0..40 {
        member.prompt(&format!("flood scenario n={BURST} pad={}", if turn % 2 == 0 { 0 } else { 1000 })).await;
        heard = heard.turn(&mut stream, &member.session).await;
        let kept = held(&rig).await["events"].clone();
        let (frames, bytes) = (kept["keptFrames"].as_u64().unwrap(), kept["keptBytes"].as_u64().unwrap());
        assert!(frames <= FRAMES && bytes <= BYTES, "{kept}");
        most = (most.0.max(frames), most.1.max(bytes));
        // Someone who only looks in, from the beginning.
        let mut guest = member.events_after("0").await;
        guest.until("replay_complete").await;
    }
    assert!(most.0 >= FRAMES * 3 / 4 && most.1 >= BYTES * 3 / 4, "neither bound was reached: {most:?}");
    assert_eq!(heard.chunks, 40 * BURST);
}
