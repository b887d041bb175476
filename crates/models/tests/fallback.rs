//! Models that can't answer: who is called instead, who is asked, what is told? The scenarios of the runtime
//! specification §20.5, and a simulation of many worlds.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::ModelErrorKind::{BadRequest, Capacity, Network, NotFound, Quota, RateLimit, Server};
use convoke_adk::{Content, FunctionDeclaration, Llm, LlmRequest, ModelErrorKind, Tool, ToolContext, ToolError};
use convoke_models::chain::FailureKind;
use convoke_models::routing::{Phase, RoutingContext};
use convoke_models::{GeneratorLlm, Intent, ModelNotice};
use indexmap::IndexMap;
use pretty_assertions::assert_eq;
use rig::{Answer, FLASH, PRO, World, ask, ask_with};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[path = "fallback/rig.rs"]
mod rig;
#[path = "fallback/simulation.rs"]
mod simulation;

fn busy(count: usize) -> Vec<Answer> {
    vec![Answer::Fails(RateLimit, None); count]
}

fn never() -> CancellationToken {
    CancellationToken::new()
}

/// 1: the server's wish is a lower bound, the model stays, nobody is asked.
#[tokio::test(start_paused = true)]
async fn a_model_that_asks_to_wait_is_waited_for() {
    let wait = || Answer::Fails(RateLimit, Some(2));
    let world = World::scripted([wait(), wait(), Answer::Says("a")]);
    let llm = world.session("auto", Some(vec![]));
    let heard = ask(&llm, &never()).await;
    assert_eq!((heard.text.as_str(), heard.model.as_deref()), ("a", Some(PRO)));
    assert_eq!(world.models_called(), [PRO, PRO, PRO]);
    let waits = world.waits();
    assert!((5.0..=6.0).contains(&waits[0]) && (10.0..=12.0).contains(&waits[1]), "{waits:?}");
    assert!(world.questions.lock().unwrap().is_empty());
}

/// 2: pro is busy: flash takes over silently, whether somebody is there or not, and pro has one try per prompt.
#[tokio::test(start_paused = true)]
async fn a_busy_preferred_model_is_left_silently_and_tried_again_with_the_next_prompt() {
    for person in [None, Some(vec![])] {
        let world = World::scripted(busy(3));
        let llm = world.session("auto", person);
        llm.begin_turn();
        for _ in 0..3 {
            assert_eq!(ask(&llm, &never()).await.text, "done");
        }
        assert_eq!(world.models_called(), [PRO, PRO, PRO, FLASH, FLASH, FLASH]);
        llm.begin_turn();
        assert_eq!(llm.model(), PRO);
        assert_eq!(ask(&llm, &never()).await.model.as_deref(), Some(PRO));
        assert!(world.questions.lock().unwrap().is_empty());
    }
}

/// 2, the other way round: what costs more never takes over unasked.
#[tokio::test(start_paused = true)]
async fn a_busy_flash_model_is_not_replaced_by_pro_unasked() {
    let world = World::scripted(busy(10));
    let heard = ask(&world.session("flash", None), &never()).await;
    assert_eq!(heard.error.unwrap().kind, RateLimit);
    assert_eq!(world.models_called(), [FLASH; 10]);

    let world = World::scripted(busy(10));
    let heard = ask(&world.session("flash", Some(vec![Intent::RetryOnce])), &never()).await;
    assert_eq!(heard.model.as_deref(), Some(PRO));
    assert!(world.questions.lock().unwrap()[0].is_upgrade);
}

/// 3: a day's quota ends at the first error; each intent.
#[tokio::test(start_paused = true)]
async fn a_used_up_quota_is_a_question_and_each_intent_an_answer() {
    let used_up = || [Answer::Fails(Quota, Some(3600))];
    for (intent, goes_on, next_prompt) in [
        (Intent::RetryAlways, true, FLASH),
        // Pro is marked: the next prompt asks again.
        (Intent::RetryOnce, true, PRO),
        (Intent::RetryLater, false, PRO),
        (Intent::Stop, false, PRO),
        (Intent::Upgrade, false, PRO),
    ] {
        let world = World::scripted(used_up());
        let llm = world.session("auto", Some(vec![intent]));
        let heard = ask(&llm, &never()).await;
        assert_eq!(heard.error.is_none(), goes_on, "{intent:?}");
        assert_eq!(world.models_called().len(), if goes_on { 2 } else { 1 }, "{intent:?}");
        llm.begin_turn();
        assert_eq!(llm.model(), next_prompt, "{intent:?}");
        assert_eq!(llm.configured(), "auto");
        match heard.error.map(|error| error.message) {
            Some(message) if intent == Intent::RetryLater => assert!(message.contains("2026-11-21T03:00:00.000Z")),
            Some(message) if intent == Intent::Upgrade => assert!(message.contains("https://"), "{message}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_person_a_named_model_ends_with_the_next_reset_and_an_automatic_one_goes_on() {
    let world = World::scripted([Answer::Fails(Quota, Some(3600))]);
    let error = ask(&world.session("pro", None), &never()).await.error.unwrap();
    assert_eq!(error.kind, Quota);
    assert!(error.message.ends_with("the next one is back at 2026-11-21T03:00:00.000Z, in 1 h"), "{}", error.message);
    assert_eq!(world.models_called(), [PRO]);

    let world = World::scripted([Answer::Fails(Quota, Some(3600))]);
    let llm = world.session("auto", None);
    assert_eq!(ask(&llm, &never()).await.model.as_deref(), Some(FLASH));
    llm.begin_turn();
    ask(&llm, &never()).await;
    assert_eq!(world.models_called(), [PRO, FLASH, FLASH], "pro is not called before its reset");
    tokio::time::advance(Duration::from_secs(3600)).await;
    llm.begin_turn();
    assert_eq!(ask(&llm, &never()).await.model.as_deref(), Some(PRO));
}

#[tokio::test(start_paused = true)]
async fn when_all_are_used_up_no_marked_one_is_called_and_the_first_reset_is_told() {
    let world = World::scripted([Answer::Fails(Quota, Some(1800)), Answer::Fails(Quota, Some(7200))]);
    let llm = world.session("auto", None);
    let error = ask(&llm, &never()).await.error.unwrap();
    assert_eq!(error.kind, Quota);
    assert!(error.message.contains("2026-11-21T02:30:00.000Z, in 30 min"), "{}", error.message);
    assert_eq!(world.models_called(), [PRO, FLASH]);
}

/// 4: a model without room has three quick attempts, and a pause of 30 s.
#[tokio::test(start_paused = true)]
async fn a_model_without_room_is_back_after_30_seconds() {
    let world = World::scripted(vec![Answer::Fails(Capacity, None); 3]);
    let llm = world.session("auto", None);
    assert_eq!(ask(&llm, &never()).await.model.as_deref(), Some(FLASH));
    assert_eq!(world.models_called(), [PRO, PRO, PRO, FLASH]);
    let waits = world.waits();
    assert!(waits[0] <= 1.3 && (2.1..=3.9).contains(&waits[1]), "{waits:?}");
    tokio::time::advance(Duration::from_secs(29)).await;
    llm.begin_turn();
    assert_eq!(llm.model(), FLASH);
    tokio::time::advance(Duration::from_secs(1)).await;
    llm.begin_turn();
    assert_eq!(llm.model(), PRO);
}

/// 5: a model that is not there.
#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_there_is_a_question() {
    let world = World::scripted([Answer::Fails(NotFound, None)]);
    let llm = world.session("pro", Some(vec![Intent::RetryAlways]));
    assert_eq!(ask(&llm, &never()).await.model.as_deref(), Some(FLASH));
    let question = world.questions.lock().unwrap()[0].clone();
    assert_eq!((question.kind, question.is_upgrade, question.reset_wall_ms), (FailureKind::NotFound, false, None));
}

/// 6: an abort ends a wait, a call and a question at once.
#[tokio::test(start_paused = true)]
async fn an_abort_ends_every_wait_at_once() {
    struct Silent;
    #[async_trait]
    impl convoke_models::FallbackPort for Silent {
        async fn choose(&self, _: &convoke_models::FallbackQuestion) -> Option<Intent> {
            std::future::pending().await
        }
    }
    for answer in [Answer::Fails(RateLimit, Some(299)), Answer::Hangs, Answer::Fails(Quota, None)] {
        let world = World::scripted([answer.clone()]);
        let llm = world.session_with("pro", Some(Arc::new(Silent)));
        let cancel = never();
        let start = tokio::time::Instant::now();
        let abort = async {
            tokio::time::sleep(Duration::from_secs(7)).await;
            cancel.cancel();
        };
        let (heard, ()) = tokio::join!(ask(&llm, &cancel), abort);
        assert_eq!(heard.error.unwrap().kind, ModelErrorKind::Cancelled, "{answer:?}");
        assert!(start.elapsed() < Duration::from_millis(7100), "{answer:?}");
    }
}

/// 7: what is repeated and what is not.
#[tokio::test(start_paused = true)]
async fn wrong_requests_are_not_repeated_and_failing_servers_are() {
    for (kind, calls) in [(BadRequest, 1), (ModelErrorKind::Auth, 1), (Server, 10), (RateLimit, 10), (Network, 4)] {
        let world = World::new(Box::new(move |_| (Duration::ZERO, Answer::Fails(kind, None))));
        let heard = ask(&world.session("local/q", None), &never()).await;
        assert_eq!(heard.error.unwrap().kind, kind);
        assert_eq!(world.models_called().len(), calls, "{kind:?}");
    }
}

/// 8: while planning, what would be a question is not, as long as it costs no more.
#[tokio::test(start_paused = true)]
async fn while_planning_nobody_is_asked() {
    let world = World::scripted([Answer::Fails(Quota, None)]);
    let llm = world.session("pro", Some(vec![]));
    llm.set_planning(true);
    assert_eq!(ask(&llm, &never()).await.model.as_deref(), Some(FLASH));
    assert!(world.questions.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_a_change_of_the_model_is_taken_back() {
    let world = World::scripted([Answer::FailsLate(Quota)]);
    let heard = ask(&world.session("auto", None), &never()).await;
    assert_eq!((heard.text.as_str(), heard.model.as_deref()), ("done", Some(FLASH)));
    // A stream that breaks off four times is a failure of the answer, not of the model.
    let world = World::scripted(vec![Answer::BreaksOff("ha"); 4]);
    let heard = ask(&world.session("auto", None), &never()).await;
    assert_eq!(heard.error.unwrap().kind, ModelErrorKind::InvalidStream);
    assert_eq!(world.models_called(), [PRO; 4]);
}

/// Declares itself for the model that asks.
struct Chameleon;

#[async_trait]
impl Tool for Chameleon {
    fn declaration(&self, model: &str) -> FunctionDeclaration {
        let description = format!("for {model}");
        FunctionDeclaration { name: "f".into(), description, parameters: json!({"type": "object"}) }
    }

    async fn run(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        Ok(Value::Null)
    }
}

#[tokio::test(start_paused = true)]
async fn parameters_and_tools_are_made_for_the_model_that_is_called_even_across_providers() {
    let gone = || Answer::Fails(Quota, None);
    let world = World::scripted([gone(), gone()]);
    let llm = world.session("gemini-9", None);
    let tool: Arc<dyn Tool> = Arc::new(Chameleon);
    let declared = tool.declaration("gemini-9");
    let request = LlmRequest {
        model: llm.model(),
        contents: vec![Arc::new(Content::user("hi"))],
        tools: Arc::new(IndexMap::from([("f".to_owned(), declared)])),
        offered: vec![tool].into(),
        ..LlmRequest::default()
    };
    let heard = ask_with(&llm, request, &never()).await;
    assert_eq!(heard.model.as_deref(), Some("local/q"));
    let calls = world.calls.lock().unwrap();
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.model.as_str(), call.request.tools["f"].description.as_str(), call.request.config.top_k))
        .collect();
    assert_eq!(
        seen,
        [("gemini-9", "for gemini-9", Some(64)), ("gemini-8", "for gemini-8", Some(64)), ("local/q", "for q", None),]
    );
}

#[tokio::test(start_paused = true)]
async fn each_change_is_told_before_the_call() {
    let world = World::scripted([Answer::Fails(Quota, Some(60))]);
    ask(&world.session("auto", None), &never()).await;
    let notices = world.notices.lock().unwrap();
    let [ModelNotice::Selected { model, .. }, ModelNotice::FellBack { from, to, kind, asked, .. }] = &notices[..]
    else {
        panic!("{notices:?}")
    };
    assert_eq!((model.as_str(), from.as_str(), to.as_str()), (PRO, PRO, FLASH));
    assert_eq!((*kind, *asked), (FailureKind::Quota, false));
}

async fn routed(llm: &GeneratorLlm, phase: Phase) -> Option<(String, &'static str, u64, bool)> {
    let contents = [Arc::new(Content::user("hi"))];
    let (_, decision) = llm.route(RoutingContext { contents: &contents, phase }, &never()).await;
    decision.map(|d| (d.model.to_string(), d.source, d.latency_ms, d.error.is_some()))
}

#[tokio::test(start_paused = true)]
async fn each_strategy_says_that_it_decided_and_a_sequence_keeps_its_model() {
    let hard = Answer::Says(r#"{"complexity_reasoning": "r", "complexity_score": 90}"#);
    let easy = Answer::Says(r#"{"complexity_reasoning": "r", "complexity_score": 89}"#);
    let choice = Answer::Says(r#"{"reasoning": "r", "model_choice": "flash"}"#);
    let numerical = "agent-router/NumericalClassifier (Default)";
    let (ordinary, default) = (Phase::Ordinary, "agent-router/default");
    for (configured, answer, phase, expected) in [
        ("flash", None, ordinary, (FLASH, "agent-router/override", 0, false)),
        ("auto", None, Phase::Planning, (PRO, "agent-router/approval-mode", 0, false)),
        ("auto", None, Phase::Implementing, (FLASH, "agent-router/approval-mode", 0, false)),
        ("auto", Some(hard), ordinary, (PRO, numerical, 0, false)),
        ("auto", Some(easy), ordinary, (FLASH, numerical, 0, false)),
        ("auto-gemini-2.5", Some(choice), ordinary, ("gemini-2.5-flash", "agent-router/Classifier", 0, false)),
        ("auto", Some(Answer::Says("nonsense")), ordinary, (PRO, default, 0, true)),
        ("auto", Some(Answer::Fails(Server, None)), ordinary, (PRO, default, 0, true)),
        // One that says nothing costs four seconds.
        ("auto", Some(Answer::Hangs), ordinary, (PRO, default, 4000, true)),
    ] {
        let calls = usize::from(answer.is_some());
        let world = World::scripted(answer);
        let llm = world.classifying_session(configured);
        let (model, source, latency, failed) = expected;
        assert_eq!(routed(&llm, phase).await, Some((model.to_owned(), source, latency, failed)), "{configured}");
        assert_eq!(world.models_called().len(), calls, "at most one attempt");
        assert_eq!(routed(&llm, phase).await, None, "the sequence has its model");
        llm.begin_turn();
        assert!(routed(&llm, phase).await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_used_up_is_not_even_considered() {
    let world = World::scripted([Answer::Says("{}"), Answer::Fails(Quota, None)]);
    let llm = world.classifying_session("auto");
    routed(&llm, Phase::Ordinary).await;
    ask(&llm, &never()).await;
    llm.begin_turn();
    let (model, source, ..) = routed(&llm, Phase::Ordinary).await.unwrap();
    assert_eq!((model.as_str(), source), (FLASH, "agent-router/fallback"));
}

#[tokio::test(start_paused = true)]
async fn a_subagent_shares_what_is_used_up_and_nothing_else() {
    let world = World::scripted([Answer::Fails(Quota, Some(600))]);
    let (parent, child) = (world.session("auto", None), world.session("auto", None));
    ask(&child, &never()).await;
    assert_eq!(child.sequence().unwrap().as_str(), FLASH);
    assert_eq!(parent.sequence(), None);
    assert_eq!(ask(&parent, &never()).await.model.as_deref(), Some(FLASH), "the quota is used up for both");
    parent.configure("flash");
    assert_eq!(child.configured(), "auto");
}
