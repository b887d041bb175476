//! `get_internal_docs`: what do our own documents say? For the built-in agent that answers questions about the program,
//! and for nobody else.
//!
//! The documents are given by whoever builds the program; nothing is read from a disk. Source: runtime specification
//! §12.2 and §13.2.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_tools::{
    DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, ToolFailure, ToolOutput, check_arguments,
};
use serde_json::{Value, json};

use super::builtin::DOCS_TOOL;
use super::definition::{AgentDefinition, AgentKind, AgentSource};

/// One of our own documents, as it was when the program was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its path in the repository.
    pub path: &'static str,
    /// The whole of it.
    pub text: &'static str,
}

impl Document {
    /// Its first heading.
    fn title(&self) -> &str {
        let line = self.text.lines().find(|line| line.starts_with('#')).unwrap_or_default();
        line.trim_start_matches('#').trim()
    }
}

/// Whether `agent` reads documents: it comes with us and names the tool.
pub(crate) fn reads_documents(agent: &AgentDefinition) -> bool {
    let names_it = match &agent.kind {
        AgentKind::Local(local) => local.tools.is_some() && local.may_call(DOCS_TOOL),
        AgentKind::Remote(_) => false,
    };
    names_it && agent.source == AgentSource::BuiltIn
}

/// The tool.
pub(crate) struct GetInternalDocs {
    documents: &'static [Document],
}

impl GetInternalDocs {
    pub(crate) fn new(documents: &'static [Document]) -> Self {
        Self { documents }
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The document, such as docs/policy.md; without it they are listed."},
            },
        })
    }

    fn list(&self) -> String {
        self.documents.iter().map(|document| format!("{}: {}\n", document.path, document.title())).collect()
    }
}

impl DeclarativeTool for GetInternalDocs {
    fn name(&self) -> &str {
        DOCS_TOOL
    }

    fn display_name(&self) -> &str {
        "Documents"
    }

    fn kind(&self) -> Kind {
        Kind::Think
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        let description = "Lists the documents of this program, or gives one of them.".to_owned();
        FunctionDeclaration { name: DOCS_TOOL.to_owned(), description, parameters: Self::schema() }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        check_arguments(&Self::schema(), args)?;
        let path = args.get("path").and_then(Value::as_str).map(str::trim).filter(|path| !path.is_empty());
        let Some(path) = path else {
            return Ok(Arc::new(Read { what: "the list of documents".to_owned(), text: self.list() }));
        };
        // As the list has it, or as documents refer to each other.
        let wanted = path.trim_start_matches("./");
        let found = self.documents.iter().find(|document| {
            document.path == wanted || document.path.strip_prefix("docs/").is_some_and(|name| name == wanted)
        });
        match found {
            Some(document) => Ok(Arc::new(Read { what: document.path.to_owned(), text: document.text.to_owned() })),
            None => {
                let message = format!("There is no document \"{path}\". There are:\n{}", self.list());
                Err(ToolFailure::new(ErrorType::InvalidToolParams, message))
            }
        }
    }
}

struct Read {
    what: String,
    text: String,
}

#[async_trait]
impl Invocation for Read {
    fn description(&self) -> String {
        self.what.clone()
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput { text: self.text.clone(), ..ToolOutput::text(&self.what) })
    }
}
