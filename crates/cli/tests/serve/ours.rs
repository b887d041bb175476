//! Our own agent behind a real daemon: killed in the middle of a turn, and with subagents that ask all at once.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

fn shell(command: &str) -> Value {
    json!([{"functionCall": {"name": "run_shell_command", "args": {"command": command}}}])
}

fn say(text: &str) -> Value {
    json!([{"text": text}])
}

/// Processes of this test that run `convoke acp`, without those that watch over them.
fn agents_in(environment: &TestEnvironment) -> Vec<u32> {
    let workspace = environment.workspace();
    let is_agent = |process: &Path| {
        let args = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let mut args = args.split(|byte| *byte == 0);
        let (program, first) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
        program.ends_with(b"convoke") && first == b"acp"
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let ours = processes.filter(|process| std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == workspace));
    ours.filter(|process| is_agent(process)).filter_map(|process| process.file_name()?.to_str()?.parse().ok()).collect()
}

async fn vote(client: &mut Client, session: &str, request: &Value, option: &str) {
    let vote = json!({"outcome": {"outcome": "selected", "optionId": option}});
    let path = format!("/session/{session}/permission/{}", request["data"]["requestId"].as_str().unwrap());
    client.expect(Method::POST, &path, Some(&vote)).await.unwrap();
}

#[tokio::test]
async fn our_agent_that_is_killed_in_the_middle_of_a_turn_goes_on_where_it_was() {
    let environment = TestEnvironment::new();
    let answers = [say("I keep it in mind."), shell("touch begun; sleep 1001")];
    let daemon = start(answering(&environment, &answers, &[]));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "remember me").await;
    next_of(&mut events, "turn_complete").await;
    prompt(&mut client, &session, "work").await;
    let request = next_of(&mut events, "permission_request").await;
    vote(&mut client, &session, &request, "proceed_once").await;
    until(|| environment.read("workspace/begun").is_some()).await;

    let agents = agents_in(&environment);
    let [agent] = agents[..] else { panic!("{agents:?}") };
    assert!(Command::new("kill").args(["-KILL", &agent.to_string()]).status().unwrap().success());
    next_of(&mut events, "turn_error").await;
    let died = next_of(&mut events, "session_died").await;
    assert_eq!(died["data"]["signalCode"], "SIGKILL", "{died}");
    // The daemon is all that is left: what the agent had started ended with it.
    until(|| processes_in(&environment) == 1).await;

    // The next prompt brings it back; another process of ours answers, from the beginning of its script.
    prompt(&mut client, &session, "go on").await;
    let mut events = client.events(&session).await.unwrap();
    next_of(&mut events, "turn_complete").await;
    assert_ne!(agents_in(&environment), [agent]);
    let path = format!("/session/{session}/load");
    let loaded = client.expect(Method::POST, &path, Some(&json!({}))).await.unwrap();
    let replay = loaded["compactedReplay"].as_array().unwrap();
    let updates = || replay.iter().map(|frame| &frame["data"]["update"]);
    let said: Vec<_> = updates().filter_map(|update| update["content"]["text"].as_str()).collect();
    for words in ["remember me", "I keep it in mind.", "work"] {
        assert!(said.contains(&words), "{words}: {said:?}");
    }
    // The call that never came back is told as one that failed, not as one that still runs.
    let ends: Vec<_> = updates().filter(|update| update["sessionUpdate"] == "tool_call_update").collect();
    assert_eq!(ends.last().unwrap()["status"], "failed", "{ends:?}");
}

/// How many of the files of the next test say this.
fn saying(environment: &TestEnvironment, text: &str) -> usize {
    let says = |number: &usize| environment.read(&format!("workspace/f{number}")).as_deref() == Some(text);
    (1..=FILES).filter(says).count()
}

const FILES: usize = 150;

#[tokio::test]
async fn our_agent_that_is_killed_on_a_way_back_is_there_once_the_next_prompt_comes() {
    let environment = TestEnvironment::new();
    for number in 1..=FILES {
        environment.write(&format!("workspace/f{number}"), "old\n");
    }
    let change = format!("for i in $(seq {FILES}); do echo new > f$i; done");
    let daemon = start(answering(&environment, &[say("hello"), shell(&change), say("done")], &[]));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "first").await;
    next_of(&mut events, "turn_complete").await;
    prompt(&mut client, &session, "second").await;
    let request = next_of(&mut events, "permission_request").await;
    vote(&mut client, &session, &request, "proceed_once").await;
    next_of(&mut events, "turn_complete").await;
    assert_eq!(saying(&environment, "new\n"), FILES);

    let path = format!("/session/{session}/rewind");
    let mut other = Client::new(daemon.address, TOKEN);
    let asked = {
        let path = path.clone();
        tokio::spawn(async move { other.call(Method::POST, &path, Some(&json!({"promptId": "2"}))).await.unwrap().0 })
    };
    let begun = async {
        while saying(&environment, "old\n") == 0 && !asked.is_finished() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), begun).await.expect("it must begin");
    for agent in agents_in(&environment) {
        assert!(Command::new("kill").args(["-KILL", &agent.to_string()]).status().unwrap().success());
    }
    let status = asked.await.unwrap();
    assert!(status == 503 || status == 200, "it was killed, or already there: {status}");
    next_of(&mut events, "session_died").await;

    prompt(&mut client, &session, "/rewind").await;
    let mut events = client.events(&session).await.unwrap();
    next_of(&mut events, "turn_complete").await;
    assert_eq!(saying(&environment, "old\n"), FILES);
    let left = client.expect(Method::GET, &format!("{path}/snapshots"), None).await.unwrap();
    let left: Vec<_> = left["snapshots"].as_array().unwrap().iter().map(|point| point["prompt"].clone()).collect();
    assert_eq!(left, ["first"]);
}

/// Answers of the model: two agents are called at once, and each of them writes a file and reports.
fn two_at_once() -> [Value; 6] {
    let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
    let invoke = |agent: &str| call("invoke_agent", json!({"agent_name": agent, "prompt": "help"}));
    let write = |file: &str| json!([call("write_file", json!({"file_path": file, "content": "x"}))]);
    let report = json!([call("complete_task", json!({"result": "done"}))]);
    let both = json!([invoke("left"), invoke("right")]);
    [both, write("one.txt"), write("two.txt"), report.clone(), report, say("all done")]
}

fn define(environment: &TestEnvironment) {
    for name in ["left", "right"] {
        let text = format!("---\nname: {name}\ndescription: Helps on the {name}.\n---\nYou are {name}. ${{query}}");
        environment.write(&format!("home/.convoke/agents/{name}.md"), text);
    }
}

/// The questions of both, by who asks.
async fn both(events: &mut Events) -> BTreeMap<String, Value> {
    let mut asked = BTreeMap::new();
    for _ in 0..2 {
        let request = next_of(events, "permission_request").await;
        let call = &request["data"]["toolCall"];
        let path = call["_meta"]["agentPath"].as_array().unwrap();
        let [who] = &path[..] else { panic!("{call}") };
        let who = who.as_str().unwrap().to_owned();
        let title = call["title"].as_str().unwrap();
        assert!(title.starts_with(&format!("{who}: ")), "{title}");
        asked.insert(who, request);
    }
    assert_eq!(asked.keys().collect::<Vec<_>>(), ["left", "right"]);
    asked
}

#[tokio::test]
async fn subagents_that_ask_at_once_are_told_apart_and_answered_in_any_order() {
    let environment = TestEnvironment::new();
    define(&environment);
    let daemon = start(answering(&environment, &two_at_once(), &[]));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "go").await;
    let asked = both(&mut events).await;
    let file = |request: &Value| {
        let path = request["data"]["toolCall"]["rawInput"]["file_path"].as_str().unwrap().to_owned();
        format!("workspace/{}", Path::new(&path).file_name().unwrap().to_str().unwrap())
    };
    // The one that waits longer is answered later, and holds up nobody.
    vote(&mut client, &session, &asked["right"], "proceed_once").await;
    until(|| environment.read(&file(&asked["right"])).is_some()).await;
    assert_eq!(environment.read(&file(&asked["left"])), None);
    vote(&mut client, &session, &asked["left"], "proceed_once").await;
    assert_eq!(next_of(&mut events, "turn_complete").await["data"]["stopReason"], "end_turn");
    assert!(environment.read(&file(&asked["left"])).is_some());
}

#[tokio::test]
async fn a_cancelled_turn_takes_the_questions_of_its_subagents_back() {
    let environment = TestEnvironment::new();
    define(&environment);
    let daemon = start(answering(&environment, &two_at_once(), &[]));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "go").await;
    let asked = both(&mut events).await;
    client.expect(Method::POST, &format!("/session/{session}/cancel"), Some(&json!({}))).await.unwrap();
    for _ in 0..2 {
        let resolved = next_of(&mut events, "permission_resolved").await;
        assert_eq!(resolved["data"]["outcome"]["outcome"], "cancelled", "{resolved}");
    }
    assert_eq!(next_of(&mut events, "turn_complete").await["data"]["stopReason"], "cancelled");
    for request in asked.values() {
        let path = format!("/session/{session}/permission/{}", request["data"]["requestId"].as_str().unwrap());
        let late = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
        let (status, _) = client.call(Method::POST, &path, Some(&late)).await.unwrap();
        assert!(status == 404 || status == 409, "{status}");
    }
    for file in ["one", "two"] {
        assert_eq!(environment.read(&format!("workspace/{file}.txt")), None);
    }
}
