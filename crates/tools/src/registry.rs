//! Which tools are there, and which of them is the model told of?
//!
//! The order is the order of registration, so that declarations stay the same from request to request and a
//! provider's prompt cache holds. A tool that policy would refuse whatever its arguments is not offered.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use convoke_adk::{FunctionDeclaration, InvocationContext, Tool, ToolContext, ToolError, Toolset};
use indexmap::IndexMap;
use serde_json::Value;

use crate::policy::{Offer, SessionPolicy, ToolFacts, canonical_tool_name};
use crate::{DeclarativeTool, ErrorType, ToolFailure, suggest};

// Far above what any provider accepts in one request.
const TOOLS_MAX: usize = 1024;

/// The tools of one session.
pub struct ToolRegistry {
    policy: SessionPolicy,
    /// The subagent whose tools they are.
    subagent: Option<String>,
    tools: RwLock<IndexMap<String, Arc<dyn DeclarativeTool>>>,
}

/// Why a tool was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// There is one of that name.
    #[error("register tool \"{0}\": the name is taken")]
    Taken(String),
    /// There are too many.
    #[error("register tool \"{0}\": there are too many tools")]
    TooMany(String),
}

impl ToolRegistry {
    /// A registry without tools.
    #[must_use]
    pub fn new(policy: SessionPolicy) -> Self {
        Self { policy, subagent: None, tools: RwLock::default() }
    }

    /// The registry of this subagent: rules about it say what is offered, too.
    #[must_use]
    pub fn of_subagent(self, name: String) -> Self {
        Self { subagent: Some(name), ..self }
    }

    /// Adds a tool after the others.
    pub fn register(&self, tool: Arc<dyn DeclarativeTool>) -> Result<(), RegisterError> {
        let name = tool.name().to_owned();
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        if tools.contains_key(&name) {
            return Err(RegisterError::Taken(name));
        }
        if tools.len() >= TOOLS_MAX {
            return Err(RegisterError::TooMany(name));
        }
        tools.insert(name, tool);
        Ok(())
    }

    /// Takes a tool away; the order of the others stays.
    pub fn remove(&self, name: &str) -> Option<Arc<dyn DeclarativeTool>> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner).shift_remove(name)
    }

    /// The tool of this name or alias, offered or not.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<dyn DeclarativeTool>> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.get(name).or_else(|| tools.get(canonical_tool_name(name))).cloned()
    }

    /// Every tool, offered or not, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<dyn DeclarativeTool>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The tools that are offered now, in order.
    #[must_use]
    pub fn offered(&self) -> Vec<Arc<dyn DeclarativeTool>> {
        self.all().into_iter().filter(|tool| self.offer(tool.as_ref()) == Offer::Offered).collect()
    }

    fn offer(&self, tool: &dyn DeclarativeTool) -> Offer {
        let annotations = tool.annotations();
        self.policy.offer(&ToolFacts {
            name: tool.name(),
            mcp_server: tool.mcp_server(),
            mcp_tool: tool.origin().map(|origin| origin.tool.as_str()),
            annotations: Some(&annotations),
            subagent: self.subagent.as_deref(),
        })
    }

    /// What the model is told of for `model`, in order.
    #[must_use]
    pub fn declarations(&self, model: &str) -> Vec<FunctionDeclaration> {
        self.offered().iter().filter(|tool| tool.offered_to(model)).map(|tool| tool.declaration(model)).collect()
    }

    /// The tool to run for a call, or what to tell the model.
    ///
    /// A tool that was never offered does not exist for the model; where policy is the reason, the answer says so,
    /// lest the model goes looking for another way.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<dyn DeclarativeTool>, ToolFailure> {
        let not_found = |message: String| ToolFailure::new(ErrorType::ToolNotRegistered, message);
        match self.get(name) {
            Some(tool) => match self.offer(tool.as_ref()) {
                Offer::Offered => Ok(tool),
                Offer::Withheld(reason) => Err(not_found(format!("Tool \"{name}\" not found: policy: {reason}"))),
            },
            None => {
                let offered = self.offered();
                let names: Vec<&str> = offered.iter().map(|tool| tool.name()).collect();
                Err(not_found(format!("Tool \"{name}\" not found.{}", suggest::sentence(name, &names))))
            }
        }
    }
}

#[async_trait]
impl Toolset for ToolRegistry {
    async fn tools(&self, _cx: &InvocationContext) -> Vec<Arc<dyn Tool>> {
        self.offered().into_iter().map(|tool| Arc::new(Offered(tool)) as Arc<dyn Tool>).collect()
    }
}

/// A tool as the kernel declares it. It runs through the scheduler or not at all: anything else would pass policy by.
struct Offered(Arc<dyn DeclarativeTool>);

#[async_trait]
impl Tool for Offered {
    fn declaration(&self, model: &str) -> FunctionDeclaration {
        self.0.declaration(model)
    }

    fn offered_to(&self, model: &str) -> bool {
        self.0.offered_to(model)
    }

    async fn run(&self, _args: Value, _cx: &ToolContext) -> Result<Value, ToolError> {
        Err(ToolError(format!("Tool \"{}\" runs through its scheduler only.", self.0.name())))
    }
}
