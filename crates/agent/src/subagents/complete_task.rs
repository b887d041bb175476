//! `complete_task`: how a subagent hands in its report, the only way to reach its goal.
//!
//! Source: runtime specification §12.4.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_tools::{
    DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, Reach, ToolFailure, ToolOutput, check_arguments,
};
use serde_json::{Map, Value, json};

use super::definition::AgentOutput;
use super::guide::RunGuide;

/// The tool's name.
pub(crate) const COMPLETE_TASK: &str = "complete_task";

/// The tool of one run.
pub(crate) struct CompleteTask {
    output: AgentOutput,
    guide: Arc<RunGuide>,
}

impl CompleteTask {
    pub(crate) fn new(output: AgentOutput, guide: Arc<RunGuide>) -> Self {
        Self { output, guide }
    }

    fn schema(&self) -> Value {
        let mut schema = self.output.schema.clone();
        if let Value::Object(schema) = &mut schema {
            schema.insert("description".to_owned(), self.output.description.as_str().into());
        }
        let properties = Map::from_iter([(self.output.name.clone(), schema)]);
        json!({"type": "object", "properties": properties, "required": [self.output.name]})
    }
}

impl DeclarativeTool for CompleteTask {
    fn name(&self) -> &str {
        COMPLETE_TASK
    }

    fn display_name(&self) -> &str {
        "Complete Task"
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }

    fn reach(&self, _args: &Value) -> Reach {
        Reach::Nothing
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: COMPLETE_TASK.to_owned(),
            description:
                "Hands in your report and ends your work. You must call it, once, when the task is done or can't \
                          be done: nothing else that you say reaches your caller."
                    .to_owned(),
            parameters: self.schema(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        check_arguments(&self.schema(), args)?;
        let report = args.get(&self.output.name).cloned().unwrap_or_default();
        if report.as_str().is_some_and(|text| text.trim().is_empty()) {
            let message =
                format!("params/{} must not be empty: it is all that your caller will see.", self.output.name);
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, message));
        }
        Ok(Arc::new(HandIn { report, guide: Arc::clone(&self.guide) }))
    }
}

struct HandIn {
    report: Value,
    guide: Arc<RunGuide>,
}

#[async_trait]
impl Invocation for HandIn {
    fn description(&self) -> String {
        "Hand in the report".to_owned()
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        if !self.guide.hand_in(self.report.clone()) {
            let message = "The task is complete already: this second call of the same turn was ignored.";
            return Err(ToolFailure::new(ErrorType::ExecutionFailed, message));
        }
        let data = json!({"taskCompleted": true, "submittedOutput": self.report});
        Ok(ToolOutput { data: Some(data), ..ToolOutput::text("The report was handed in.") })
    }
}
