//! What was decided, by which rule, for which part: for the scheduler, for logs, and for people.

use super::Decision;

/// What was decided about one part of a call; for anything but a command, about the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The part, as it was written; empty for a call that has no parts.
    pub text: String,
    /// What is decided about it.
    pub decision: Decision,
    /// The rule that decided, in one line; `None` where none matched.
    pub rule: Option<String>,
    /// Why the decision is another one than the rule's, or what no rule says: a sentence fragment.
    pub why: Option<String>,
}

/// A decision, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What is decided.
    pub decision: Decision,
    /// What there is to say about a refusal.
    pub message: Option<String>,
    /// The deciding rule's source, such as `built-in` or `--allowed-tools`; `default` where no rule matched.
    pub source: String,
    /// How it came about, part by part.
    pub steps: Vec<Step>,
}

impl Judgement {
    /// Joins what somebody else says about the call. Only ever goes towards refusing; returns whether it did.
    pub fn tighten(&mut self, decision: Decision, source: &str, message: Option<String>) -> bool {
        if decision <= self.decision {
            return false;
        }
        self.decision = decision;
        self.message = message;
        source.clone_into(&mut self.source);
        true
    }

    /// Several lines for people: the decision, then each part with its rule.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut out = format!("{}: {}", self.decision.as_str(), self.source);
        if let Some(message) = &self.message {
            out.push_str(&format!("\n  {message}"));
        }
        for Step { text, decision, rule, why } in &self.steps {
            let what = if text.is_empty() { String::new() } else { format!(" {}", text.replace('\n', "\\n")) };
            out.push_str(&format!("\n  {}{what}\n    rule: {}", decision.as_str(), rule.as_deref().unwrap_or("none")));
            if let Some(why) = why {
                out.push_str(&format!("\n    because {why}"));
            }
        }
        out
    }
}
