//! The decision about one call: which rule speaks for each part of it, and what does the strictest say?

use super::pattern::{stable_json, stable_json_of_command};
use super::shell::{self, Part, Role, Script};
use super::{ArgsPattern, Decision, Judgement, Mode, NEEDS_USER, Policy, PolicyCall, Rule, Step, Tier};

/// What a rule is held against.
#[derive(Clone, Copy)]
enum Subject<'a> {
    /// A call that is no command.
    Call,
    /// One part of a command.
    Part(&'a Part),
    /// A whole command: for rules that look for text across its parts.
    Command(&'a str),
}

/// A decision on the way to a [`Step`].
struct Found<'a> {
    decision: Decision,
    rule: Option<&'a Rule>,
    why: Option<String>,
}

impl Policy {
    /// Decides one call.
    #[must_use]
    pub fn judge(&self, call: &PolicyCall<'_>) -> Judgement {
        let mut found = Vec::new();
        if call.tool.name == shell::TOOL {
            // A call without a command never runs, so nothing needs to speak for it.
            let text = command_of(call).unwrap_or_default();
            self.judge_command(call, text, &Script::parse(text), &mut found);
        } else {
            found.push((String::new(), self.judge_call(call)));
        }
        self.conclude(found)
    }

    fn judge_call(&self, call: &PolicyCall<'_>) -> Found<'_> {
        let rule = self.first(call, Subject::Call);
        Found { decision: rule.map_or(Decision::Ask, |rule| rule.decision), rule, why: None }
    }

    fn judge_command<'a>(
        &'a self,
        call: &PolicyCall<'_>,
        text: &str,
        script: &Script,
        found: &mut Vec<(String, Found<'a>)>,
    ) {
        for part in script.parts() {
            match part.role {
                Role::Runs => found.push((part.text.clone(), self.judge_part(call, part))),
                Role::Wraps => found.extend(self.stricter(call, Subject::Part(part)).map(|it| (part.text.clone(), it))),
            }
        }
        if script.only().is_none() {
            found.extend(self.stricter(call, Subject::Command(text)).map(|it| (text.to_owned(), it)));
        }
        let unknown = script.parts().iter().find_map(|part| part.unknown);
        if script.unclear().or(unknown).is_some()
            && let Some(rule) = self.mentioned(call, text)
        {
            let why = Some("the command can't be told apart, and what is refused stands in it".to_owned());
            found.push((text.to_owned(), Found { decision: Decision::Deny, rule: Some(rule), why }));
        }
        for part in script.parts().iter().filter(|part| shell::may_hide_commands(part)) {
            if let Some(rule) = self.mentioned(call, &part.text) {
                let why = Some("what is refused stands in it, where it may be run".to_owned());
                found.push((part.text.clone(), Found { decision: Decision::Deny, rule: Some(rule), why }));
            }
        }
        if script.unclear().is_some() || found.is_empty() {
            found.push((text.to_owned(), self.judge_unclear(call, script.unclear())));
        }
    }

    /// A program: the first rule that speaks for it, and what a rule can't speak for.
    fn judge_part(&self, call: &PolicyCall<'_>, part: &Part) -> Found<'_> {
        let rule = self.first(call, Subject::Part(part));
        let decision = rule.map_or(Decision::Ask, |rule| rule.decision);
        match (decision, rule) {
            (Decision::Allow, Some(rule)) => match self.objection(call, part, rule) {
                Some(why) => Found { decision: Decision::Ask, rule: Some(rule), why: Some(why.to_owned()) },
                None => Found { decision, rule: Some(rule), why: None },
            },
            (Decision::Ask, rule)
                if self.mode != Mode::Plan
                    && rule.is_none_or(|rule| rule.priority.tier() == Tier::Default)
                    && shell::is_known_safe(part, self.trusted) =>
            {
                Found { decision: Decision::Allow, rule, why: Some("it only reads in the working folder".to_owned()) }
            }
            (decision, rule) => Found { decision, rule, why: part.unknown.map(str::to_owned) },
        }
    }

    /// Why a part is asked about although `rule` allows it.
    fn objection(&self, call: &PolicyCall<'_>, part: &Part, rule: &Rule) -> Option<&'static str> {
        if part.unknown.is_some() && self.refuses_commands(call) {
            return Some("what it runs can't be told, and some commands are refused");
        }
        // A rule that allows a program says nothing about the files that its output goes to.
        if part.writes && !rule.allow_redirection && !self.mode.is_privileged() {
            return Some("its output goes to a file");
        }
        if self.mode != Mode::Yolo && !rule.is_explicit() && shell::is_dangerous(part) {
            return Some("it can do damage, and the rule does not name it");
        }
        None
    }

    /// A command that was not understood as a whole.
    fn judge_unclear(&self, call: &PolicyCall<'_>, why: Option<&'static str>) -> Found<'_> {
        let why = why.unwrap_or("there is no program in it");
        let rule = self.rules.iter().find(|rule| {
            !rule.lasting && rule.scope.args.is_none() && self.is_in_force(rule) && rule.covers(&call.tool)
        });
        let decision = match rule.map(|rule| rule.decision) {
            Some(Decision::Deny) => Decision::Deny,
            Some(Decision::Allow) if self.mode == Mode::Yolo && !self.refuses_commands(call) => Decision::Allow,
            Some(Decision::Allow | Decision::Ask) | None => Decision::Ask,
        };
        Found { decision, rule, why: Some(why.to_owned()) }
    }

    /// What rules about arguments ask or refuse of something that need not be allowed by itself.
    fn stricter(&self, call: &PolicyCall<'_>, subject: Subject<'_>) -> Option<Found<'_>> {
        let rule = self.first(call, subject)?;
        let counts = rule.decision != Decision::Allow && rule.scope.args.is_some();
        counts.then_some(Found { decision: rule.decision, rule: Some(rule), why: None })
    }

    /// A rule that refuses a program whose name stands somewhere in the text.
    fn mentioned(&self, call: &PolicyCall<'_>, text: &str) -> Option<&Rule> {
        self.refusing_commands(call).into_iter().find(|rule| match &rule.scope.args {
            Some(ArgsPattern::CommandPrefix(words)) => shell::mentions(text, words),
            Some(ArgsPattern::Text(_) | ArgsPattern::PlanFiles) | None => false,
        })
    }

    fn refuses_commands(&self, call: &PolicyCall<'_>) -> bool {
        !self.refusing_commands(call).is_empty()
    }

    fn refusing_commands(&self, call: &PolicyCall<'_>) -> Vec<&Rule> {
        let refuses = |rule: &&Rule| {
            rule.decision == Decision::Deny
                && rule.scope.args.is_some()
                && self.is_in_force(rule)
                && rule.covers(&call.tool)
        };
        self.rules.iter().filter(refuses).collect()
    }

    /// The rule that speaks for the subject. A lasting answer speaks only in the place of a rule that asks.
    fn first(&self, call: &PolicyCall<'_>, subject: Subject<'_>) -> Option<&Rule> {
        let mut lasting = None;
        let matching = self
            .rules
            .iter()
            .filter(|rule| self.is_in_force(rule) && rule.covers(&call.tool) && self.args_match(rule, call, subject));
        for rule in matching {
            if rule.lasting {
                lasting.get_or_insert(rule);
            } else if rule.decision == Decision::Ask {
                return lasting.or(Some(rule));
            } else {
                return Some(rule);
            }
        }
        lasting
    }

    fn args_match(&self, rule: &Rule, call: &PolicyCall<'_>, subject: Subject<'_>) -> bool {
        let Some(args) = &rule.scope.args else { return true };
        let allows = rule.decision == Decision::Allow;
        match (args, subject) {
            (ArgsPattern::PlanFiles, _) => call.writes_only_plans(self.plans.as_ref()),
            (ArgsPattern::CommandPrefix(words), Subject::Part(part)) if allows => {
                is_plain(part) && part.starts_with(words)
            }
            (ArgsPattern::CommandPrefix(words), Subject::Part(part)) => part.might_run(words),
            (ArgsPattern::CommandPrefix(_), Subject::Call | Subject::Command(_)) => false,
            (ArgsPattern::Text(pattern), Subject::Call) => pattern.is_match(&stable_json(call.args), !allows),
            (ArgsPattern::Text(pattern), Subject::Part(part)) => {
                let is_match = |text: &str| pattern.is_match(&stable_json_of_command(call.args, text), !allows);
                if allows {
                    return is_plain(part) && is_match(&part.text);
                }
                is_match(&part.text) || part.literals().is_some_and(|words| is_match(&words.join(" ")))
            }
            // What is allowed must be allowed part by part.
            (ArgsPattern::Text(_), Subject::Command(_)) if allows => false,
            (ArgsPattern::Text(pattern), Subject::Command(text)) => {
                pattern.is_match(&stable_json_of_command(call.args, text), true)
            }
        }
    }

    /// Whether a pattern over arguments concerns the call, or any part of its command.
    pub(super) fn concerns_any_part(&self, args: Option<&ArgsPattern>, call: &PolicyCall<'_>) -> bool {
        let Some(args) = args else { return true };
        match (args, command_of(call).filter(|_| call.tool.name == shell::TOOL)) {
            (ArgsPattern::PlanFiles, _) => call.writes_only_plans(self.plans.as_ref()),
            (ArgsPattern::Text(pattern), None) => pattern.is_match(&stable_json(call.args), true),
            (ArgsPattern::CommandPrefix(_), None) => false,
            (ArgsPattern::Text(pattern), Some(text)) => {
                let is_match = |text: &str| pattern.is_match(&stable_json_of_command(call.args, text), true);
                is_match(text) || Script::parse(text).parts().iter().any(|part| is_match(&part.text))
            }
            (ArgsPattern::CommandPrefix(words), Some(text)) => {
                let script = Script::parse(text);
                script.parts().iter().any(|part| part.might_run(words))
                    || (script.unclear().is_some() && shell::mentions(text, words))
            }
        }
    }

    fn conclude(&self, found: Vec<(String, Found<'_>)>) -> Judgement {
        let mut decision = Decision::Allow;
        let (mut message, mut source) = (None, None);
        let mut steps = Vec::new();
        for (text, Found { decision: wanted, rule, mut why }) in found {
            let mut own = rule.filter(|_| wanted == Decision::Deny).and_then(|rule| rule.deny_message.clone());
            let mut effective = wanted;
            if wanted == Decision::Ask && !self.interactive {
                effective = Decision::Deny;
                own = Some(NEEDS_USER.to_owned());
                let unheard = "there is nobody to ask";
                why = Some(why.map_or_else(|| unheard.to_owned(), |why| format!("{why}, and {unheard}")));
            }
            // The first one of the strictest is told.
            if source.is_none() || effective > decision {
                decision = effective;
                message = own;
                source = Some(rule.map_or_else(|| "default".to_owned(), |rule| rule.source.to_string()));
            }
            steps.push(Step { text, decision: effective, rule: rule.map(Rule::origin), why });
        }
        Judgement { decision, message, source: source.unwrap_or_else(|| "default".to_owned()), steps }
    }
}

/// Whether a part is one program with nothing around it that a rule about its words could not speak for.
fn is_plain(part: &Part) -> bool {
    part.unknown.is_none() && !part.assigns && !part.words.is_empty()
}

fn command_of<'a>(call: &PolicyCall<'a>) -> Option<&'a str> {
    call.args.get("command").and_then(serde_json::Value::as_str)
}

impl Policy {
    /// What a rule about each program of a command would have to say so that it is not asked about again: its first
    /// words. `None` if rules could not help, or nothing needs them.
    pub(super) fn prefixes_to_allow(&self, call: &PolicyCall<'_>) -> Option<Vec<Vec<String>>> {
        let script = Script::parse(command_of(call)?);
        if script.unclear().is_some() {
            return None;
        }
        let mut prefixes: Vec<Vec<String>> = Vec::new();
        for part in script.parts() {
            match part.role {
                Role::Wraps if self.stricter(call, Subject::Part(part)).is_none() => {}
                Role::Wraps => return None,
                Role::Runs => {
                    let found = self.judge_part(call, part);
                    if found.decision == Decision::Allow {
                        continue;
                    }
                    let helps = is_plain(part)
                        && !part.writes
                        && !shell::is_dangerous(part)
                        && found.rule.is_none_or(|rule| rule.decision != Decision::Allow);
                    let program = part.program().filter(|_| helps)?;
                    let prefix = vec![program.to_owned()];
                    if !prefixes.contains(&prefix) {
                        prefixes.push(prefix);
                    }
                }
            }
        }
        (!prefixes.is_empty()).then_some(prefixes)
    }
}
