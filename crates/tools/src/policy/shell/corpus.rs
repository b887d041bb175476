//! The corpus: every command of the table gets the verdict that stands there.

use std::path::Path;

use crate::policy::{Policy, PolicyOptions, Tier, parse_cases, parse_policy};

#[test]
fn every_command_of_the_corpus_gets_its_verdict() {
    let file = parse_policy(include_str!("corpus-policy.toml"), Path::new("corpus-policy.toml"), Tier::User).unwrap();
    let cases = parse_cases(include_str!("corpus.toml")).unwrap();
    assert!(cases.len() >= 400, "{}", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let options = PolicyOptions {
            mode: case.mode.unwrap_or_default(),
            interactive: case.interactive.unwrap_or(true),
            rules: file.rules.clone(),
            ..PolicyOptions::default()
        };
        let judged = case.judge(&Policy::new(options).unwrap());
        if judged.decision != case.expect {
            wrong.push(format!("{} wanted {}: {}", case.args, case.expect.as_str(), judged.explain()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
