//! `replace`: put other text in the place of some text of a file.

mod matching;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::change::{Agreed, Change, Existing, refuse_placeholders};
use crate::{
    Access, ConfirmationDetails, DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, Location,
    ResolvedPath, ToolFailure, ToolOutput, Workspace, params,
};

const NAME: &str = "replace";

/// The tool.
pub struct Replace {
    workspace: Arc<Workspace>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    file_path: String,
    #[serde(default)]
    instruction: Option<String>,
    old_string: String,
    new_string: String,
    #[serde(default)]
    allow_multiple: Option<bool>,
}

impl Replace {
    /// Files of `workspace`.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to change."},
                "instruction": {
                    "type": "string",
                    "description": "What the change is for, so that somebody without the conversation understands it.",
                },
                "old_string": {
                    "type": "string",
                    "description": "The exact text to replace, with enough lines around it to occur once. \
                                    Empty to create a new file.",
                },
                "new_string": {
                    "type": "string",
                    "description": "The exact text to put in its place. Never leave anything out with a placeholder.",
                },
                "allow_multiple": {
                    "type": "boolean",
                    "description": "Whether to replace every occurrence. By default there must be exactly one.",
                },
            },
            "required": ["file_path", "instruction", "old_string", "new_string"],
        });
        Self { workspace, schema }
    }
}

impl DeclarativeTool for Replace {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "Edit"
    }

    fn kind(&self) -> Kind {
        Kind::Edit
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Replaces text in a file. Read the file first: old_string must be what is there, white space \
                          and indentation included, and must occur exactly once unless allow_multiple is set."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        refuse_placeholders("new_string", &params.old_string, &params.new_string)?;
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
    /// The change, and how many replacements it is made of.
    async fn change(&self) -> Result<(Change, usize), ToolFailure> {
        let Params { old_string, new_string, allow_multiple, .. } = &self.params;
        let path = self.workspace.resolve(&self.params.file_path, Access::Write)?;
        let name = path.as_path().display().to_string();
        let fail = |kind, message: String| Err(ToolFailure::new(kind, message));
        let existing = match (Existing::load(&self.workspace, &path, false).await?, old_string.is_empty()) {
            (None, true) => return Ok((Change::new(path, None, new_string), 0)),
            (None, false) => {
                let message =
                    format!("File not found: {name}. To create a new file, call replace with an empty old_string.");
                return fail(ErrorType::FileNotFound, message);
            }
            (Some(_), true) => {
                let message = format!("Failed to create {name}: the file exists. Set old_string to edit it.");
                return fail(ErrorType::AttemptToCreateExistingFile, message);
            }
            (Some(existing), false) => existing,
        };
        let text = existing.line_ends.normalise(&existing.text);
        let (old, new) = (existing.line_ends.normalise(old_string), existing.line_ends.normalise(new_string));
        if old == new {
            let message = "No changes to apply. The old_string and new_string are identical.".to_owned();
            return fail(ErrorType::EditNoChange, message);
        }
        // What is only nearly there may take a second to find.
        let (text, old, new) = (text.into_owned(), old.into_owned(), new.into_owned());
        let all = *allow_multiple == Some(true);
        let Ok(replaced) = tokio::task::spawn_blocking(move || matching::replace(&text, &old, &new, all)).await else {
            return fail(ErrorType::EditPreparationFailure, format!("Preparing the edit of {name} was interrupted."));
        };
        let (result, count) = match replaced {
            matching::Outcome::Replaced { text, count } => (text, count),
            matching::Outcome::None => {
                let message = format!(
                    "Failed to edit, 0 occurrences found for old_string in {name}. Nothing was changed. Check white \
                     space, indentation and escaping: read_file shows what is really there."
                );
                return fail(ErrorType::EditNoOccurrenceFound, message);
            }
            matching::Outcome::Several(count) => {
                let message = format!(
                    "Failed to edit, expected 1 occurrence but found {count} for old_string in {name}. Nothing was \
                     changed. Add lines around it to say which one, or set allow_multiple to replace all."
                );
                return fail(ErrorType::EditExpectedOccurrenceMismatch, message);
            }
        };
        let mut result = existing.line_ends.restore(&result).into_owned();
        if existing.text.ends_with('\n') && !result.is_empty() && !result.ends_with('\n') {
            result.push_str(&existing.line_ends.restore("\n"));
        }
        if result == existing.text {
            let message = format!("No changes to apply: {name} already is as it would be afterwards.");
            return fail(ErrorType::EditNoChange, message);
        }
        Ok((Change::new(path, Some(existing), &result), count))
    }
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        let name = self.workspace.shorten(self.path.as_path());
        match self.params.instruction.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
            Some(instruction) => format!("{name}: {}", instruction.lines().next().unwrap_or_default()),
            None if self.params.old_string.is_empty() => format!("Create {name}"),
            None => name,
        }
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location { path: self.path.as_path().display().to_string(), line: None }]
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        let (change, _) = self.change().await?;
        self.agreed.remember(&change);
        Ok(change.details(&self.workspace))
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let (change, count) = self.change().await?;
        self.agreed.check(&change)?;
        let name = self.path.as_path().display();
        let done = if change.is_new_file() {
            format!("Created new file: {name} with provided content.")
        } else {
            format!("Successfully modified file: {name} ({count} replacement{}).", if count == 1 { "" } else { "s" })
        };
        change.carry_out(&self.workspace, &done).await
    }
}
