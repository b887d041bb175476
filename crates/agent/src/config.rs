//! What a person may set in a running session: its mode, its model, how much that thinks.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use convoke_adk::{FlowError, InvocationContext, LlmRequest, RequestProcessor, ThinkingLevel};
use convoke_protocol::{ApprovalMode, ConfigCategory, ConfigChoice, ConfigOption, SessionControl, SetConfigError};

use crate::models::SessionModel;

const MODE: &str = "mode";
const MODEL: &str = "model";
const THINKING: &str = "thought_level";
/// The value that leaves it to the model.
const AUTO: &str = "auto";

/// How much the session's model is asked to think. Copies share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thinking(Arc<Mutex<Option<ThinkingLevel>>>);

impl Thinking {
    fn get(&self) -> Option<ThinkingLevel> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, level: Option<ThinkingLevel>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = level;
    }
}

/// Puts the level into each request of the session, before a model is chosen for it.
pub(crate) struct ThinkingProcessor(pub(crate) Thinking);

#[async_trait]
impl RequestProcessor for ThinkingProcessor {
    fn name(&self) -> &'static str {
        "thinking"
    }

    async fn run(&self, _: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        request.config.thinking = self.0.get().or(request.config.thinking);
        Ok(())
    }
}

/// The settings of a session, with what they are now.
pub(crate) fn options(control: &dyn SessionControl, model: &SessionModel) -> Vec<ConfigOption> {
    let modes = control.approval_modes().into_iter().map(|mode| ConfigChoice::new(mode.acp(), mode.title()));
    let mut options = vec![ConfigOption {
        id: MODE,
        name: "Approval mode",
        description: "What may be done without asking",
        category: ConfigCategory::Mode,
        current: control.approval_mode().acp().to_owned(),
        choices: modes.collect(),
    }];
    let Some(llm) = &model.steered else { return options };
    let current = llm.configured();
    let mut choices: Vec<_> = model.offered.iter().map(|name| ConfigChoice::new(name, name)).collect();
    if !choices.iter().any(|choice| choice.value == current) {
        choices.insert(0, ConfigChoice::new(&current, &current));
    }
    options.push(ConfigOption {
        id: MODEL,
        name: "Model",
        description: "Which model answers; an automatic one is chosen for each prompt",
        category: ConfigCategory::Model,
        current,
        choices,
    });
    let levels = ThinkingLevel::ALL.into_iter().map(|level| ConfigChoice::new(level.name(), title(level)));
    options.push(ConfigOption {
        id: THINKING,
        name: "Thinking",
        description: "How much the model thinks before it answers",
        category: ConfigCategory::ThoughtLevel,
        current: model.thinking.get().map_or(AUTO, ThinkingLevel::name).to_owned(),
        choices: std::iter::once(ConfigChoice::new(AUTO, "Automatic")).chain(levels).collect(),
    });
    options
}

fn title(level: ThinkingLevel) -> &'static str {
    match level {
        ThinkingLevel::Off => "Off",
        ThinkingLevel::Low => "Low",
        ThinkingLevel::Medium => "Medium",
        ThinkingLevel::High => "High",
    }
}

/// Sets one of [`options`].
pub(crate) fn set(
    control: &dyn SessionControl,
    model: &SessionModel,
    id: &str,
    value: &str,
) -> Result<(), SetConfigError> {
    let unknown = || SetConfigError::UnknownValue { option: id.to_owned(), value: value.to_owned() };
    let options = options(control, model);
    let option =
        options.iter().find(|option| option.id == id).ok_or_else(|| SetConfigError::UnknownOption(id.to_owned()))?;
    if !option.choices.iter().any(|choice| choice.value == value) {
        return Err(unknown());
    }
    match (option.category, &model.steered) {
        (ConfigCategory::Mode, _) => control.set_approval_mode(ApprovalMode::parse(value).ok_or_else(unknown)?)?,
        (ConfigCategory::Model, Some(llm)) => llm.configure(value),
        (ConfigCategory::ThoughtLevel, _) => model.thinking.set(ThinkingLevel::parse(value)),
        (ConfigCategory::Model, None) => return Err(unknown()),
    }
    Ok(())
}
