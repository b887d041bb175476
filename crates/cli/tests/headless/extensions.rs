//! `convoke extensions`, and what an extension brings to a run.

use convoke_testkit::{TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{call, convoke, lines, script};

fn manifest(version: &str) -> String {
    let server = json!({"command": "node", "args": ["${extensionPath}/server.js"]});
    json!({"name": "mine", "version": version, "mcpServers": {"s": server}, "excludeTools": ["glob"]}).to_string()
}

#[test]
fn an_extension_is_installed_used_updated_and_taken_away() {
    let environment = TestEnvironment::new();
    environment.write("source/gemini-extension.json", manifest("0.0.1"));
    environment.write("source/GEMINI.md", "words of the extension");
    let hook = |words: &str| {
        let command = format!("test -d \"${{extensionPath}}/skills\" && echo '{words}'");
        let entry = json!({"hooks": [{"type": "command", "name": "mine-hook", "command": command}]});
        json!({"hooks": {"BeforeAgent": [entry]}}).to_string()
    };
    environment.write("source/hooks/hooks.json", hook(r#"{"systemMessage": "the hook of mine ran"}"#));
    let skill = "---\nname: release\ndescription: how a release is made\n---\nTag, then push.\n";
    environment.write("source/skills/release/SKILL.md", skill);
    environment.write("source/commands/greet.toml", "prompt = \"hello from mine\"");
    let extensions =
        |args: &[&str], input: &str| run(&mut convoke(&environment, &[&["extensions"], args].concat()), input);
    let source = "../source";
    let refused = extensions(&["install", source], "n\n");
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(extensions(&["list"], "").stdout.contains("No extensions installed"));
    let installed = extensions(&["install", source], "y\n");
    assert_eq!(installed.code, Some(0), "{}", installed.stderr);
    assert!(installed.stdout.contains("MCP server s: node"), "what it brings is told: {}", installed.stdout);
    assert!(installed.stdout.contains("hook: BeforeAgent: test -d"), "{}", installed.stdout);
    let listed = extensions(&["list"], "").stdout;
    assert!(listed.contains("mine (0.0.1)") && listed.contains("GEMINI.md"), "{listed}");
    assert_eq!(run(&mut convoke(&environment, &["--list-extensions"]), "").stdout, listed);

    let file = script(&environment, &[]);
    let answer = |more: &[&str]| {
        let args = [&["--fake-responses", file.as_str()][..], more].concat();
        let ran = run(&mut convoke(&environment, &args), "");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    assert!(answer(&["-p", "/help"]).contains("/greet"));
    assert!(answer(&["-p", "/memory show"]).contains("words of the extension"));
    assert!(!answer(&["-p", "/tools"]).contains("  glob\n"));
    assert!(answer(&["-e", "none", "-p", "/tools"]).contains("  glob\n"));

    let activate = call("activate_skill", json!({"name": "release"}));
    let file = script(&environment, &[json!([activate]), json!([{"text": "done"}])]);
    let args = ["--fake-responses", &file, "-y", "-o", "stream-json", "-p", "release it"];
    let whole = run(&mut convoke(&environment, &args), "");
    assert!(whole.stdout.contains("the hook of mine ran"), "{}{}", whole.stdout, whole.stderr);
    let result = lines(&whole).into_iter().find(|line| line["type"] == "tool_result").unwrap();
    assert_eq!(result["status"], "success", "{result}");
    let none = run(convoke(&environment, &args).args(["-e", "none"]), "");
    assert!(!none.stdout.contains("the hook of mine ran"), "{}", none.stdout);
    let hooks = run(&mut convoke(&environment, &["hooks", "list"]), "").stdout;
    assert!(hooks.contains("extension mine") && hooks.starts_with("runs"), "{hooks}");

    assert!(extensions(&["update", "mine"], "").stdout.contains("already up to date"));
    environment.write("source/gemini-extension.json", manifest("0.0.2"));
    assert!(extensions(&["update", "mine"], "").stdout.contains("0.0.1 → 0.0.2"));
    environment.write("source/gemini-extension.json", manifest("0.0.3"));
    environment.write("source/hooks/hooks.json", hook("other words"));
    let other = extensions(&["update", "mine"], "");
    assert!(other.code == Some(1) && other.stdout.contains("other words"), "asked again: {}", other.stdout);
    assert!(extensions(&["list"], "").stdout.contains("mine (0.0.2)"));
    assert!(extensions(&["update", "mine"], "y\n").stdout.contains("0.0.2 → 0.0.3"));
    assert_eq!(extensions(&["uninstall", "mine"], "").code, Some(0));
    assert_eq!(extensions(&["uninstall", "mine"], "").code, Some(1));
    assert!(!answer(&["-p", "/help"]).contains("/greet"));
}

#[test]
fn what_is_no_extension_is_refused() {
    let environment = TestEnvironment::new();
    environment.write("bad/gemini-extension.json", json!({"name": "../up"}).to_string());
    environment.write("home/.gemini/extensions/broken/gemini-extension.json", "{");
    for source in ["../bad", "../nowhere", "https://example.org/x"] {
        let ran = run(&mut convoke(&environment, &["extensions", "install", source, "--consent"]), "");
        assert_eq!(ran.code, Some(1), "{source}: {}", ran.stderr);
    }
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "hi"]), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ok\n"));
    assert!(ran.stderr.contains("going on without this extension"), "{}", ran.stderr);
}
