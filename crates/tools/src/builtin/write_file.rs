//! `write_file`: put this text into a file, whatever was in it.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::change::{Agreed, Change, Existing, refuse_placeholders};
use crate::{
    Access, ConfirmationDetails, DeclarativeTool, ExecutionContext, Invocation, Kind, Location, ResolvedPath,
    ToolFailure, ToolOutput, Workspace, params,
};

const NAME: &str = "write_file";

/// The tool.
pub struct WriteFile {
    workspace: Arc<Workspace>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    file_path: String,
    content: String,
}

impl WriteFile {
    /// Files of `workspace`.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to write. Missing folders are created."},
                "content": {
                    "type": "string",
                    "description": "The whole content of the file. Never leave anything out with a placeholder.",
                },
            },
            "required": ["file_path", "content"],
        });
        Self { workspace, schema }
    }
}

impl DeclarativeTool for WriteFile {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "WriteFile"
    }

    fn kind(&self) -> Kind {
        Kind::Edit
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Writes a file, new or not, with the given content. An existing file keeps its encoding and \
                          line ends. For a small change of a file use replace."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        let path = self.workspace.resolve(&params.file_path, Access::Write)?;
        Ok(Arc::new(Call { workspace: Arc::clone(&self.workspace), params, path, agreed: Agreed::default() }))
    }
}

struct Call {
    workspace: Arc<Workspace>,
    params: Params,
    path: ResolvedPath,
    agreed: Agreed,
}

impl Call {
    async fn change(&self) -> Result<Change, ToolFailure> {
        let path = self.workspace.resolve(&self.params.file_path, Access::Write)?;
        let existing = Existing::load(&self.workspace, &path, true).await?;
        let old = existing.as_ref().map_or("", |existing| existing.text.as_str());
        refuse_placeholders("content", old, &self.params.content)?;
        let content = match &existing {
            Some(existing) => existing.line_ends.restore(&self.params.content),
            None => self.params.content.as_str().into(),
        };
        Ok(Change::new(path, existing, &content))
    }
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        format!("Writing to {}", self.workspace.shorten(self.path.as_path()))
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location { path: self.path.as_path().display().to_string(), line: None }]
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        let change = self.change().await?;
        self.agreed.remember(&change);
        Ok(change.details(&self.workspace))
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let change = self.change().await?;
        self.agreed.check(&change)?;
        let name = self.path.as_path().display();
        let done = if change.is_new_file() {
            format!("Successfully created and wrote to new file: {name}.")
        } else {
            format!("Successfully overwrote file: {name}.")
        };
        change.carry_out(&self.workspace, &done).await
    }
}
