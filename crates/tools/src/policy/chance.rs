//! Rules and calls by chance: what might somebody write, and what might a model try?

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    ArgsPattern, Decision, Judgement, Mode, Policy, PolicyCall, PolicySettings, Priority, Rule, Source, TextPattern,
    Tier, ToolFacts, ToolPattern,
};

/// A call with all that is known of its tool.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) name: &'static str,
    /// Server, and what it calls the tool.
    pub(crate) server: Option<(&'static str, &'static str)>,
    pub(crate) read_only: bool,
    pub(crate) subagent: Option<&'static str>,
    pub(crate) args: Value,
}

impl Called {
    pub(crate) fn command(text: &str) -> Self {
        let args = json!({"command": text});
        Self { name: "run_shell_command", server: None, read_only: false, subagent: None, args }
    }

    /// Does something with the call as policy sees it.
    pub(crate) fn with<T>(&self, then: impl FnOnce(&PolicyCall<'_>) -> T) -> T {
        let mut annotations = Map::new();
        if self.read_only {
            annotations.insert("readOnlyHint".to_owned(), true.into());
        }
        let tool = ToolFacts {
            name: self.name,
            mcp_server: self.server.map(|(server, _)| server),
            mcp_tool: self.server.map(|(_, tool)| tool),
            annotations: Some(&annotations),
            subagent: self.subagent,
        };
        then(&PolicyCall { tool, args: &self.args, touches: &[] })
    }

    pub(crate) fn judged(&self, policy: &Policy) -> Judgement {
        self.with(|call| policy.judge(call))
    }

    pub(crate) fn decided(&self, policy: &Policy) -> Decision {
        self.judged(policy).decision
    }
}

pub(crate) fn decisions() -> impl Strategy<Value = Decision> {
    proptest::sample::select(vec![Decision::Allow, Decision::Ask, Decision::Deny])
}

pub(crate) fn modes() -> impl Strategy<Value = Mode> {
    proptest::sample::select(Mode::ALL.to_vec())
}

/// Rules of files, of every tier, about tools, servers, subagents, annotations, arguments, modes and listeners; and now
/// and then those that settings stand for.
pub(crate) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    (proptest::collection::vec(rule(), 0..8), settings()).prop_map(|(mut rules, settings)| {
        rules.extend(settings.rules().expect("they can be read"));
        rules
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let tiers = vec![Tier::Default, Tier::Extension, Tier::Workspace, Tier::User, Tier::Admin];
    let tools = ["*", "read_file", "write_file", "run_shell_command", "mcp_*", "mcp_x_*", "mcp_*_y", "web_fetch"];
    let prefixes = ["", "", "git", "git push", "rm", "ls", "/push/", "/\"file_path\":\"a\"/"];
    let servers = vec![None, None, Some("x"), Some("x_y"), Some("*")];
    let about =
        (proptest::sample::select(servers), any::<bool>(), proptest::sample::select(vec![None, None, Some("scout")]));
    let listener = proptest::sample::select(vec![None, None, Some(true), Some(false)]);
    let modes = proptest::sample::subsequence(Mode::ALL.to_vec(), 0..4);
    let what = (proptest::sample::select(tools.to_vec()), proptest::sample::select(prefixes.to_vec()));
    let rank = (decisions(), proptest::sample::select(tiers), 0_u16..1000);
    (what, rank, about, modes, listener, any::<bool>()).prop_map(
        |((tool, args), (decision, tier, p), (server, read_only, subagent), modes, interactive, redirects)| {
            let is_prefix = !args.is_empty() && !args.starts_with('/');
            let tool = if is_prefix { "run_shell_command" } else { tool };
            let mut rule = Rule::new(ToolPattern::parse(tool), decision, Priority::new(tier, p), Source::Named("test"));
            rule.scope.args = match args.strip_prefix('/').and_then(|pattern| pattern.strip_suffix('/')) {
                Some(pattern) => Some(ArgsPattern::Text(TextPattern::new(pattern).expect("it is a pattern"))),
                None if is_prefix => Some(ArgsPattern::CommandPrefix(args.split(' ').map(str::to_owned).collect())),
                None => None,
            };
            rule.scope.mcp_server = server.filter(|_| !is_prefix).map(str::to_owned);
            if read_only && server.is_some() {
                rule.scope.annotations.insert("readOnlyHint".to_owned(), true.into());
            }
            rule.scope.subagent = subagent.map(str::to_owned);
            rule.scope.modes = (!modes.is_empty()).then_some(modes);
            rule.scope.interactive = interactive;
            rule.allow_redirection = redirects;
            rule
        },
    )
}

fn settings() -> impl Strategy<Value = PolicySettings> {
    let some = |of: &'static [&'static str]| {
        proptest::sample::subsequence(of.to_vec(), 0..=of.len())
            .prop_map(|texts| texts.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    const TOOLS: &[&str] = &["write_file", "run_shell_command(git)", "web_fetch", "mcp_x_*"];
    const SERVERS: &[&str] = &["x", "x_y"];
    let lists = (some(TOOLS), some(TOOLS), some(TOOLS), some(SERVERS), some(SERVERS), some(SERVERS));
    let settings =
        lists.prop_map(|(allowed, exclude, confirmation_required, mcp_allowed, mcp_excluded, mcp_trusted)| {
            PolicySettings {
                core: None,
                allowed,
                exclude,
                confirmation_required,
                mcp_allowed,
                mcp_excluded,
                mcp_trusted,
            }
        });
    prop_oneof![3 => Just(PolicySettings::default()), 1 => settings]
}

/// Commands, whole and in pieces, tools of ours and of servers, from the main agent and from a subagent.
pub(crate) fn calls() -> impl Strategy<Value = Called> {
    (prop_oneof![commands(), tools()], proptest::sample::select(vec![None, None, Some("scout")]))
        .prop_map(|(called, subagent)| Called { subagent, ..called })
}

pub(crate) fn commands() -> impl Strategy<Value = Called> {
    let simple = [
        "git status",
        "git push",
        "rm x",
        "ls",
        "ls > x",
        "sudo rm x",
        "$X",
        "a (",
        "",
        "bash -c 'git push'",
        "env rm x",
        "echo $(git push)",
        "git -C /tmp push",
        "r\\m x",
    ];
    let simple = proptest::sample::select(simple.to_vec());
    let operators = proptest::sample::select(vec![" && ", "; ", " | ", "\n", " || "]);
    (simple.clone(), operators, simple, any::<bool>()).prop_map(|(first, operator, second, both)| {
        Called::command(&if both { format!("{first}{operator}{second}") } else { first.to_owned() })
    })
}

fn tools() -> impl Strategy<Value = Called> {
    let ours = ["read_file", "write_file", "web_fetch", "ask_user", "exit_plan_mode"].map(|name| (name, None));
    let theirs =
        [("mcp_x_y", Some(("x", "y"))), ("mcp_x_y_z", Some(("x_y", "z"))), ("mcp_x_y_z_2", Some(("x", "y_z")))];
    let all: Vec<_> = ours.into_iter().chain(theirs).collect();
    (proptest::sample::select(all), any::<bool>(), any::<bool>()).prop_map(|((name, server), read_only, other)| {
        let args = json!({"file_path": if other { "a" } else { "b" }});
        Called { name, server, read_only: read_only && server.is_some(), subagent: None, args }
    })
}
