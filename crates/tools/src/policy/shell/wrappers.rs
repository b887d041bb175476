//! Programs that run other programs: which ones do they run?
//!
//! A wrapper that only passes on (`env`, `timeout`, `bash -c`) is [`Role::Wraps`]: what it runs must be allowed. One that
//! adds something of its own (`sudo`, `xargs`, `find -exec`) must be allowed as well. Where the wrapped program can't
//! be told, a part says so.

use super::words::Word;
use super::{Part, Role, Script, base_name};

const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"];

/// What they run is no text of Bash.
const OTHER_SHELLS: [&str; 9] = ["fish", "csh", "tcsh", "nu", "pwsh", "xonsh", "at", "batch", "expect"];

/// How a wrapper's own words are skipped.
struct Wrapper {
    name: &'static str,
    /// Whether it has no say of its own.
    passes_on: bool,
    /// Options that take the next word.
    valued: &'static [&'static str],
    /// Words of its own before the program.
    operands: usize,
    /// Options that make it something else: a shell, a script, a lookup.
    strange: &'static [&'static str],
}

const fn passes(name: &'static str, valued: &'static [&'static str], operands: usize) -> Wrapper {
    Wrapper { name, passes_on: true, valued, operands, strange: &[] }
}

const fn adds(name: &'static str, valued: &'static [&'static str], operands: usize) -> Wrapper {
    Wrapper { name, passes_on: false, valued, operands, strange: &[] }
}

const WRAPPERS: &[Wrapper] = &[
    Wrapper { strange: &["-S", "--split-string"], ..passes("env", &["-u", "--unset", "-C", "--chdir"], 0) },
    passes("nohup", &[], 0),
    passes("setsid", &[], 0),
    passes("nice", &["-n", "--adjustment"], 0),
    passes("ionice", &["-c", "-n", "--class", "--classdata"], 0),
    passes("time", &["-f", "--format"], 0),
    passes("timeout", &["-k", "-s", "--kill-after", "--signal"], 1),
    passes("stdbuf", &["-i", "-o", "-e"], 0),
    passes("command", &[], 0),
    passes("builtin", &[], 0),
    passes("exec", &["-a"], 0),
    passes("unbuffer", &[], 0),
    passes("chronic", &[], 0),
    passes("busybox", &[], 0),
    passes("toybox", &[], 0),
    adds("coproc", &[], 0),
    Wrapper {
        strange: &["-i", "-s", "--login", "--shell", "-e", "--edit"],
        ..adds("sudo", &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R"], 0)
    },
    Wrapper { strange: &["-s"], ..adds("doas", &["-u", "-C"], 0) },
    adds("pkexec", &["--user"], 0),
    adds("runuser", &["-u", "-g", "-G"], 0),
    adds("xargs", &["-I", "-n", "-P", "-L", "-d", "-E", "-s", "-a", "--max-args", "--max-procs", "--arg-file"], 0),
    adds("parallel", &["-j", "-a", "--jobs", "-N", "-n"], 0),
    adds("chroot", &[], 1),
    adds("unshare", &["-S", "-G", "-R", "-w"], 0),
    adds("nsenter", &["-t", "-S", "-G"], 0),
    adds("flock", &["-w", "-E", "--timeout"], 1),
    adds("strace", &["-e", "-o", "-p", "-s", "-u"], 0),
    adds("ltrace", &["-e", "-o", "-p", "-s", "-u"], 0),
    adds("taskset", &["-p"], 1),
    adds("firejail", &[], 0),
    adds("dbus-run-session", &[], 0),
    adds("xvfb-run", &["-n", "-s"], 0),
    adds("systemd-run", &["-p", "-u", "-E"], 0),
    adds("watch", &["-n", "-d", "--interval"], 0),
    adds("entr", &[], 0),
];

/// Programs whose words, joined, are a script for a shell somewhere: after this many words of their own.
const REMOTE: [(&str, &[&str]); 2] =
    [("ssh", &["-p", "-i", "-l", "-o", "-F", "-J", "-L", "-R", "-D", "-W", "-b", "-c"]), ("mosh", &[])];

/// Adds `part`, and whatever it runs in turn. `input` is what it reads, where that is written down.
pub(super) fn unwrap(script: &mut Script, part: Part, input: Option<&str>, depth: u32) {
    if depth > super::SCRIPTS_MAX {
        script.not_clear("it is nested too deeply");
        return;
    }
    let Some(first) = part.words.first() else {
        // Only redirections: files are made or emptied.
        script.push(part);
        return;
    };
    let Some(program) = first.literal().map(|program| base_name(program).to_owned()) else {
        script.push(Part { unknown: Some("which program it is can't be told"), ..part });
        return;
    };
    let program = program.as_str();
    let part = match OTHER_SHELLS.contains(&program) {
        true => Part { unknown: Some("it runs a script in a language of its own"), ..part },
        false => part,
    };
    if SHELLS.contains(&program) {
        shell(script, part, input, depth);
    } else if program == "eval" {
        joined(script, part, 1, Role::Wraps, depth);
    } else if matches!(program, "source" | ".") {
        script.push(Part { unknown: Some("what is in the file can't be told"), ..part });
    } else if program == "trap" {
        joined_one(script, part, 1, depth);
    } else if matches!(program, "su" | "script" | "runuser" | "flock") && has_option(&part, "-c") {
        after_option(script, part, "-c", depth);
    } else if program == "find" {
        find(script, part, depth);
    } else if program == "git" {
        git(script, part, depth);
    } else if let Some((_, valued)) = REMOTE.iter().find(|(name, _)| *name == program) {
        let own = own_words(&part.words, valued, 1).unwrap_or(part.words.len());
        joined(script, part, own, Role::Runs, depth);
    } else if let Some(wrapper) = WRAPPERS.iter().find(|wrapper| wrapper.name == program) {
        wrapped(script, part, wrapper, depth);
    } else {
        script.push(part);
    }
}

/// What `part` runs, as a part that inherits its surroundings.
fn inner(outer: &Part, words: Vec<Word>, role: Role) -> Part {
    let text = words.iter().map(Word::source).collect::<Vec<_>>().join(" ");
    Part {
        assigns: outer.assigns,
        writes: outer.writes,
        reads: outer.reads.clone(),
        open_ended: outer.open_ended,
        ..Part::new(role, text, words)
    }
}

/// How many words from the program's name on are the wrapper's own; `None` if that can't be told.
fn own_words(words: &[Word], valued: &[&str], operands: usize) -> Option<usize> {
    let mut at = 1;
    let mut operands = operands;
    while let Some(word) = words.get(at) {
        let literal = word.literal()?;
        if literal == "--" {
            at += 1;
            break;
        }
        if literal.starts_with('-') && literal.len() > 1 {
            at += if valued.contains(&literal) { 2 } else { 1 };
        } else if operands > 0 {
            operands -= 1;
            at += 1;
        } else {
            return Some(at);
        }
    }
    Some((at + operands).min(words.len()))
}

fn wrapped(script: &mut Script, part: Part, wrapper: &Wrapper, depth: u32) {
    let Some(mut at) = own_words(&part.words, wrapper.valued, wrapper.operands) else {
        script.push(Part { unknown: Some("which program it is can't be told"), ..part });
        return;
    };
    let own = part.words.get(1..at).unwrap_or_default();
    let is_strange =
        own.iter().filter_map(Word::literal).any(|word| wrapper.strange.iter().any(|s| word.starts_with(s)));
    // Only lookups: `command -v git`.
    let looks_up =
        wrapper.name == "command" && own.iter().filter_map(Word::literal).any(|word| matches!(word, "-v" | "-V"));
    if looks_up {
        script.push(part);
        return;
    }
    if is_strange {
        // `env -S 'git status'` splits a text into words; more of them may follow.
        let split = part.words.iter().position(|word| word.literal().is_some_and(|word| splits(word).is_some()));
        if let Some(at) = split.filter(|_| wrapper.name == "env") {
            let rest = part.words.get(at..).unwrap_or_default().iter();
            let rest = rest.map(|word| word.literal().unwrap_or(word.source()));
            let text = rest.map(|word| splits(word).unwrap_or(word)).collect::<Vec<_>>().join(" ");
            added(script, &text, part.writes, depth);
        }
        script.push(Part { unknown: Some("it runs a shell or a script of its own"), ..part });
        return;
    }
    let mut assigns = part.assigns;
    if matches!(wrapper.name, "env" | "sudo" | "doas") {
        while part.words.get(at).and_then(Word::literal).is_some_and(is_assignment) {
            assigns = true;
            at += 1;
        }
        // What an unknown word in front of the program sets can't be told either.
        if part.words.get(at).is_some_and(|word| word.literal().is_none() && word.source().contains('=')) {
            script.push(Part { unknown: Some("which program it is can't be told"), ..part });
            return;
        }
    }
    let words = part.words.get(at..).unwrap_or_default().to_vec();
    if words.is_empty() {
        // `env` alone lists, `xargs` alone echoes, `nohup` alone complains.
        script.push(Part { assigns, ..part });
        return;
    }
    let mut inside = inner(&part, words, Role::Runs);
    inside.assigns = assigns;
    inside.open_ended |= matches!(wrapper.name, "xargs" | "parallel" | "entr");
    let role = if wrapper.passes_on { Role::Wraps } else { Role::Runs };
    script.push(Part { role, ..part });
    // `watch` gives its words to a shell.
    if wrapper.name == "watch" {
        let text = inside.words.iter().map(|word| word.literal().unwrap_or(word.source()));
        script.add(&text.collect::<Vec<_>>().join(" "), depth + 1);
    }
    unwrap(script, inside, None, depth + 1);
}

/// What `env` splits into words, where it stands in the option itself; nothing for one that takes the next word.
fn splits(word: &str) -> Option<&str> {
    word.strip_prefix("--split-string").map(|rest| rest.trim_start_matches('=')).or_else(|| word.strip_prefix("-S"))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// `bash -c SCRIPT`, `bash FILE`, `bash` alone.
fn shell(script: &mut Script, part: Part, input: Option<&str>, depth: u32) {
    let mut words = part.words.iter().enumerate().skip(1);
    let mut strange = false;
    while let Some((at, word)) = words.next() {
        let Some(literal) = word.literal() else { break };
        if literal == "-o" || literal == "+o" {
            words.next();
        } else if let Some(flags) =
            literal.strip_prefix('-').filter(|flags| !flags.starts_with('-') && !flags.is_empty())
        {
            strange |= !flags.chars().all(|flag| "ceuxl".contains(flag));
            if flags.contains('c') {
                // Options may stand between `-c` and its script.
                let rest = part.words.get(at + 1..).unwrap_or_default();
                let text = rest.iter().find(|word| !word.literal().is_some_and(|word| word.starts_with(['-', '+'])));
                let Some(text) = text.and_then(Word::literal).map(str::to_owned) else {
                    script.push(Part { unknown: Some("the script can't be told"), ..part });
                    return;
                };
                let role = if strange || part.assigns { Role::Runs } else { Role::Wraps };
                let writes = part.writes;
                script.push(Part { role, ..part });
                added(script, &text, writes, depth);
                return;
            }
        } else if literal.starts_with("--") || literal.starts_with('+') {
            strange = true;
        } else {
            break;
        }
    }
    // A file, or what it reads.
    if let Some(input) = input {
        added(script, input, part.writes, depth);
    }
    script.push(Part { unknown: Some("the script can't be told"), ..part });
}

/// A script's parts; those of one whose output goes to a file write as well.
fn added(script: &mut Script, text: &str, writes: bool, depth: u32) {
    let before = script.parts.len();
    script.add(text, depth + 1);
    for part in script.parts.iter_mut().skip(before) {
        part.writes |= writes;
    }
}

/// The words from `from` on, joined, are a script.
fn joined(script: &mut Script, part: Part, from: usize, role: Role, depth: u32) {
    let rest = part.words.get(from..).unwrap_or_default();
    let Some(literals) = rest.iter().map(Word::literal).collect::<Option<Vec<_>>>() else {
        script.push(Part { unknown: Some("the script can't be told"), ..part });
        return;
    };
    let text = literals.join(" ");
    let writes = part.writes;
    // Nothing to run, nothing to allow but the program itself.
    let role = if text.trim().is_empty() { Role::Runs } else { role };
    script.push(Part { role, ..part });
    added(script, &text, writes, depth);
}

/// The word at `at` is a script.
fn joined_one(script: &mut Script, part: Part, at: usize, depth: u32) {
    let text = part.words.get(at).map(|word| word.literal().map(str::to_owned));
    match text {
        Some(None) => script.push(Part { unknown: Some("the script can't be told"), ..part }),
        Some(Some(text)) => {
            script.push(part);
            added(script, &text, false, depth);
        }
        None => script.push(part),
    }
}

/// Options of Git's commands whose value is a command line.
const GIT_RUNS: &[(&str, &[&str])] = &[
    ("rebase", &["-x", "--exec"]),
    ("difftool", &["-x", "--extcmd"]),
    ("grep", &["-O", "--open-files-in-pager"]),
    ("archive", &["--exec"]),
    ("fetch", &["--upload-pack"]),
    ("pull", &["--upload-pack"]),
    ("clone", &["-u", "--upload-pack"]),
    ("ls-remote", &["--upload-pack", "--exec"]),
    ("push", &["--receive-pack", "--exec"]),
    ("send-pack", &["--receive-pack", "--exec"]),
    ("fetch-pack", &["--upload-pack", "--exec"]),
];
/// Options of Git itself that take the next word.
const GIT_VALUED: [&str; 6] = ["-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env"];

/// Git, and what it is told to run: an alias, a command for each submodule or commit, a program in place of its own.
fn git(script: &mut Script, part: Part, depth: u32) {
    let Some(at) = own_words(&part.words, &GIT_VALUED, 0) else {
        script.push(part);
        return;
    };
    let literals: Vec<Option<String>> = part.words.iter().map(|word| word.literal().map(str::to_owned)).collect();
    let known = |at: usize| literals.get(at).and_then(Option::as_deref);
    let mut scripts = Vec::new();
    for (own, word) in literals.iter().enumerate().take(at) {
        let set = match word.as_deref() {
            Some("-c") => known(own + 1),
            Some(word) => word.strip_prefix("-c").filter(|rest| !rest.is_empty()),
            None => None,
        };
        // Keys that name programs are many; a value that is none of a program is no harm to look at.
        scripts
            .extend(set.and_then(|set| set.split_once('=')).map(|(_, value)| value.trim_start_matches('!').to_owned()));
    }
    let command = known(at).unwrap_or_default();
    let takes = GIT_RUNS.iter().find(|(name, _)| *name == command).map_or(&[][..], |(_, options)| options);
    for (number, word) in literals.iter().enumerate().skip(at + 1) {
        let Some(word) = word.as_deref() else { continue };
        for option in takes {
            let value = match word.strip_prefix(option) {
                Some("") => known(number + 1),
                Some(rest) if option.starts_with("--") => rest.strip_prefix('='),
                rest => rest,
            };
            scripts.extend(value.map(str::to_owned));
        }
    }
    let mut runs = None;
    match (command, known(at + 1)) {
        ("submodule", _) => {
            let each = literals.iter().position(|word| word.as_deref() == Some("foreach"));
            let rest = each.and_then(|each| literals.get(each + 1..)).unwrap_or_default().iter().flatten();
            let text: Vec<&str> = rest.map(String::as_str).skip_while(|word| word.starts_with('-')).collect();
            scripts.push(text.join(" "));
        }
        ("bisect", Some("run")) => runs = part.words.get(at + 2..).map(<[Word]>::to_vec),
        _ => {}
    }
    let inside = runs.filter(|words| !words.is_empty()).map(|words| inner(&part, words, Role::Runs));
    let writes = part.writes;
    script.push(part);
    for text in scripts.iter().filter(|text| !text.trim().is_empty()) {
        added(script, text, writes, depth);
    }
    if let Some(inside) = inside {
        unwrap(script, inside, None, depth + 1);
    }
}

fn has_option(part: &Part, option: &str) -> bool {
    part.words.iter().any(|word| word.literal().is_some_and(|word| word == option))
}

fn after_option(script: &mut Script, part: Part, option: &str, depth: u32) {
    let at = part.words.iter().position(|word| word.literal() == Some(option)).unwrap_or_default();
    joined_one(script, part, at + 1, depth);
}

/// `find … -exec PROGRAM … ;`, any number of times.
fn find(script: &mut Script, part: Part, depth: u32) {
    let mut runs = Vec::new();
    let mut words = part.words.iter();
    while let Some(word) = words.next() {
        if !word.literal().is_some_and(|word| matches!(word, "-exec" | "-execdir" | "-ok" | "-okdir")) {
            continue;
        }
        let until = |word: &&Word| !word.literal().is_some_and(|word| matches!(word, ";" | "+"));
        let command: Vec<Word> = words.by_ref().take_while(until).cloned().collect();
        if !command.is_empty() {
            let mut inside = inner(&part, command, Role::Runs);
            inside.open_ended = true;
            runs.push(inside);
        }
    }
    script.push(part);
    for inside in runs {
        unwrap(script, inside, None, depth + 1);
    }
}
