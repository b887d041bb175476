//! An agent: a model, an instruction, tools, and the stages that make its requests.

use std::sync::Arc;

use crate::processors::{Basic, Contents, Instructions};
use crate::{GenerateConfig, Instruction, Llm, RequestProcessor, ToolDispatcher, Toolset};

/// What drives a model. Built once per session.
#[derive(Clone)]
pub struct LlmAgent {
    /// Author of its events; never shown to the model.
    pub name: String,
    /// The model.
    pub model: Arc<dyn Llm>,
    /// The stages that make a request, in order. [`LlmAgent::default_processors`] is the kernel's list.
    pub processors: Vec<Arc<dyn RequestProcessor>>,
    /// Tools on offer.
    pub toolsets: Vec<Arc<dyn Toolset>>,
    /// Who runs calls.
    pub dispatcher: Arc<dyn ToolDispatcher>,
}

impl LlmAgent {
    /// Basic, instructions, contents.
    #[must_use]
    pub fn default_processors(config: GenerateConfig, instruction: Instruction) -> Vec<Arc<dyn RequestProcessor>> {
        vec![Arc::new(Basic::new(config)), Arc::new(Instructions::new(instruction)), Arc::new(Contents)]
    }
}
