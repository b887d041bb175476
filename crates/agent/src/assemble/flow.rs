//! The stages that make a session's requests, and who watches its invocations, in their order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use convoke_adk::{GenerateConfig, Instruction, LlmAgent, Plugin, RequestProcessor};
use convoke_tools::SessionPolicy;

use crate::AgentOptions;
use crate::config::ThinkingProcessor;
use crate::context::History;
use crate::context::compression::{CompressionProcessor, Compressor};
use crate::context::guard::ContextGuard;
use crate::context::masking::{Masker, ToolOutputMaskingProcessor};
use crate::context::trace::{ContextTrace, TraceProcessor};
use crate::context_files::find_context_files;
use crate::hooks::{HookBridge, SessionHooks};
use crate::instructions::SystemInstruction;
use crate::limits::BudgetPlugin;
use crate::loops::LoopPlugin;
use crate::models::SessionModel;
use crate::routing::RoutingProcessor;
use crate::subagents::{ChildSeat, RunPlugin};
use crate::told;

/// What the stages are made from.
pub(super) struct FlowParts<'a> {
    pub(super) options: &'a AgentOptions,
    pub(super) cwd: &'a Path,
    pub(super) policy: &'a SessionPolicy,
    pub(super) model: &'a SessionModel,
    pub(super) hooks: &'a Arc<SessionHooks>,
    pub(super) history: &'a History,
    pub(super) masker: Option<&'a Arc<Masker>>,
    pub(super) compressor: &'a Arc<Compressor>,
    /// Tokens of the running prompt.
    pub(super) used: &'a Arc<AtomicU64>,
    /// Set for a subagent.
    pub(super) seat: Option<&'a ChildSeat>,
}

impl FlowParts<'_> {
    /// The request processors.
    pub(super) fn processors(&self) -> Vec<Arc<dyn RequestProcessor>> {
        let instruction = Instruction::Provider(Arc::new(self.instruction()));
        let mut processors = LlmAgent::default_processors(self.config(), instruction);
        processors.push(Arc::new(ThinkingProcessor(self.model.thinking.clone())));
        // A subagent's conversation is its own, and not the one that is looked into.
        let trace = self.options.context_trace.clone().filter(|_| self.seat.is_none());
        let trace = trace.map(|folder| Arc::new(ContextTrace::new(folder)));
        // What shortens the session comes before what measures it, and both before a model is chosen for what is left.
        processors.push(Arc::new(CompressionProcessor::new(self.compressor.clone(), trace.clone())));
        if let (Some(masker), Some(_)) = (self.masker, self.options.masking) {
            processors.push(Arc::new(ToolOutputMaskingProcessor::new(masker.clone())));
        }
        processors.push(Arc::new(ContextGuard::new(self.history.clone(), self.model.clone())));
        // Last: it looks at the conversation as it will be sent, and tools are declared for the model that it chose.
        if let Some(llm) = &self.model.steered {
            let purpose = if self.seat.is_some() { "subagent" } else { "main" };
            processors.push(Arc::new(RoutingProcessor::new(llm.clone(), self.policy.clone(), purpose)));
        }
        processors.extend(trace.map(|trace| Arc::new(TraceProcessor::new(trace)) as Arc<dyn RequestProcessor>));
        processors
    }

    /// The plugins.
    pub(super) fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        let mut plugins: Vec<Arc<dyn Plugin>> = Vec::new();
        // A subagent's turns and time are bounded: it has no loop detector.
        if let Some(seat) = self.seat {
            plugins.push(Arc::new(RunPlugin::new(seat.guide.clone())));
        } else if self.options.loops.enabled {
            let id = self.history.session_id.clone();
            plugins.push(Arc::new(LoopPlugin::new(id, self.model.clone(), self.options.loops)));
        } else {
            told::loops_ignored(&self.history.session_id);
        }
        if let Some(tokens) = self.options.limits.tokens {
            plugins.push(Arc::new(BudgetPlugin::new(tokens, self.used.clone())));
        }
        // The user's commands come last: the first plugin that answers is the last one that is asked.
        plugins.push(Arc::new(HookBridge::new(self.hooks.clone())));
        plugins
    }

    fn config(&self) -> GenerateConfig {
        GenerateConfig { temperature: self.seat.and_then(|seat| seat.agent.temperature), ..GenerateConfig::default() }
    }

    fn instruction(&self) -> SystemInstruction {
        let (context_files, unreadable) = find_context_files(self.cwd, &self.options.context);
        for (path, error) in unreadable {
            tracing::warn!(path = %path.display(), %error, "a context file can't be read");
        }
        let own = self.seat.map(|seat| seat.instruction.clone());
        SystemInstruction::new(self.policy.clone(), self.options.interactive, own, &context_files)
    }
}
