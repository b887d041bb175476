use std::fs;

use pretty_assertions::assert_eq;

use super::*;
use crate::environment::Environment;
use crate::home::Home;
use crate::settings::Sources;
use crate::trust::Trust;

fn startup(settings: &str, variables: &[(&str, &str)]) -> (tempfile::TempDir, Startup) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(".convoke");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("settings.json"), settings).unwrap();
    let own = [("HOME", dir.path().to_str().unwrap())];
    let variables: Vec<_> = own.into_iter().chain(variables.iter().copied()).collect();
    let environment = Environment::of(&variables);
    let home = Home::find(&environment);
    let workspace = dir.path().join("work");
    let sources = Sources { home: home.as_ref(), workspace: &workspace, trusted: true, environment: &environment };
    let settings = Settings::load(&sources).unwrap();
    let startup = Startup { environment, home, workspace, settings, trust: Trust::Trusted, warnings: Vec::new() };
    (dir, startup)
}

/// `provider model`, or the exit code and the message.
fn chosen(model: Option<&str>, settings: &str, variables: &[(&str, &str)]) -> Result<String, (u8, String)> {
    let (_dir, startup) = startup(settings, variables);
    let args = AgentArgs { model: model.map(str::to_owned), ..AgentArgs::default() };
    match choose(&args, &startup) {
        Ok(choice) => Ok(format!("{} {}", choice.registry.default_name(), choice.model)),
        Err(none) => Err((none.exit.code(), none.to_string())),
    }
}

const GEMINI: (&str, &str) = ("GEMINI_API_KEY", "g");
const OPENAI: (&str, &str) = ("OPENAI_API_KEY", "o");
const CLAUDE: (&str, &str) = ("ANTHROPIC_API_KEY", "a");
const LOCAL: &str =
    r#"{"providers": {"local": {"type": "openai", "baseUrl": "http://localhost:1/v1", "models": ["qwen3", "x"]}}}"#;

#[test]
fn variables_alone() {
    let model = |variable| (variable, "m");
    for (variables, expected) in [
        (&[GEMINI][..], "gemini auto"),
        (&[GEMINI, OPENAI, CLAUDE], "gemini auto"),
        (&[GEMINI, model("GEMINI_MODEL")], "gemini m"),
        (&[OPENAI, model("OPENAI_MODEL")], "openai m"),
        (&[GEMINI, OPENAI, model("OPENAI_MODEL")], "openai m"),
        (&[GEMINI, CLAUDE, model("ANTHROPIC_MODEL")], "anthropic m"),
        (&[GEMINI, OPENAI, model("OPENAI_MODEL"), ("GEMINI_MODEL", "g")], "gemini g"),
        (&[("OPENAI_BASE_URL", "http://localhost:1/v1"), model("OPENAI_MODEL")], "openai m"),
        (&[("ANTHROPIC_AUTH_TOKEN", "t"), model("ANTHROPIC_MODEL")], "anthropic m"),
        (&[GEMINI, ("GOOGLE_GENAI_USE_VERTEXAI", "true"), ("GOOGLE_API_KEY", "k")], "vertex auto"),
        (&[GEMINI, ("GOOGLE_API_KEY", "k")], "gemini auto"),
    ] {
        assert_eq!(chosen(None, "{}", variables).as_deref(), Ok(expected), "{variables:?}");
    }
}

#[test]
fn a_name_chooses_its_provider() {
    for (model, expected) in [
        ("local/qwen3", "local qwen3"),
        ("local/some/other", "local some/other"),
        ("x", "local x"),
        ("openai/gpt-6", "openai gpt-6"),
        ("claude-opus-5", "anthropic claude-opus-5"),
        ("gpt-6", "openai gpt-6"),
        ("pro", "gemini pro"),
        ("nobody/knows", "gemini nobody/knows"),
    ] {
        assert_eq!(chosen(Some(model), LOCAL, &[GEMINI, OPENAI, CLAUDE]).as_deref(), Ok(expected), "{model}");
    }
}

#[test]
fn settings() {
    let with = |more: &str| format!("{}, {more}}}", LOCAL.strip_suffix('}').unwrap());
    assert_eq!(chosen(None, LOCAL, &[]).as_deref(), Ok("local qwen3"), "the first on its list");
    assert_eq!(chosen(None, LOCAL, &[GEMINI]).as_deref(), Ok("gemini auto"));
    let named = with(r#""model": {"name": "local/x"}"#);
    assert_eq!(chosen(None, &named, &[GEMINI]).as_deref(), Ok("local x"));
    assert_eq!(chosen(None, &named, &[GEMINI, ("GEMINI_MODEL", "m")]).as_deref(), Ok("gemini m"));
    assert_eq!(chosen(Some("pro"), &named, &[GEMINI]).as_deref(), Ok("gemini pro"));
    let selected = with(r#""security": {"auth": {"selectedType": "local"}}"#);
    assert_eq!(chosen(None, &selected, &[GEMINI]).as_deref(), Ok("local qwen3"));
    assert_eq!(chosen(Some("claude-x"), &selected, &[CLAUDE]).as_deref(), Ok("local claude-x"), "behind a gateway");
    let foreign = r#"{"security": {"auth": {"selectedType": "oauth-personal"}}}"#;
    assert_eq!(chosen(None, foreign, &[GEMINI]).as_deref(), Ok("gemini auto"));
}

#[test]
fn what_is_missing_is_named() {
    let (code, message) = chosen(None, "{}", &[]).unwrap_err();
    assert_eq!(code, 41);
    assert!(message.contains("GEMINI_API_KEY") && message.contains("convoke models"), "{message}");
    assert_eq!(
        chosen(Some("anthropic/claude-x"), "{}", &[GEMINI]),
        Err((41, "use the provider anthropic: neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set".to_owned()))
    );
    let (code, message) = chosen(Some("gemini/pro"), "{}", &[CLAUDE]).unwrap_err();
    assert_eq!(code, 41);
    assert!(
        message.contains("GEMINI_API_KEY") && message.ends_with("API key is missing or not configured."),
        "{message}"
    );
    let keyed = r#"{"providers": {"corp": {"type": "openai", "apiKey": "$CORP_KEY"}}}"#;
    assert_eq!(
        chosen(Some("corp/m"), keyed, &[]),
        Err((41, "use the provider corp: the variable CORP_KEY is not set".to_owned()))
    );
    assert_eq!(chosen(Some("corp/m"), keyed, &[("CORP_KEY", "k")]).as_deref(), Ok("corp m"));
    let (code, message) = chosen(None, "{}", &[OPENAI]).unwrap_err();
    assert_eq!(code, 41);
    assert!(message.starts_with("name the model of the provider openai with -m, OPENAI_MODEL or"), "{message}");
    let (code, message) = chosen(None, "{}", &[("GOOGLE_GENAI_USE_VERTEXAI", "true")]).unwrap_err();
    assert_eq!(code, 41);
    for looked_for in ["GOOGLE_API_KEY", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", ADC] {
        assert!(message.contains(looked_for), "{message}");
    }
}

const ADC: &str = ".config/gcloud/application_default_credentials.json";

#[test]
fn the_credentials_of_gcloud_are_found() {
    let (dir, startup) =
        startup("{}", &[("GOOGLE_GENAI_USE_VERTEXAI", "1"), ("GOOGLE_CLOUD_LOCATION", "europe-west4")]);
    let file = dir.path().join(ADC);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let adc = r#"{"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r",
        "quota_project_id": "billed"}"#;
    fs::write(&file, adc).unwrap();
    let choice = choose(&AgentArgs::default(), &startup).unwrap();
    let printed = format!("{:?}", choice.registry.answering());
    assert!(printed.contains(r#"project: "billed", location: "europe-west4""#), "{printed}");
    fs::write(&file, "{}").unwrap();
    let error = choose(&AgentArgs::default(), &startup).err().unwrap();
    assert!(error.to_string().ends_with("(read Google credentials: the field type is missing)"), "{error}");
    assert_eq!(error.exit, ExitCode::Auth);
}

#[test]
fn broken_entries_are_named_used_or_not() {
    for (entry, expected) in [
        (r#"{"type": "opnai"}"#, r#".type: "opnai" is unknown: choose gemini, vertex, openai, anthropic or gateway"#),
        ("{}", ".type: it is missing: choose gemini, vertex, openai, anthropic or gateway"),
        (r#"{"type": "openai", "basUrl": "x"}"#, ": unknown field `basUrl`"),
        (r#"{"type": "openai", "project": "x"}"#, ".project: it means nothing for openai"),
        (r#"{"type": "gateway", "api": "openai"}"#, ".baseUrl: a gateway needs one"),
        (r#"{"type": "gateway"}"#, ".api: a gateway needs one: choose gemini, vertex, openai or anthropic"),
        (r#"{"type": "openai", "baseUrl": "ftp://x"}"#, ".baseUrl: read the base URL: scheme 'ftp' is neither"),
        (r#"{"type": "openai", "apiKey": 7}"#, ".apiKey: it must be"),
        (r#"{"type": "gemini", "auth": "basic"}"#, r#".auth: "basic" is unknown: choose header, bearer or none"#),
        (
            r#"{"type": "gateway", "api": "openai", "baseUrl": "http://x", "auth": "header"}"#,
            ".auth: this protocol has",
        ),
        ("3", ": it must be an object"),
    ] {
        let settings = format!(r#"{{"providers": {{"one": {entry}}}}}"#);
        let (code, message) = chosen(None, &settings, &[GEMINI]).unwrap_err();
        assert_eq!(code, 52, "{message}");
        let expected = format!("read the setting providers.one{expected}");
        assert!(message.starts_with(&expected), "{message} does not start with {expected}");
    }
    let (_, message) = chosen(None, r#"{"providers": []}"#, &[GEMINI]).unwrap_err();
    assert_eq!(message, "read the setting providers: it must be an object of providers by name");
    let (_, message) = chosen(None, r#"{"providers": {"a/b": {"type": "openai"}}}"#, &[GEMINI]).unwrap_err();
    assert_eq!(message, "read the setting providers.a/b: a provider's name has no slash and no blank");
}

#[test]
fn a_server_that_can_not_be_one_does_not_stop_the_others() {
    let broken = [GEMINI, OPENAI, ("OPENAI_BASE_URL", "nonsense")];
    assert_eq!(chosen(None, "{}", &broken).as_deref(), Ok("gemini auto"));
    let (code, message) = chosen(Some("openai/m"), "{}", &broken).unwrap_err();
    assert_eq!(
        (code, message.as_str()),
        (41, "use the provider openai: read the base URL: relative URL without a base")
    );
}

#[test]
fn variables_of_the_settings_are_kept_from_children() {
    let settings = r#"{"providers": {"corp": {"type": "openai", "apiKey": "$CORP_KEY",
        "headers": {"X-Team": {"env": "TEAM"}, "X-Plain": "p"}}}}"#;
    let (_dir, startup) = startup(settings, &[("CORP_KEY", "k")]);
    let names = secret_variables(&startup.settings);
    for name in ["CORP_KEY", "TEAM", "ANTHROPIC_API_KEY", "QWEN_SERVER_TOKEN"] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert!(
        !format!("{:?}", startup.settings).contains("\"k\""),
        "settings hold where a secret is, and not the secret"
    );
}

#[tokio::test]
async fn a_client_s_key_lies_over_the_user_s_until_it_is_taken_back() {
    use convoke_protocol::{AuthError, Authenticator};

    let (_dir, startup) = startup("{}", &[GEMINI]);
    let login = crate::login::Login::new(AgentArgs::default(), startup);
    let provider = || login.choice().as_ref().as_ref().map(|choice| choice.registry.default_name().to_owned()).ok();
    assert_eq!(provider().as_deref(), Some("gemini"));
    let unknown = login.authenticate("oauth-personal", None).await;
    assert_eq!(unknown, Err(AuthError::UnknownMethod("oauth-personal".to_owned())));
    let missing = login.authenticate("anthropic-api-key", None).await.unwrap_err();
    assert!(missing.to_string().contains("ANTHROPIC_API_KEY"), "{missing}");
    assert_eq!(provider().as_deref(), Some("gemini"), "what worked before goes on working");
    let _ = login.authenticate("openai-api-key", Some("sk-client".to_owned())).await;
    let with_model = AgentArgs { model: Some("gpt-5".to_owned()), ..AgentArgs::default() };
    let (_other, bare) = self::startup("{}", &[]);
    let login = crate::login::Login::new(with_model, bare);
    assert!(login.choice().is_err());
    login.authenticate("openai-api-key", Some("sk-client".to_owned())).await.unwrap();
    let chosen = login.choice();
    assert_eq!(chosen.as_ref().as_ref().map(|choice| choice.registry.default_name()).ok(), Some("openai"));
    login.logout().await;
    assert!(login.choice().is_err());
}
