//! The real binary and its providers: prompts through each of them, credentials by reference, `convoke models`.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::process::Command;

use convoke_testkit::fake_model::{FakeModel, RecordedRequest};
use convoke_testkit::{Ran, TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const CONVOKE: &str = env!("CARGO_BIN_EXE_convoke");

fn settings(environment: &TestEnvironment, providers: &Value) {
    environment.write("home/.convoke/settings.json", json!({"providers": providers}).to_string());
}

/// Runs while the servers answer.
async fn convoke(environment: &TestEnvironment, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command: Command = environment.command(CONVOKE);
    command.args(args).envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || run(&mut command, "")).await.unwrap()
}

async fn prompt(environment: &TestEnvironment, model: &str, variables: &[(&str, &str)]) -> Ran {
    convoke(environment, &["-m", model, "-p", "hi"], variables).await
}

fn last(model: &FakeModel) -> RecordedRequest {
    model.requests().pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_through_each_provider() {
    let environment = TestEnvironment::new();
    let model = FakeModel::start().await.unwrap();
    settings(
        &environment,
        &json!({
            "local": {"type": "openai", "baseUrl": model.openai_url(), "models": ["qwen3"]},
            "claude": {"type": "anthropic", "baseUrl": model.anthropic_url(), "apiKey": "$MY_KEY",
                "extraBody": {"metadata": {"user_id": "u"}}},
            "google": {"type": "gemini", "baseUrl": model.gemini_url(), "apiKey": {"env": "MY_KEY"}},
            "cloud": {"type": "vertex", "baseUrl": model.gemini_url(), "accessToken": {"env": "MY_KEY"}, "project": "p"},
            "corp": {"type": "gateway", "api": "anthropic", "baseUrl": format!("{}/gate", model.anthropic_url()),
                "apiKey": {"env": "MY_KEY"}, "headers": {"X-Team": "$TEAM"}},
        }),
    );
    for (name, path, header, value) in [
        ("local/qwen3", "/v1/chat/completions", "authorization", None),
        ("qwen3", "/v1/chat/completions", "authorization", None),
        ("claude/claude-opus-5", "/v1/messages", "x-api-key", Some("my-secret")),
        (
            "google/gemini-x",
            "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
            "x-goog-api-key",
            Some("my-secret"),
        ),
        (
            "cloud/gemini-x",
            "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-x:streamGenerateContent?alt=sse",
            "authorization",
            Some("Bearer my-secret"),
        ),
        ("corp/m", "/gate/v1/messages", "authorization", Some("Bearer my-secret")),
    ] {
        model.says("Hello.");
        let ran = prompt(&environment, name, &[("MY_KEY", "my-secret"), ("TEAM", "blue")]).await;
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "Hello.\n", ""), "{name}");
        let sent = last(&model);
        assert_eq!((sent.path.as_str(), sent.header(header)), (path, value), "{name}");
        match name {
            "corp/m" => assert_eq!(sent.header("x-team"), Some("blue")),
            "claude/claude-opus-5" => assert_eq!(sent.body["metadata"], json!({"user_id": "u"})),
            "local/qwen3" | "qwen3" => assert_eq!(sent.body["model"], "qwen3"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_comes_from_a_command_or_a_file() {
    let environment = TestEnvironment::new();
    let model = FakeModel::start().await.unwrap();
    environment.write("home/key", "from-a-file\n");
    let counter = environment.write("asked", "");
    let command = format!("echo x >> '{}'; echo from-a-command", counter.display());
    let one = |key: Value| json!({"type": "openai", "baseUrl": model.openai_url(), "apiKey": key});
    settings(
        &environment,
        &json!({
            "shell": one(json!({"command": command})),
            "words": one(json!({"command": ["printf", "%s\n%s", "from-words", "second line"]})),
            "file": one(json!({"file": "~/key"})),
            "fails": one(json!({"command": "echo locked >&2; exit 3"})),
            "silent": one(json!({"command": "true"})),
            "missing": one(json!({"command": ["/nonexistent/pass"]})),
        }),
    );
    for (provider, key) in [("shell", "from-a-command"), ("words", "from-words"), ("file", "from-a-file")] {
        model.calls("list_directory", json!({"dir_path": "."})).says("Hello.");
        let ran = prompt(&environment, &format!("{provider}/m"), &[]).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{provider}");
        assert_eq!(last(&model).header("authorization"), Some(format!("Bearer {key}").as_str()));
    }
    assert_eq!(environment.read("asked").as_deref(), Some("x\n"), "two requests, and one question");
    for (provider, why) in [
        ("fails", "`echo locked >&2; exit 3`: locked"),
        ("silent", "`true`: it printed nothing"),
        ("missing", "`/nonexistent/pass`: "),
    ] {
        let ran = prompt(&environment, &format!("{provider}/m"), &[]).await;
        assert_eq!(ran.code, Some(41), "{provider}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("get a credential from the command {why}")), "{}", ran.stderr);
    }
    assert_eq!(model.turns_left(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_settings_and_missing_keys_end_before_anything_is_sent() {
    let environment = TestEnvironment::new();
    settings(&environment, &json!({"local": {"type": "opnai"}}));
    let ran = prompt(&environment, "local/m", &[]).await;
    assert_eq!(ran.code, Some(52));
    let expected = "convoke: read the setting providers.local.type: \"opnai\" is unknown: choose gemini, vertex, openai, \
                    anthropic or gateway\n";
    assert_eq!(ran.stderr, expected);
    settings(&environment, &json!({"claude": {"type": "anthropic", "apiKey": "$NO_SUCH_KEY"}}));
    let ran = prompt(&environment, "claude/m", &[]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(41), "convoke: use the provider claude: the variable NO_SUCH_KEY is not set\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_with_the_one_that_a_prompt_would_use() {
    let environment = TestEnvironment::new();
    let (one, two) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    let gone = FakeModel::start().await.unwrap();
    let gone_url = gone.openai_url();
    drop(gone);
    settings(
        &environment,
        &json!({
            "local": {"type": "openai", "baseUrl": one.openai_url(), "models": ["tuned", "b"]},
            "claude": {"type": "anthropic", "baseUrl": two.anthropic_url(), "apiKey": "sk-literal-secret"},
            "gone": {"type": "openai", "baseUrl": gone_url, "models": ["x"]},
            "keyless": {"type": "gemini", "apiKey": "$NO_SUCH_KEY"},
        }),
    );
    let serve = || {
        one.sends([br#"{"data": [{"id": "a"}, {"id": "b"}]}"#.as_slice()]);
        two.refuses(
            401,
            br#"{"type": "error", "error": {"type": "authentication_error", "message": "bad sk-literal-secret"}}"#,
        );
    };
    serve();
    let ran = convoke(&environment, &["models", "-m", "local/b"], &[]).await;
    assert_eq!(ran.code, Some(0));
    let warning = "convoke: warning: the setting providers.claude.apiKey holds the secret itself; \"$VARIABLE\" would keep \
                   it out of the file\n";
    assert_eq!(ran.stderr, warning);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert!(
        lines.contains(
            &"anthropic (anthropic): not configured: neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set"
        )
    );
    assert!(lines.contains(&"claude (anthropic): unreachable: bad [redacted]"), "{}", ran.stdout);
    assert!(
        lines.iter().any(|line| line.starts_with("gone (openai): unreachable: no connection to http://127.0.0.1:"))
    );
    assert!(lines.contains(&"keyless (gemini): not configured: the variable NO_SUCH_KEY is not set"));
    let at = lines.iter().position(|line| *line == "local (openai): 2 models").unwrap();
    assert_eq!(lines[at + 1..at + 4], ["  local/tuned", "  local/a", "* local/b"]);
    assert_eq!(*lines.last().unwrap(), "A prompt would use local/b: -m names the provider.");

    serve();
    let ran = convoke(&environment, &["models", "--json"], &[]).await;
    let object: Value = serde_json::from_str(&ran.stdout).unwrap();
    let why = "gone is the first provider with a credential; it is the first of providers.gone.models";
    assert_eq!(object["prompt"], json!({"provider": "gone", "model": "x", "why": why}));
    assert_eq!(ran.code, Some(0));
    let provider = |name: &str| {
        let all = object["providers"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap().clone()
    };
    let models = json!([{"id": "tuned", "name": null, "listed": false}, {"id": "a", "name": null, "listed": true},
        {"id": "b", "name": null, "listed": true}]);
    assert_eq!(
        provider("local"),
        json!({"name": "local", "type": "openai", "status": "reachable", "error": null, "models": models})
    );
    assert_eq!(
        (&provider("claude")["status"], &provider("claude")["error"]),
        (&json!("unreachable"), &json!("bad [redacted]"))
    );
    assert_eq!(provider("openai")["status"], "not_configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_model_the_list_says_so() {
    let environment = TestEnvironment::new();
    let ran = convoke(&environment, &["models", "--json"], &[]).await;
    let object: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &object["prompt"]["exitCode"]), (Some(41), &json!(41)));
    assert!(object["prompt"]["error"].as_str().unwrap().contains("GEMINI_API_KEY"));
    let statuses: Vec<_> = object["providers"].as_array().unwrap().iter().map(|one| one["status"].clone()).collect();
    assert_eq!(statuses, ["not_configured"; 4]);
}

/// A server that never answers costs the deadline and not more, and the others are told.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_does_not_hold_the_list_up() {
    let environment = TestEnvironment::new();
    let (silent, quick) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    silent.sends([b"[".as_slice()]).then_stalls();
    quick.sends([br#"[{"id": "a"}]"#.as_slice()]);
    settings(
        &environment,
        &json!({
            "silent": {"type": "openai", "baseUrl": silent.openai_url()},
            "quick": {"type": "openai", "baseUrl": quick.openai_url()},
        }),
    );
    let ran = convoke(&environment, &["models", "-m", "quick/a"], &[]).await;
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("silent (openai): unreachable: no answer within 3 s\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("* quick/a\n"), "{}", ran.stdout);
}

#[test]
fn agents_are_listed_and_those_of_a_folder_are_agreed_to() {
    let environment = TestEnvironment::new();
    let definition = |name: &str| format!("---\nname: {name}\ndescription: Helps.\ntools: [glob]\n---\nHelp.");
    environment.write("home/.gemini/agents/mine.md", definition("mine"));
    environment.write("home/.convoke/agents/odd.md", "---\nname: odd\ncolour: red\n---\nx");
    environment.write("workspace/.convoke/agents/theirs.md", definition("theirs"));
    let agents = |args: &[&str]| run(environment.command(CONVOKE).arg("agents").args(args), "");
    let object = |ran: &Ran| serde_json::from_str::<Value>(&ran.stdout).unwrap();
    let names = |object: &Value| -> Vec<String> {
        let names = object["agents"].as_array().unwrap().iter();
        names.map(|agent| agent["name"].as_str().unwrap().to_owned()).collect()
    };
    let untrusted = agents(&["list", "--json"]);
    assert_eq!(names(&object(&untrusted)), ["codebase_investigator", "generalist", "cli_help", "mine"]);
    assert!(
        untrusted.stderr.contains("agents of ") && untrusted.stderr.contains("are ignored"),
        "{}",
        untrusted.stderr
    );
    let listed = agents(&["list", "--skip-trust"]);
    assert_eq!(listed.code, Some(0));
    assert!(listed.stdout.contains("\ntheirs (local, workspace, "), "{}", listed.stdout);
    let limits = ", asks before it is used)\n  tools: glob; model: the caller's; at most 30 turns, 10 minutes";
    assert!(listed.stdout.contains(limits), "{}", listed.stdout);
    assert!(listed.stderr.contains("odd.md: key 'description' is missing"), "{}", listed.stderr);
    assert_eq!(agents(&["acknowledge", "theirs", "--skip-trust"]).code, Some(0));
    let after = object(&agents(&["list", "--json", "--skip-trust"]));
    assert_eq!(after["agents"][4]["acknowledged"], true);
    assert_eq!(after["problems"].as_array().unwrap().len(), 1);
    // Those elsewhere are asked for their card, within bounds, unless nobody agreed to them.
    let far = |secret: &str| {
        format!(
            "---\nkind: remote\nname: {secret}\nagent_card_url: http://127.0.0.1:1\nauth: {{type: apiKey, key: ${secret}}}\n---\n"
        )
    };
    environment.write("home/.convoke/agents/far.md", far("a_far").replace("$a_far", "$FAR_KEY"));
    environment.write("workspace/.convoke/agents/far.md", far("b_far").replace("$b_far", "$FAR_KEY"));
    let remotes = || {
        let mut command = environment.command(CONVOKE);
        object(&run(command.args(["agents", "list", "--json", "--skip-trust"]).env("FAR_KEY", "k3y"), ""))
    };
    let listed = remotes();
    let (mine, theirs) = (&listed["agents"][4], &listed["agents"][5]);
    assert_eq!(
        (&mine["name"], &mine["secret"], &mine["remote"]["state"]),
        (&"a_far".into(), &"$FAR_KEY".into(), &"unusable".into())
    );
    assert!(mine["remote"]["reason"].as_str().unwrap().starts_with("could not reach it: "), "{mine}");
    assert_eq!((&theirs["name"], &theirs["remote"]["state"]), (&"b_far".into(), &"not asked".into()));
    assert!(!listed.to_string().contains("k3y"));
    let unset = agents(&["list"]).stdout;
    assert!(
        unset.contains("\n  can't be used: could not prove who we are: the variable FAR_KEY is not set\n"),
        "{unset}"
    );
    for (name, why) in [("mine", "needs no agreement"), ("nobody", "there is none of this name")] {
        let refused = agents(&["acknowledge", name, "--skip-trust"]);
        assert_eq!(refused.code, Some(42));
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}
