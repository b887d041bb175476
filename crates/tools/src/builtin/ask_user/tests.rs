//! Questions, and who answers them.

use std::sync::Mutex;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::testing::{context, within};
use super::*;

/// Answers from a list, and can't be asked for text.
struct Answers(Mutex<Vec<Option<&'static str>>>);

#[async_trait]
impl Questioner for Answers {
    fn refusal(&self, question: &Question) -> Option<String> {
        (question.kind == QuestionKind::Text).then(|| "there is no keyboard".to_owned())
    }

    async fn ask(&self, call_id: &str, _question: &Question) -> Option<String> {
        assert_eq!(call_id, "call");
        let next = self.0.lock().unwrap().pop();
        match next {
            Some(answer) => answer.map(str::to_owned),
            None => std::future::pending().await,
        }
    }
}

fn tool(mut answers: Vec<Option<&'static str>>) -> AskUser {
    answers.reverse();
    AskUser::new(Arc::new(Answers(Mutex::new(answers))))
}

fn choice(question: &str) -> Value {
    let options = json!([{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]);
    json!({"question": question, "header": "Colour", "type": "choice", "options": options})
}

#[tokio::test]
async fn answers_come_back_by_their_place() {
    let args = json!({"questions": [choice("Which?"), {"question": "Sure?", "header": "Sure", "type": "yesno"}]});
    let call = tool(vec![Some("blue"), Some("yes")]).build(&args).unwrap();
    assert_eq!(call.description(), "Which? / Sure?");
    let output = call.execute(&context()).await.unwrap();
    assert_eq!(output.text, r#"{"answers":{"0":"blue","1":"yes"}}"#);
    let dismissed = tool(vec![Some("blue"), None]).build(&args).unwrap().execute(&context()).await.unwrap();
    assert_eq!(dismissed.text, "User dismissed ask_user dialog without answering.");
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_before_anything_is() {
    let args = json!({"questions": [choice("Which?"), {"question": "Why?", "header": "Why", "type": "text"}]});
    let failure = tool(vec![Some("blue")]).build(&args).unwrap().execute(&context()).await.unwrap_err();
    let expected = "The user can't be asked this way, because there is no keyboard. Ask in your answer instead.";
    assert_eq!(failure.message(), expected);
}

#[tokio::test]
async fn a_question_is_withdrawn_with_its_call() {
    let call = tool(Vec::new()).build(&json!({"questions": [choice("Which?")]})).unwrap();
    let cancel = CancellationToken::new();
    let cx = ExecutionContext::new("call", cancel.clone(), |_| ());
    let (done, ()) = within(async { tokio::join!(call.execute(&cx), async { cancel.cancel() }) }).await;
    assert_eq!(done.unwrap_err().error_type(), None);
}

#[test]
fn questions_that_nobody_could_answer_are_refused() {
    let mut one = choice("Which?");
    one["options"].as_array_mut().unwrap().pop();
    let mut blank = choice("Which?");
    blank["options"][0]["label"] = json!(" ");
    for (questions, words) in [
        (json!([]), "1 to 4"),
        (json!(vec![choice("?"); 5]), "1 to 4"),
        (json!([choice(" ")]), "params/questions/0/question"),
        (json!([choice("?"), one]), "params/questions/1/options must have 2 to 4"),
        (json!([blank]), "labels"),
        (json!([{"question": "?", "header": "", "type": "slider"}]), "must be one of"),
    ] {
        let failure = tool(Vec::new()).build(&json!({"questions": questions})).err().unwrap();
        assert!(failure.message().contains(words), "{failure}");
    }
}
