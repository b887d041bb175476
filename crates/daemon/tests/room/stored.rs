//! Sessions that outlive their agent, and their daemon.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_daemon::{AgentSource, AgentStreams, DaemonOptions, Isolation};
use convoke_testkit::{Script, run_scripted_agent};
use serde_json::{Value, json};

use crate::client::Next;
use crate::rig::{Member, Rig, in_memory, process};

/// An agent that keeps its sessions in `folder`, and a daemon that keeps its list there.
fn keeping(folder: &Path, script: Script) -> impl FnOnce(&mut DaemonOptions) {
    let store = Some(folder.join("agent.jsonl"));
    let list = folder.join("list");
    move |options| {
        options.agent = in_memory(Script { store, ..script });
        options.sessions_folder = Some(list);
    }
}

async fn say(member: &Member, text: &str) {
    let mut stream = member.events().await;
    member.prompt(text).await;
    stream.until("turn_complete").await;
}

/// What a load gives back: status and body.
async fn load(rig: &Rig, session: &str) -> (u16, Value) {
    let answer = rig.client.post(&format!("/session/{session}/load"), "", json!({})).await;
    (answer.status, answer.json())
}

async fn listed(rig: &Rig) -> Vec<Value> {
    let workspace = rig.workspace.display().to_string().replace('/', "%2F");
    let list = rig.client.get(&format!("/workspace/{workspace}/sessions")).await.json();
    list["sessions"].as_array().unwrap().clone()
}

fn texts(events: &Value) -> Vec<String> {
    let updates = events.as_array().unwrap().iter().map(|event| &event["data"]["update"]);
    let texts = updates.filter_map(|update| update.pointer("/content/text")?.as_str());
    texts.filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// Ends a daemon and starts another one in the same workspace.
async fn restarted(rig: Rig, change: impl FnOnce(&mut DaemonOptions)) -> Rig {
    rig.shutdown.cancel();
    let folder = rig.ended_in_place().await;
    Rig::within(folder, change).await
}

#[tokio::test]
async fn a_prompted_session_survives_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    for script in [Script::default(), Script { odd_ids: true, ..Script::default() }] {
        let home = folder.path().join(script.odd_ids.to_string());
        let rig = Rig::with(keeping(&home, script.clone())).await;
        std::fs::create_dir_all(&home).unwrap();
        let body = json!({"sessionScope": "thread", "sourceType": "default"});
        let made = rig.client.post("/session", "", body).await.json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        let member = Member { client: rig.client.clone(), session: text("sessionId"), id: text("clientId") };
        let unused = rig.join("thread").await;
        say(&member, "echo remember me").await;
        let name = json!({"displayName": "Kept"});
        assert_eq!(rig.client.call("PATCH", &member.path("metadata"), "", name).await.status, 200);
        let rig = restarted(rig, keeping(&home, script)).await;
        let list = listed(&rig).await;
        assert_eq!(list.len(), 1, "{list:?}");
        assert_eq!(list[0]["sessionId"], json!(member.session));
        assert_eq!((&list[0]["displayName"], &list[0]["clientCount"]), (&json!("Kept"), &json!(0)));
        assert_eq!(list[0]["createdAt"], made["createdAt"]);
        assert_eq!(load(&rig, &unused.session).await.0, 404);
        assert_eq!(load(&rig, "no-such-session").await.0, 404);
        let (status, loaded) = load(&rig, &member.session).await;
        assert_eq!(status, 200, "{loaded}");
        assert_eq!((&loaded["attached"], &loaded["createdAt"]), (&json!(false), &made["createdAt"]));
        assert_eq!((&loaded["sourceType"], &loaded["lastEventId"]), (&json!("default"), &json!(0)));
        assert_eq!(loaded["state"]["modes"]["currentModeId"], "default");
        assert_eq!(texts(&loaded["compactedReplay"]), ["echo remember me", "echo remember me"]);
        let first = &loaded["compactedReplay"][0];
        assert_eq!((first.get("id"), &first["v"], &first["type"]), (None, &json!(1), &json!("session_update")));
        assert_eq!(first["data"]["sessionId"], json!(member.session));
        assert_eq!(loaded["liveJournal"], json!([]));
        assert_eq!(loaded.get("partial"), None);
        // It goes on, numbered from one; who loads it now gets both parts.
        let again = Member { client: rig.client.clone(), session: member.session.clone(), id: String::new() };
        say(&again, "echo and more").await;
        let (_, joined) = load(&rig, &member.session).await;
        assert_eq!((&joined["attached"], joined["liveJournal"][0]["id"].as_u64()), (&json!(true), Some(1)));
        assert_eq!(texts(&joined["compactedReplay"]).len(), 2);
        assert_eq!(texts(&joined["liveJournal"]), ["echo and more", "echo and more"]);
        assert_eq!(again.status().await["displayName"], "Kept");
        assert_eq!(listed(&rig).await.len(), 1);
    }
}

#[tokio::test]
async fn a_closed_session_can_be_loaded_and_an_unused_one_can_not() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with(keeping(folder.path(), Script::default())).await;
    let (used, unused) = (rig.join("thread").await, rig.join("thread").await);
    say(&used, "echo once").await;
    for member in [&used, &unused] {
        assert_eq!(rig.client.call("DELETE", &format!("/session/{}", member.session), "", json!({})).await.status, 204);
        assert_eq!(rig.client.get(&member.path("status")).await.status, 404);
    }
    // Whatever the agent has of it: nobody ever said anything in it.
    let line = json!({"sessionId": unused.session, "update": {"sessionUpdate": "plan"}});
    let kept = folder.path().join("agent.jsonl");
    std::fs::write(&kept, format!("{}{line}\n", std::fs::read_to_string(&kept).unwrap())).unwrap();
    assert_eq!(load(&rig, &unused.session).await.0, 404);
    let conflict = rig.client.post("/session", "", json!({"sessionId": used.session})).await;
    assert_eq!((conflict.status, &conflict.json()["code"]), (409, &json!("session_id_conflict")));
    let (status, loaded) = load(&rig, &used.session).await;
    assert_eq!((status, texts(&loaded["compactedReplay"]).len()), (200, 2));
    // The agent has lost it: then so has the list.
    rig.client.call("DELETE", &format!("/session/{}", used.session), "", json!({})).await;
    std::fs::remove_file(&kept).unwrap();
    assert_eq!(listed(&rig).await.len(), 1);
    assert_eq!(load(&rig, &used.session).await.0, 404);
    assert_eq!(listed(&rig).await, [] as [Value; 0]);
}

#[tokio::test]
async fn what_is_told_again_is_bounded_by_its_newest_part() {
    let folder = tempfile::tempdir().unwrap();
    let limited = |limit: usize| {
        let change = keeping(folder.path(), Script::default());
        move |options: &mut DaemonOptions| {
            change(options);
            options.limits.replay_bytes = limit;
        }
    };
    let rig = Rig::with(limited(2000)).await;
    let member = rig.join("thread").await;
    say(&member, "flood scenario n=100 pad=100").await;
    rig.client.call("DELETE", &format!("/session/{}", member.session), "", json!({})).await;
    let (_, loaded) = load(&rig, &member.session).await;
    assert_eq!((&loaded["partial"], &loaded["historyHasMore"]), (&json!(true), &json!(true)));
    let told = texts(&loaded["compactedReplay"]);
    assert!((1..20).contains(&told.len()), "{}", told.len());
    assert!(told.last().unwrap().starts_with("99 "), "{told:?}");
}

#[tokio::test]
async fn a_session_whose_agent_died_is_loaded_by_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with(keeping(folder.path(), Script::default())).await;
    let member = rig.join("single").await;
    say(&member, "echo before").await;
    let mut stream = member.events().await;
    member.prompt("exit 3").await;
    let (events, end) = stream.rest().await;
    assert_eq!((end, events.last().unwrap().kind.as_str()), (Next::End, "session_died"));
    let (status, loaded) = load(&rig, &member.session).await;
    assert_eq!(status, 200, "{loaded}");
    assert_eq!(texts(&loaded["compactedReplay"]), ["echo before", "echo before", "exit 3"]);
    let again = Member { id: loaded["clientId"].as_str().unwrap().to_owned(), ..member };
    say(&again, "echo after").await;
}

/// The scripted agent, whose first `n` processes do as `first` says and the others as they should.
fn at_first(n: usize, first: Script) -> AgentSource {
    let count = AtomicUsize::new(0);
    AgentSource::Streams(Arc::new(move || {
        let early = count.fetch_add(1, Ordering::SeqCst) < n;
        let script = if early { first.clone() } else { Script::default() };
        let (input, agent_input) = tokio::io::duplex(64 * 1024);
        let (agent_output, output) = tokio::io::duplex(64 * 1024);
        tokio::spawn(async move { run_scripted_agent(script, agent_input, agent_output).await });
        AgentStreams { output: Box::new(output), input: Box::new(input) }
    }))
}

#[tokio::test]
async fn the_next_prompt_brings_a_session_back_whose_agent_died() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with(keeping(folder.path(), Script::default())).await;
    let member = rig.join("single").await;
    say(&member, "echo before").await;
    for anonymous in [false, true] {
        let mut stream = member.events().await;
        member.prompt("exit 3").await;
        assert_eq!(stream.rest().await.0.last().unwrap().kind, "session_died");
        let stranger = json!({"prompt": [{"type": "text", "text": "echo x"}]});
        let refused = rig.client.post(&member.path("prompt"), "client_stranger", stranger).await;
        assert_eq!(refused.status, 404, "who was not on it brings nothing back: {}", refused.text());
        let prompt = json!({"prompt": [{"type": "text", "text": "echo after"}]});
        let client = if anonymous { "" } else { member.id.as_str() };
        let accepted = rig.client.post(&member.path("prompt"), client, prompt).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text());
        let accepted = accepted.json();
        assert_eq!(accepted["clientId"] == member.id.as_str(), !anonymous, "who was on it keeps its id: {accepted}");
        let complete = member.events_after("0").await.until("turn_complete").await;
        assert_eq!(complete["data"]["promptId"], accepted["promptId"]);
        assert_eq!(member.status().await["clientCount"], 1);
    }
    let closed = rig.client.call("DELETE", &format!("/session/{}", member.session), "", json!({})).await;
    assert_eq!(closed.status, 204);
    let body = json!({"prompt": [{"type": "text", "text": "echo x"}]});
    assert_eq!(rig.client.post(&member.path("prompt"), "", body).await.status, 404, "a closed session stays closed");
}

#[tokio::test]
async fn a_session_does_not_start_at_an_agent_that_is_dying() {
    let dying = Script { exit_at_new: Some(0), ..Script::default() };
    let once = dying.clone();
    let rig = Rig::with(|options| options.agent = at_first(1, once)).await;
    say(&rig.join("single").await, "echo alive").await;
    // One that always dies of it is not tried for ever.
    let rig = Rig::with(|options| options.agent = at_first(2, dying)).await;
    let refused = rig.client.post("/session", "", json!({})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("acp_channel_unavailable")));
    say(&rig.join("single").await, "echo alive").await;
}

#[tokio::test]
async fn isolated_sessions_do_not_share_their_agent_s_fate() {
    let rig = Rig::with(|options| {
        options.agent = process(&[]);
        options.isolation = Isolation::Session;
    })
    .await;
    let (doomed, other) = (rig.join("thread").await, rig.join("thread").await);
    let mut stream = doomed.events().await;
    doomed.prompt("exit 3").await;
    let (events, end) = stream.rest().await;
    assert_eq!((end, events.last().unwrap().kind.as_str()), (Next::End, "session_died"));
    say(&other, "echo alive").await;
    assert_eq!(rig.client.get(&doomed.path("status")).await.status, 404);
}
