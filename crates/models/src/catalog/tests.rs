use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::{GeminiOptions, OpenAiOptions, Provider};

fn gemini() -> Registry {
    Registry::new("gemini", Provider::Gemini(GeminiOptions::default()))
        .with("ollama", Provider::OpenAi(OpenAiOptions::new("http://localhost:11434")))
}

fn with(settings: &Value) -> Catalog {
    Catalog::new(&gemini()).with_settings(settings).unwrap()
}

fn resolved(catalog: &Catalog, name: &str) -> String {
    catalog.resolve(name).to_string()
}

#[test]
fn names() {
    let catalog = Catalog::new(&gemini());
    for (name, model) in [
        ("auto", PRO),
        ("", PRO),
        ("auto-gemini-3", PRO),
        ("auto-gemini-2.5", PRO_2_5),
        ("pro", PRO),
        (" flash ", FLASH),
        ("flash-lite", FLASH_LITE),
        ("none", FLASH_LITE),
        ("classifier", FLASH_LITE),
        ("models/gemini-2.5-pro", PRO_2_5),
        ("gemini/gemini-2.5-pro", PRO_2_5),
        ("ollama/qwen3-coder:30b", "ollama/qwen3-coder:30b"),
        ("someone/else", "someone/else"),
    ] {
        assert_eq!(resolved(&catalog, name), model, "{name}");
    }
    let local = catalog.resolve("ollama/hf.co/x");
    assert_eq!((local.provider(), local.id()), (Some("ollama"), "hf.co/x"));
    let foreign = catalog.resolve("someone/else");
    assert_eq!((foreign.provider(), foreign.id()), (None, "someone/else"));
}

#[test]
fn other_servers_have_their_own_names() {
    let openai = Registry::new("openai", Provider::OpenAi(OpenAiOptions::new("http://localhost")));
    let catalog = Catalog::new(&openai);
    assert_eq!((resolved(&catalog, "pro"), resolved(&catalog, "auto")), ("pro".into(), "auto".into()));
    assert!(!catalog.is_auto("auto"));
    let catalog = catalog.with_settings(&json!({"customAliases": {"auto": "large", "flash": "small"}})).unwrap();
    assert!(catalog.is_auto("auto"));
    assert_eq!(catalog.of_tier("auto", Tier::Pro).as_str(), "large");
    assert_eq!(catalog.of_tier("auto", Tier::Flash).as_str(), "small");
}

#[test]
fn what_is_known_of_a_model() {
    let catalog = with(&json!({"modelDefinitions": {"ollama/q": {"tokenLimit": 32000, "tier": "flash"}}}));
    let known = |name: &str| {
        let model = catalog.resolve(name);
        (catalog.token_limit(&model), catalog.tier(&model))
    };
    assert_eq!(known("auto"), (1_048_576, Some(Tier::Pro)));
    assert_eq!(known("gemini-3.1-flash-lite"), (1_048_576, Some(Tier::FlashLite)));
    assert_eq!(known("gemma-4-31b-it"), (256_000, None));
    assert_eq!(known("ollama/q"), (32_000, Some(Tier::Flash)));
    assert_eq!(known("ollama/r"), (128_000, None));
}

#[test]
fn families() {
    assert!(is_gemini_3("gemini-3.1-pro-preview") && is_gemini_3("gemini-3-pro") && is_gemini_3("gemini-3"));
    assert!(!is_gemini_3("gemini-30") && !is_gemini_3("gemini-2.5-pro"));
    assert!(has_thoughts("gemini-2.5-flash") && !has_thoughts("gemini-2.0-flash") && !has_thoughts("gemma-4"));
}

fn chat(catalog: &Catalog, name: &str, request: &GenerateConfig) -> GenerateConfig {
    catalog.config(&ConfigKey::chat(name), &catalog.resolve(name), request)
}

#[test]
fn a_conversation_has_the_defaults_of_its_family() {
    let catalog = Catalog::new(&gemini());
    let cold = GenerateConfig { temperature: Some(0.0), ..GenerateConfig::default() };
    let older = chat(&catalog, "gemini-2.5-flash", &cold);
    assert_eq!((older.temperature, older.top_p, older.top_k), (Some(0.0), Some(0.95), Some(64)));
    assert_eq!(older.include_thoughts, Some(true));
    assert_eq!(older.extra.get("thinkingConfig"), Some(&json!({"thinkingBudget": 8192})));
    let newer = chat(&catalog, "auto", &GenerateConfig::default());
    assert_eq!((newer.temperature, newer.top_p), (Some(1.0), Some(0.95)));
    assert_eq!(newer.extra.get("thinkingConfig"), Some(&json!({"thinkingLevel": "HIGH"})));
    let silent = GenerateConfig { include_thoughts: Some(false), ..GenerateConfig::default() };
    assert!(chat(&catalog, "flash", &silent).extra.is_empty());
    assert_eq!(chat(&catalog, "ollama/llama", &cold), cold);
}

#[test]
fn an_alias_keeps_its_parameters_when_another_model_stands_in() {
    let catalog = with(&json!({"customAliases": {
        "gemini-3-flash-preview": {"modelConfig": {"generateContentConfig": {"topK": 7}}},
    }}));
    let side = |name: &str, model: &str| {
        catalog.config(&ConfigKey::side(name), &catalog.resolve(model), &GenerateConfig::default())
    };
    let classifier = side("classifier", "flash-lite");
    assert_eq!((classifier.temperature, classifier.max_output_tokens), (Some(0.0), Some(1024)));
    assert_eq!(classifier.extra, *json!({"thinkingConfig": {"thinkingBudget": 512}}).as_object().unwrap());
    assert_eq!(side("classifier", "ollama/q"), classifier);
    assert_eq!(side("classifier", FLASH).top_k, Some(7), "what is set for the model itself holds as well");
    assert_eq!(side(FLASH, FLASH).top_k, Some(7));
    assert_eq!(side(FLASH, PRO).top_k, None, "a model's own parameters are not its stand-in's");
}

#[test]
fn the_more_special_override_wins() {
    let one = |rule: Value, temperature: f64| json!({"match": rule, "modelConfig": {"generateContentConfig": {"temperature": temperature}}});
    let catalog = with(&json!({"customOverrides": [
        one(json!({"model": FLASH, "overrideScope": "helper"}), 0.4),
        one(json!({"model": FLASH}), 0.3),
        one(json!({"model": "chat-base"}), 0.1),
        one(json!({"isRetry": true, "model": FLASH}), 0.5),
    ]}));
    let asked =
        |key: ConfigKey<'_>| catalog.config(&key, &catalog.resolve(key.name), &GenerateConfig::default()).temperature;
    assert_eq!(asked(ConfigKey::chat("pro")), Some(0.1));
    assert_eq!(asked(ConfigKey::chat("flash")), Some(0.3));
    assert_eq!(asked(ConfigKey { scope: Some("helper"), ..ConfigKey::chat("flash") }), Some(0.4));
    assert_eq!(asked(ConfigKey { is_retry: true, ..ConfigKey::chat("flash") }), Some(0.5));
}

fn members(chain: &Chain) -> Vec<&str> {
    chain.policies().iter().map(|policy| policy.model.as_str()).collect()
}

#[test]
fn chains() {
    let catalog = Catalog::new(&gemini());
    let chain = |configured: &str| catalog.chain(configured, &catalog.resolve(configured));
    assert_eq!(members(&chain("auto")), [PRO, FLASH]);
    assert_eq!(chain("auto").policies()[0].max_attempts, Some(3));
    assert_eq!(members(&chain("flash")), [PRO, FLASH]);
    assert_eq!(chain("flash").policies()[0].max_attempts, None);
    assert_eq!(members(&chain("auto-gemini-2.5")), [PRO_2_5, FLASH_2_5]);
    assert_eq!(members(&chain("flash-lite")), [FLASH_LITE, FLASH, PRO_2_5]);
    assert_eq!(members(&chain("ollama/q")), ["ollama/q"]);
    assert_eq!(members(&chain("gemini-1.0")), ["gemini-1.0"]);
}

#[test]
fn a_written_chain_goes_to_the_users_own_machine() {
    use crate::chain::{Action, FailureKind, Transition};
    let catalog = with(&json!({"modelChains": {"mine": ["flash", {
        "model": "ollama/q",
        "actions": {"terminal": "silent", "capacity": "prompt", "unknown": "prompt-or-silent"},
        "stateTransitions": {"transient": "sticky_retry"},
        "maxAttempts": 2,
        "isLastResort": true,
    }]}}));
    for configured in ["flash", "ollama/q"] {
        let chain = catalog.chain(configured, &catalog.resolve(configured));
        assert_eq!(members(&chain), [FLASH, "ollama/q"]);
        let policy = chain.policy(&catalog.resolve("ollama/q")).unwrap();
        assert_eq!(policy.actions[FailureKind::Quota], Action::Silent);
        assert_eq!(policy.actions[FailureKind::Capacity], Action::Ask);
        assert_eq!(policy.actions[FailureKind::Unreachable], Action::AskOrGoOn);
        assert_eq!(policy.transitions[FailureKind::Transient], Transition::StickyRetry);
        assert_eq!(policy.max_attempts, Some(2));
    }
    assert_eq!(members(&catalog.chain("pro", &catalog.resolve("pro"))), [PRO, FLASH]);
}

#[test]
fn what_can_not_be_meant_is_told_with_its_place() {
    let error = |settings: Value| Catalog::new(&gemini()).with_settings(&settings).unwrap_err().to_string();
    for (settings, told) in [
        (json!([]), "read modelConfigs.*: modelConfigs must be an object"),
        (
            json!({"customAliases": {"a": 1}}),
            "read modelConfigs.customAliases.a: it must be a model's name or an object",
        ),
        (
            json!({"customAliases": {"a": "b", "b": "a"}}),
            "resolve the alias 'a' of modelConfigs: it leads back to itself",
        ),
        (
            json!({"customAliases": {"a": {"extends": "b"}, "b": {"extends": "a"}}}),
            "resolve the alias 'a' of modelConfigs: it leads back to itself",
        ),
        (json!({"modelChains": {"c": []}}), "read modelConfigs.modelChains.c: a chain needs at least one model"),
        (json!({"modelChains": {"c": [{}]}}), "read modelConfigs.modelChains.c[0]: it has no model"),
        (
            json!({"modelChains": {"c": [{"model": "pro", "actions": {"transient": "yes"}}]}}),
            "read modelConfigs.modelChains.c[0].actions.transient: choose silent, prompt or prompt-or-silent",
        ),
        (
            json!({"modelChains": {"c": [{"model": "pro", "maxAttempts": 0}]}}),
            "read modelConfigs.modelChains.c[0].maxAttempts: it must be a number from 1 to 10",
        ),
        (json!({"customOverrides": [{}]}), "read modelConfigs.customOverrides[0]: it has no match"),
    ] {
        assert_eq!(error(settings), told);
    }
}
