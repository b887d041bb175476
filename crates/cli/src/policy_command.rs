//! `convoke policy`: what would happen, and by which rule?

use std::fs;

use convoke_protocol::ExitCode;
use convoke_tools::policy::{Case, Checker, Decision, Policy, Rule, parse_cases};
use convoke_tools::{Mode, PolicyOptions};
use serde_json::{Value, json};

use crate::args::{AgentArgs, PolicyArgs, PolicyCommand};
use crate::failure::{Exit, complain, print};
use crate::startup::Startup;
use crate::{extensions, policies};

/// The tool that a command without `--tool` is about.
const SHELL: &str = "run_shell_command";

/// Runs one of its sub-commands.
pub(crate) fn run(args: &PolicyArgs) -> Exit {
    match answer(args) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn answer(args: &PolicyArgs) -> Result<Exit, Exit> {
    let startup = Startup::read(None, args.skip_trust)?;
    startup.warn();
    let agent = AgentArgs {
        approval_mode: args.mode,
        allowed_tools: args.allowed_tools.clone(),
        policy: args.policy.clone(),
        admin_policy: args.admin_policy.clone(),
        skip_trust: args.skip_trust,
        ..AgentArgs::default()
    };
    let (extensions, _) = extensions::chosen(&startup, &[]);
    let found = policies::read(&agent, &startup, !args.headless, &extensions)?;
    for warning in &found.warnings {
        complain(&format!("warning: {warning}"));
    }
    match &args.command {
        PolicyCommand::Explain { words, tool, args: given, server, annotations, subagent } => {
            let (tool, given) = match (tool, given) {
                (None, None) => (SHELL.to_owned(), json!({"command": words.join(" ")})),
                (Some(tool), Some(given)) => (tool.clone(), parse("--args", given)?),
                (Some(tool), None) if words.is_empty() => (tool.clone(), json!({})),
                (Some(_), None) => {
                    return Err(Exit::because(ExitCode::Input, "explain a tool: give its arguments with --args"));
                }
                (None, Some(given)) => (SHELL.to_owned(), parse("--args", given)?),
            };
            let annotations = annotations.as_ref().map(|text| parse("--annotations", text)).transpose()?;
            let case = Case {
                server: server.clone(),
                annotations: annotations.and_then(|value| value.as_object().cloned()).unwrap_or_default(),
                subagent: subagent.clone(),
                ..Case::of(tool, given)
            };
            let policy = policy(found.options)?;
            let judged = case.judge(&policy);
            print(&format!("in {} mode: {}", policy.mode().in_files(), judged.explain()));
            let checkers = if judged.decision == Decision::Deny { Vec::new() } else { case.checkers(&policy) };
            for Checker { name, source, .. } in checkers {
                print(&format!(
                    "  then the checker \"{name}\" is asked, which can only be stricter\n    rule: {source}"
                ));
            }
            Ok(Exit::ok())
        }
        PolicyCommand::List => {
            let policy = policy(found.options)?;
            policy.rules().iter().for_each(|rule| print(&line(rule)));
            Ok(Exit::ok())
        }
        PolicyCommand::Test { file } => {
            let unreadable = |error| Exit::because(ExitCode::Input, format!("read {}: {error}", file.display()));
            let text = fs::read_to_string(file).map_err(unreadable)?;
            let cases = parse_cases(&text)
                .map_err(|error| Exit::because(ExitCode::Input, format!("{}: {error}", file.display())))?;
            test(&cases, &found.options)
        }
    }
}

fn parse(flag: &str, text: &str) -> Result<Value, Exit> {
    let refused = |why: String| Exit::because(ExitCode::Input, why);
    let value: Value = serde_json::from_str(text).map_err(|error| refused(format!("read {flag} as JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(refused(format!("read {flag}: it is no JSON object"))) }
}

fn policy(options: PolicyOptions) -> Result<Policy, Exit> {
    Policy::new(options).map_err(|error| Exit::because(ExitCode::Input, error))
}

/// One line of the list: priority, decision, what it is about, where it was written.
fn line(rule: &Rule) -> String {
    let scope = &rule.scope;
    let mut about = scope.tool.to_string();
    if let Some(args) = &scope.args {
        about.push_str(&format!(" {args}"));
    }
    for (key, value) in [("mcp", &scope.mcp_server), ("subagent", &scope.subagent)] {
        about.push_str(&value.as_ref().map(|value| format!(" {key}={value}")).unwrap_or_default());
    }
    if !scope.annotations.is_empty() {
        about.push_str(&format!(" says={}", Value::Object(scope.annotations.clone())));
    }
    if let Some(modes) = &scope.modes {
        let names: Vec<&str> = modes.iter().copied().map(Mode::in_files).collect();
        about.push_str(&format!(" modes={}", names.join(",")));
    }
    if let Some(interactive) = scope.interactive {
        about.push_str(if interactive { " interactive" } else { " headless" });
    }
    let name = rule.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    format!("{} {:8} {about}  [{}{name}]", rule.priority, rule.decision.as_str(), rule.source)
}

/// Judges each case, and tells the ones that are judged otherwise.
fn test(cases: &[Case], options: &PolicyOptions) -> Result<Exit, Exit> {
    let mut wrong = 0;
    for case in cases {
        let options = PolicyOptions {
            mode: case.mode.unwrap_or(options.mode),
            interactive: case.interactive.unwrap_or(options.interactive),
            ..options.clone()
        };
        let policy = policy(options)?;
        let judged = case.judge(&policy);
        if judged.decision != case.expect {
            wrong += 1;
            let mode = policy.mode().in_files();
            let wanted: Decision = case.expect;
            print(&format!(
                "{} {} in {mode} mode, expected {}, is {}",
                case.tool,
                case.args,
                wanted.as_str(),
                judged.explain()
            ));
        }
    }
    print(&format!("{} of {} cases are as expected", cases.len() - wrong, cases.len()));
    Ok(if wrong == 0 { Exit::ok() } else { Exit::from(ExitCode::Failure) })
}
