//! What a session does with a client that takes questions and has files open.

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use convoke_agent::{AgentFactory, NoLifecycleHooks};
use convoke_protocol::{
    AnswerChoice, AnswerKind, ClientFiles, ClientFilesError, NewSession, PermissionOutcome, PermissionPort,
    PermissionRequest, QuestionOutcome, QuestionRequest, SessionFactory,
};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::sync::mpsc;

use crate::rig::*;

/// Answers questions from a list, and lets everything happen.
struct Person {
    outcomes: Mutex<Vec<QuestionOutcome>>,
    asked: Mutex<Vec<QuestionRequest>>,
}

#[async_trait]
impl PermissionPort for Person {
    async fn request(&self, _: PermissionRequest) -> PermissionOutcome {
        PermissionOutcome::Selected { option_id: "proceed_once".into() }
    }

    fn takes_questions(&self) -> bool {
        true
    }

    async fn ask(&self, question: QuestionRequest) -> QuestionOutcome {
        self.asked.lock().unwrap().push(question);
        self.outcomes.lock().unwrap().remove(0)
    }
}

/// One file that is open.
struct Open(Mutex<String>);

#[async_trait]
impl ClientFiles for Open {
    fn reads(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        true
    }

    async fn read_text(&self, path: &Path) -> Result<String, ClientFilesError> {
        match path.ends_with("a.txt") {
            true => Ok(self.0.lock().unwrap().clone()),
            false => Err(ClientFilesError("not open".into())),
        }
    }

    async fn write_text(&self, _: &Path, text: &str) -> Result<(), ClientFilesError> {
        text.clone_into(&mut self.0.lock().unwrap());
        Ok(())
    }
}

async fn rig(answers: Vec<Answer>, person: Arc<Person>, files: Option<Arc<Open>>) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "saved\n").unwrap();
    let (options, requests) = options(answers, Arc::new(NoLifecycleHooks));
    let cwd = dir.path().canonicalize().unwrap();
    let new = NewSession {
        session_id: Some("s".into()),
        files: files.map(|files| files as Arc<dyn ClientFiles>),
        ..NewSession::new(cwd, person)
    };
    let session = AgentFactory::new(options).new_session(new).await.unwrap();
    Rig { dir, session, questions: mpsc::channel(1).1, requests }
}

fn person(outcomes: Vec<QuestionOutcome>) -> Arc<Person> {
    Arc::new(Person { outcomes: Mutex::new(outcomes), asked: Mutex::default() })
}

#[tokio::test]
async fn every_kind_of_question_reaches_a_client_that_takes_them() {
    let option = |label: &str| json!({"label": label, "description": ""});
    let question = |text: &str, more: serde_json::Value| {
        let mut question = json!({"question": text, "header": "H"});
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        question
    };
    let questions = json!([
        question("Why?", json!({"type": "text", "placeholder": "because"})),
        question("Which?", json!({"type": "choice", "multiSelect": true, "options": [option("a"), option("b")]})),
        question("Sure?", json!({"type": "yesno"})),
    ]);
    let again = json!([question("Once more?", json!({"type": "yesno"}))]);
    let given = |answers: &[&str]| QuestionOutcome::Answered(answers.iter().map(|a| (*a).to_owned()).collect());
    let outcomes = vec![given(&["for fun"]), given(&["a", "b"]), given(&["Yes"]), QuestionOutcome::Declined];
    let person = person(outcomes);
    let answers = vec![
        vec![piece(vec![call("ask_user", json!({"questions": questions}))]), stop()],
        vec![piece(vec![call("ask_user", json!({"questions": again}))]), stop()],
        vec![text("Done."), stop()],
    ];
    let rig = rig(answers, person.clone(), None).await;
    let events = rig.run("ask").await;
    let told: String = events.iter().map(|event| told(event)).collect();
    assert!(told.contains(r#"{"answers":{"0":"for fun","1":"a, b","2":"Yes"}}"#), "{told}");
    assert!(told.contains("User dismissed ask_user dialog without answering."), "{told}");
    let asked = person.asked.lock().unwrap();
    let choice = |label: &str| AnswerChoice { label: label.into(), description: String::new() };
    let kinds: Vec<_> = asked.iter().map(|question| question.answer.clone()).collect();
    let yes_or_no = AnswerKind::One(vec![choice("Yes"), choice("No")]);
    assert_eq!(
        kinds,
        [
            AnswerKind::Text { example: Some("because".into()) },
            AnswerKind::Several(vec![choice("a"), choice("b")]),
            yes_or_no.clone(),
            yes_or_no,
        ]
    );
}

#[tokio::test]
async fn edits_start_from_what_is_open_and_end_there() {
    let edit = json!({"file_path": "a.txt", "instruction": "x", "old_string": "typed", "new_string": "TYPED"});
    let answers = vec![vec![piece(vec![call("replace", edit)]), stop()], vec![text("Done."), stop()]];
    let open = Arc::new(Open(Mutex::new("typed\n".into())));
    let rig = rig(answers, person(vec![]), Some(open.clone())).await;
    rig.run("edit").await;
    assert_eq!(*open.0.lock().unwrap(), "TYPED\n");
    assert_eq!(std::fs::read_to_string(rig.dir.path().join("a.txt")).unwrap(), "saved\n");
}
