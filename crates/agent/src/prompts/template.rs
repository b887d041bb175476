//! The prompt of a command file: text with holes. `{{args}}` is what was typed behind the command, `!{…}` the output of a
//! shell command, `@{…}` a file.
//!
//! Braces inside of a hole must be balanced. Arguments inside of `!{…}` are one word each for the shell, whatever they hold.

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Args,
    File(String),
    Shell(Line),
}

impl Piece {
    /// Whether the arguments have a place in it.
    pub(super) fn takes_args(&self) -> bool {
        match self {
            Self::Args => true,
            Self::Shell(line) => line.0.contains(ARGS),
            Self::Text(_) | Self::File(_) => false,
        }
    }
}

/// A command line, with places for arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line(String);

impl Line {
    /// The line to run; the arguments come as one quoted word.
    pub(super) fn command(&self, args: &str) -> String {
        if args.is_empty() {
            return self.0.replace(ARGS, "");
        }
        self.0.replace(ARGS, &format!("'{}'", args.replace('\'', "'\\''")))
    }
}

const ARGS: &str = "{{args}}";

/// Why a prompt has no pieces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("find the end of \"{0}\"")]
pub(super) struct Unclosed(String);

/// Takes a prompt apart.
pub(super) fn parse(prompt: &str) -> Result<Vec<Piece>, Unclosed> {
    let mut pieces = Vec::new();
    let mut rest = prompt;
    while let Some((at, hole)) = next_hole(rest) {
        let (before, from) = rest.split_at(at);
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        if hole == Hole::Args {
            pieces.push(Piece::Args);
            rest = from.get(ARGS.len()..).unwrap_or_default();
            continue;
        }
        let inside = from.get(2..).unwrap_or_default();
        let Some(end) = closing(inside) else { return Err(Unclosed(from.chars().take(20).collect())) };
        let content = inside.get(..end).unwrap_or_default().trim();
        pieces.push(match hole {
            Hole::File => Piece::File(content.to_owned()),
            Hole::Shell | Hole::Args => Piece::Shell(Line(content.to_owned())),
        });
        rest = inside.get(end + 1..).unwrap_or_default();
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hole {
    Args,
    File,
    Shell,
}

fn next_hole(text: &str) -> Option<(usize, Hole)> {
    let found = [(ARGS, Hole::Args), ("@{", Hole::File), ("!{", Hole::Shell)];
    found.into_iter().filter_map(|(mark, hole)| Some((text.find(mark)?, hole))).min_by_key(|(at, _)| *at)
}

/// Where the brace closes that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_what_is_around_them() {
        let pieces = parse("Look at @{src/a b.rs}: {{args}}. !{echo ${HOME} {{args}}} end").unwrap();
        let text = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(
            pieces,
            [
                text("Look at "),
                Piece::File("src/a b.rs".to_owned()),
                text(": "),
                Piece::Args,
                text(". "),
                Piece::Shell(Line("echo ${HOME} {{args}}".to_owned())),
                text(" end"),
            ]
        );
        assert_eq!(parse("plain {x}").unwrap(), [text("plain {x}")]);
        assert!(parse("!{echo").is_err() && parse("@{a{b}").is_err());
    }

    #[test]
    fn arguments_stay_one_word() {
        let line = Line("git log {{args}}".to_owned());
        assert_eq!(line.command("a; rm -rf 'x'"), "git log 'a; rm -rf '\\''x'\\'''");
        assert_eq!(line.command(""), "git log ");
        assert!(Piece::Shell(line).takes_args());
    }
}
