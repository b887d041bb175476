//! Models by name: which id does an alias mean, how much fits in, how is it asked by default?
//!
//! `auto`, `auto-gemini-3` and `auto-gemini-2.5` mean a flash model here, not the pro model that upstream starts with:
//! without a router there is nothing that could step down from pro, and flash is there for every key, while pro has no
//! free quota. Who wants pro says `pro`. Source: runtime specification §3.5, §3.6.

use convoke_adk::GenerateConfig;
use serde_json::{Value, json};

/// The pro model.
pub const PRO: &str = "gemini-3-pro-preview";
/// The flash model, which is the default.
pub const FLASH: &str = "gemini-3-flash-preview";
/// The smallest model.
pub const FLASH_LITE: &str = "gemini-3.1-flash-lite";
/// The model for vectors.
pub const EMBEDDING: &str = "gemini-embedding-001";

/// What fits into a model that is not known: the least that current coding models have.
const UNKNOWN_TOKEN_LIMIT: u64 = 128_000;

/// The id behind an alias; other names are ids and stay what they are. A `models/` prefix is dropped.
#[must_use]
pub fn resolve_model(name: &str) -> &str {
    match name.trim() {
        "" | "auto" | "auto-gemini-3" | "flash" => FLASH,
        "pro" => PRO,
        "auto-gemini-2.5" => "gemini-2.5-flash",
        "flash-lite" | "none" => FLASH_LITE,
        id => id.strip_prefix("models/").unwrap_or(id),
    }
}

/// How many tokens a request to `model` may have.
#[must_use]
pub fn token_limit(model: &str) -> u64 {
    match resolve_model(model) {
        id if id.starts_with("gemini-") => 1_048_576,
        id if id.starts_with("gemma-4") => 256_000,
        _ => UNKNOWN_TOKEN_LIMIT,
    }
}

/// Whether the id is of the Gemini 3 family, whose function calls must carry a thought signature.
#[must_use]
pub fn is_gemini_3(model: &str) -> bool {
    is_family(model, "gemini-3")
}

/// Whether the model can be asked for its thoughts.
#[must_use]
pub fn has_thoughts(model: &str) -> bool {
    is_gemini_3(model) || model.starts_with("gemini-2.5")
}

fn is_family(model: &str, family: &str) -> bool {
    model.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

/// Fills what `config` leaves open with what a conversation with `model` takes by default.
///
/// Gemini models only: others keep their server's defaults.
#[must_use]
pub fn with_chat_defaults(model: &str, mut config: GenerateConfig) -> GenerateConfig {
    if !model.starts_with("gemini-") {
        return config;
    }
    config.temperature.get_or_insert(1.0);
    config.top_p.get_or_insert(0.95);
    config.top_k.get_or_insert(64);
    let thinks = *config.include_thoughts.get_or_insert_with(|| has_thoughts(model));
    if thinks && !config.extra.contains_key("thinkingConfig") {
        let thinking: Option<Value> = match model {
            id if is_gemini_3(id) => Some(json!({"thinkingLevel": "HIGH"})),
            id if id.starts_with("gemini-2.5") => Some(json!({"thinkingBudget": 8192})),
            _ => None,
        };
        if let Some(thinking) = thinking {
            config.extra.insert("thinkingConfig".to_owned(), thinking);
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn aliases() {
        for (name, id) in [
            ("auto", FLASH),
            ("auto-gemini-3", FLASH),
            ("auto-gemini-2.5", "gemini-2.5-flash"),
            ("pro", PRO),
            ("flash", FLASH),
            ("flash-lite", FLASH_LITE),
            ("models/gemini-2.5-pro", "gemini-2.5-pro"),
            ("qwen3-coder:30b", "qwen3-coder:30b"),
        ] {
            assert_eq!(resolve_model(name), id);
        }
    }

    #[test]
    fn limits() {
        assert_eq!(token_limit("auto"), 1_048_576);
        assert_eq!(token_limit("gemma-4-31b-it"), 256_000);
        assert_eq!(token_limit("llama"), 128_000);
    }

    #[test]
    fn families() {
        assert!(is_gemini_3("gemini-3.1-pro-preview") && is_gemini_3("gemini-3-pro") && is_gemini_3("gemini-3"));
        assert!(!is_gemini_3("gemini-30") && !is_gemini_3("gemini-2.5-pro"));
        assert!(has_thoughts("gemini-2.5-flash") && !has_thoughts("gemini-2.0-flash") && !has_thoughts("gemma-4"));
    }

    #[test]
    fn chat_defaults_fill_what_is_open() {
        let config = GenerateConfig { temperature: Some(0.0), ..GenerateConfig::default() };
        let filled = with_chat_defaults("gemini-2.5-flash", config.clone());
        assert_eq!((filled.temperature, filled.top_p, filled.top_k), (Some(0.0), Some(0.95), Some(64)));
        assert_eq!(filled.include_thoughts, Some(true));
        assert_eq!(filled.extra.get("thinkingConfig"), Some(&json!({"thinkingBudget": 8192})));
        let silent = GenerateConfig { include_thoughts: Some(false), ..GenerateConfig::default() };
        assert!(with_chat_defaults("gemini-3-flash-preview", silent).extra.is_empty());
        assert_eq!(with_chat_defaults("llama", config.clone()), config);
    }
}
