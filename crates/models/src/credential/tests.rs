use std::collections::VecDeque;

use convoke_adk::ModelErrorKind;
use futures::channel::oneshot;
use futures::future::{join_all, poll_immediate};
use pretty_assertions::assert_eq;

use super::*;

type Answer = Result<(&'static str, Option<u64>), &'static str>;

/// Answers in order; each fetch waits for its gate.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Scripted>>);

#[derive(Default)]
struct Scripted {
    answers: VecDeque<(Option<oneshot::Receiver<()>>, Answer)>,
    fetches: usize,
}

impl Script {
    fn then(&self, answer: Answer) -> &Self {
        self.0.lock().unwrap().answers.push_back((None, answer));
        self
    }

    fn then_waits(&self, answer: Answer) -> oneshot::Sender<()> {
        let (open, gate) = oneshot::channel();
        self.0.lock().unwrap().answers.push_back((Some(gate), answer));
        open
    }

    fn fetches(&self) -> usize {
        self.0.lock().unwrap().fetches
    }
}

#[async_trait]
impl CredentialSource for Script {
    async fn fetch(&self) -> Result<Fetched, ModelError> {
        let (gate, answer) = {
            let mut script = self.0.lock().unwrap();
            script.fetches += 1;
            script.answers.pop_front().unwrap()
        };
        if let Some(gate) = gate {
            gate.await.unwrap();
        }
        match answer {
            Ok((secret, seconds)) => {
                Ok(Fetched { secret: secret.to_owned().into(), valid_for: seconds.map(Duration::from_secs) })
            }
            Err(message) => Err(ModelError::new(ModelErrorKind::Auth, message)),
        }
    }
}

fn renewed(script: &Script) -> Renewed {
    Renewed::new(Arc::new(script.clone()))
}

async fn get(renewed: &Renewed) -> Result<String, String> {
    renewed.get().await.map(|secret| secret.expose_secret().to_owned()).map_err(|error| error.message)
}

#[test]
fn a_secret_is_replaced_before_it_expires() {
    let held = |expires: Option<u64>| Held { secret: "x".to_owned().into(), expires: expires.map(Tick) };
    let margin = u64::try_from(MARGIN.as_millis()).unwrap();
    let end = margin + 1000;
    for (now, freshness) in [
        (0, Freshness::Good),
        (999, Freshness::Good),
        (1000, Freshness::Due),
        (end - 1, Freshness::Due),
        (end, Freshness::Expired),
    ] {
        assert_eq!(held(Some(end)).freshness(Tick(now)), freshness, "at {now}");
    }
    assert_eq!(held(None).freshness(Tick(u64::MAX)), Freshness::Good);
}

#[tokio::test]
async fn the_source_is_asked_once_for_many_callers() {
    let script = Script::default();
    let open = script.then_waits(Ok(("one", Some(3600))));
    let renewed = renewed(&script);
    let mut callers = Box::pin(join_all((0..20).map(|_| get(&renewed))));
    assert!(poll_immediate(&mut callers).await.is_none(), "all wait");
    open.send(()).unwrap();
    assert_eq!(callers.await, vec![Ok("one".to_owned()); 20]);
    assert_eq!(get(&renewed).await, Ok("one".to_owned()));
    assert_eq!(script.fetches(), 1);
}

#[tokio::test]
async fn a_flight_outlives_the_callers_that_gave_up() {
    let script = Script::default();
    let open = script.then_waits(Ok(("one", None)));
    let renewed = renewed(&script);
    {
        let mut first = Box::pin(get(&renewed));
        assert!(poll_immediate(&mut first).await.is_none());
    }
    open.send(()).unwrap();
    assert_eq!(get(&renewed).await, Ok("one".to_owned()));
    assert_eq!(script.fetches(), 1);
}

#[tokio::test]
async fn failures_are_told_to_all_and_not_kept() {
    let script = Script::default();
    let open = script.then_waits(Err("no"));
    script.then(Ok(("two", None)));
    let renewed = renewed(&script);
    let mut callers = Box::pin(join_all((0..3).map(|_| get(&renewed))));
    assert!(poll_immediate(&mut callers).await.is_none());
    open.send(()).unwrap();
    assert_eq!(callers.await, vec![Err("no".to_owned()); 3]);
    assert_eq!(get(&renewed).await, Ok("two".to_owned()));
    assert_eq!(script.fetches(), 2);
}

#[tokio::test]
async fn a_secret_that_is_due_serves_while_no_new_one_is_to_be_had() {
    let script = Script::default();
    script.then(Ok(("old", Some(60)))).then(Err("endpoint down")).then(Ok(("new", Some(3600))));
    let renewed = renewed(&script);
    assert_eq!(get(&renewed).await, Ok("old".to_owned()));
    assert_eq!(get(&renewed).await, Ok("old".to_owned()), "due at once, as it is good for less than the margin");
    assert_eq!(get(&renewed).await, Ok("new".to_owned()));
    assert_eq!(script.fetches(), 3);
}

#[tokio::test]
async fn an_expired_secret_is_not_used() {
    let script = Script::default();
    script.then(Ok(("old", Some(0)))).then(Err("endpoint down"));
    let renewed = renewed(&script);
    assert_eq!(get(&renewed).await, Ok("old".to_owned()), "what was just given is tried");
    assert_eq!(get(&renewed).await, Err("endpoint down".to_owned()));
}

#[tokio::test]
async fn only_the_refused_secret_is_forgotten() {
    let script = Script::default();
    script.then(Ok(("one", None))).then(Ok(("two", None)));
    let renewed = renewed(&script);
    let one = renewed.get().await.unwrap();
    renewed.forget(&"other".to_owned().into());
    assert_eq!(get(&renewed).await, Ok("one".to_owned()));
    renewed.forget(&one);
    assert_eq!(get(&renewed).await, Ok("two".to_owned()));
    renewed.forget(&one);
    assert_eq!(get(&renewed).await, Ok("two".to_owned()), "a late refusal of the old one");
}

#[test]
fn nothing_secret_is_printed() {
    let fixed = Credential::from("k-secret".to_owned());
    let fetched = Fetched { secret: "k-secret".to_owned().into(), valid_for: None };
    assert!(!format!("{fixed:?}{fetched:?}").contains("k-secret"));
}
