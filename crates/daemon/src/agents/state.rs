//! What has an agent told of one session that clients may ask for? Its models, modes, options, commands and usage.
//!
//! Everything is the agent's own JSON, as it was in the answer to `session/new` or `session/load`, kept up to date by
//! the updates that change it. It is also read for the one thing that a change needs to know: by which call this agent
//! takes a wish for another model or mode.

use convoke_acp::StartedSession;
use convoke_protocol::{ApprovalMode, SessionId};
use serde_json::{Map, Value, json};

/// Bytes of one part that are kept. A list of commands is some tens of kilobytes; what is far larger is no list for
/// people.
const PART_MAX: usize = 512 * 1024;

/// A session as its agent describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SessionState {
    models: Option<Value>,
    modes: Option<Value>,
    config_options: Option<Value>,
    commands: Option<Value>,
    skills: Option<Value>,
    usage: Option<Value>,
}

/// A call that asks an agent for something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    /// ACP's method.
    pub(crate) method: &'static str,
    /// Its parameters.
    pub(crate) params: Value,
}

impl SessionState {
    /// From the answer that started the session.
    pub(crate) fn of(session: &StartedSession) -> Self {
        let part = |part: &Option<Value>| part.clone().filter(|value| value.to_string().len() <= PART_MAX);
        Self {
            models: part(&session.models),
            modes: part(&session.modes),
            config_options: part(&session.config_options),
            ..Self::default()
        }
    }

    /// Takes an update that says something about the session as a whole; `bytes` is its length on the wire.
    pub(crate) fn heed(&mut self, update: &Value, bytes: usize) {
        let part = |name: &str| update.get(name).filter(|_| bytes <= PART_MAX).cloned();
        match update.get("sessionUpdate").and_then(Value::as_str) {
            Some("available_commands_update") => {
                self.commands = part("availableCommands");
                self.skills = part("_meta").and_then(|meta| meta.get("availableSkills").cloned());
            }
            Some("current_mode_update") => {
                if let Some(mode) = update.get("currentModeId").and_then(Value::as_str) {
                    self.set_current_mode(mode);
                }
            }
            Some("config_option_update") => {
                if let Some(options) = part("configOptions") {
                    self.take_options(options);
                }
            }
            Some("usage_update") => {
                let fields = ["used", "size", "cost"].into_iter();
                let fields = fields.filter_map(|name| Some((name.to_owned(), part(name)?)));
                self.usage = Some(Value::Object(fields.collect()));
            }
            _ => {}
        }
    }

    /// Takes over what a load told beside its answer: commands and usage. Models and modes are in the answer.
    pub(super) fn adopt(&mut self, told: Self) {
        let Self { models: _, modes: _, config_options: _, commands, skills, usage } = told;
        self.commands = commands.or(self.commands.take());
        self.skills = skills.or(self.skills.take());
        self.usage = usage.or(self.usage.take());
    }

    /// `state` of `GET /session/:id/context`, of `load` and of `resume`.
    pub(crate) fn wire(&self) -> Value {
        let parts = [("models", &self.models), ("modes", &self.modes), ("configOptions", &self.config_options)];
        let parts = parts.into_iter().filter_map(|(name, part)| Some((name.to_owned(), part.clone()?)));
        Value::Object(parts.collect::<Map<_, _>>())
    }

    /// The slash commands that the agent offers, and its skills where it tells them; empty until it does.
    pub(crate) fn commands(&self) -> (Value, Value) {
        let list = |part: &Option<Value>| part.clone().filter(Value::is_array).unwrap_or_else(|| json!([]));
        (list(&self.commands), list(&self.skills))
    }

    /// How full the model's window is: ACP's `{used, size, cost?}`.
    pub(crate) fn usage(&self) -> Option<&Value> {
        self.usage.as_ref()
    }

    /// The model in use.
    pub(crate) fn model_id(&self) -> Option<&str> {
        let listed = self.models.as_ref().and_then(|models| models.get("currentModelId")?.as_str());
        listed.or_else(|| self.option("model")?.get("currentValue")?.as_str())
    }

    /// The mode in use, if it is one of ours.
    pub(crate) fn mode(&self) -> Option<ApprovalMode> {
        let listed = self.modes.as_ref().and_then(|modes| modes.get("currentModeId")?.as_str());
        ApprovalMode::parse(listed.or_else(|| self.option("mode")?.get("currentValue")?.as_str())?)
    }

    /// How this agent is asked for another model; `None` if it offers no choice.
    pub(crate) fn ask_for_model(&self, session: &SessionId, model: &str) -> Option<Ask> {
        if self.models.is_some() {
            let params = json!({"sessionId": session, "modelId": model});
            return Some(Ask { method: "session/set_model", params });
        }
        self.ask_for_option("model", session, model)
    }

    /// How this agent is asked for another mode; `None` if it has no such mode.
    pub(crate) fn ask_for_mode(&self, session: &SessionId, mode: ApprovalMode) -> Option<Ask> {
        if let Some(modes) = &self.modes {
            let offered = modes.get("availableModes")?.as_array()?;
            let ids = offered.iter().filter_map(|mode| mode.get("id")?.as_str());
            let id = { ids }.find(|id| ApprovalMode::parse(id) == Some(mode))?;
            let params = json!({"sessionId": session, "modeId": id});
            return Some(Ask { method: "session/set_mode", params });
        }
        let values = values(self.option("mode")?);
        let id = values.into_iter().find(|value| ApprovalMode::parse(value) == Some(mode))?;
        self.ask_for_option("mode", session, id)
    }

    fn ask_for_option(&self, category: &str, session: &SessionId, value: &str) -> Option<Ask> {
        let id = self.option(category)?.get("id")?;
        let params = json!({"sessionId": session, "configId": id, "value": value});
        Some(Ask { method: "session/set_config_option", params })
    }

    /// The agent took a wish for a model, and answered this.
    pub(crate) fn model_taken(&mut self, model: &str, answer: &Value) {
        if let Some(Value::Object(models)) = &mut self.models {
            models.insert("currentModelId".to_owned(), model.into());
        }
        self.option_taken("model", model, answer);
    }

    /// The agent took a wish for a mode, and answered this.
    pub(crate) fn mode_taken(&mut self, ask: &Ask, answer: &Value) {
        let value = ["modeId", "value"].into_iter().find_map(|name| ask.params.get(name)?.as_str());
        if let Some(value) = value {
            self.set_current_mode(value);
            self.option_taken("mode", value, answer);
        }
    }

    fn set_current_mode(&mut self, mode: &str) {
        if let Some(Value::Object(modes)) = &mut self.modes {
            modes.insert("currentModeId".to_owned(), mode.into());
        }
    }

    fn option_taken(&mut self, category: &str, value: &str, answer: &Value) {
        if let Some(options) = answer.get("configOptions").filter(|options| options.to_string().len() <= PART_MAX) {
            return self.take_options(options.clone());
        }
        let options = self.config_options.as_mut().and_then(Value::as_array_mut);
        let option = options.into_iter().flatten().find(|option| is_about(option, category));
        if let Some(Value::Object(option)) = option {
            option.insert("currentValue".to_owned(), value.into());
        }
    }

    /// An agent that has both says the same thing twice; the options are what it changes from now on.
    fn take_options(&mut self, options: Value) {
        self.config_options = Some(options);
        let current = |category: &str| Some(self.option(category)?.get("currentValue")?.as_str()?.to_owned());
        let (model, mode) = (current("model"), current("mode"));
        if let (Some(Value::Object(models)), Some(model)) = (&mut self.models, model) {
            models.insert("currentModelId".to_owned(), model.into());
        }
        if let Some(mode) = mode {
            self.set_current_mode(&mode);
        }
    }

    fn option(&self, category: &str) -> Option<&Value> {
        self.config_options.as_ref()?.as_array()?.iter().find(|option| is_about(option, category))
    }
}

fn is_about(option: &Value, category: &str) -> bool {
    option.get("category").and_then(Value::as_str) == Some(category)
}

/// The values of a select option; they may be in groups.
fn values(option: &Value) -> Vec<&str> {
    let entries = option.get("options").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let flat = entries.iter().flat_map(|entry| match entry.get("options").and_then(Value::as_array) {
        Some(group) => group.as_slice(),
        None => std::slice::from_ref(entry),
    });
    flat.filter_map(|entry| entry.get("value")?.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(models: Value, modes: Value, config_options: Value) -> SessionState {
        let part = |value: Value| Some(value).filter(|value| !value.is_null());
        SessionState {
            models: part(models),
            modes: part(modes),
            config_options: part(config_options),
            ..SessionState::default()
        }
    }

    fn options() -> Value {
        json!([
            {"id": "m", "category": "model", "type": "select", "currentValue": "small"},
            {"id": "how", "category": "mode", "type": "select", "currentValue": "default", "options": [
                {"group": "g", "name": "G", "options": [{"value": "default"}, {"value": "autoEdit"}]},
            ]},
        ])
    }

    #[test]
    fn a_wish_goes_the_way_that_the_agent_offers() {
        let session = SessionId::from("s");
        let both =
            state(json!({"currentModelId": "small"}), json!({"availableModes": [{"id": "auto_edit"}]}), options());
        let ask = both.ask_for_model(&session, "large").unwrap();
        assert_eq!((ask.method, &ask.params), ("session/set_model", &json!({"sessionId": "s", "modelId": "large"})));
        let ask = both.ask_for_mode(&session, ApprovalMode::AutoEdit).unwrap();
        assert_eq!((ask.method, &ask.params["modeId"]), ("session/set_mode", &json!("auto_edit")));
        assert_eq!(both.ask_for_mode(&session, ApprovalMode::Yolo), None);
        let by_option = state(Value::Null, Value::Null, options());
        let ask = by_option.ask_for_model(&session, "large").unwrap();
        assert_eq!(ask.method, "session/set_config_option");
        assert_eq!(ask.params, json!({"sessionId": "s", "configId": "m", "value": "large"}));
        let ask = by_option.ask_for_mode(&session, ApprovalMode::AutoEdit).unwrap();
        assert_eq!(ask.params, json!({"sessionId": "s", "configId": "how", "value": "autoEdit"}));
        assert_eq!(state(Value::Null, Value::Null, Value::Null).ask_for_model(&session, "large"), None);
    }

    #[test]
    fn what_is_current_follows_the_agent_s_words() {
        let mut state = state(json!({"currentModelId": "small"}), json!({"currentModeId": "default"}), options());
        state.heed(&json!({"sessionUpdate": "current_mode_update", "currentModeId": "yolo"}), 80);
        assert_eq!(state.mode(), Some(ApprovalMode::Yolo));
        let mut changed = options();
        changed[0]["currentValue"] = json!("large");
        state.heed(&json!({"sessionUpdate": "config_option_update", "configOptions": changed}), 300);
        assert_eq!((state.model_id(), state.mode()), (Some("large"), Some(ApprovalMode::Default)));
        assert_eq!(state.wire()["models"]["currentModelId"], "large");
        state.model_taken("small", &json!({}));
        assert_eq!(state.wire()["configOptions"][0]["currentValue"], "small");
        assert_eq!(state.model_id(), Some("small"));
    }

    #[test]
    fn usage_and_commands_are_kept_within_bounds() {
        let mut state = SessionState::default();
        assert_eq!((state.wire(), state.commands(), state.usage()), (json!({}), (json!([]), json!([])), None));
        state.heed(&json!({"sessionUpdate": "usage_update", "used": 10, "size": 100, "_meta": {"x": 1}}), 80);
        assert_eq!(state.usage(), Some(&json!({"used": 10, "size": 100})));
        let update = json!({
            "sessionUpdate": "available_commands_update", "availableCommands": [{"name": "init"}],
            "_meta": {"availableSkills": ["review"]},
        });
        state.heed(&update, 100);
        assert_eq!(state.commands(), (json!([{"name": "init"}]), json!(["review"])));
        state.heed(&update, PART_MAX + 1);
        assert_eq!(state.commands(), (json!([]), json!([])));
    }
}
