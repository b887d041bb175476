//! What does a shell command run? Answered only where there is no doubt.
//!
//! This is no shell parser. It recognises one shape, a program with plain words, and calls everything else complex:
//! operators, substitutions, redirections, globs of variables, assignments, wrappers that run other commands. Nothing
//! complex is ever allowed by a rule about its first words.

use serde_json::Value;

/// The tool whose argument is a command.
pub(crate) const TOOL: &str = "run_shell_command";

/// Programs that run other programs named in their arguments, or read them from elsewhere: the first word says
/// nothing about what happens.
const WRAPPERS: [&str; 40] = [
    "sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "csh", "tcsh", "busybox", "env", "sudo", "doas", "su", "xargs",
    "nohup", "setsid", "timeout", "time", "nice", "ionice", "chroot", "unshare", "nsenter", "exec", "eval", "source",
    ".", "command", "builtin", "parallel", "watch", "script", "stdbuf", "flock", "ssh", "trap", "alias", "strace",
    "coproc",
];

/// Words of the shell's grammar that begin something other than a program.
const KEYWORDS: [&str; 16] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "select",
    "!", "[[",
];

/// What can be told about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// One program and its plain words.
    Simple(SimpleCommand),
    /// Anything else.
    Complex {
        /// Whether it may send output to a file, or read one.
        redirects: bool,
    },
}

/// One program and its plain words, quotes taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    words: Vec<String>,
}

impl SimpleCommand {
    /// The program.
    #[must_use]
    pub fn root(&self) -> Option<&str> {
        self.words.first().map(String::as_str)
    }

    /// The program and its arguments.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    pub(super) fn starts_with(&self, prefix: &[String]) -> bool {
        !prefix.is_empty() && self.words.starts_with(prefix)
    }

    /// As [`Self::starts_with`], but the program may be given by its path: for rules that refuse.
    pub(super) fn runs(&self, prefix: &[String]) -> bool {
        let (Some((program, args)), Some((wanted, more))) = (self.words.split_first(), prefix.split_first()) else {
            return false;
        };
        is_program(program, wanted) && args.starts_with(more)
    }
}

impl Command {
    /// Reads a command.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let complex = Self::Complex { redirects: text.contains(['<', '>']) };
        let Some(words) = plain_words(text) else { return complex };
        match words.first() {
            Some(root) if is_plain_program(root) => Self::Simple(SimpleCommand { words }),
            Some(_) | None => complex,
        }
    }

    /// The programs that it names, as far as can be told.
    #[must_use]
    pub fn roots(&self) -> Vec<String> {
        match self {
            Self::Simple(command) => command.root().map(str::to_owned).into_iter().collect(),
            Self::Complex { .. } => Vec::new(),
        }
    }
}

/// The command of a call, if the call is one of a command.
pub(super) fn of_call(tool: &str, args: &Value) -> Option<Command> {
    // A call without a command never runs; it is complex so that no rule about commands allows it.
    (tool == TOOL).then(|| Command::parse(args.get("command").and_then(Value::as_str).unwrap_or_default()))
}

/// Whether a complex command might run a program with these first words: whether they occur in it one after the other,
/// with nothing but what separates words in between. Says yes too often, so that a refusal can't be dodged with an
/// operator or quotes.
pub(super) fn might_run(text: &str, prefix: &[String]) -> bool {
    let bare: String = text.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
    let separates = |c: char| c.is_whitespace() || "|&;<>(){}$`=!".contains(c);
    let words: Vec<&str> = bare.split(separates).filter(|word| !word.is_empty()).collect();
    !prefix.is_empty()
        && words.windows(prefix.len()).any(|window| {
            window
                .iter()
                .zip(prefix)
                .enumerate()
                .all(|(index, (word, wanted))| if index == 0 { is_program(word, wanted) } else { word == wanted })
        })
}

fn is_program(word: &str, wanted: &str) -> bool {
    word == wanted || word.rsplit('/').next() == Some(wanted)
}

/// A program's name or path, as opposed to grammar, an assignment, an option or a wrapper.
fn is_plain_program(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    !word.is_empty()
        && !word.contains('=')
        && !word.starts_with(['-', '~'])
        && !WRAPPERS.contains(&name)
        && !KEYWORDS.contains(&word)
}

/// The words of a command that has nothing but words; `None` as soon as there is anything else.
fn plain_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.trim_matches([' ', '\t', '\n']).chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let quoted = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        '\n' | '\r' | '\0' => return None,
                        c => quoted.push(c),
                    }
                }
            }
            '"' => {
                let quoted = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        // Expanded or escaped within double quotes; history expansion needs `!`.
                        '$' | '`' | '\\' | '!' | '\n' | '\r' | '\0' => return None,
                        c => quoted.push(c),
                    }
                }
            }
            // Plain characters are listed, so that what is forgotten here is complex. `~`, `*`, `?`, `[` expand to
            // arguments, never to another program, but they hide what is touched.
            c if c.is_alphanumeric() || "-_./:,=+@%^".contains(c) => word.get_or_insert_default().push(c),
            _ => return None,
        }
    }
    words.extend(word);
    Some(words)
}
