//! A run that ends before its work is done says why: its exit code, and the reason in every format.

use std::process::Command;

use convoke_testkit::{Ran, TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{call, convoke, lines, script};

/// Asserts the code and the reason of a run in every format. `command` makes one run, without its format.
fn ends_with(code: i32, kind: &str, said: &str, command: impl Fn() -> Command) {
    let with = |format: &str| -> Ran { run(command().args(["-o", format]), "") };
    let text = with("text");
    assert_eq!(text.code, Some(code), "{kind}: {}", text.stderr);
    assert!(text.stderr.contains(said), "{kind}: {}", text.stderr);
    let whole = with("json");
    let object: Value = serde_json::from_str(&whole.stderr).unwrap();
    assert_eq!((whole.code, whole.stdout.as_str()), (Some(code), ""), "{kind}");
    assert_eq!((&object["error"]["type"], &object["error"]["code"]), (&json!(kind), &json!(code)));
    assert!(object["error"]["message"].as_str().unwrap().contains(said), "{object}");
    let streamed = with("stream-json");
    assert_eq!(streamed.code, Some(code), "{kind}");
    let lines = lines(&streamed);
    let last = lines.last().unwrap();
    assert_eq!((&last["type"], &last["status"]), (&json!("result"), &json!("error")));
    assert_eq!(last["error"]["type"], kind);
    assert!(last["error"]["message"].as_str().unwrap().contains(said), "{last}");
    let told: Vec<&Value> = lines.iter().filter(|line| line["type"] == "error").collect();
    assert_eq!(told.len(), 1, "told once before the result: {told:?}");
    assert_eq!(told[0]["message"], last["error"]["message"]);
}

#[test]
fn loops_budgets_turns_and_time_end_a_run_with_their_codes() {
    let listing = call("list_directory", json!({"dir_path": "."}));
    let waiting = call("run_shell_command", json!({"command": "read line < bell"}));
    let limit = |name: &str, value: i64| json!({"model": {(name): value}});
    for (what, settings, code, kind, said) in [
        (&listing, json!({}), 47, "LOOP_DETECTED", "repeats itself"),
        (&listing, limit("maxTokensPerPrompt", 20), 48, "max_budget", "30 tokens, and 20 are its limit"),
        (&listing, limit("maxSessionTurns", 2), 53, "max_turns", "(2)"),
        (&waiting, limit("maxSecondsPerPrompt", 1), 53, "max_time", "(1 s)"),
    ] {
        let environment = TestEnvironment::new();
        environment.write("home/.convoke/settings.json", settings.to_string());
        let bell = environment.workspace().join("bell");
        assert!(Command::new("mkfifo").arg(bell).status().unwrap().success());
        let answers: Vec<Value> = (0..12).map(|_| json!([what])).collect();
        let file = script(&environment, &answers);
        let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-y", "-p", "go"];
        ends_with(code, kind, said, || convoke(&environment, &args));
    }
}

/// Mounts a disk of two pages at `$0`, for nobody else to see, and runs the rest there.
const ON_A_FULL_DISK: &str = r#"mount -t tmpfs -o size=8k tmpfs "$0" && exec "$@""#;

#[test]
fn a_disk_without_room_ends_a_run() {
    let environment = TestEnvironment::new();
    let disk = environment.write("workspace/disk/here", "").parent().unwrap().to_owned();
    let on_the_disk = || {
        let mut command = environment.command("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", ON_A_FULL_DISK]).arg(&disk);
        command
    };
    let probe = run(on_the_disk().arg("true"), "");
    if probe.code != Some(0) {
        eprintln!("skipped: a disk without room: {}", probe.stderr.trim());
        return;
    }
    let write = call("write_file", json!({"file_path": "disk/big.txt", "content": "x".repeat(100_000)}));
    let file = script(&environment, &[json!([write]), json!([{"text": "never"}])]);
    ends_with(54, "no_space_left", "space", || {
        let mut command = on_the_disk();
        command.arg(super::CONVOKE).args(["--fake-responses", &file, "-m", "gemini-2.5-flash", "-y", "-p", "go"]);
        command.env("GEMINI_API_KEY", "secret-key");
        command
    });
}

#[test]
fn a_disk_without_room_for_the_record_is_told_once_and_the_run_goes_on() {
    let environment = TestEnvironment::new();
    let disk = environment.write("home/.convoke/tmp/here", "").parent().unwrap().to_owned();
    let probe = run(
        environment
            .command("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", ON_A_FULL_DISK])
            .arg(&disk)
            .arg("true"),
        "",
    );
    if probe.code != Some(0) {
        eprintln!("skipped: a disk without room: {}", probe.stderr.trim());
        return;
    }
    let count = |n: u32| json!([call("run_shell_command", json!({"command": format!("seq {n} 3000")}))]);
    let mut answers: Vec<Value> = (0..4).map(count).collect();
    answers.push(json!([{"text": "Counted."}]));
    let file = script(&environment, &answers);
    let mut command = environment.command("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", ON_A_FULL_DISK]).arg(&disk).arg(super::CONVOKE);
    command.args(["--fake-responses", &file, "-m", "gemini-2.5-flash", "-y", "-p", "go"]);
    let ran = run(command.env("GEMINI_API_KEY", "secret-key"), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Counted.\n"), "{}", ran.stderr);
    let warned = ran.stderr.lines().filter(|line| line.contains("this session is not recorded any further"));
    assert_eq!(warned.count(), 1, "{}", ran.stderr);
}
