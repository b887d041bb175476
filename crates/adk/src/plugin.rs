//! In-process code that watches an invocation and may step in.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Content, Event, FunctionCall, FunctionResponse, InvocationContext, LlmRequest, LlmResponse, ModelError};

/// Watches every stage of an invocation. All callbacks have a default that does nothing.
///
/// Plugins run in the order of their registration; the first that returns something decides and the rest are not
/// asked. An error ends the invocation with an error event that names plugin and callback.
/// A plugin that wants the invocation to end asks [`InvocationContext::stop`]: it must not cancel from a callback,
/// since the event at hand would be lost.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Unique among the plugins of a runner.
    fn name(&self) -> &str;

    /// A user message came in; may replace it.
    async fn on_user_message(&self, _: &InvocationContext, _: &Content) -> Result<Option<Content>, PluginError> {
        Ok(None)
    }

    /// Before anything else; a content is the invocation's only answer.
    async fn before_run(&self, _: &InvocationContext) -> Result<Option<Content>, PluginError> {
        Ok(None)
    }

    /// Every event before it is kept and delivered; may replace it.
    async fn on_event(&self, _: &InvocationContext, _: &Event) -> Result<Option<Event>, PluginError> {
        Ok(None)
    }

    /// The invocation is over, however it ended.
    async fn after_run(&self, _: &InvocationContext) -> Result<(), PluginError> {
        Ok(())
    }

    /// An agent begins; a content is its only answer.
    async fn before_agent(&self, _: &InvocationContext) -> Result<Option<Content>, PluginError> {
        Ok(None)
    }

    /// An agent is done; a content is said on top.
    async fn after_agent(&self, _: &InvocationContext) -> Result<Option<Content>, PluginError> {
        Ok(None)
    }

    /// The request is complete but for the tools that may be called; names restrict them.
    async fn before_tool_selection(
        &self,
        _: &InvocationContext,
        _: &LlmRequest,
    ) -> Result<Option<Vec<String>>, PluginError> {
        Ok(None)
    }

    /// Before a model call; may change the request, or answer in the model's place.
    async fn before_model(
        &self,
        _: &InvocationContext,
        _: &mut LlmRequest,
    ) -> Result<Option<LlmResponse>, PluginError> {
        Ok(None)
    }

    /// Each piece of an answer; may replace it.
    async fn after_model(&self, _: &InvocationContext, _: &LlmResponse) -> Result<Option<LlmResponse>, PluginError> {
        Ok(None)
    }

    /// The model failed; may answer in its place.
    async fn on_model_error(
        &self,
        _: &InvocationContext,
        _: &LlmRequest,
        _: &ModelError,
    ) -> Result<Option<LlmResponse>, PluginError> {
        Ok(None)
    }

    /// Before a call is dispatched; a response stands in for it.
    async fn before_tool(
        &self,
        _: &InvocationContext,
        _: &FunctionCall,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        Ok(None)
    }

    /// A call has an answer; may replace it.
    async fn after_tool(
        &self,
        _: &InvocationContext,
        _: &FunctionCall,
        _: &FunctionResponse,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        Ok(None)
    }

    /// A call failed; may replace the answer.
    async fn on_tool_error(
        &self,
        _: &InvocationContext,
        _: &FunctionCall,
        _: &FunctionResponse,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        Ok(None)
    }
}

/// What a plugin could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Error in plugin '{plugin}' during '{callback}' callback: {message}")]
pub struct PluginError {
    /// Whose error.
    pub plugin: String,
    /// Which callback.
    pub callback: &'static str,
    /// What went wrong.
    pub message: String,
}

/// The plugins of a runner, in order.
#[derive(Clone, Default)]
pub struct PluginManager {
    plugins: Vec<Arc<dyn Plugin>>,
}

/// Asks each plugin in turn; the first answer wins.
macro_rules! first {
    ($self:ident, $callback:ident ( $($arg:expr),* )) => {{
        for plugin in &$self.plugins {
            if let Some(answer) = plugin.$callback($($arg),*).await? {
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }};
}

impl PluginManager {
    /// Registers `plugins`. Of two with the same name the first stays; the name of the other is returned.
    pub fn new(plugins: Vec<Arc<dyn Plugin>>) -> Result<Self, String> {
        for (index, plugin) in plugins.iter().enumerate() {
            if plugins.iter().take(index).any(|earlier| earlier.name() == plugin.name()) {
                return Err(plugin.name().to_owned());
            }
        }
        Ok(Self { plugins })
    }

    pub(crate) async fn on_user_message(
        &self,
        cx: &InvocationContext,
        message: &Content,
    ) -> Result<Option<Content>, PluginError> {
        first!(self, on_user_message(cx, message))
    }

    pub(crate) async fn before_run(&self, cx: &InvocationContext) -> Result<Option<Content>, PluginError> {
        first!(self, before_run(cx))
    }

    pub(crate) async fn on_event(&self, cx: &InvocationContext, event: &Event) -> Result<Option<Event>, PluginError> {
        first!(self, on_event(cx, event))
    }

    pub(crate) async fn after_run(&self, cx: &InvocationContext) -> Result<(), PluginError> {
        for plugin in &self.plugins {
            plugin.after_run(cx).await?;
        }
        Ok(())
    }

    pub(crate) async fn before_agent(&self, cx: &InvocationContext) -> Result<Option<Content>, PluginError> {
        first!(self, before_agent(cx))
    }

    pub(crate) async fn after_agent(&self, cx: &InvocationContext) -> Result<Option<Content>, PluginError> {
        first!(self, after_agent(cx))
    }

    pub(crate) async fn before_tool_selection(
        &self,
        cx: &InvocationContext,
        request: &LlmRequest,
    ) -> Result<Option<Vec<String>>, PluginError> {
        first!(self, before_tool_selection(cx, request))
    }

    pub(crate) async fn before_model(
        &self,
        cx: &InvocationContext,
        request: &mut LlmRequest,
    ) -> Result<Option<LlmResponse>, PluginError> {
        first!(self, before_model(cx, request))
    }

    pub(crate) async fn after_model(
        &self,
        cx: &InvocationContext,
        response: &LlmResponse,
    ) -> Result<Option<LlmResponse>, PluginError> {
        first!(self, after_model(cx, response))
    }

    pub(crate) async fn on_model_error(
        &self,
        cx: &InvocationContext,
        request: &LlmRequest,
        error: &ModelError,
    ) -> Result<Option<LlmResponse>, PluginError> {
        first!(self, on_model_error(cx, request, error))
    }

    pub(crate) async fn before_tool(
        &self,
        cx: &InvocationContext,
        call: &FunctionCall,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        first!(self, before_tool(cx, call))
    }

    pub(crate) async fn after_tool(
        &self,
        cx: &InvocationContext,
        call: &FunctionCall,
        response: &FunctionResponse,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        first!(self, after_tool(cx, call, response))
    }

    pub(crate) async fn on_tool_error(
        &self,
        cx: &InvocationContext,
        call: &FunctionCall,
        response: &FunctionResponse,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        first!(self, on_tool_error(cx, call, response))
    }
}
