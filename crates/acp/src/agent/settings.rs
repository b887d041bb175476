//! A session's settings in ACP's words: modes, `configOptions`, and the commands that a prompt may begin with.

use convoke_protocol::{CommandInfo, ConfigCategory, ConfigOption, SessionControl, SessionId};
use serde_json::{Value, json};

/// `SessionModeState`.
fn modes(control: &dyn SessionControl) -> Value {
    let modes: Vec<_> =
        control.approval_modes().into_iter().map(|mode| json!({"id": mode.acp(), "name": mode.title()})).collect();
    json!({"availableModes": modes, "currentModeId": control.approval_mode().acp()})
}

/// A list of `SessionConfigOption`, all of them selects.
pub(super) fn options(options: &[ConfigOption]) -> Value {
    let option = |option: &ConfigOption| {
        let category = match option.category {
            ConfigCategory::Mode => "mode",
            ConfigCategory::Model => "model",
            ConfigCategory::ThoughtLevel => "thought_level",
        };
        let choices: Vec<_> =
            option.choices.iter().map(|choice| json!({"value": choice.value, "name": choice.name})).collect();
        json!({
            "id": option.id,
            "name": option.name,
            "description": option.description,
            "category": category,
            "type": "select",
            "currentValue": option.current,
            "options": choices,
        })
    };
    options.iter().map(option).collect()
}

/// A list of `AvailableCommand`.
pub(super) fn commands(commands: &[CommandInfo]) -> Value {
    let command = |command: &CommandInfo| {
        let mut told = json!({"name": command.name, "description": command.description});
        if let (Some(hint), Value::Object(told)) = (&command.hint, &mut told) {
            told.insert("input".to_owned(), json!({"hint": hint}));
        }
        told
    };
    commands.iter().map(command).collect()
}

/// The answer to `session/new`; without its id, to `session/load` and `session/resume`.
pub(super) fn describe(id: Option<&SessionId>, control: &dyn SessionControl, damaged: usize) -> Value {
    let mut described = json!({
        "modes": modes(control),
        "configOptions": options(&control.config_options()),
        "_meta": {crate::MODEL_META: control.model()},
    });
    if damaged > 0 {
        described["_meta"][crate::DAMAGED_META] = json!(damaged);
    }
    if let (Some(id), Value::Object(described)) = (id, &mut described) {
        described.insert("sessionId".to_owned(), json!(id));
    }
    described
}
