//! Programs that are known: which calls only read, and which ones are worth a second look?
//!
//! A call is known to be safe if neither its program nor any of its words can change anything, run anything, or reach
//! beyond the working folder. Options are listed where a program has harmful ones, so that a new one is not safe.

use super::words::Word;
use super::{Part, Role, base_name};

/// Print what they are given, or what the system is; every option is harmless.
const TELLERS: [&str; 14] = [
    "pwd", "true", "false", ":", "echo", "whoami", "id", "uname", "nproc", "seq", "expr", "basename", "dirname", "arch",
];

/// Read files that are named, and standard input; every option is harmless, but for those named here.
const READERS: &[(&str, &[&str])] = &[
    ("cat", &[]),
    ("head", &[]),
    ("tail", &["-f", "-F", "--follow", "--retry"]),
    ("wc", &["--files0-from"]),
    ("ls", &[]),
    ("nl", &[]),
    ("tac", &[]),
    ("rev", &[]),
    ("cut", &[]),
    ("paste", &[]),
    ("tr", &[]),
    ("fold", &[]),
    ("column", &[]),
    ("comm", &[]),
    ("cmp", &[]),
    ("diff", &["--from-file", "--to-file", "-l", "--paginate"]),
    ("stat", &[]),
    ("file", &["-f", "--files-from", "-C", "--compile", "-m", "--magic-file"]),
    ("md5sum", &["-c", "--check"]),
    ("sha1sum", &["-c", "--check"]),
    ("sha256sum", &["-c", "--check"]),
    ("grep", &["-f", "--file"]),
    ("egrep", &["-f", "--file"]),
    ("fgrep", &["-f", "--file"]),
    ("rg", &["-f", "--file", "--pre", "--hostname-bin", "-z", "--search-zip", "--ignore-file"]),
    ("sort", &["-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"]),
    ("tree", &["-o", "--fromfile"]),
    ("du", &["--files0-from", "-X", "--exclude-from"]),
    ("which", &[]),
    ("test", &[]),
];

/// Git's commands that only tell, with the options that don't.
const GIT_READERS: &[(&str, &[&str])] = &[
    ("status", &[]),
    ("log", &["--output", "--ext-diff", "--textconv", "--show-signature"]),
    ("diff", &["--output", "--ext-diff", "--textconv", "--no-index"]),
    ("show", &["--output", "--ext-diff", "--textconv", "--show-signature"]),
    ("rev-parse", &[]),
    ("ls-files", &[]),
    ("blame", &["--contents", "--textconv"]),
    ("describe", &[]),
    ("shortlog", &["--output"]),
];

/// Options of `find` that do more than look.
const FIND_ACTS: [&str; 9] =
    ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"];

/// Whether the call only reads, and only from the working folder.
pub(crate) fn is_known_safe(part: &Part, trusted: bool) -> bool {
    if part.role == Role::Wraps {
        return true;
    }
    if part.writes || part.assigns || part.open_ended || part.unknown.is_some() {
        return false;
    }
    if part.program() == Some("[") {
        return true;
    }
    let Some((program, args)) = part.words.split_first() else { return false };
    // By name only: a path may lead to anything.
    let Some(program) = program.literal() else { return false };
    if !args.iter().chain(&part.reads).all(stays_inside) {
        return false;
    }
    let args: Vec<&str> = args.iter().map(|word| word.literal().unwrap_or_default()).collect();
    if TELLERS.contains(&program) {
        return true;
    }
    if let Some((_, harmful)) = READERS.iter().find(|(name, _)| *name == program) {
        return no_option(&args, harmful);
    }
    match program {
        // Where it leads is judged with what is done there: the working folder is not left.
        "cd" => args.len() == 1,
        "find" => !args.iter().any(|word| FIND_ACTS.contains(word) || *word == "-files0-from"),
        "uniq" => args.iter().filter(|word| !word.starts_with('-')).count() <= 1,
        "sed" => is_printing_sed(&args),
        "date" => args
            .iter()
            .all(|word| word.starts_with('+') || matches!(*word, "-u" | "-R" | "-I" | "--utc" | "--iso-8601")),
        "git" => trusted && is_reading_git(&args),
        _ => false,
    }
}

/// Whether none of `args` is one of these options, in its long, short or attached form.
fn no_option(args: &[&str], harmful: &[&str]) -> bool {
    args.iter().take_while(|word| **word != "--").all(|word| {
        !harmful.iter().any(|option| match option.strip_prefix("--") {
            // Long options may be shortened.
            Some(_) => {
                let name = word.split('=').next().unwrap_or(word);
                name.len() > 2 && name.starts_with("--") && option.starts_with(name)
            }
            None => {
                let flag = option.trim_start_matches('-');
                word.starts_with('-') && !word.starts_with("--") && word.contains(flag)
            }
        })
    })
}

/// `sed -n 5p`, `sed -n 1,20p`: lines are printed and nothing else.
fn is_printing_sed(args: &[&str]) -> bool {
    let ["-n", script, ..] = args else { return false };
    let Some(lines) = script.strip_suffix('p') else { return false };
    !lines.is_empty()
        && lines.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '$')
        && args.iter().skip(2).all(|word| !word.starts_with('-'))
}

fn is_reading_git(args: &[&str]) -> bool {
    let rest = match args {
        ["--no-pager", rest @ ..] => rest,
        rest => rest,
    };
    match rest {
        [command, args @ ..] if GIT_READERS.iter().any(|(name, _)| name == command) => {
            let harmful = GIT_READERS.iter().find(|(name, _)| name == command).map_or(&[][..], |(_, harmful)| harmful);
            no_option(args, harmful)
        }
        ["branch"] => true,
        ["branch", args @ ..] => {
            args.iter().all(|word| matches!(*word, "-a" | "-r" | "-v" | "-vv" | "--all" | "--list" | "--show-current"))
        }
        ["remote"] | ["remote", "-v"] | ["stash", "list"] | ["tag"] => true,
        _ => false,
    }
}

/// Whether a word can't name anything outside of the working folder. Options with a value are looked into.
fn stays_inside(word: &Word) -> bool {
    let Some(text) = word.literal().or(word.glob()) else { return false };
    let value = text.split_once('=').map_or(text, |(_, value)| value);
    // An attached value: `-I/usr`, `-f../x`.
    let attached = if text.starts_with('-') { text.trim_start_matches('-') } else { text };
    [text, value, attached].iter().all(|path| {
        !path.starts_with(['/', '~']) && !path.split('/').any(|component| component == "..") && !path.contains("/../")
    }) && !(text.starts_with('-') && (text.contains('/') || text.contains("..")))
}

/// Whether a person should look even though a rule about the whole tool, or about the program, lets it pass.
pub(crate) fn is_dangerous(part: &Part) -> bool {
    let Some((program, args)) = part.words.split_first() else { return false };
    let Some(program) = program.literal() else { return true };
    let args: Vec<&str> = args.iter().map(|word| word.literal().unwrap_or_default()).collect();
    let has = |flags: &[&str]| args.iter().any(|word| flags.contains(word));
    let short =
        |flag: char| args.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(flag));
    match base_name(program) {
        "rm" => short('r') || short('R') || short('f') || has(&["--recursive", "--force", "--no-preserve-root"]),
        "sudo" | "doas" | "su" | "pkexec" | "dd" | "shred" | "mkfs" | "fdisk" | "parted" | "shutdown" | "reboot"
        | "poweroff" | "halt" => true,
        name if name.starts_with("mkfs.") => true,
        "find" => args.iter().any(|word| FIND_ACTS.contains(word)),
        "chmod" | "chown" | "chgrp" => short('R') || has(&["--recursive"]),
        "git" => is_dangerous_git(&args),
        "make" | "gmake" => args.iter().any(|word| word.starts_with("SHELL=") || word.starts_with("MAKE")),
        "cargo" => args.iter().any(|word| word.starts_with("--config")),
        "xargs" | "parallel" => has(&["rm", "shred", "dd"]),
        _ => false,
    }
}

/// Programs that run code of other languages, or commands that stand among their arguments.
const INTERPRETERS: [&str; 21] = [
    "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "awk", "gawk", "mawk", "nawk", "sed", "vim", "vi",
    "nvim", "ex", "ed", "tar", "make", "gmake",
];

/// Whether commands may hide in its words: in code for another interpreter, or in a variable that names a program.
pub(crate) fn may_hide_commands(part: &Part) -> bool {
    let program = part.program().map(base_name).unwrap_or_default();
    part.assigns || INTERPRETERS.contains(&program) || program.starts_with("python") || program.starts_with("pypy")
}

fn is_dangerous_git(args: &[&str]) -> bool {
    // Configuration and programs of the caller's choice.
    let own: Vec<&str> = args.iter().copied().take_while(|word| word.starts_with('-')).collect();
    if own
        .iter()
        .any(|word| word.starts_with("-c") || word.starts_with("--config-env") || word.starts_with("--exec-path="))
    {
        return true;
    }
    let has = |flags: &[&str]| {
        args.iter().any(|word| flags.iter().any(|flag| word == flag || word.starts_with(&format!("{flag}="))))
    };
    match args.iter().find(|word| !word.starts_with('-')) {
        Some(&"push") => {
            has(&["-f", "--force", "--force-with-lease", "--mirror", "--delete", "-d", "--prune"])
                || args.iter().any(|word| word.starts_with('+') || word.starts_with(':'))
        }
        Some(&"reset") => has(&["--hard"]),
        Some(&"clean") => args.iter().any(|word| word.starts_with('-') && (word.contains('f') || word.contains('x'))),
        Some(&"checkout" | &"restore") => has(&["-f", "--force", "."]),
        Some(&"branch") => has(&["-D"]),
        Some(&"filter-branch" | &"update-ref" | &"reflog") => true,
        _ => false,
    }
}
