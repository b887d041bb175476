//! Settings and flags that stand for rules. Source: runtime specification §6.6, the table of dynamic rules.

use super::allowed::named_rule;
use super::{AllowedToolError, Decision, Priority, Rule, Source, Tier, ToolPattern};

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
            for text in core {
                rules.push(named_rule(text, Decision::Allow, 250, "tools.core")?);
            }
            let mut others = rule("*", Decision::Deny, 240, "tools.core");
            others.deny_message = Some("It is not one of the tools in tools.core.".to_owned());
            rules.push(others);
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
}

fn rule(tool: &str, decision: Decision, p: u16, source: &'static str) -> Rule {
    Rule::new(ToolPattern::parse(tool), decision, Priority::new(Tier::User, p), Source::Named(source))
}
