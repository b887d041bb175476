//! The real binary, one prompt at a time: outputs, exit codes, providers, signals.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

#[path = "headless/context.rs"]
mod context;
#[path = "headless/extensions.rs"]
mod extensions;
#[path = "headless/hooks.rs"]
mod hooks;
#[path = "headless/limits.rs"]
mod limits;
#[path = "headless/mcp.rs"]
mod mcp;
#[path = "headless/policy.rs"]
mod policy;
#[path = "headless/prompts.rs"]
mod prompts;
#[path = "headless/rig.rs"]
mod rig;
#[path = "headless/stream.rs"]
mod stream;
#[path = "headless/telemetry.rs"]
mod telemetry;
#[path = "headless/worktree.rs"]
mod worktree;

use std::process::{Command, Stdio};
use std::time::Duration;

use convoke_testkit::fake_model::FakeModel;
use convoke_testkit::{Ran, TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const CONVOKE: &str = env!("CARGO_BIN_EXE_convoke");

fn convoke(environment: &TestEnvironment, args: &[&str]) -> Command {
    let mut command = environment.command(CONVOKE);
    command.args(args).env("GEMINI_API_KEY", "secret-key");
    command
}

/// A script of whole answers, in the file format of fake responses.
fn script(environment: &TestEnvironment, answers: &[Value]) -> String {
    let lines: Vec<String> = answers
        .iter()
        .map(|parts| {
            let candidate = json!({"content": {"role": "model", "parts": parts}, "finishReason": "STOP"});
            let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
            let chunk = json!({"candidates": [candidate], "usageMetadata": usage});
            json!({"method": "generateContentStream", "response": [chunk]}).to_string()
        })
        .collect();
    environment.write("responses.jsonl", lines.join("\n")).display().to_string()
}

fn call(name: &str, args: Value) -> Value {
    json!({"functionCall": {"name": name, "args": args}})
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn text_json_and_stream_json() {
    let environment = TestEnvironment::new();
    environment.write("workspace/a.txt", "one\n");
    let read = call("read_file", json!({"file_path": "a.txt"}));
    let file = script(&environment, &[json!([{"text": "Looking."}, read]), json!([{"text": "It says one."}])]);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-p", "what is in a.txt?"];

    let text = run(&mut convoke(&environment, &args), "");
    assert_eq!((text.code, text.stdout.as_str(), text.stderr.as_str()), (Some(0), "Looking.\nIt says one.\n", ""));

    let json = run(convoke(&environment, &args).args(["-o", "json"]), "");
    let object: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &object["response"]), (Some(0), &json!("It says one.")));
    assert_eq!(object["stats"]["models"]["gemini-2.5-flash"]["tokens"]["prompt"], 20);
    assert_eq!(object["stats"]["tools"]["byName"]["read_file"]["success"], 1);

    let stream = run(convoke(&environment, &args).args(["--output-format", "stream-json"]), "");
    let lines = lines(&stream);
    let types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["init", "message", "message", "tool_use", "tool_result", "message", "result"]);
    assert_eq!(lines[0]["model"], "gemini-2.5-flash");
    assert_eq!(lines[3]["tool_name"], "read_file");
    assert_eq!(lines[4]["tool_id"], lines[3]["tool_id"]);
    assert_eq!(lines[6]["stats"]["total_tokens"], 30);
}

#[test]
fn the_prompt_comes_from_argument_and_stdin() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let stream = ["--fake-responses", &file, "-o", "stream-json"];
    let prompt_of = |ran: &Ran| lines(ran)[1]["content"].clone();
    assert_eq!(prompt_of(&run(convoke(&environment, &stream).arg("positional words"), "")), "positional words");
    assert_eq!(prompt_of(&run(&mut convoke(&environment, &stream), "from stdin")), "from stdin");
    assert_eq!(prompt_of(&run(convoke(&environment, &stream).args(["-p", "then"]), "first")), "first\n\nthen");
    let nothing = run(&mut convoke(&environment, &stream), "");
    assert_eq!(nothing.code, Some(42));
    assert!(nothing.stderr.contains("no prompt"), "{}", nothing.stderr);
    assert_eq!(run(convoke(&environment, &stream).args(["-p", "a", "b"]), "").code, Some(42));
    assert_eq!(run(&mut convoke(&environment, &["--no-such-flag"]), "").code, Some(1));
}

#[test]
fn writing_is_denied_by_default_and_allowed_by_yolo() {
    let environment = TestEnvironment::new();
    let write = call("write_file", json!({"file_path": "made.txt", "content": "x\n"}));
    let file = script(&environment, &[json!([write]), json!([{"text": "done"}])]);
    let args = ["--fake-responses", &file, "-p", "write"];
    let denied = run(&mut convoke(&environment, &args), "");
    assert_eq!(denied.code, Some(0));
    assert!(denied.stderr.contains("policy"), "{}", denied.stderr);
    assert_eq!(environment.read("workspace/made.txt"), None);
    let allowed = run(convoke(&environment, &args).arg("--approval-mode=auto_edit"), "");
    assert_eq!((allowed.code, allowed.stderr.as_str()), (Some(0), ""));
    assert_eq!(environment.read("workspace/made.txt").as_deref(), Some("x\n"));
}

#[test]
fn allowed_tools_let_exactly_that_command_through() {
    let environment = TestEnvironment::new();
    let shell = |command: &str| call("run_shell_command", json!({"command": command}));
    let file = script(&environment, &[json!([shell("echo yes"), shell("touch no")]), json!([{"text": "done"}])]);
    let args =
        ["--fake-responses", &file, "--allowed-tools", "run_shell_command(echo)", "-p", "x", "-o", "stream-json"];
    let ran = run(&mut convoke(&environment, &args), "");
    let results: Vec<Value> = lines(&ran).into_iter().filter(|line| line["type"] == "tool_result").collect();
    assert_eq!(results[0]["status"], "success");
    assert_eq!(results[1]["status"], "error");
    assert_eq!(environment.read("workspace/no"), None);
}

#[test]
fn commands_in_the_sandbox_write_in_the_workspace_only_and_one_that_can_not_be_had_ends_with_44() {
    let environment = TestEnvironment::new();
    let outside = environment.write("elsewhere/kept", "kept");
    let command = format!("echo in > in.txt; echo out > {}", outside.display());
    let shell = call("run_shell_command", json!({"command": command}));
    let file = script(&environment, &[json!([shell]), json!([{"text": "Tried."}])]);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-y", "-o", "stream-json", "-p", "try"];
    let with = |sandbox: &str| {
        // The folder for temporary files may be written, and all of this test is in one.
        let temporary = environment.write("temporary/here", "").parent().unwrap().to_owned();
        run(convoke(&environment, &args).arg(sandbox).env("TMPDIR", temporary), "")
    };
    let refused = with("--sandbox=docker");
    assert_eq!(refused.code, Some(44));
    assert!(refused.stderr.contains("choose true, false, landlock or bwrap"), "{}", refused.stderr);

    let confined = with("--sandbox");
    if confined.code == Some(44) {
        // Told by name, and nothing ran.
        assert!(confined.stderr.contains("landlock: ") && confined.stderr.contains("bwrap: "), "{}", confined.stderr);
        return;
    }
    assert_eq!(confined.code, Some(0), "{}", confined.stderr);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "kept");
    let inside = environment.workspace().join("in.txt");
    assert_eq!(std::fs::read_to_string(inside).unwrap(), "in\n");
    let free = with("--sandbox=false");
    assert_eq!((free.code, std::fs::read_to_string(&outside).unwrap().as_str()), (Some(0), "out\n"));
}

#[test]
fn no_credential_names_the_ways() {
    let environment = TestEnvironment::new();
    let ran = run(environment.command(CONVOKE).args(["-p", "hi"]), "");
    assert_eq!(ran.code, Some(41));
    for way in ["GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "convoke demo"] {
        assert!(ran.stderr.contains(way), "{}", ran.stderr);
    }
}

#[test]
fn broken_settings_end_with_52_and_unknown_keys_warn() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let args = ["--fake-responses", &file, "-p", "hi"];
    let path = environment.write("home/.convoke/settings.json", "{\n \"model\": ]\n}");
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!(ran.code, Some(52));
    assert!(ran.stderr.contains(&format!("{}: line 2, column ", path.display())), "{}", ran.stderr);
    environment.write("home/.convoke/settings.json", "{\"modle\": 1} // typo");
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ok\n"));
    assert!(ran.stderr.contains("modle"), "{}", ran.stderr);
}

#[test]
fn a_workspace_is_trusted_or_ignored() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let args = ["--fake-responses", &file, "-p", "hi", "-o", "stream-json"];
    environment.write("workspace/.convoke/settings.json", r#"{"model": {"name": "workspace-model"}}"#);
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!(ran.stderr.matches("not trusted").count(), 1, "{}", ran.stderr);
    assert_ne!(lines(&ran)[0]["model"], "workspace-model");
    let ran = run(convoke(&environment, &args).arg("--skip-trust"), "");
    assert_eq!(lines(&ran)[0]["model"], "workspace-model");
    environment.write("home/.convoke/settings.json", r#"{"security": {"folderTrust": {"enabled": true}}}"#);
    assert_eq!(run(&mut convoke(&environment, &args), "").code, Some(55));
    environment.write(
        "home/.gemini/trustedFolders.json",
        json!({environment.workspace().to_str().unwrap(): "TRUST_FOLDER"}).to_string(),
    );
    assert_eq!(run(&mut convoke(&environment, &args), "").code, Some(0));
}

#[test]
fn running_out_of_responses_is_an_error_on_stderr() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[]);
    let args = ["--fake-responses", &file, "-p", "hi", "-o", "json"];
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    let object: Value = serde_json::from_str(&ran.stderr).unwrap();
    let message = object["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("[API Error: No more mock responses for generateContentStream"), "{message}");
    environment.write("responses.jsonl", "{not json");
    assert_eq!(run(&mut convoke(&environment, &args), "").code, Some(1));
}

fn gemini(environment: &TestEnvironment, model: &FakeModel, args: &[&str]) -> Command {
    let mut command = convoke(environment, args);
    // A model by name: `auto` asks a classifier first, which is another call.
    command.env("GOOGLE_GEMINI_BASE_URL", model.gemini_url()).env("GEMINI_MODEL", "gemini-3-flash-preview");
    command
}

async fn finish(mut command: Command) -> Ran {
    tokio::task::spawn_blocking(move || run(&mut command, "")).await.unwrap()
}

#[tokio::test]
async fn both_providers_stream_from_a_server() {
    let environment = TestEnvironment::new();
    let model = FakeModel::start().await.unwrap();
    model.says("Hello from Gemini.");
    let ran = finish(gemini(&environment, &model, &["-m", "gemini-2.5-flash", "-p", "hi"])).await;
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "Hello from Gemini.\n", ""));
    let request = &model.requests()[0];
    assert_eq!(request.header("x-goog-api-key"), Some("secret-key"));

    let model = FakeModel::start().await.unwrap();
    model.says("Hello from elsewhere.");
    let mut command = environment.command(CONVOKE);
    command.args(["-p", "hi"]).env("OPENAI_BASE_URL", model.openai_url()).env("OPENAI_MODEL", "llama");
    let ran = finish(command).await;
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "Hello from elsewhere.\n", ""));
    assert_eq!(model.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn failures_of_a_server_have_their_codes_and_no_secret() {
    for (status, code) in [(400, 1), (401, 41), (403, 41)] {
        let environment = TestEnvironment::new();
        let model = FakeModel::start().await.unwrap();
        model.fails(status, json!({"code": status, "message": "the server's own words"}));
        let ran = finish(gemini(&environment, &model, &["-p", "hi"])).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{status}: {}", ran.stderr);
        assert!(ran.stderr.contains("the server's own words"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("secret-key"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn an_interrupt_ends_the_run_and_its_shell() {
    let environment = TestEnvironment::new();
    let model = FakeModel::start().await.unwrap();
    model.calls("run_shell_command", json!({"command": "touch begun; sleep 1000 & sleep 1001"}));
    let mut command = gemini(&environment, &model, &["-y", "-p", "hi"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    until(|| environment.read("workspace/begun").is_some()).await;
    assert!(shells_of(&environment) > 0);
    let killed = Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    let ran: Ran = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap().into();
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    until(|| shells_of(&environment) == 0).await;
}

#[tokio::test]
async fn killing_the_run_leaves_no_shell_behind() {
    let environment = TestEnvironment::new();
    let model = FakeModel::start().await.unwrap();
    model.calls("run_shell_command", json!({"command": "touch begun; setsid sleep 1000 & sleep 1001"}));
    let mut command = gemini(&environment, &model, &["-y", "-p", "hi"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until(|| environment.read("workspace/begun").is_some()).await;
    child.kill().unwrap();
    child.wait().unwrap();
    until(|| shells_of(&environment) == 0).await;
}

/// Waits for a fact of the outside world; nothing tells us of it.
async fn until(fact: impl Fn() -> bool) {
    let waiting = async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it must become true");
}

/// Processes other than ours that work in the test's workspace.
fn shells_of(environment: &TestEnvironment) -> usize {
    let workspace = environment.workspace();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok())
        .filter(|cwd| *cwd == workspace)
        .count()
}

/// Settings with the scripted MCP server, in the user's home.
fn with_mcp_server(environment: &TestEnvironment, args: &[&str], more: &Value) {
    let mut server = json!({"command": convoke_testkit::scripted_mcp_binary(), "args": args});
    server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    environment.write("home/.convoke/settings.json", json!({"mcpServers": {"my_db": server}}).to_string());
}

#[test]
fn tools_of_a_trusted_mcp_server_are_called_and_others_are_not_offered() {
    let environment = TestEnvironment::new();
    let echo = call("mcp_my_db_echo", json!({"text": "hello there"}));
    let file = script(&environment, &[json!([echo]), json!([{"text": "done"}])]);
    let args = ["--fake-responses", &file, "-p", "x", "-o", "stream-json"];
    let result = |ran: &Ran| lines(ran).into_iter().find(|line| line["type"] == "tool_result").unwrap();

    with_mcp_server(&environment, &[], &json!({"trust": true}));
    let trusted = run(&mut convoke(&environment, &args), "");
    let told = result(&trusted);
    assert_eq!((trusted.code, &told["status"]), (Some(0), &json!("success")), "{}", trusted.stderr);
    assert!(told["output"].as_str().unwrap().contains("hello there"), "{told}");

    // Nobody can be asked, and nothing says that it may be called.
    with_mcp_server(&environment, &[], &json!({}));
    assert_eq!(result(&run(&mut convoke(&environment, &args), ""))["status"], "error");

    with_mcp_server(&environment, &[], &json!({"trust": true, "excludeTools": ["echo"]}));
    let excluded = result(&run(&mut convoke(&environment, &args), ""));
    assert!(excluded["error"]["message"].as_str().unwrap().contains("not found"), "{excluded}");

    with_mcp_server(&environment, &[], &json!({"trust": true}));
    let other = run(convoke(&environment, &args).args(["--allowed-mcp-server-names", "other"]), "");
    assert_eq!(result(&other)["status"], "error");
}

#[test]
fn mcp_json_of_a_workspace_counts_where_the_workspace_is_trusted() {
    let environment = TestEnvironment::new();
    let server = json!({"command": convoke_testkit::scripted_mcp_binary(), "env": {"COLOUR": "${SHADE:-green}"}});
    environment.write("workspace/.mcp.json", json!({"mcpServers": {"s": server}}).to_string());
    let variable = call("mcp_s_variable", json!({"name": "COLOUR"}));
    let secret = call("mcp_s_variable", json!({"name": "GEMINI_API_KEY"}));
    let file = script(&environment, &[json!([variable, secret]), json!([{"text": "done"}])]);
    let args = ["--fake-responses", &file, "-p", "x", "-o", "stream-json", "-y"];
    let outputs = |ran: &Ran| {
        let results = lines(ran).into_iter().filter(|line| line["type"] == "tool_result");
        results.map(|line| line["output"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let trusted = run(convoke(&environment, &args).arg("--skip-trust"), "");
    let told = outputs(&trusted);
    assert!(told[0].contains("green"), "{told:?} {}", trusted.stderr);
    assert!(told[1].contains("unset"), "{told:?}");

    environment.write(
        "home/.convoke/trustedFolders.json",
        json!({environment.workspace().display().to_string(): "DO_NOT_TRUST"}).to_string(),
    );
    let untrusted = run(convoke(&environment, &args[..4]).args(["-o", "text"]), "");
    assert!(untrusted.stderr.contains(".mcp.json are ignored"), "{}", untrusted.stderr);
}
