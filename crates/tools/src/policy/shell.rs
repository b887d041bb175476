//! What does a shell command run? Every program of it, however it is wrapped, in a list.
//!
//! The text is parsed with the Bash grammar of tree-sitter. Pipes, lists, subshells, functions, substitutions and
//! here-documents are walked through; programs that run other programs (`sudo`, `xargs`, `bash -c`, …) are looked into.
//! Whatever can't be told for sure is said to be unknown, never guessed: a rule that allows does not speak for it.
//! Bounded in text, depth, parts and parser steps, so that no text hangs or overflows anything.

mod known;
mod walk;
mod words;
mod wrappers;

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, ParseState, Parser};

pub(crate) use known::{is_dangerous, is_known_safe, may_hide_commands};
pub(crate) use words::Word;

/// The tool whose argument is a command.
pub(crate) const TOOL: &str = "run_shell_command";

// Longer than any honest command; the parser's time grows with it.
const TEXT_MAX: usize = 64 << 10;
// A script in a script in a script; nobody nests deeper by hand.
const SCRIPTS_MAX: u32 = 8;
// Programs of one command. More is a program of its own, to be looked at by a person.
const PARTS_MAX: usize = 256;
// Calls of the parser's progress callback, one per hundred operations or so: some seconds of the slowest machine.
const PARSER_STEPS_MAX: u32 = 20_000;

/// A command as the policy sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    parts: Vec<Part>,
    /// Why not everything is known.
    unclear: Option<&'static str>,
}

/// How a part takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It does something; it must be allowed.
    Runs,
    /// It only runs others, which are parts of their own: rules can be stricter about it, but need not allow it.
    Wraps,
}

/// One program with its arguments, or an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) role: Role,
    /// The words as they were written, for patterns and for people.
    pub(crate) text: String,
    pub(crate) words: Vec<Word>,
    /// Environment variables are set for it that may change what it does.
    pub(crate) assigns: bool,
    /// Output goes to a file.
    pub(crate) writes: bool,
    /// Files that are read by redirection.
    pub(crate) reads: Vec<Word>,
    /// More arguments come from elsewhere.
    pub(crate) open_ended: bool,
    /// What it runs can't be told, for this reason.
    pub(crate) unknown: Option<&'static str>,
}

impl Part {
    pub(crate) fn new(role: Role, text: impl Into<String>, words: Vec<Word>) -> Self {
        Self {
            role,
            text: text.into(),
            words,
            assigns: false,
            writes: false,
            reads: Vec::new(),
            open_ended: false,
            unknown: None,
        }
    }

    /// The words without quotes, where all of them are known.
    pub(crate) fn literals(&self) -> Option<Vec<&str>> {
        self.words.iter().map(Word::literal).collect()
    }

    /// The program as it is called.
    pub(crate) fn program(&self) -> Option<&str> {
        self.words.first()?.literal()
    }

    /// Whether its first words are these: for a rule that allows.
    pub(crate) fn starts_with(&self, prefix: &[String]) -> bool {
        !prefix.is_empty()
            && self.words.len() >= prefix.len()
            && self.words.iter().zip(prefix).all(|(word, wanted)| word.literal() == Some(wanted))
    }

    /// Whether it might be a call with these first words: for rules that ask or refuse. The program may be given by its
    /// path, options may stand between the words.
    pub(crate) fn might_run(&self, prefix: &[String]) -> bool {
        let (Some((program, args)), Some((wanted, more))) = (self.words.split_first(), prefix.split_first()) else {
            return false;
        };
        program.literal().is_some_and(|program| is_program(program, wanted)) && follows(args, more)
    }
}

/// Whether `wanted` come next in `args`, with nothing but options and their values in between.
fn follows(args: &[Word], wanted: &[String]) -> bool {
    let mut wanted = wanted.iter();
    let Some(mut next) = wanted.next() else { return true };
    let mut after_option = false;
    for word in args {
        match word.literal() {
            Some(literal) if literal == next => match wanted.next() {
                None => return true,
                Some(more) => {
                    next = more;
                    after_option = false;
                }
            },
            // It may well expand to what is wanted.
            None => return true,
            Some(literal) if literal.starts_with('-') => after_option = true,
            Some(_) if after_option => after_option = false,
            Some(_) => return false,
        }
    }
    false
}

pub(super) fn is_program(word: &str, wanted: &str) -> bool {
    word == wanted || base_name(word) == wanted
}

/// The last component of a program's path.
fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl Script {
    /// Reads a command.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut script = Self::default();
        script.add(text, 0);
        script
    }

    /// The programs that it names, each once, in their order.
    #[must_use]
    pub fn programs(&self) -> Vec<String> {
        let mut programs: Vec<String> = Vec::new();
        for part in self.parts.iter().filter(|part| part.unknown.is_none()) {
            if let Some(program) = part.program().filter(|program| !programs.iter().any(|known| known == program)) {
                programs.push(program.to_owned());
            }
        }
        programs
    }

    /// Whether every program in it is known to do nothing but read in the working folder.
    pub(crate) fn only_reads(&self) -> bool {
        self.unclear.is_none() && !self.parts.is_empty() && self.parts.iter().all(|part| is_known_safe(part, true))
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Why it could not be read as a whole.
    pub(crate) fn unclear(&self) -> Option<&'static str> {
        self.unclear
    }

    /// The one part of a command that is nothing but one program.
    pub(crate) fn only(&self) -> Option<&Part> {
        match self.parts.as_slice() {
            [part] if self.unclear.is_none() => Some(part),
            _ => None,
        }
    }

    fn add(&mut self, text: &str, depth: u32) {
        if depth > SCRIPTS_MAX {
            self.not_clear("it is nested too deeply");
            return;
        }
        if let Some(why) = unreadable(text) {
            self.not_clear(why);
            return;
        }
        let Some(tree) = parse(text) else {
            self.not_clear("it takes too long to read");
            return;
        };
        if tree.root_node().has_error() {
            self.not_clear("it can't be parsed");
        }
        walk::walk(self, &tree, text, depth);
    }

    fn push(&mut self, part: Part) {
        if self.parts.len() >= PARTS_MAX {
            self.not_clear("it has too many parts");
        } else {
            self.parts.push(part);
        }
    }

    fn not_clear(&mut self, why: &'static str) {
        self.unclear.get_or_insert(why);
    }
}

/// What a shell and the grammar are known to read differently, or nobody writes.
fn unreadable(text: &str) -> Option<&'static str> {
    if text.len() > TEXT_MAX {
        return Some("it is too long");
    }
    let odd = |c: char| (c.is_control() && c != '\n' && c != '\t') || (c.is_whitespace() && !c.is_ascii());
    if text.contains(odd) {
        return Some("it has control characters or unusual spaces in it");
    }
    // A continued line may join two halves of a word, which the grammar reads as two words.
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' {
            if chars.peek() == Some(&'\n') && !before.is_whitespace() {
                return Some("a line is continued within a word");
            }
            // An escaped character is no escape itself.
            before = chars.next().map_or('\\', |next| if next == '\n' { '\n' } else { '\\' });
        } else {
            before = c;
        }
    }
    None
}

fn parse(text: &str) -> Option<tree_sitter::Tree> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let mut steps = 0_u32;
    let mut bounded = |_: &ParseState| {
        steps += 1;
        if steps > PARSER_STEPS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut bounded);
    let bytes = text.as_bytes();
    parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or_default(), None, Some(options))
}

/// Whether a text that could not be read names a program with these first words somewhere: with nothing but what
/// separates words in between. Says yes too often, so that a refusal can't be dodged by confusing the parser.
pub(crate) fn mentions(text: &str, prefix: &[String]) -> bool {
    let bare: String = text.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
    let separates = |c: char| c.is_whitespace() || c.is_control() || "|&;<>(){}$`=!".contains(c);
    let words: Vec<&str> = bare.split(separates).filter(|word| !word.is_empty()).collect();
    !prefix.is_empty()
        && words.windows(prefix.len()).any(|window| {
            let mut pairs = window.iter().zip(prefix);
            pairs.next().is_some_and(|(word, wanted)| is_program(word, wanted))
                && pairs.all(|(word, wanted)| word == wanted)
        })
}
