//! `write_todos`: what is to be done, and how far is it? The model's own list, for itself and for who watches.
//!
//! The tool keeps nothing: each call is the whole list, and the conversation is where it stays.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, Reach, ResultDisplay, ToolFailure, ToolOutput,
    params,
};

const NAME: &str = "write_todos";
// More is no plan. It also bounds what each call adds to the conversation.
const TODOS_MAX: usize = 100;

/// The tool.
pub struct WriteTodos {
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    todos: Vec<Todo>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Todo {
    description: String,
    status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
    Cancelled,
    Blocked,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Blocked => "blocked",
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Pending => "[ ]",
            Self::InProgress => "[>]",
            Self::Completed => "[x]",
            Self::Cancelled => "[-]",
            Self::Blocked => "[!]",
        }
    }
}

impl WriteTodos {
    /// The tool.
    #[must_use]
    pub fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "description": "The complete list; it takes the place of the one before.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "description": {"type": "string", "description": "The step, in one sentence."},
                            "status": {
                                "type": "string",
                                "enum": ["pending", "in_progress", "completed", "cancelled", "blocked"],
                                "description": "Where it stands. At most one step is in_progress.",
                            },
                        },
                        "required": ["description", "status"],
                    },
                },
            },
            "required": ["todos"],
        });
        Self { schema }
    }
}

impl Default for WriteTodos {
    fn default() -> Self {
        Self::new()
    }
}

impl DeclarativeTool for WriteTodos {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "WriteTodos"
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }

    fn reach(&self, _args: &Value) -> Reach {
        Reach::Nothing
    }

    /// Gemini 3 plans without a list.
    fn offered_to(&self, model: &str) -> bool {
        !model.strip_prefix("gemini-3").is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Keeps a list of the steps of a larger task, which the user sees. Write it before the first \
                          step, mark a step in_progress when it begins and completed as soon as it is done, and add \
                          what turns up on the way. Not for tasks of one or two steps."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let Params { todos } = params::read(&self.schema, args)?;
        let invalid = |message: String| Err(ToolFailure::new(ErrorType::InvalidToolParams, message));
        if let Some(index) = todos.iter().position(|todo| todo.description.trim().is_empty()) {
            return invalid(format!("params/todos/{index}/description must not be empty"));
        }
        if todos.len() > TODOS_MAX {
            return invalid(format!("params/todos must have at most {TODOS_MAX} entries"));
        }
        if todos.iter().filter(|todo| todo.status == Status::InProgress).count() > 1 {
            return invalid("params/todos must have at most one entry that is in_progress".to_owned());
        }
        Ok(Arc::new(Call { todos }))
    }
}

struct Call {
    todos: Vec<Todo>,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        match self.todos.iter().find(|todo| todo.status == Status::InProgress) {
            Some(todo) => format!("Todo: {}", todo.description),
            None if self.todos.is_empty() => "Cleared the todo list".to_owned(),
            None => format!("{} todo(s)", self.todos.len()),
        }
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let list = |line: &dyn Fn(usize, &Todo) -> String| {
            self.todos.iter().enumerate().map(|(index, todo)| line(index + 1, todo)).collect::<Vec<_>>().join("\n")
        };
        let numbered = list(&|number, todo| format!("{number}. [{}] {}", todo.status.as_str(), todo.description));
        let text = if self.todos.is_empty() {
            "Successfully cleared the todo list.".to_owned()
        } else {
            format!("Successfully updated the todo list. The current list is now:\n{numbered}")
        };
        Ok(ToolOutput {
            text,
            display: ResultDisplay::Text(list(&|_, todo| format!("{} {}", todo.status.mark(), todo.description))),
            data: Some(json!({"todos": self.todos})),
            ..ToolOutput::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::context;
    use super::*;

    #[tokio::test]
    async fn the_list_is_replaced_as_a_whole() {
        let tool = WriteTodos::new();
        let todos = json!([
            {"description": "read", "status": "completed"},
            {"description": "write", "status": "in_progress"},
            {"description": "ask", "status": "blocked"},
        ]);
        let call = tool.build(&json!({"todos": todos})).unwrap();
        assert_eq!(call.description(), "Todo: write");
        let output = call.execute(&context()).await.unwrap();
        let expected = "Successfully updated the todo list. The current list is now:\n\
                        1. [completed] read\n2. [in_progress] write\n3. [blocked] ask";
        assert_eq!(output.text, expected);
        assert_eq!(output.display, ResultDisplay::Text("[x] read\n[>] write\n[!] ask".to_owned()));
        assert_eq!(output.data, Some(json!({"todos": todos})));
        let cleared = tool.build(&json!({"todos": []})).unwrap().execute(&context()).await.unwrap();
        assert_eq!(cleared.text, "Successfully cleared the todo list.");
    }

    #[test]
    fn a_list_that_makes_no_sense_is_refused() {
        let todo = |description: &str, status: &str| json!({"description": description, "status": status});
        for (todos, words) in [
            (json!([todo("a", "in_progress"), todo("b", "in_progress")]), "at most one"),
            (json!([todo("a", "pending"), todo(" ", "pending")]), "params/todos/1/description"),
            (json!([todo("a", "done")]), "params/todos/0/status must be one of"),
            (json!(vec![todo("a", "pending"); 101]), "at most 100"),
            (json!("a"), "must be array"),
        ] {
            let failure = WriteTodos::new().build(&json!({"todos": todos})).err().unwrap();
            assert!(failure.message().contains(words), "{failure}");
        }
    }

    #[test]
    fn models_that_plan_by_themselves_are_not_told() {
        let tool = WriteTodos::new();
        for (model, offered) in [
            ("gemini-2.5-flash", true),
            ("gemini-3-pro-preview", false),
            ("gemini-3.1-pro", false),
            ("gemini-30", true),
            ("gpt-5", true),
        ] {
            assert_eq!(tool.offered_to(model), offered, "{model}");
        }
    }
}
