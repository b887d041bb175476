//! Long sessions: masking, compression, the window, loops, limits and a word in between, as a client sees them.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{Llm, LlmRequest, LlmResponse, ModelError, ModelErrorKind, Part, UsageMetadata};
use convoke_agent::{
    AgentFactory, AgentOptions, CompressTrigger, Compressed, HistoryListener, LifecycleHooks, MaskedOutput,
    MaskingOptions, NoLifecycleHooks, PromptLimits, SessionModel,
};
use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentSend, AgentSession, CompressOutcome, ErrorStatus, HostedSession, NewSession,
    PermissionOutcome, SendMessage, SessionFactory, SteerOutcome, StreamEndReason,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::rig::*;

/// Hears everything.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn say(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl HistoryListener for Heard {
    fn masked(&self, session_id: &str, masked: &MaskedOutput) {
        self.say(format!("{session_id} masked {}", masked.replacement.name));
    }

    fn compressed(&self, session_id: &str, compressed: &Compressed<'_>) {
        assert!(compressed.tokens_after < compressed.tokens_before && !compressed.summary.is_empty());
        self.say(format!("{session_id} compressed {}", compressed.replaced));
    }
}

#[async_trait]
impl LifecycleHooks for Heard {
    async fn pre_compress(&self, trigger: CompressTrigger) {
        self.say(format!("pre_compress {}", trigger.name()));
    }
}

struct Long {
    dir: tempfile::TempDir,
    session: HostedSession,
    questions: mpsc::Receiver<(convoke_protocol::PermissionRequest, tokio::sync::oneshot::Sender<PermissionOutcome>)>,
    requests: Arc<Mutex<Vec<LlmRequest>>>,
    heard: Arc<Heard>,
}

impl Long {
    async fn new(answers: Vec<Answer>, change: impl FnOnce(&mut AgentOptions)) -> Self {
        let heard = Arc::new(Heard::default());
        let (mut options, requests) = options(answers, Arc::new(NoLifecycleHooks));
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir(&work).unwrap();
        options.output_folder = Some(dir.path().join("outputs"));
        options.policy.mode = convoke_tools::Mode::Yolo;
        options.max_turns = None;
        options.history = heard.clone();
        options.hooks = heard.clone();
        change(&mut options);
        let (ask, questions) = mpsc::channel(4);
        let new = NewSession { session_id: Some("s".into()), ..NewSession::new(work, Arc::new(Asked(ask))) };
        let session = AgentFactory::new(options).new_session(new).await.unwrap();
        Self { dir, session, questions, requests, heard }
    }

    async fn send(&self, prompt: &str) -> BoxStream<'static, Arc<AgentEvent>> {
        let view = AgentSession::new(self.session.agent.clone());
        view.send_stream(AgentSend::Message(SendMessage::text(prompt))).await.unwrap().boxed()
    }

    async fn run(&self, prompt: &str) -> Vec<Arc<AgentEvent>> {
        let events = self.send(prompt).await.collect();
        tokio::time::timeout(Duration::from_secs(60), events).await.expect("the stream must end")
    }

    fn request(&self, index: usize) -> LlmRequest {
        self.requests.lock().unwrap()[index].clone()
    }

    fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn shell(command: &str) -> Answer {
    vec![piece(vec![call("run_shell_command", json!({"command": command}))]), stop()]
}

/// So many different words: nothing in it repeats.
fn words(count: usize) -> String {
    (0..count).map(|n| format!("word {n} ")).collect()
}

fn said(what: &str) -> Answer {
    vec![text(what), stop()]
}

/// An answer whose prompt was counted.
fn counted(what: &str, prompt_token_count: u64) -> Answer {
    let usage = UsageMetadata { prompt_token_count, candidates_token_count: 1, ..UsageMetadata::default() };
    vec![text(what), Ok(LlmResponse { usage: Some(usage), ..stop().unwrap() })]
}

fn end(events: &[Arc<AgentEvent>]) -> (StreamEndReason, Value) {
    let end = events.last().and_then(|event| match &event.body {
        AgentEventBody::AgentEnd { reason, data } => Some((*reason, data.clone().unwrap_or_default())),
        _ => None,
    });
    end.expect("the last event is the end")
}

fn outputs(request: &LlmRequest) -> Vec<String> {
    let responses = request.contents.iter().flat_map(|content| content.function_responses());
    responses.map(|r| r.response["output"].as_str().unwrap_or_default().to_owned()).collect()
}

fn window(answers: Vec<Answer>, tokens: u64) -> (SessionModel, Arc<Mutex<Vec<LlmRequest>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let model: Arc<dyn Llm> = Arc::new(Scripted { answers: Mutex::new(answers), requests: requests.clone() });
    (SessionModel::fixed(model).with_window(tokens), requests)
}

/// A session whose model has a window of so many tokens.
async fn narrow(answers: Vec<Answer>, tokens: u64) -> Long {
    let (model, requests) = window(answers, tokens);
    let mut long = Long::new(Vec::new(), |options| options.connect = Arc::new(move |_| Ok(model.clone()))).await;
    long.requests = requests;
    long
}

#[tokio::test]
async fn old_output_is_masked_for_good() {
    let path = "outputs/session-s";
    let answers = vec![shell("seq 1 3000"), said("one"), shell("seq 5000 6000"), said("two"), said("three")];
    let masking = MaskingOptions { protection_tokens: 2_000, min_prunable_tokens: 1_000, protect_latest_turn: true };
    let long = Long::new(answers, |options| options.masking = Some(masking)).await;
    for prompt in ["a", "b"] {
        long.run(prompt).await;
    }
    // Of the current invocation nothing was masked, although the first output was old enough.
    assert!(outputs(&long.request(3)).iter().any(|output| output.contains("<tool_output_masked>")));
    assert!(outputs(&long.request(1)).iter().all(|output| !output.contains("<tool_output_masked>")));
    let kept: Vec<_> = std::fs::read_dir(long.dir.path().join(path)).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let masked = outputs(&long.request(3)).remove(0);
    assert!(masked.contains(&*kept[0].to_string_lossy()), "{masked}");
    // The session says the same as the request, for good.
    long.run("c").await;
    assert_eq!(outputs(&long.request(4))[0], masked);
    assert_eq!(long.heard.all(), ["s masked run_shell_command"]);
    let read = std::fs::read_to_string(&kept[0]).unwrap();
    assert!(read.contains("\n1500\n1501\n"), "{}", read.len());
}

/// Answers from a list; `FILE` in a call stands for the file that the request's masked output names.
struct Following(Scripted);

/// Where the whole of a masked output is.
fn kept_at(request: &LlmRequest) -> Option<String> {
    let masked = |output: &String| {
        let file = output.lines().find_map(|line| line.strip_prefix("Output too large. Full output available at: "));
        file.map(ToOwned::to_owned)
    };
    outputs(request).iter().find_map(masked)
}

impl Llm for Following {
    fn model(&self) -> String {
        self.0.model()
    }

    fn generate(
        &self,
        request: LlmRequest,
        cancel: tokio_util::sync::CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        let file = kept_at(&request).unwrap_or_default();
        let follow = move |piece: Result<LlmResponse, ModelError>| {
            let mut response = piece?;
            for part in response.content.iter_mut().flat_map(|content| &mut content.parts) {
                if let Some(mut call) = part.function_call() {
                    call.args = serde_json::from_str(&call.args.to_string().replace("FILE", &file)).unwrap();
                    *part = Part::call(&call);
                }
            }
            Ok(response)
        };
        self.0.generate(request, cancel).map(follow).boxed()
    }
}

#[tokio::test]
async fn the_model_reads_what_was_masked_with_its_own_tool() {
    let read = call("read_file", json!({"file_path": "FILE", "start_line": 1500, "end_line": 1502}));
    let answers = vec![shell("seq 1 3000"), vec![piece(vec![read]), stop()], said("done")];
    let requests = Arc::new(Mutex::new(Vec::new()));
    let scripted = Scripted { answers: Mutex::new(answers), requests: requests.clone() };
    let model = SessionModel::fixed(Arc::new(Following(scripted)));
    let masking = MaskingOptions { protection_tokens: 500, min_prunable_tokens: 10, protect_latest_turn: false };
    let mut long = Long::new(Vec::new(), |options| {
        options.masking = Some(masking);
        options.connect = Arc::new(move |_| Ok(model.clone()));
    })
    .await;
    long.requests = requests;
    let events = long.run("a").await;
    assert_eq!(end(&events).0, StreamEndReason::Completed);
    assert!(kept_at(&long.request(1)).is_some(), "{:?}", outputs(&long.request(1)));
    let read = outputs(&long.request(2)).remove(1);
    let lines: Vec<&str> = read.lines().filter(|line| line.parse::<u32>().is_ok()).collect();
    assert!(lines.windows(2).any(|pair| pair == ["1500", "1501"]), "{read}");
    assert!(!lines.contains(&"1600"), "only what was asked for: {read}");
}

#[tokio::test]
async fn what_is_masked_is_kept_whole() {
    let mut long = Long::new(vec![shell("seq 1 3000"), said("one")], |options| {
        options.masking =
            Some(MaskingOptions { protection_tokens: 10, min_prunable_tokens: 10, protect_latest_turn: false });
    })
    .await;
    long.run("a").await;
    let masked = outputs(&long.request(1)).remove(0);
    let file = kept_at(&long.request(1)).unwrap_or_else(|| panic!("{masked}"));
    assert!(Path::new(&file).is_file());
    long.questions.close();
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(kept.lines().any(|line| line == "2999"), "the whole of it");
}

#[tokio::test]
async fn a_session_is_compressed_when_it_is_due_and_only_then() {
    let long_answer = words(2_000);
    let answers = vec![
        counted(&long_answer, 100),
        counted("second", 3_000),
        said("<state_snapshot>first try</state_snapshot>"),
        said("<state_snapshot>all that matters</state_snapshot>"),
        counted("third", 300),
        counted("fourth", 400),
    ];
    let long = narrow(answers, 10_000).await;
    long.run("a").await;
    long.run("b").await;
    assert_eq!((long.asked(), long.heard.all().len()), (2, 0), "below half of the window nothing happens");
    // 3000 counted and what comes with this prompt: over the threshold of 5000.
    let prompt = "c ".repeat(5_000);
    let events = long.run(&prompt).await;
    assert_eq!(long.heard.all(), ["pre_compress auto", "s compressed 4"]);
    assert_eq!(long.asked(), 5);
    let told = events.iter().find_map(|event| match &event.body {
        AgentEventBody::Custom { kind, data } if kind == "chat_compressed" => data.clone(),
        _ => None,
    });
    let told = told.unwrap();
    assert_eq!((&told["status"], &told["trigger"]), (&json!("compressed"), &json!("auto")));
    assert!(told["tokensAfter"].as_u64() < told["tokensBefore"].as_u64(), "{told}");
    // The summary was looked over, and the draft with it.
    assert!(long.request(3).contents[0].joined_text().contains("first try"));
    let request = long.request(4);
    assert_eq!(request.contents.len(), 3);
    let summary = request.contents[0].joined_text();
    assert!(summary.contains("<session_context>") && summary.contains("all that matters"), "{summary}");
    assert!(!summary.contains("first try") && !summary.contains("word 7 "), "{summary}");
    assert_eq!(request.contents[2].joined_text(), prompt);
    // Not again with the next prompt: the count from before is of another session.
    long.run("d").await;
    assert_eq!(long.asked(), 6);
    assert_eq!(long.request(5).contents.len(), 5);
}

#[tokio::test]
async fn what_goes_wrong_with_a_summary_leaves_the_session_as_it_was() {
    let failed = vec![Err(ModelError::new(ModelErrorKind::Server, "no"))];
    for (answer, why) in [(failed, "could not be made"), (said("  "), "was empty"), (said(&words(4_000)), "no smaller")]
    {
        let mut answers = vec![counted(&words(1_000), 6_000), answer];
        if why == "no smaller" {
            answers.push(said("fine as it is"));
        }
        answers.extend([said("second"), said("third")]);
        let long = narrow(answers, 10_000).await;
        long.run("a").await;
        let events = long.run("b").await;
        assert_eq!(end(&events).0, StreamEndReason::Completed);
        let told: Vec<String> = events
            .iter()
            .filter_map(|event| match &event.body {
                AgentEventBody::Custom { data, .. } => Some(data.clone().unwrap()["why"].as_str().unwrap().to_owned()),
                _ => None,
            })
            .collect();
        assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
        let asked = long.asked();
        assert_eq!(long.request(asked - 1).contents.len(), 3, "{why}");
        // The gate: the same size is not tried again.
        long.run("c").await;
        assert_eq!(long.asked(), asked + 1, "{why}");
        assert_eq!(long.heard.all(), ["pre_compress auto"]);
    }
}

#[tokio::test]
async fn a_client_compresses_between_turns() {
    let answers =
        vec![said(&words(1_000)), said("<state_snapshot>short</state_snapshot>"), said("that will do"), said("after")];
    let long = narrow(answers, 1_000_000).await;
    assert_eq!(long.session.control.compress().await, CompressOutcome::Noop);
    long.run("a").await;
    let outcome = long.session.control.compress().await;
    assert!(matches!(outcome, CompressOutcome::Compressed { before, after } if after < before), "{outcome:?}");
    assert_eq!(long.heard.all(), ["pre_compress manual", "s compressed 2"]);
    long.run("b").await;
    let contents = long.request(3).contents;
    assert_eq!(contents.len(), 3);
    // An answer that is no element does not replace the draft.
    assert!(contents[0].joined_text().contains("short"));
    // While a turn runs there is nothing to compress, and a closed session has none.
    let events = long.send("c").await;
    assert_eq!(long.session.control.compress().await, CompressOutcome::Busy);
    long.session.agent.abort().await;
    assert_eq!(end(&events.collect::<Vec<_>>().await).0, StreamEndReason::Aborted);
    long.session.control.close().await;
    assert!(matches!(long.session.control.compress().await, CompressOutcome::Failed { .. }));
}

#[tokio::test]
async fn a_person_compresses_with_a_command() {
    let answers =
        vec![said(&words(1_000)), said("<state_snapshot>short</state_snapshot>"), said("that will do"), said("after")];
    let long = narrow(answers, 1_000_000).await;
    assert!(long.session.control.commands().iter().any(|command| command.name == "compress"));
    let told = |events: &[Arc<AgentEvent>]| sketch(events).into_iter().rfind(|line| line.starts_with("message "));
    assert_eq!(told(&long.run("/compress").await).as_deref(), Some("message There is nothing to compress."));
    long.run("a").await;
    let events = long.run("/compress").await;
    let answer = told(&events).unwrap();
    assert!(answer.starts_with("message Compressed the conversation from "), "{answer}");
    assert!(sketch(&events).contains(&"custom chat_compressed".to_owned()), "{:?}", sketch(&events));
    assert_eq!(end(&events).0, StreamEndReason::Completed);
    assert_eq!(long.heard.all(), ["pre_compress manual", "s compressed 2"]);
    // A draft and a look over it; the command itself is no turn of the model's.
    assert_eq!(long.asked(), 3);
    long.run("b").await;
    let contents = long.request(3).contents;
    assert_eq!(contents.len(), 3);
    assert!(contents.iter().all(|content| !content.joined_text().contains("/compress")));
}

#[tokio::test]
async fn a_request_that_can_not_fit_is_refused_and_says_so() {
    let long = narrow(vec![said("never asked")], 1_000).await;
    let events = long.run(&words(4_000)).await;
    let told = events.iter().find_map(|event| match &event.body {
        AgentEventBody::Error { status, message, fatal } => {
            Some((*status, message.clone(), *fatal, event.meta.clone()))
        }
        _ => None,
    });
    let (status, message, fatal, meta) = told.unwrap();
    assert_eq!((status, fatal), (ErrorStatus::ResourceExhausted, true));
    assert!(message.contains("of the model's 1000 remain"), "{message}");
    assert_eq!(meta["code"], "CONTEXT_WINDOW_WILL_OVERFLOW");
    assert_eq!(end(&events).0, StreamEndReason::Failed);
    assert_eq!(long.asked(), 0);
}

#[tokio::test]
async fn a_loop_of_calls_is_nudged_once_and_stopped_the_second_time() {
    let again = || vec![piece(vec![call("list_directory", json!({"dir_path": "."}))]), stop()];
    let long = Long::new((0..20).map(|_| again()).collect(), |_| ()).await;
    let events = long.run("go").await;
    assert_eq!(long.asked(), 10);
    let all = sketch(&events);
    // The fifth and the tenth never ran, and who watches sees that.
    let cancelled = |event: &&Arc<AgentEvent>| match &event.body {
        AgentEventBody::ToolResponse { data: Some(data), is_error: true, .. } => data["status"] == "cancelled",
        _ => false,
    };
    assert_eq!(all.iter().filter(|line| *line == "tool_response list_directory").count(), 8);
    assert_eq!(all.iter().filter(|line| line.starts_with("tool_request list_directory")).count(), 10);
    assert_eq!(events.iter().filter(cancelled).count(), 2);
    assert!(all.iter().all(|line| !line.contains("System: Potential")), "a nudge is not shown");
    let error = events.iter().find(|event| matches!(event.body, AgentEventBody::Error { .. })).unwrap();
    assert_eq!(error.meta["code"], "LOOP_DETECTED");
    assert!(matches!(error.body, AgentEventBody::Error { fatal: false, .. }));
    let (reason, data) = end(&events);
    assert_eq!((reason, &data["code"]), (StreamEndReason::Failed, &json!("LOOP_DETECTED")));
    // The model was told, in the session, behind the answer to the call that did not run.
    let contents = long.request(5).contents;
    let nudge = contents.last().unwrap().joined_text();
    assert!(
        nudge.starts_with("System: Potential loop detected. Details: Repeated tool call: list_directory"),
        "{nudge}"
    );
    let refused = contents[contents.len() - 2].function_responses();
    assert_eq!(refused[0].error_message(), Some("Cancelled before it ran: a potential loop was detected"));
}

#[tokio::test]
async fn a_chant_is_cut_short_and_its_author_may_recover() {
    let sentence = || text("I will look at the file again to be really sure. ");
    let chant: Answer = (0..200).map(|_| sentence()).chain([stop()]).collect();
    let long = Long::new(vec![chant, said("Here is the answer.")], |_| ()).await;
    let events = long.run("go").await;
    let all = sketch(&events);
    let sentences = all.iter().filter(|line| line.starts_with("message I will")).count();
    assert!((10..20).contains(&sentences), "{sentences}");
    assert!(all.contains(&"message Here is the answer.".to_owned()), "{all:?}");
    assert_eq!(end(&events).0, StreamEndReason::Completed);
    assert!(long.request(1).contents.last().unwrap().joined_text().contains("Repeating content detected"));
}

#[tokio::test]
async fn detection_can_be_switched_off() {
    let again = || vec![piece(vec![call("list_directory", json!({"dir_path": "."}))]), stop()];
    let answers = (0..12).map(|_| again()).chain([said("done")]).collect();
    let long = Long::new(answers, |options| options.loops.enabled = false).await;
    assert_eq!(end(&long.run("go").await).0, StreamEndReason::Completed);
    assert_eq!(long.asked(), 13);
}

#[tokio::test]
async fn tokens_end_a_prompt_but_not_an_answer_that_is_done() {
    let limits = PromptLimits { tokens: Some(25), time: None };
    let step = |n: u32| vec![piece(vec![call("list_directory", json!({"dir_path": n.to_string()}))]), stop()];
    let answers = vec![step(1), step(2), said("unheard")];
    let long = Long::new(answers, |options| options.limits = limits).await;
    let events = long.run("go").await;
    let (reason, data) = end(&events);
    assert_eq!((reason, &data["code"]), (StreamEndReason::MaxBudget, &json!("MAX_TOKENS_PER_PROMPT_EXCEEDED")));
    assert_eq!(long.asked(), 2);
    // Each prompt has its own, and the last answer is given whatever it cost.
    let long = Long::new(vec![step(1), said("a"), step(2), said("b")], |options| options.limits = limits).await;
    for prompt in ["a", "b"] {
        assert_eq!(end(&long.run(prompt).await).0, StreamEndReason::Completed);
    }
}

#[tokio::test]
async fn time_ends_a_prompt_but_not_while_somebody_is_asked() {
    let limits = PromptLimits { tokens: None, time: Some(Duration::from_millis(300)) };
    // A model that says nothing any more.
    let long = Long::new(Vec::new(), |options| options.limits = limits).await;
    let events = long.run("go").await;
    let (reason, data) = end(&events);
    assert_eq!((reason, &data["code"]), (StreamEndReason::MaxTime, &json!("MAX_TIME_PER_PROMPT_EXCEEDED")));
    assert!(sketch(&events).iter().all(|line| !line.starts_with("error")));
    // An hour of thinking is the user's own; the clock is seen to stand still by the limit that it never reaches.
    let mut long = Long::new(vec![shell("touch asked"), said("done")], |options| {
        options.limits = PromptLimits { tokens: None, time: Some(Duration::from_secs(30)) };
        options.policy.mode = convoke_tools::Mode::Default;
    })
    .await;
    let events = long.send("go").await;
    let (_, answer) = long.questions.recv().await.unwrap();
    answer.send(PermissionOutcome::Selected { option_id: "proceed_once".into() }).unwrap();
    assert_eq!(end(&events.collect::<Vec<_>>().await).0, StreamEndReason::Completed);
}

#[tokio::test]
async fn a_word_in_between_is_heard_before_the_next_model_call() {
    let mut long = Long::new(vec![shell("touch asked"), said("as you say"), said("more")], |options| {
        options.policy.mode = convoke_tools::Mode::Default;
    })
    .await;
    let control = long.session.control.clone();
    assert_eq!(control.steer("nobody listens"), SteerOutcome::NoTurn);
    let events = long.send("go").await;
    let (_, answer) = long.questions.recv().await.unwrap();
    assert_eq!(control.steer("rather in Rust"), SteerOutcome::Taken);
    answer.send(PermissionOutcome::Selected { option_id: "proceed_once".into() }).unwrap();
    let events: Vec<_> = events.collect().await;
    let told = events.iter().find(|event| event.meta.get("source") == Some(&json!("steering"))).unwrap();
    assert_eq!(sketch(std::slice::from_ref(told)), ["message rather in Rust"]);
    let contents = long.request(1).contents;
    assert_eq!(contents.last().unwrap().joined_text(), "rather in Rust");
    assert_eq!(contents[contents.len() - 2].function_responses().len(), 1, "the call has its answer first");
    assert_eq!(control.steer("too late"), SteerOutcome::NoTurn);
    // It is part of the session.
    long.run("and now").await;
    assert!(long.request(2).contents.iter().any(|content| content.joined_text() == "rather in Rust"));
}

/// Speaks to the session while it gives its last answer.
struct Interrupting {
    inner: Scripted,
    say: Mutex<Option<Arc<dyn convoke_protocol::SessionControl>>>,
}

impl Llm for Interrupting {
    fn model(&self) -> String {
        self.inner.model()
    }

    fn generate(
        &self,
        request: LlmRequest,
        cancel: tokio_util::sync::CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        if let Some(control) = self.say.lock().unwrap().take() {
            assert_eq!(control.steer("one more thing"), SteerOutcome::Taken);
        }
        self.inner.generate(request, cancel)
    }
}

/// A session whose model is spoken to while it says its first answer.
async fn interrupted(change: impl FnOnce(&mut AgentOptions)) -> Long {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let answers = Mutex::new(vec![said("done"), said("that too")]);
    let model =
        Arc::new(Interrupting { inner: Scripted { answers, requests: requests.clone() }, say: Mutex::default() });
    let connected: Arc<dyn Llm> = model.clone();
    let mut long = Long::new(Vec::new(), |options| {
        options.connect = Arc::new(move |_| Ok(SessionModel::fixed(connected.clone())));
        change(options);
    })
    .await;
    *model.say.lock().unwrap() = Some(long.session.control.clone());
    long.requests = requests;
    long
}

#[tokio::test]
async fn who_was_told_that_it_is_taken_is_heard_even_behind_the_last_answer() {
    let long = interrupted(|_| {}).await;
    let all = sketch(&long.run("go").await);
    assert_eq!(
        all[2..],
        ["message done", "usage 10", "message one more thing", "message that too", "usage 10", "agent_end Completed"]
    );
    assert_eq!(long.requests.lock().unwrap()[1].contents.last().unwrap().parts, [Part::text("one more thing")]);
}

#[tokio::test]
async fn what_comes_when_a_limit_ends_the_prompt_is_given_back() {
    let long = interrupted(|options| options.max_turns = Some(1)).await;
    let events = long.run("go").await;
    let kinds = sketch(&events);
    assert_eq!(kinds.last().unwrap(), "agent_end MaxTurns", "{kinds:?}");
    let unread = events.iter().find_map(|event| match &event.body {
        AgentEventBody::Custom { kind, data } if kind == "steering_unread" => data.clone(),
        _ => None,
    });
    assert_eq!(unread, Some(json!({"texts": ["one more thing"]})));
    // It is no part of the session until it is sent again.
    long.run("one more thing").await;
    let requests = long.requests.lock().unwrap();
    let said = requests[1].contents.iter().filter(|content| content.joined_text() == "one more thing").count();
    assert_eq!(said, 1);
}
