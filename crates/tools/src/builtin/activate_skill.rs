//! `activate_skill`: how is this kind of task done here? A skill is a folder with instructions, and files they speak of.
//!
//! The model is told of each skill's name and description; its text comes when it is activated, and from then on the
//! folder can be read. Source: runtime specification §13.3; the folders are those of Agent Skills.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::walk::walk;
use crate::{
    ConfirmationDetails, DeclarativeTool, ErrorType, ExecutionContext, FileFiltering, Invocation, Kind, Reach,
    ResultDisplay, ToolFailure, ToolOutput, Workspace, params,
};

const NAME: &str = "activate_skill";
// A listing is for finding one's way; larger folders have an order of their own.
const RESOURCES_MAX: usize = 200;

/// A folder of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// What it is called.
    pub name: String,
    /// When it is of use.
    pub description: String,
    /// What to do, without the front matter.
    pub body: String,
    /// Where it is; a real path.
    pub folder: PathBuf,
}

/// The tool.
pub struct ActivateSkill {
    workspace: Arc<Workspace>,
    skills: Arc<[Skill]>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    name: String,
}

impl ActivateSkill {
    /// One of `skills`, whose folder `workspace` then lets be read.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>, skills: Vec<Skill>) -> Self {
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let schema = json!({
            "type": "object",
            "properties": {"name": {"type": "string", "enum": names, "description": "The skill."}},
            "required": ["name"],
        });
        Self { workspace, skills: skills.into(), schema }
    }
}

impl DeclarativeTool for ActivateSkill {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "Activate Skill"
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }

    fn reach(&self, _args: &Value) -> Reach {
        Reach::Nothing
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        let mut description =
            "Activates a skill: instructions of the user for a kind of task. Call it before you begin \
                               a task that one of these is about, and then follow what it says:"
                .to_owned();
        for skill in self.skills.iter() {
            description.push_str(&format!("\n- {}: {}", skill.name, skill.description));
        }
        FunctionDeclaration { name: NAME.to_owned(), description, parameters: self.schema.clone() }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let Params { name } = params::read(&self.schema, args)?;
        let skill = self.skills.iter().find(|skill| skill.name == name).cloned();
        let missing = || ToolFailure::new(ErrorType::InvalidToolParams, format!("There is no skill \"{name}\"."));
        Ok(Arc::new(Call { workspace: Arc::clone(&self.workspace), skill: skill.ok_or_else(missing)? }))
    }
}

struct Call {
    workspace: Arc<Workspace>,
    skill: Skill,
}

impl Call {
    async fn resources(&self) -> String {
        let folder = self.skill.folder.clone();
        tokio::task::spawn_blocking(move || resources(&folder)).await.unwrap_or_default()
    }
}

/// The files of a folder, one a line, relative to it.
fn resources(folder: &Path) -> String {
    let filtering = FileFiltering { git: false, own: false };
    let entries = walk(folder, filtering).sort_by_file_name(std::cmp::Ord::cmp).build().flatten();
    let files = entries.filter(|entry| entry.file_type().is_some_and(|kind| !kind.is_dir()));
    let mut names: Vec<String> = files
        .take(RESOURCES_MAX + 1)
        .map(|entry| entry.path().strip_prefix(folder).unwrap_or(entry.path()).display().to_string())
        .collect();
    if names.len() > RESOURCES_MAX {
        names.truncate(RESOURCES_MAX);
        names.push("... and more".to_owned());
    }
    names.join("\n")
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        format!("\"{}\": {}", self.skill.name, self.skill.description)
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        let Skill { name, description, folder, .. } = &self.skill;
        let files = self.resources().await;
        let prompt = format!(
            "The skill \"{name}\": {description}\n\nIts folder can then be read: {}\n{files}",
            folder.display()
        );
        Ok(ConfirmationDetails::Info { prompt })
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let Skill { name, body, folder, .. } = &self.skill;
        self.workspace.let_read(folder);
        let text = format!(
            "<activated_skill name=\"{name}\">\n<instructions>\n{}\n</instructions>\n<available_resources>\n{}\n\n{}\n\
             </available_resources>\n</activated_skill>",
            body.trim(),
            folder.display(),
            self.resources().await
        );
        let shown = format!("Skill \"{name}\" activated. It is in {}.", folder.display());
        Ok(ToolOutput { text, display: ResultDisplay::Text(shown), ..ToolOutput::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Folder, context};
    use super::*;
    use crate::{Access, WorkspaceOptions};

    #[tokio::test]
    async fn a_skill_tells_its_text_and_opens_its_folder() {
        let files = Folder::with(&[]);
        let folder = files.path("").parent().unwrap().join("outside");
        std::fs::create_dir(folder.join("scripts")).unwrap();
        std::fs::write(folder.join("SKILL.md"), "x").unwrap();
        std::fs::write(folder.join("scripts/run.sh"), "x").unwrap();
        let options = WorkspaceOptions { cwd: files.path(""), ..WorkspaceOptions::default() };
        let workspace = Arc::new(Workspace::new(options).unwrap());
        let skill = |name: &str| Skill {
            name: name.to_owned(),
            description: format!("for {name}"),
            body: "\nDo it.\n".to_owned(),
            folder: folder.clone(),
        };
        let tool = ActivateSkill::new(Arc::clone(&workspace), vec![skill("a"), skill("b")]);
        let declared = tool.declaration("m");
        assert!(declared.description.ends_with("\n- a: for a\n- b: for b"), "{}", declared.description);
        assert_eq!(declared.parameters["properties"]["name"]["enum"], json!(["a", "b"]));
        assert_eq!(tool.build(&json!({"name": "c"})).err().unwrap().error_type(), Some(ErrorType::InvalidToolParams));

        let call = tool.build(&json!({"name": "b"})).unwrap();
        let inside = folder.join("scripts/run.sh").display().to_string();
        let ConfirmationDetails::Info { prompt } = call.confirmation().await.unwrap() else { panic!("an info") };
        assert!(prompt.ends_with("SKILL.md\nscripts/run.sh"), "{prompt}");
        assert!(workspace.resolve(&inside, Access::Read).is_err(), "asking opens nothing");
        let text = call.execute(&context()).await.unwrap().text;
        let expected = format!(
            "<activated_skill name=\"b\">\n<instructions>\nDo it.\n</instructions>\n<available_resources>\n{}\n\n\
             SKILL.md\nscripts/run.sh\n</available_resources>\n</activated_skill>",
            folder.display()
        );
        assert_eq!(text, expected);
        assert!(workspace.resolve(&inside, Access::Read).is_ok());
        assert!(workspace.resolve(&inside, Access::Write).is_err());
    }
}
