//! Tools that a project brings as programs: which are there, and what do they answer?
//!
//! `tools.discoveryCommand` prints a list of function declarations; `tools.callCommand NAME` reads the arguments of a
//! call as JSON and prints the answer. Each tool is called `discovered_tool_NAME` here, so that policy can tell it from
//! ours. Source: runtime specification §13.2.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_stdx::guard::Spawner;
use convoke_tools::{
    DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, ResultDisplay, ToolFailure, ToolOutput,
};
use serde_json::{Value, json};

use crate::AgentOptions;
use crate::user_program::{End, Launch};

/// The two programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryOptions {
    /// Prints the declarations.
    pub discover: String,
    /// Runs a call; the tool's name follows it.
    pub call: String,
}

/// A session waits for the list: one that takes longer is left out.
const DISCOVERY_MAX: Duration = Duration::from_secs(5);
/// A tool of a project may build or test it.
const CALL_MAX: Duration = Duration::from_secs(600);
/// Tools of one list; a model can't tell more apart.
const TOOLS_MAX: usize = 256;
const PREFIX: &str = "discovered_tool_";

/// Asks the project for its tools. What can't be had is left out with a warning.
pub(crate) async fn discover(options: &AgentOptions, cwd: &Path) -> Vec<Arc<dyn DeclarativeTool>> {
    let Some(programs) = &options.tools.discovery else { return Vec::new() };
    let launch = Launch {
        spawner: &options.spawner,
        command: &programs.discover,
        folder: cwd,
        set: &[],
        unset: &options.secret_variables,
        input: b"",
        timeout: DISCOVERY_MAX,
    };
    let ran = launch.run().await;
    let listed = match ran.end.failure() {
        Some(why) => Err(why),
        None => declarations(&ran.stdout),
    };
    let declarations = listed.unwrap_or_else(|why| {
        tracing::warn!(command = programs.discover, %why, "the project's tools could not be listed");
        Vec::new()
    });
    let shared = Arc::new(Shared {
        spawner: options.spawner.clone(),
        unset: options.secret_variables.clone(),
        call: programs.call.clone(),
        folder: cwd.to_owned(),
    });
    let tool = |declared: Declared| Arc::new(Discovered::new(declared, shared.clone())) as Arc<dyn DeclarativeTool>;
    declarations.into_iter().map(tool).collect()
}

/// A declaration of the list.
#[derive(Debug, PartialEq)]
struct Declared {
    name: String,
    description: String,
    parameters: Value,
}

/// A list of declarations, or of objects that have such a list, as the Gemini API has it.
fn declarations(text: &str) -> Result<Vec<Declared>, String> {
    let list: Vec<Value> =
        serde_json::from_str(text).map_err(|error| format!("it printed no list of tools: {error}"))?;
    let nested = |item: Value| match item.get("function_declarations").or_else(|| item.get("functionDeclarations")) {
        Some(Value::Array(inner)) => inner.clone(),
        _ => vec![item],
    };
    let mut found: Vec<Declared> = Vec::new();
    for item in list.into_iter().flat_map(nested).take(TOOLS_MAX) {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = text("name");
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        // The name becomes an argument of a shell's command.
        if name.is_empty() || !name.chars().all(plain) || found.iter().any(|declared| declared.name == name) {
            tracing::warn!(name, "left out a tool of the project: its name is empty, odd or there already");
            continue;
        }
        let schema = item.get("parametersJsonSchema").or_else(|| item.get("parameters"));
        found.push(Declared {
            name: name.to_owned(),
            description: text("description").to_owned(),
            parameters: schema.cloned().unwrap_or_else(|| json!({"type": "object", "properties": {}})),
        });
    }
    Ok(found)
}

struct Shared {
    spawner: Spawner,
    unset: Vec<String>,
    call: String,
    folder: PathBuf,
}

struct Discovered {
    name: String,
    declared: Declared,
    shared: Arc<Shared>,
}

impl Discovered {
    fn new(declared: Declared, shared: Arc<Shared>) -> Self {
        Self { name: format!("{PREFIX}{}", declared.name), declared, shared }
    }
}

impl DeclarativeTool for Discovered {
    fn name(&self) -> &str {
        &self.name
    }

    fn display_name(&self) -> &str {
        &self.declared.name
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        let Declared { name, description, parameters } = &self.declared;
        let about = format!(
            "{description}\n\nThis tool is a program of the project, run as `{} {name}` with the arguments as JSON on \
             its standard input. It answers with what it prints; a failure also has Stderr, Exit Code or Signal.",
            self.shared.call
        );
        FunctionDeclaration { name: self.name.clone(), description: about, parameters: parameters.clone() }
    }

    fn truncates_output(&self) -> bool {
        true
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        if !args.is_object() {
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, "params must be an object"));
        }
        let name = self.declared.name.clone();
        Ok(Arc::new(Call { name, args: args.to_string(), shared: self.shared.clone() }))
    }
}

struct Call {
    name: String,
    args: String,
    shared: Arc<Shared>,
}

/// Arguments that are shown; the whole of them are in the request.
const ARGS_SHOWN_MAX: usize = 2000;

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        let args: String = self.args.chars().take(ARGS_SHOWN_MAX).collect();
        format!("{} {} {args}", self.shared.call, self.name)
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let Shared { spawner, unset, call, folder } = self.shared.as_ref();
        let command = format!("{call} {}", self.name);
        let launch = Launch {
            spawner,
            command: &command,
            folder,
            set: &[],
            unset,
            input: self.args.as_bytes(),
            timeout: CALL_MAX,
        };
        // Dropping the run ends the program and all that it started.
        let Some(ran) = cx.cancel.run_until_cancelled(launch.run()).await else {
            return Err(ToolFailure::cancelled("Command was cancelled by user before it could complete."));
        };
        if ran.end == End::Exited(0) && ran.stderr.is_empty() {
            return Ok(ToolOutput::text(ran.stdout));
        }
        let part = |name: &str, text: &str| if text.is_empty() { String::new() } else { format!("{name}: {text}\n") };
        let failure = ran.end.failure().map(|why| format!("Error: {why}\n")).unwrap_or_default();
        let text = format!("{}{}{failure}", part("Stdout", &ran.stdout), part("Stderr", &ran.stderr));
        let text = text.trim_end().to_owned();
        if failure.is_empty() {
            return Ok(ToolOutput::text(text));
        }
        let display = ResultDisplay::Text(text.clone());
        Err(ToolFailure::Error { error_type: ErrorType::DiscoveredToolExecutionError, message: text, display })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        declarations(text).unwrap().into_iter().map(|declared| declared.name).collect()
    }

    #[test]
    fn both_shapes_of_a_list_are_read_and_odd_names_are_left_out() {
        assert_eq!(names(r#"[{"name": "a"}, {"name": "b", "description": "B"}]"#), ["a", "b"]);
        assert_eq!(names(r#"[{"function_declarations": [{"name": "a"}]}, {"name": "a"}, {"name": "x; rm"}]"#), ["a"]);
        assert!(declarations("no list").is_err());
        assert!(names("[]").is_empty());
    }
}
