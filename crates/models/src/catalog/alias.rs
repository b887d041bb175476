//! Aliases: which model and which parameters stand behind a name?
//!
//! An alias names a model (which may be an alias itself), parameters, or both; it may extend another. Besides those
//! for people (`pro`, `flash`, `auto`) there is one per kind of side request. Source: runtime specification §3.6.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{FLASH, FLASH_2_5, FLASH_LITE, PRO, PRO_2_5};

/// How deep aliases may be nested. Source: §3.6.
pub(super) const DEPTH_MAX: usize = 100;

/// One alias.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alias {
    /// The alias whose model and parameters hold where this one has none.
    pub extends: Option<String>,
    /// The model; a name or an alias.
    pub model: Option<String>,
    /// Parameters in the words of the Gemini API, `generateContentConfig` of settings.
    pub config: Map<String, Value>,
}

/// The aliases that hold without any setting.
pub(super) fn built_in() -> BTreeMap<String, Alias> {
    let short = json!({"maxOutputTokens": 2000});
    let thinking = |budget: u32| json!({"thinkingConfig": {"thinkingBudget": budget}});
    let table: [(&str, Option<&str>, Option<&str>, Value); 36] = [
        ("pro", None, Some(PRO), json!({})),
        ("flash", None, Some(FLASH), json!({})),
        ("flash-lite", None, Some(FLASH_LITE), json!({})),
        ("none", None, Some("flash-lite"), json!({})),
        ("auto", None, Some("pro"), json!({})),
        ("auto-gemini-3", None, Some("pro"), json!({})),
        ("auto-gemini-2.5", None, Some(PRO_2_5), json!({})),
        ("base", None, None, json!({"temperature": 0.0, "topP": 1.0})),
        ("chat-base-plain", Some("base"), None, json!({"temperature": 1.0, "topP": 0.95, "topK": 64})),
        ("chat-base", Some("chat-base-plain"), None, json!({"thinkingConfig": {"includeThoughts": true}})),
        ("chat-base-2.5", Some("chat-base"), None, thinking(8192)),
        ("chat-base-3", Some("chat-base"), None, json!({"thinkingConfig": {"thinkingLevel": "HIGH"}})),
        ("gemini-3-flash-base", Some("base"), Some("flash"), json!({})),
        ("gemini-2.5-flash-base", Some("base"), Some(FLASH_2_5), json!({})),
        ("classifier", Some("base"), Some("flash-lite"), {
            json!({"maxOutputTokens": 1024, "thinkingConfig": {"thinkingBudget": 512}})
        }),
        ("prompt-completion", Some("base"), Some("flash-lite"), {
            json!({"temperature": 0.3, "maxOutputTokens": 16000, "thinkingConfig": {"thinkingBudget": 0}})
        }),
        ("fast-ack-helper", Some("base"), Some("flash-lite"), {
            json!({"temperature": 0.2, "maxOutputTokens": 120, "thinkingConfig": {"thinkingBudget": 0}})
        }),
        ("edit-corrector", Some("base"), Some("flash-lite"), thinking(0)),
        ("summarizer-default", Some("base"), Some("flash-lite"), short.clone()),
        ("summarizer-shell", Some("base"), Some("flash-lite"), short),
        ("web-search", Some("gemini-3-flash-base"), None, json!({"tools": [{"googleSearch": {}}]})),
        ("web-fetch", Some("gemini-3-flash-base"), None, json!({"tools": [{"urlContext": {}}]})),
        ("web-fetch-fallback", Some("gemini-3-flash-base"), None, json!({})),
        ("loop-detection", Some("gemini-3-flash-base"), None, json!({})),
        ("loop-detection-double-check", Some("base"), Some("pro"), json!({})),
        ("llm-edit-fixer", Some("gemini-3-flash-base"), None, json!({})),
        ("next-speaker-checker", Some("gemini-3-flash-base"), None, json!({})),
        ("chat-compression-3-pro", None, Some("pro"), json!({})),
        ("chat-compression-3-flash", None, Some("flash"), json!({})),
        ("chat-compression-2.5-pro", None, Some(PRO_2_5), json!({})),
        ("chat-compression-2.5-flash", None, Some(FLASH_2_5), json!({})),
        ("chat-compression-2.5-flash-lite", None, Some("gemini-2.5-flash-lite"), json!({})),
        ("chat-compression-3.1-flash-lite", None, Some("flash-lite"), json!({})),
        ("chat-compression-default", None, Some("pro"), json!({})),
        ("agent-history-provider-summarizer", None, Some("flash"), json!({})),
        ("", None, Some("auto"), json!({})),
    ];
    let entry = |(name, extends, model, config): (&str, Option<&str>, Option<&str>, Value)| {
        let config = match config {
            Value::Object(config) => config,
            _ => Map::new(),
        };
        let alias = Alias { extends: extends.map(str::to_owned), model: model.map(str::to_owned), config };
        (name.to_owned(), alias)
    };
    table.into_iter().map(entry).collect()
}

/// Objects merge, everything else replaces.
pub(super) fn merge(below: &mut Map<String, Value>, above: &Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}
