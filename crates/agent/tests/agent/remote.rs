//! Agents elsewhere against a scripted server: what is sent, what comes back of it, and what is wrong with it.

use std::sync::Arc;
use std::time::Duration;

use convoke_agent::{AgentOptions, AgentOverride, Variables};
use convoke_protocol::{AgentEvent, AgentEventBody, PermissionContent, PermissionOutcome};
use convoke_tools::Mode;
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::cast::*;
use crate::far::{Far, Heard, Reply, card, card_v1, response};
use crate::rig::{Answer, sketch, stop, text, told};

const DONE: &str = "TASK_STATE_COMPLETED";
const WORKING: &str = "TASK_STATE_WORKING";

fn task(state: &str) -> Value {
    json!({"task": {"id": "t1", "contextId": "c1", "status": {"state": state}}})
}

fn status(state: &str, says: &str) -> Value {
    let message = json!({"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": says}]});
    json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": state, "message": message}}})
}

fn artifact(text: &str, append: bool) -> Value {
    json!({"artifactUpdate": {"taskId": "t1", "contextId": "c1", "append": append,
        "artifact": {"artifactId": "a1", "parts": [{"text": text}]}}})
}

/// Calls it as often as that, once after the other.
fn asks(times: usize) -> Vec<(&'static str, Vec<Answer>)> {
    let mut answers: Vec<Answer> = (0..times).map(|_| invoke(&["far"])).collect();
    answers.push(vec![text("ok"), stop()]);
    vec![("main", answers)]
}

/// A definition of `far` at `url` with these further keys, for a session that is asked nothing.
fn there(options: &mut AgentOptions, url: &str, keys: &str) {
    let text = format!("---\nkind: remote\nname: far\nagent_card_url: {url}\n{keys}---\n");
    std::fs::write(options.subagents.user_folders[0].join("far.md"), text).unwrap();
    options.policy.mode = Mode::Yolo;
    options.subagents.variables = Variables::new(|name| (name == "FAR_TOKEN").then(|| "s3cr3t".to_owned()));
}

async fn stage(far: &Far, times: usize) -> Stage {
    Stage::with(&[], &asks(times), |options| there(options, &far.url, "")).await
}

/// What came of each call.
fn results(events: &[Arc<AgentEvent>]) -> Vec<(String, bool)> {
    let result = |event: &Arc<AgentEvent>| match &event.body {
        AgentEventBody::ToolResponse { name, is_error, .. } if name == "invoke_agent" => Some((told(event), *is_error)),
        _ => None,
    };
    events.iter().filter_map(result).collect()
}

/// How the first of its threads ended.
fn end(events: &[Arc<AgentEvent>]) -> (String, Value) {
    let ended = |event: &Arc<AgentEvent>| match &event.body {
        AgentEventBody::AgentEnd { reason, data } if event.thread_id.is_some() => {
            Some((format!("{reason:?}"), data.clone().unwrap()["terminateReason"].clone()))
        }
        _ => None,
    };
    events.iter().find_map(ended).unwrap()
}

#[tokio::test]
async fn a_task_is_streamed_told_and_goes_on_in_the_next_call() {
    let far = Far::v1(true, |_, _| {
        Reply::Events(vec![
            task("TASK_STATE_SUBMITTED"),
            status(WORKING, "looking"),
            artifact("forty", false),
            artifact("-two", true),
            status(DONE, "here you are"),
        ])
    })
    .await;
    let keys = "auth: {type: http, scheme: Bearer, token: $FAR_TOKEN}\n";
    let stage = Stage::with(&[], &asks(2), |options| there(options, &far.url, keys)).await;
    let events = stage.play().await;
    check(&events);
    let expected = "Remote agent 'far' finished.\nTermination Reason: GOAL\nResult:\n<untrusted_context>\nforty-two\n\nhere you are\n</untrusted_context>";
    assert_eq!(results(&events), [(expected.to_owned(), false), (expected.to_owned(), false)]);
    let thread = of_agent(&events, "far").remove(0);
    assert_eq!(
        sketch(&thread),
        ["message help far", "agent_start", "message forty-two\n\nhere you are", "agent_end Completed"]
    );
    assert_eq!(end(&events).1, "GOAL");
    let progress = events.iter().find_map(|event| match &event.body {
        AgentEventBody::ToolResponse { data: Some(data), .. } => data.get("progress").cloned(),
        _ => None,
    });
    let progress = progress.unwrap();
    assert_eq!(progress["agentName"], "far");
    assert!(threads(&events).contains_key(progress["threadId"].as_str().unwrap()));

    let heard = far.heard();
    assert_eq!(far.methods(), ["card", "SendStreamingMessage", "SendStreamingMessage"]);
    assert!(heard[0].head.starts_with("get /.well-known/agent-card.json http/1.1"), "{}", heard[0].head);
    assert!(heard.iter().all(|heard| heard.head.contains("authorization: bearer s3cr3t\r\n")));
    assert!(heard[1].head.contains("a2a-version: 1.0\r\n") && heard[1].head.starts_with("post /rpc "));
    assert_eq!(heard[1].params["message"]["parts"], json!([{"text": "help far"}]));
    assert_eq!(
        (&heard[1].params["message"]["contextId"], &heard[2].params["message"]["contextId"]),
        (&json!(null), &json!("c1"))
    );
    assert!(heard[2].params["message"].get("taskId").is_none(), "the first task is over");
    let log = format!("{events:?}");
    assert!(!log.contains("s3cr3t"));
}

#[tokio::test]
async fn one_that_does_not_stream_is_asked_until_it_is_done_in_both_dialects() {
    let old = |state: &str| {
        json!({"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": state},
        "artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": "old words"}]}]})
    };
    let far = Far::new(move |url, heard, before| match (heard.what.as_str(), before) {
        ("card", _) => {
            card(&json!({"name": "Old", "url": format!("{url}/"), "protocolVersion": "0.3.0", "capabilities": {}}))
        }
        ("message/send", _) => Reply::One(old("submitted")),
        // What can't be had for once is asked for again.
        ("tasks/get", 0) => Reply::Raw(response("503 Service Unavailable", "text/plain", "later")),
        ("tasks/get", 1) => Reply::One(old("working")),
        ("tasks/get", _) => Reply::One(old("completed")),
        other => panic!("{other:?}"),
    })
    .await;
    let events = stage(&far, 1).await.play().await;
    check(&events);
    assert!(results(&events)[0].0.contains("\nold words\n"), "{:?}", results(&events));
    assert_eq!(far.methods(), ["card", "message/send", "tasks/get", "tasks/get", "tasks/get"]);
    let heard = far.heard();
    assert_eq!(heard[1].params["configuration"]["blocking"], false);
    assert_eq!(heard[2].params, json!({"id": "t1"}));
    assert!(heard[1].head.contains("a2a-version: 0.3\r\n"));

    let far = Far::v1(false, |heard, before| match (heard.what.as_str(), before) {
        ("SendMessage", _) => Reply::One(task(WORKING)),
        ("GetTask", 0) => Reply::One(json!({"id": "t1", "contextId": "c1", "status": {"state": WORKING}})),
        ("GetTask", _) => Reply::One(json!({"id": "t1", "contextId": "c1", "status": {"state": DONE},
            "artifacts": [{"artifactId": "a", "parts": [{"text": "new words"}]}]})),
        other => panic!("{other:?}"),
    })
    .await;
    let events = stage(&far, 1).await.play().await;
    assert!(results(&events)[0].0.contains("\nnew words\n"));
    assert_eq!(far.heard()[1].params["configuration"]["returnImmediately"], true);
    // An answer without a task.
    let far =
        Far::v1(false, |_, _| Reply::One(json!({"message": {"contextId": "c", "parts": [{"text": "hi"}]}}))).await;
    let events = stage(&far, 1).await.play().await;
    assert!(results(&events)[0].0.contains("Termination Reason: GOAL\nResult:\n<untrusted_context>\nhi\n"));
}

#[tokio::test]
async fn a_question_is_no_end_and_the_next_call_answers_it() {
    let far = Far::v1(true, |heard, _| {
        let answered = heard.params["message"].get("taskId").is_some();
        match answered {
            false => Reply::Held(vec![task(WORKING), status("TASK_STATE_INPUT_REQUIRED", "Which branch?")]),
            true => Reply::Events(vec![task(WORKING), artifact("done on main", false), status(DONE, "")]),
        }
    })
    .await;
    let events = stage(&far, 3).await.play().await;
    check(&events);
    let results = results(&events);
    assert_eq!(
        results[0],
        (
            "Remote agent 'far' waits for input.\nTermination Reason: INPUT_REQUIRED\nThe task is not done. To answer, \
             call the agent again with the answer as prompt: it goes on with the same task.\nIt asks:\n\
             <untrusted_context>\nWhich branch?\n</untrusted_context>"
                .to_owned(),
            false
        )
    );
    assert!(results[1].0.contains("\ndone on main\n"));
    assert_eq!(end(&events), ("Completed".to_owned(), json!("INPUT_REQUIRED")));
    let tasks: Vec<Value> = far.heard()[1..].iter().map(|heard| heard.params["message"]["taskId"].clone()).collect();
    assert_eq!(tasks, [json!(null), json!("t1"), json!(null)]);
    // The one that waited is gone by then: a new one in the same conversation.
    let far = Far::v1(true, |heard, before| match (before, heard.params["message"].get("taskId")) {
        (0, _) => Reply::Events(vec![task(WORKING), status("TASK_STATE_INPUT_REQUIRED", "Which?")]),
        (_, Some(_)) => Reply::Error(-32001, "Task not found"),
        (_, None) => Reply::Events(vec![json!({"message": {"parts": [{"text": "anew"}]}})]),
    })
    .await;
    let events = stage(&far, 2).await.play().await;
    assert!(self::results(&events)[1].0.contains("\nanew\n"));
    assert_eq!(far.heard().last().unwrap().params["message"]["contextId"], "c1");
}

#[tokio::test]
async fn every_other_end_is_an_error_that_says_which() {
    let ends = [
        (
            "TASK_STATE_FAILED",
            "ERROR",
            "Failed",
            "It failed. The task is not done.\nIt said:\n<untrusted_context>\nno luck\n",
        ),
        ("TASK_STATE_REJECTED", "ERROR", "Failed", "It refused the task."),
        ("TASK_STATE_CANCELED", "ABORTED", "Aborted", "It was stopped on its side."),
        ("TASK_STATE_AUTH_REQUIRED", "ERROR", "Failed", "It wants somebody to log in on its side"),
    ];
    for (state, reason, ended, says) in ends {
        let far = Far::v1(true, move |heard, _| match heard.what.as_str() {
            "CancelTask" => Reply::One(json!({"id": "t1", "status": {"state": "TASK_STATE_CANCELED"}})),
            _ => Reply::Events(vec![task(WORKING), status(state, "no luck")]),
        })
        .await;
        let events = stage(&far, 1).await.play().await;
        check(&events);
        let (told, is_error) = results(&events).remove(0);
        assert!(is_error && told.contains(&format!("Reason: {reason}\n")) && told.contains(says), "{told}");
        assert_eq!(end(&events), (ended.to_owned(), json!(reason)));
        assert_eq!(far.methods().contains(&"CancelTask".to_owned()), state.contains("AUTH"), "{state}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_left_running() {
    const HUGE: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999\r\n\r\n";
    const ENDLESS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ";
    let raw = |status: &str, body: &str| Reply::Raw(response(status, "application/json", body));
    let cases = [
        (Reply::Error(-32603, "out of order"), "Could not get an answer: out of order (-32603)."),
        (raw("500 Oops", ""), "Could not get an answer: HTTP status 500."),
        (raw("200 OK", "<html>"), "Could not read its answer: expected value at line 1 column 1."),
        (raw("200 OK", "{}"), "Could not read its answer: it has neither a result nor an error."),
        (Reply::One(json!([1])), "Could not read its answer: there is neither a message nor a task in it."),
        (Reply::Events(vec![]), "Could not read its answer: there is neither a message nor a task in it."),
        (Reply::Flood(HUGE), "Could not read its answer: it has more than 8 MiB."),
        (Reply::Flood(ENDLESS), "Could not read its answer: read an event of more than 8388608 bytes."),
        (Reply::Raw(String::new()), "Could not reach it: "),
    ];
    for (reply, expected) in cases {
        let far = Far::v1(true, move |_, _| reply.clone()).await;
        let events = stage(&far, 1).await.play().await;
        check(&events);
        let (told, is_error) = results(&events).remove(0);
        assert!(is_error && told.contains(expected) && told.contains("The task is not done."), "{told}");
        assert_eq!(end(&events), ("Failed".to_owned(), json!("ERROR")));
    }
    // Nonsense in the middle of a task: it is told to stop.
    let far = Far::v1(true, |heard, _| match heard.what.as_str() {
        "CancelTask" => Reply::Error(-32002, "no"),
        _ => Reply::Raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {{\"result\":{}}}\n\ndata: {{nonsense\n\n",
            task(WORKING)
        )),
    })
    .await;
    let events = stage(&far, 1).await.play().await;
    assert!(results(&events)[0].0.contains("Could not read its answer: key must be a string"));
    assert_eq!(far.methods(), ["card", "SendStreamingMessage", "CancelTask"]);
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_no_task_that_failed() {
    for broken in [Reply::Broken(vec![task(WORKING)]), Reply::Events(vec![task(WORKING)])] {
        let far = Far::v1(true, move |heard, _| match heard.what.as_str() {
            "GetTask" => Reply::One(json!({"id": "t1", "status": {"state": DONE,
                "message": {"parts": [{"text": "still done"}]}}})),
            _ => broken.clone(),
        })
        .await;
        let events = stage(&far, 1).await.play().await;
        assert!(results(&events)[0].0.contains("\nstill done\n"), "{:?}", results(&events));
        assert_eq!(far.methods(), ["card", "SendStreamingMessage", "GetTask"]);
    }
}

#[tokio::test]
async fn a_credential_goes_nowhere_else() {
    let other = Far::v1(true, |_, _| Reply::Error(0, "never")).await;
    let keys = "auth: {type: apiKey, key: $FAR_TOKEN, name: X-Key}\n";
    let at = other.url.clone();
    let sent_on = Far::new(move |_, _, _| card(&card_v1(&at, true))).await;
    let at = other.url.clone();
    let moved = Far::new(move |_, _, _| {
        Reply::Raw(format!("HTTP/1.1 302 Found\r\nlocation: {at}/\r\ncontent-length: 0\r\n\r\n"))
    })
    .await;
    let at = other.url.clone();
    let moves = Far::v1(true, move |_, _| {
        Reply::Raw(format!("HTTP/1.1 307 Found\r\nlocation: {at}/\r\ncontent-length: 0\r\n\r\n"))
    })
    .await;
    let elsewhere = format!("Could not use its card: it is at {} and sends us to {}.", sent_on.url, other.url);
    for (far, expected) in [
        (&sent_on, elsewhere.as_str()),
        (&moved, "it redirects elsewhere (HTTP status 302); name the final address"),
        (&moves, "it redirects elsewhere (HTTP status 307); name the final address"),
    ] {
        let stage = Stage::with(&[], &asks(1), |options| there(options, &far.url, keys)).await;
        let events = stage.play().await;
        let (told, is_error) = results(&events).remove(0);
        assert!(is_error && told.contains(expected), "{told}");
    }
    assert_eq!(other.methods(), [""; 0]);
    assert!(sent_on.heard()[0].head.contains("x-key: s3cr3t\r\n"));
    // One that is not there, and an address that is not encrypted.
    for (url, keys, expected) in [
        (
            other.url.as_str(),
            "auth: {type: apiKey, key: $GONE}\n",
            "Could not prove who we are: the variable GONE is not set.",
        ),
        ("http://far.test", "", "Could not use the address http://far.test/: beyond this machine it must be https://."),
    ] {
        let stage = Stage::with(&[], &asks(1), |options| there(options, url, keys)).await;
        let events = stage.play().await;
        assert!(results(&events)[0].0.contains(expected), "{:?}", results(&events));
    }
    assert_eq!(other.methods(), [""; 0]);
}

/// The session has shown something of the running call.
async fn shown(stage: &Stage) {
    let mut log = stage.session.agent.log().replay();
    let shown = async {
        while let Some(event) = log.next().await {
            let AgentEventBody::ToolUpdate { data: Some(data), .. } = &event.body else { continue };
            if data.get("activity").is_some() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(40), shown).await.unwrap();
}

fn held(heard: &Heard, _: usize) -> Reply {
    match heard.what.as_str() {
        "CancelTask" => Reply::One(json!({"id": "t1", "status": {"state": "TASK_STATE_CANCELED"}})),
        _ => Reply::Held(vec![task(WORKING), status(WORKING, "this takes long")]),
    }
}

#[tokio::test]
async fn an_abort_cancels_the_task_there() {
    for cancels in [true, false] {
        let far = Far::v1(true, move |heard, before| match heard.what.as_str() {
            // One that does not even answer that holds nobody up for long.
            "CancelTask" if !cancels => Reply::Silence,
            _ => held(heard, before),
        })
        .await;
        let stage = stage(&far, 1).await;
        let running = stage.send("go").await;
        shown(&stage).await;
        stage.session.agent.abort().await;
        let events = stage.finish(running).await;
        check(&events);
        assert_eq!(end(&events), ("Aborted".to_owned(), json!("ABORTED")));
        assert_eq!(far.methods(), ["card", "SendStreamingMessage", "CancelTask"]);
        assert_eq!(far.heard()[2].params, json!({"id": "t1"}));
    }
}

#[tokio::test]
async fn time_is_limited_for_a_task_and_for_a_card() {
    let short = |options: &mut AgentOptions, url: &str| {
        there(options, url, "");
        let wanted = AgentOverride { timeout: Some(Duration::from_secs(3)), ..AgentOverride::default() };
        options.subagents.overrides.insert("far".to_owned(), wanted);
    };
    let far = Far::v1(true, held).await;
    let silent = Far::new(|_, _, _| Reply::Silence).await;
    for (far, methods) in [(&far, &["card", "SendStreamingMessage", "CancelTask"][..]), (&silent, &["card"])] {
        let stage = Stage::with(&[], &asks(1), |options| short(options, &far.url)).await;
        let events = stage.play().await;
        check(&events);
        assert!(results(&events)[0].0.contains("It was not done after 0.05 minutes."), "{:?}", results(&events));
        assert_eq!(end(&events), ("MaxTime".to_owned(), json!("TIMEOUT")));
        assert_eq!(far.methods(), methods);
    }
}

#[tokio::test]
async fn people_are_asked_before_a_task_leaves_and_can_answer_for_good() {
    let far = Far::v1(true, |_, _| Reply::Events(vec![json!({"message": {"parts": [{"text": "hi"}]}})])).await;
    let default = |options: &mut AgentOptions| {
        there(options, &far.url, "");
        options.policy.mode = Mode::Default;
    };
    let mut stage = Stage::with(&[], &asks(3), default).await;
    let running = stage.send("go").await;
    let (request, answer) = stage.question().await;
    let PermissionContent::Text(question) = &request.content[0] else { panic!("{request:?}") };
    assert_eq!(question, &format!("Agent far at {}/ gets this task:\n\nhelp far", far.url));
    assert_eq!(far.methods(), [""; 0]);
    answer.send(PermissionOutcome::Selected { option_id: "cancel".into() }).unwrap();
    let (request, answer) = stage.question().await;
    let always = request.options.iter().find(|option| option.option_id == "proceed_always").unwrap();
    assert_eq!(always.name, "Always allow tasks for the agent far in this session");
    answer.send(PermissionOutcome::Selected { option_id: "proceed_always".into() }).unwrap();
    let events = stage.finish(running).await;
    check(&events);
    let results = results(&events);
    assert!(results[0].1 && results[1].0.contains("hi") && results[2].0.contains("hi"), "{results:?}");
    assert_eq!(far.methods(), ["card", "SendStreamingMessage", "SendStreamingMessage"]);
    // Where nobody can be asked, nothing leaves.
    let alone = Stage::with(&[], &asks(1), |options| {
        there(options, &far.url, "");
        options.policy.mode = Mode::Default;
        (options.interactive, options.policy.interactive) = (false, false);
    })
    .await;
    let events = alone.play().await;
    let (told, is_error) = self::results(&events).remove(0);
    assert!(is_error && told.contains("requires user confirmation"), "{told}");
    assert_eq!(far.methods().len(), 3);
}
