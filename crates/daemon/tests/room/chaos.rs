//! Agents that misbehave at every step of the protocol: what do their clients get to see, and who else notices?
//!
//! In each case a session of another process waits for a decision all the while, and a new session works afterwards.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use convoke_daemon::{DaemonLimits, DaemonOptions, Isolation, NamedAgents};
use futures::future::ready;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};

use crate::client::{Event, Next, soon};
use crate::rig::{Member, Rig, process, request_id};

/// Cases that run side by side: each has some processes.
const AT_ONCE: usize = 6;

/// What the bridge keeps open for one session.
const PENDING_MAX: usize = 64;

const STEPS: [&str; 8] = ["initialize", "new", "load", "prompt", "turn", "permission", "cancel", "close"];

/// What has to come of a misdeed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// Whoever wants the session is told this.
    Refused(u16, &'static str),
    /// The session ends with its agent, which ended like this: code and signal.
    Dies(Option<i32>, Option<&'static str>),
    /// The session ends with its agent, however that ended.
    DiesSomehow,
    /// A cancelled turn ends with an error.
    Stuck,
    /// Nothing is lost but what was not said, or another process takes over.
    GoesOn,
}

fn expected(kind: &str, step: &str) -> Outcome {
    use Outcome::{Dies, DiesSomehow, GoesOn, Refused, Stuck};
    let ends = matches!(kind, "exit-0" | "exit-1" | "kill" | "mute" | "endless-line");
    let stops = matches!(kind, "hang" | "deaf");
    // Elsewhere, what is lost is an update.
    let loses = kind == "unfinished" && step != "load";
    match step {
        "initialize" if ends => Refused(503, "acp_channel_unavailable"),
        "initialize" | "new" if stops || loses => Refused(504, "init_timeout"),
        "load" if stops => Refused(504, "session_restore_timeout"),
        "initialize" | "new" | "load" | "close" => GoesOn,
        _ if stops => Stuck,
        _ => match kind {
            "exit-0" => Dies(Some(0), None),
            "exit-1" => Dies(Some(1), None),
            "kill" | "mute" => Dies(None, Some("SIGKILL")),
            "endless-line" => DiesSomehow,
            _ => GoesOn,
        },
    }
}

/// A daemon whose next agent misbehaves once `armed` is there. Deadlines are short only where the case waits for them.
fn wild(folder: &Path, kind: &str, step: &str) -> impl FnOnce(&mut DaemonOptions) {
    let outcome = expected(kind, step);
    let chaos = format!("--chaos={kind}@{step}");
    let armed = format!("--armed-by={}", folder.join("armed").display());
    let store = format!("--store={}", folder.join("agent.jsonl").display());
    let stays = matches!(kind, "mute" | "hang" | "deaf" | "unfinished" | "endless-line");
    let (closes, list) = (step == "close", folder.join("list"));
    move |options| {
        let agent = process(&[&chaos, &armed, &store]);
        options.sessions_folder = Some(list);
        if closes {
            // The process has to outlive its session, so whoever waits meanwhile has an agent of another name.
            let others = BTreeMap::from([("wild".to_owned(), agent)]);
            options.agent = process(&[]);
            options.agents = NamedAgents { default_name: "tame".to_owned(), others };
        } else {
            options.agent = agent;
            options.isolation = Isolation::Session;
        }
        let limits = &mut options.limits;
        if matches!(outcome, Outcome::Refused(504, _)) || closes && stays {
            limits.initialize_timeout = Duration::from_secs(2);
            limits.session_start_timeout = Duration::from_secs(2);
            limits.restore_timeout = Duration::from_secs(2);
        }
        if outcome == Outcome::Stuck || closes && stays {
            limits.cancel_timeout = Duration::from_millis(300);
        }
        if stays {
            limits.agent_grace = Duration::from_millis(200);
        }
    }
}

async fn create(rig: &Rig, agent: Option<&str>) -> Result<Member, (u16, Value)> {
    let answer = rig.client.post("/session", "", json!({"sessionScope": "thread", "agent": agent})).await;
    member(rig, answer.status, answer.json())
}

fn member(rig: &Rig, status: u16, body: Value) -> Result<Member, (u16, Value)> {
    if status != 200 {
        return Err((status, body["code"].clone()));
    }
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    Ok(Member { client: rig.client.clone(), session: text("sessionId"), id: text("clientId") })
}

/// A session of a process that behaves; one that a loaded machine starts too slowly is asked for again.
async fn surely(rig: &Rig, agent: Option<&str>) -> Member {
    soon(async {
        loop {
            if let Ok(member) = create(rig, agent).await {
                return member;
            }
        }
    })
    .await
}

async fn say(member: &Member, text: &str) {
    let mut stream = member.events().await;
    member.prompt(text).await;
    stream.until("turn_complete").await;
}

async fn close(member: &Member) {
    let closed = member.client.call("DELETE", &format!("/session/{}", member.session), &member.id, json!({})).await;
    assert_eq!(closed.status, 204, "{}", closed.text());
}

async fn cancel(member: &Member) {
    let cancelled = member.client.post(&member.path("cancel"), &member.id, json!({})).await;
    assert!(matches!(cancelled.status, 204 | 404), "{}", cancelled.text());
}

/// One misdeed from before to after.
async fn survive(kind: &str, step: &str) {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with(wild(folder.path(), kind, step)).await;
    let armed = folder.path().join("armed");
    let agent = (step == "close").then_some("wild");
    let bystander = surely(&rig, None).await;
    let mut aside = bystander.events().await;
    bystander.prompt("approval please").await;
    let question = request_id(&aside.until("permission_request").await);
    let stored = match step {
        "load" => {
            let stored = surely(&rig, None).await;
            say(&stored, "echo kept").await;
            close(&stored).await;
            Some(stored.session)
        }
        _ => None,
    };
    std::fs::write(&armed, "").unwrap();
    let started = match stored {
        Some(session) => {
            let answer = rig.client.post(&format!("/session/{session}/load"), "", json!({})).await;
            member(&rig, answer.status, answer.json())
        }
        None => create(&rig, agent).await,
    };
    match (started, expected(kind, step)) {
        (Err((status, code)), Outcome::Refused(want, name)) => assert_eq!((status, &code), (want, &json!(name))),
        (Ok(victim), outcome) if !matches!(outcome, Outcome::Refused(..)) => {
            converse(&victim, (kind, step), outcome).await;
        }
        (started, outcome) => panic!("{outcome:?}, not {:?}", started.map(|member| member.session)),
    }
    soon(async {
        while armed.exists() {
            tokio::task::yield_now().await
        }
    })
    .await;
    say(&surely(&rig, agent).await, "echo back").await;
    assert_eq!(bystander.vote(&question, "proceed_once").await.0, 200);
    let resolved = aside.until("permission_resolved").await;
    assert_eq!(resolved["data"]["outcome"], json!({"outcome": "selected", "optionId": "proceed_once"}));
    aside.until("turn_complete").await;
    rig.shutdown.cancel();
    rig.ended().await;
}

/// A turn with a question in it, up to the end of its session.
async fn converse(victim: &Member, (kind, step): (&str, &str), outcome: Outcome) {
    let mut stream = victim.events().await;
    victim.prompt("approval please").await;
    let cancels = outcome == Outcome::Stuck || step == "cancel";
    let early = matches!(step, "prompt" | "turn");
    let dies = matches!(outcome, Outcome::Dies(..) | Outcome::DiesSomehow);
    let (mut seen, mut cancelled): (Vec<Event>, bool) = (Vec::new(), false);
    loop {
        let event = match stream.next().await {
            Next::Event(event) => event,
            _ if dies => break,
            // Too slow for a flood, and sent away; what is open is told to whoever comes back.
            _ => {
                stream = victim.events().await;
                continue;
            }
        };
        let (name, frame) = (event.kind.clone(), event.frame.clone());
        seen.push(event);
        match name.as_str() {
            "session_update" | "permission_request"
                if cancels && !cancelled && (early || name == "permission_request") =>
            {
                cancelled = true;
                cancel(victim).await;
            }
            "permission_request" if !cancels => {
                // It may be over already, or offer nothing to choose.
                let (status, body) = victim.vote(&request_id(&frame), "proceed_once").await;
                assert!(matches!(status, 200 | 400 | 404), "{body}");
            }
            "turn_complete" | "turn_error" if !dies => break,
            _ => {}
        }
    }
    let last = seen.last().unwrap().clone();
    let data = &last.frame["data"];
    match outcome {
        Outcome::Dies(..) | Outcome::DiesSomehow => {
            let errors = seen.iter().filter(|event| event.kind == "turn_error").count();
            assert_eq!((last.kind.as_str(), errors), ("session_died", 1));
            if let Outcome::Dies(code, signal) = outcome {
                assert_eq!((&data["exitCode"], &data["signalCode"]), (&json!(code), &json!(signal)));
            }
        }
        Outcome::Stuck => {
            assert_eq!(last.kind, "turn_error");
            assert!(data["message"].as_str().unwrap().contains("after session/cancel"), "{data}");
        }
        Outcome::GoesOn | Outcome::Refused(..) => {
            let reason = if step == "cancel" { "cancelled" } else { "end_turn" };
            assert_eq!((last.kind.as_str(), &data["stopReason"]), ("turn_complete", &json!(reason)));
        }
    }
    if !dies {
        close(victim).await;
        let (rest, end) = stream.rest().await;
        assert_eq!((end, rest.last().unwrap().kind.as_str()), (Next::End, "session_closed"));
        seen.extend(rest);
    }
    assert_eq!(victim.client.get(&victim.path("status")).await.status, 404);
    if kind != "flood" {
        check_questions(&seen);
    }
}

/// Every question was resolved, once, and never too many were open.
fn check_questions(events: &[Event]) {
    let mut open = BTreeMap::new();
    for event in events {
        match event.kind.as_str() {
            "permission_request" => assert_eq!(open.insert(request_id(&event.frame), true), None),
            "permission_resolved" => assert_eq!(open.insert(request_id(&event.frame), false), Some(true)),
            _ => {}
        }
        assert!(open.values().filter(|open| **open).count() <= PENDING_MAX);
    }
    assert!(open.values().all(|open| !open), "{open:?}");
}

/// Without isolation, too: whatever is left unanswered costs the next session at most that one process.
#[tokio::test]
async fn a_process_that_is_stuck_gets_no_more_sessions() {
    for step in ["new", "prompt", "mode", "close"] {
        let folder = tempfile::tempdir().unwrap();
        let change = wild(folder.path(), "hang", step);
        let rig = Rig::with(|options| {
            change(options);
            options.agents = NamedAgents::default();
            options.isolation = Isolation::Workspace;
            options.limits.cancel_timeout = Duration::from_millis(300);
            if step != "new" {
                // Nobody may wait for the process that hangs.
                options.limits.session_start_timeout = DaemonLimits::default().session_start_timeout;
            }
            if step == "close" {
                options.agent =
                    process(&["--chaos=hang@close", &format!("--armed-by={}", folder.path().join("armed").display())]);
            }
        })
        .await;
        std::fs::write(folder.path().join("armed"), "").unwrap();
        let processes = async || {
            let status = rig.client.get("/daemon/status").await.json();
            status["runtime"]["agents"][0]["processes"].as_u64().unwrap()
        };
        if step == "new" {
            let refused = create(&rig, None).await.err();
            assert_eq!(refused, Some((504, json!("init_timeout"))));
        } else {
            let victim = create(&rig, None).await.unwrap();
            let mut stream = victim.events().await;
            match step {
                "prompt" => {
                    victim.prompt("approval please").await;
                    stream.until("session_update").await;
                    cancel(&victim).await;
                    stream.until("turn_error").await;
                }
                "mode" => {
                    let wish = json!({"mode": "yolo"});
                    let refused = rig.client.post(&victim.path("approval-mode"), &victim.id, wish).await;
                    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("acp_channel_unavailable")));
                }
                _ => {}
            }
            if step == "close" {
                close(&victim).await;
                // It is given up once it has not answered.
                soon(async { while processes().await != 0 {} }).await;
            } else {
                say(&surely(&rig, None).await, "echo back").await;
                assert_eq!(processes().await, 2, "{step}: the session that it has is kept");
                close(&victim).await;
            }
        }
        say(&surely(&rig, None).await, "echo back").await;
        soon(async { while processes().await != 1 {} }).await;
        rig.shutdown.cancel();
        rig.ended().await;
    }
}

async fn survive_all(kinds: &[&str], steps: &[&str]) {
    let cases = kinds.iter().flat_map(|kind| steps.iter().map(move |step| (*kind, *step)));
    let runs = cases.map(async |(kind, step)| {
        // Each case is told of by its name, after all have run.
        let survived = AssertUnwindSafe(survive(kind, step)).catch_unwind().await;
        survived.is_err().then(|| format!("{kind}@{step}"))
    });
    let failed: Vec<String> = futures::stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(ready).collect().await;
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test]
async fn an_agent_that_ends_at_any_step_costs_its_own_session_only() {
    survive_all(&["exit-0", "exit-1", "kill"], &STEPS).await;
}

#[tokio::test]
async fn an_agent_that_stops_talking_at_any_step_is_given_up() {
    survive_all(&["mute", "hang", "deaf", "unfinished"], &STEPS).await;
}

#[tokio::test]
async fn noise_at_any_step_does_no_harm() {
    survive_all(&["rubbish", "no-utf8", "nonsense"], &STEPS).await;
}

#[tokio::test]
async fn floods_are_held_back_and_drown_nobody() {
    survive_all(&["flood", "endless-line"], &["new", "turn"]).await;
    survive_all(&["questions", "stderr"], &["initialize", "new", "turn", "permission", "cancel"]).await;
}
