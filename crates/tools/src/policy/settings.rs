//! Settings and flags that stand for rules. Source: runtime specification §6.6, the table of dynamic rules.

use super::allowed::named_rule;
use super::{AllowedToolError, Decision, Mode, Priority, Rule, Source, Tier, ToolPattern, shell};

/// What settings and flags say about tools, as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// `tools.core`: these and no others.
    pub core: Option<Vec<String>>,
    /// `tools.allowed` and `--allowed-tools`.
    pub allowed: Vec<String>,
    /// `tools.exclude`.
    pub exclude: Vec<String>,
    /// `tools.confirmationRequired`.
    pub confirmation_required: Vec<String>,
    /// `mcp.allowed`.
    pub mcp_allowed: Vec<String>,
    /// `mcp.excluded`.
    pub mcp_excluded: Vec<String>,
    /// Servers of `mcpServers` with `trust`.
    pub mcp_trusted: Vec<String>,
}

impl PolicySettings {
    /// The rules that they stand for.
    pub fn rules(&self) -> Result<Vec<Rule>, AllowedToolError> {
        let mut rules = Vec::new();
        for text in &self.exclude {
            rules.push(named_rule(text, Decision::Deny, 400, "tools.exclude")?);
        }
        for text in &self.confirmation_required {
            rules.push(named_rule(text, Decision::Ask, 350, "tools.confirmationRequired")?);
        }
        for text in &self.allowed {
            rules.push(named_rule(text, Decision::Allow, 300, "--allowed-tools")?);
        }
        if let Some(core) = &self.core {
            let narrowed = self.narrows_commands(&rules);
            let listed = core.iter().map(|text| named_rule(text, Decision::Allow, 250, "tools.core"));
            let listed = listed.collect::<Result<Vec<_>, _>>()?;
            rules.extend(not_in_core(&listed));
            for one in listed {
                rules.extend(in_core(one, narrowed));
            }
        }
        let servers = [
            (&self.mcp_excluded, Decision::Deny, 900, "mcp.excluded"),
            (&self.mcp_trusted, Decision::Allow, 200, "mcpServers trust"),
            (&self.mcp_allowed, Decision::Allow, 100, "mcp.allowed"),
        ];
        for (names, decision, p, source) in servers {
            for name in names {
                let mut rule = rule("*", decision, p, source);
                rule.scope.mcp_server = Some(name.clone());
                rules.push(rule);
            }
        }
        Ok(rules)
    }

    /// Whether some commands are allowed by name, and not all of them.
    fn narrows_commands(&self, rules: &[Rule]) -> bool {
        let mut commands = rules.iter().filter(|rule| rule.decision == Decision::Allow && is_shell(rule)).peekable();
        commands.peek().is_some() && commands.all(|rule| rule.scope.args.is_some())
    }
}

fn is_shell(rule: &Rule) -> bool {
    rule.scope.tool == ToolPattern::Exact(shell::TOOL.to_owned())
}

/// A tool of `tools.core` runs without a question, but in plan mode, which has rules of its own. Where
/// `--allowed-tools` names the commands that may run, the list does not allow all the others.
fn in_core(mut rule: Rule, narrowed: bool) -> Vec<Rule> {
    if narrowed && is_shell(&rule) && rule.scope.args.is_none() {
        let mut asked = rule.clone();
        asked.decision = Decision::Ask;
        asked.scope.modes = Some(vec![Mode::Default, Mode::AutoEdit]);
        rule.scope.modes = Some(vec![Mode::Yolo]);
        return vec![asked, rule];
    }
    rule.scope.modes = Some(OUTSIDE_OF_PLANS.to_vec());
    vec![rule]
}

/// What is not on the list is refused: a command that a narrower entry does not name, and in every mode another tool.
fn not_in_core(listed: &[Rule]) -> [Rule; 2] {
    let mut others = rule("*", Decision::Deny, 240, "tools.core");
    others.deny_message = Some("It is not one of the tools in tools.core.".to_owned());
    let mut planning = others.clone();
    planning.scope.tool = ToolPattern::AllBut(listed.iter().map(|rule| rule.scope.tool.clone()).collect());
    planning.scope.modes = Some(vec![Mode::Plan]);
    others.scope.modes = Some(OUTSIDE_OF_PLANS.to_vec());
    [others, planning]
}

/// The modes in which what is listed runs. Plan mode's own rules say what of it may run there.
const OUTSIDE_OF_PLANS: [Mode; 3] = [Mode::Default, Mode::AutoEdit, Mode::Yolo];

fn rule(tool: &str, decision: Decision, p: u16, source: &'static str) -> Rule {
    Rule::new(ToolPattern::parse(tool), decision, Priority::new(Tier::User, p), Source::Named(source))
}
