//! What prompts are short for: files behind `@`, commands behind `/`. And what too much of one costs.

use convoke_testkit::fake_model::FakeModel;
use convoke_testkit::{Ran, TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{convoke, finish, gemini, lines, script};

/// The texts of the user's last message, as the model got them.
async fn asked(environment: &TestEnvironment, args: &[&str]) -> (Ran, Vec<Value>) {
    let model = FakeModel::start().await.unwrap();
    model.says("ok");
    let ran = finish(gemini(environment, &model, args)).await;
    let parts = model.requests().first().map_or_else(Vec::new, |request| {
        let contents = request.body["contents"].as_array().cloned().unwrap();
        contents.last().unwrap()["parts"].as_array().cloned().unwrap()
    });
    // The first part is about the session.
    (ran, parts.into_iter().skip(1).collect())
}

fn texts(parts: &[Value]) -> String {
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

#[tokio::test]
async fn files_come_with_the_prompt() {
    let environment = TestEnvironment::new();
    environment.write("workspace/a.txt", "one\n");
    environment.write("workspace/b c.txt", "two\n");
    environment.write("workspace/deep/er/findme.rs", "three\n");
    environment.write("workspace/folder/x.md", "four\n");
    environment.write("workspace/folder/y.md", "five\n");
    environment.write("outside.txt", "six\n");
    let (ran, parts) = asked(&environment, &["-p", "see @a.txt, @\"b c.txt\" @findme and @folder."]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        texts(&parts),
        "see @a.txt, @b c.txt @deep/er/findme.rs and @folder/**.\n--- Content from referenced files ---\
         \nContent from @a.txt:\none\n\nContent from @b c.txt:\ntwo\n\nContent from @deep/er/findme.rs:\nthree\n\
         \nContent from @folder/x.md:\nfour\n\nContent from @folder/y.md:\nfive\n\n--- End of content ---"
    );
    let (ran, parts) = asked(&environment, &["-p", "see @../outside.txt and @nowhere and a@b.c"]).await;
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("@../outside.txt was left out"), "{}", ran.stderr);
    assert_eq!(texts(&parts), "see @../outside.txt and @nowhere and a@b.c");
}

#[tokio::test]
async fn ignored_files_are_told_and_media_are_parts() {
    let environment = TestEnvironment::new();
    environment.write("workspace/.gitignore", "secret.txt\n");
    environment.write("workspace/secret.txt", "hidden\n");
    environment.write("workspace/p.png", b"\x89PNG\r\n\x1a\n0000");
    let (ran, parts) = asked(&environment, &["-p", "@secret.txt @p.png"]).await;
    assert_eq!(ran.code, Some(0));
    assert!(ran.stderr.contains("secret.txt was left out: ignored by"), "{}", ran.stderr);
    assert!(!texts(&parts).contains("hidden"));
    let media: Vec<&Value> = parts.iter().filter_map(|part| part.get("inlineData")).collect();
    assert_eq!(media.len(), 1);
    assert_eq!(media[0]["mimeType"], "image/png");
}

#[tokio::test]
async fn what_a_pipe_brings_is_data() {
    let environment = TestEnvironment::new();
    environment.write("workspace/Override.java", "class Override {}\n");
    let model = FakeModel::start().await.unwrap();
    model.says("ok");
    let mut command = gemini(&environment, &model, &["-p", "review"]);
    let ran = tokio::task::spawn_blocking(move || run(&mut command, "+ @Override\n/help\n")).await.unwrap();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let body = model.requests()[0].body.to_string();
    assert!(body.contains("+ @Override") && !body.contains("class Override"), "{body}");
}

#[tokio::test]
async fn command_files_stand_for_prompts() {
    let environment = TestEnvironment::new();
    environment.write("workspace/a.txt", "one\n");
    let commands = [
        ("workspace/.gemini/commands/git/review.toml", "prompt = \"Review {{args}}: !{echo got {{args}}} @{a.txt}\""),
        ("workspace/.convoke/commands/plain.toml", "prompt = \"of the workspace\""),
        ("home/.gemini/commands/plain.toml", "prompt = \"of the user\""),
    ];
    for (path, text) in commands {
        environment.write(path, text);
    }
    let trusted = ["--skip-trust", "--allowed-tools", "run_shell_command(echo)"];
    let with = |prompt: &'static str| [&["-p", prompt][..], &trusted].concat();
    let (ran, parts) = asked(&environment, &with("/git:review x; y")).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(texts(&parts), "Review x; y: got x; y one\n", "one quoted word for the shell");
    let (_, parts) = asked(&environment, &with("/plain and more")).await;
    assert_eq!(texts(&parts), "of the workspace\n\n/plain and more");
    let (_, parts) = asked(&environment, &["-p", "/plain"]).await;
    assert_eq!(texts(&parts), "of the user", "an untrusted folder has no commands");
    let (_, parts) = asked(&environment, &["-p", "/no-such-command x"]).await;
    assert_eq!(texts(&parts), "/no-such-command x");
}

#[tokio::test]
async fn a_command_s_shell_is_under_policy() {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/commands/touch.toml", "prompt = \"!{touch made}\"");
    let (ran, parts) = asked(&environment, &["-p", "/touch"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(42), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("policy"), "{}", ran.stderr);
    assert_eq!(parts, [json!(null); 0], "no model was asked");
    assert_eq!(environment.read("workspace/made"), None);
    let (ran, _) = asked(&environment, &["-y", "-p", "/touch"]).await;
    assert_eq!(ran.code, Some(42), "a command that prints nothing leaves no prompt: {}", ran.stderr);
    assert!(environment.read("workspace/made").is_some());
}

#[test]
fn built_in_commands_answer_without_a_model() {
    let environment = TestEnvironment::new();
    environment.write("workspace/AGENTS.md", "be brief");
    environment.write("home/.convoke/commands/mine.toml", "prompt = \"x\"\ndescription = \"my own\"");
    let file = script(&environment, &[]);
    for (prompt, answer) in [
        ("/help", "/mine - my own"),
        ("/tools", "  read_file"),
        ("/memory show", "be brief"),
        ("/memory list", "AGENTS.md"),
        ("/stats", "Prompts: 1"),
    ] {
        let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-p", prompt]), "");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{prompt}");
        assert!(ran.stdout.contains(answer), "{prompt}: {}", ran.stdout);
    }
}

#[test]
fn five_megabytes_arrive_and_nine_are_refused() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let mut command = convoke(&environment, &["--fake-responses", &file, "-p", "count", "-o", "stream-json"]);
    let big = "line of a log\n".repeat(5 * 1024 * 1024 / 14);
    let ran = run(&mut command, &big);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(lines(&ran)[1]["content"].as_str().unwrap().len(), big.len() + "\n\ncount".len());
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-p", "count"]), &"x".repeat(9 << 20));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(42), ""));
    assert!(ran.stderr.contains("larger than 8 MiB"), "{}", ran.stderr);
}
