//! `--worktree`: a copy of the repository for one run, which stays.

use std::path::Path;
use std::process::Command;

use convoke_testkit::{TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{call, convoke, script};

fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(["-c", "user.name=A", "-c", "user.email=a@localhost"]).args(args);
    let ended = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_run_has_a_copy_of_the_repository_to_itself() {
    let environment = TestEnvironment::new();
    let root = environment.workspace();
    environment.write("workspace/a.txt", "as it was\n");
    git(&root, &["init", "-q", "-b", "main"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "one"]);
    let ran_hooks = environment.home().join("hooks-ran");
    let hook = environment
        .write("workspace/.git/hooks/post-checkout", format!("#!/bin/sh\ntouch '{}'\n", ran_hooks.display()));
    git(&root, &["config", "core.fsmonitor", &hook.display().to_string()]);
    assert!(Command::new("chmod").arg("+x").arg(&hook).status().unwrap().success());

    let write = call("write_file", json!({"file_path": "a.txt", "content": "changed\n"}));
    let file = script(&environment, &[json!([write]), json!([{"text": "done"}])]);
    let args = ["--fake-responses", &file, "-y", "-p", "change it"];
    let ran = run(convoke(&environment, &args).args(["-w", "feature.1"]).env("GIT_DIR", "/nowhere"), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains(".convoke/worktrees/feature.1, on the branch worktree-feature.1"), "{}", ran.stderr);
    let copy = root.join(".convoke/worktrees/feature.1");
    assert_eq!(std::fs::read_to_string(copy.join("a.txt")).unwrap(), "changed\n");
    assert_eq!(environment.read("workspace/a.txt").as_deref(), Some("as it was\n"));
    assert_eq!(git(&copy, &["branch", "--show-current"]), "worktree-feature.1");
    assert!(!ran_hooks.exists(), "the repository's programs are nobody's wish");
    git(&root, &["config", "--unset", "core.fsmonitor"]);
    assert_eq!(git(&root, &["status", "--porcelain"]), "", "the main checkout has no business with it");

    // The same one again, from inside of it, with its conversation.
    let file = script(&environment, &[json!([{"text": "still here"}])]);
    let mut again = convoke(&environment, &["--fake-responses", &file, "-w", "feature.1", "-r", "-p", "and now?"]);
    let ran = run(again.current_dir(&copy), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "still here\n"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("NO_SESSIONS_FOUND"), "{}", ran.stderr);
    // Its branch is kept when it is removed, and without a name there is a new one each time.
    git(&root, &["worktree", "remove", "--force", &copy.display().to_string()]);
    for name in [&["--worktree=feature.1"][..], &["-w"], &["-w"]] {
        let ran = run(convoke(&environment, &["--fake-responses", &file, "-p", "go"]).args(name), "");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    assert_eq!(git(&root, &["worktree", "list"]).lines().count(), 4);
}

#[test]
fn what_can_t_be_a_worktree_is_refused_and_nothing_is_made() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let refused = |name: &str| {
        let ran = run(convoke(&environment, &["--fake-responses", &file, "-p", "go"]).arg(format!("-w={name}")), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(42), ""), "{name}");
        ran.stderr
    };
    assert!(refused("plain").starts_with("convoke: find the repository: "), "it is no repository");
    git(&environment.workspace(), &["init", "-q", "-b", "main"]);
    for name in ["../x", "a/b", "-x", ".hidden", "a..b", "a.lock", "a b", "ä", &"x".repeat(101)] {
        assert!(refused(name).contains("name a worktree"), "{name}");
    }
    let _ = std::fs::create_dir_all(environment.workspace().join(".convoke/worktrees/taken/by"));
    std::fs::write(environment.workspace().join(".convoke/worktrees/taken/by/others"), "").unwrap();
    assert!(refused("taken").contains("make the worktree "));
    assert!(environment.workspace().join(".convoke/worktrees/taken/by/others").exists());
}
