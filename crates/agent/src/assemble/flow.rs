//! The stages that make a session's requests, and who watches its invocations, in their order.

use std::path::Path;
use std::sync::Arc;

use convoke_adk::{GenerateConfig, Instruction, LlmAgent, Plugin, RequestProcessor};
use convoke_tools::SessionPolicy;

use crate::AgentOptions;
use crate::config::ThinkingProcessor;
use crate::context_files::find_context_files;
use crate::hooks::{HookBridge, SessionHooks};
use crate::instructions::SystemInstruction;
use crate::models::SessionModel;
use crate::routing::RoutingProcessor;

/// What the stages are made from.
pub(super) struct FlowParts<'a> {
    pub(super) options: &'a AgentOptions,
    pub(super) cwd: &'a Path,
    pub(super) policy: &'a SessionPolicy,
    pub(super) model: &'a SessionModel,
    pub(super) hooks: &'a Arc<SessionHooks>,
}

impl FlowParts<'_> {
    /// The request processors.
    pub(super) fn processors(&self) -> Vec<Arc<dyn RequestProcessor>> {
        let instruction = Instruction::Provider(Arc::new(self.instruction()));
        let mut processors = LlmAgent::default_processors(GenerateConfig::default(), instruction);
        processors.push(Arc::new(ThinkingProcessor(self.model.thinking.clone())));
        // Last: it looks at the conversation as it will be sent, and tools are declared for the model that it chose.
        if let Some(llm) = &self.model.steered {
            processors.push(Arc::new(RoutingProcessor::new(llm.clone(), self.policy.clone())));
        }
        processors
    }

    /// The plugins.
    pub(super) fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        vec![Arc::new(HookBridge::new(self.hooks.clone()))]
    }

    fn instruction(&self) -> SystemInstruction {
        let (context_files, unreadable) = find_context_files(self.cwd, &self.options.context);
        for (path, error) in unreadable {
            tracing::warn!(path = %path.display(), %error, "a context file can't be read");
        }
        SystemInstruction::new(self.policy.clone(), self.options.interactive, None, &context_files)
    }
}
