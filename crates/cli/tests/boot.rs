//! What the peer accepted and refused at its start, tried with the real daemon.
//!
//! `golden/09_boot.json` is its transcript: arguments, settings and variables of each start, whether it served, and
//! what it said. Messages are for people; what is compared is their first sentence.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use convoke_testkit::{TestEnvironment, run, scripted_agent_binary};
use serde::Deserialize;
use serde_json::Value;

const CONVOKE: &str = env!("CARGO_BIN_EXE_convoke");

/// Where we start otherwise on purpose: what was tried, whether it serves here, what it says here, and why.
const DIFFERENCES: &[(&str, bool, &str, &str)] = &[
    ("policy not object", false, "must be an object", "silence would weaken a policy that somebody wrote down"),
    ("corrupt settings", false, "settings.json", "the file is named, and left as it is"),
    ("token whitespace", true, "a token on the command line is visible", "our own words, and the other ways beside"),
    ("unknown flag", false, "--frobnicate", "the flag is named"),
];

#[derive(Deserialize)]
struct Start {
    name: String,
    args: Vec<String>,
    settings: Value,
    env: std::collections::BTreeMap<String, String>,
    started: bool,
    says: Option<String>,
}

#[test]
fn starts_and_refusals_are_those_of_the_peer() {
    let starts: Vec<Start> = serde_json::from_str(include_str!("golden/09_boot.json")).unwrap();
    let agent = scripted_agent_binary().display().to_string();
    for start in &starts {
        let environment = TestEnvironment::new();
        let settings = start.settings.as_str().map_or_else(|| start.settings.to_string(), str::to_owned);
        environment.write("home/.convoke/settings.json", settings);
        let mut command = environment.command(CONVOKE);
        command.args(["serve", "--port", "0", "--agent", &agent]).args(&start.args).envs(&start.env);

        let difference = DIFFERENCES.iter().find(|(name, ..)| *name == start.name);
        let serves = difference.map_or(start.started, |(_, serves, ..)| *serves);
        let says = difference.map_or(start.says.as_deref(), |(_, _, says, _)| Some(*says));
        let (served, said) = if serves {
            // A pipe that nobody reads would fill; stderr is read once it has ended.
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            (line.starts_with("convoke serve listening on http://127.0.0.1:"), said)
        } else {
            let ran = run(&mut command, "");
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}: {}", start.name, ran.stderr);
            (false, ran.stderr)
        };
        assert_eq!(served, serves, "{}: {said}", start.name);
        let sentence = says.map(|says| says.split_once(". ").map_or(says, |(first, _)| first));
        assert!(sentence.is_none_or(|sentence| said.contains(sentence)), "{}: {sentence:?} in {said}", start.name);
    }
    assert_eq!(starts.len(), 32);
}
