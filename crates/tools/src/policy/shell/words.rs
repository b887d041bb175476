//! One word of a command: what does it say once its quotes are off, if that can be told?

use tree_sitter::Node;

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// As it was written.
    source: String,
    /// Without quotes and escapes; `None` if only running it can tell.
    literal: Option<String>,
    /// It stands for names of files that match it.
    glob: bool,
}

impl Word {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { source: text.clone(), literal: Some(text), glob: false }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// What it says, if that is known.
    pub(crate) fn literal(&self) -> Option<&str> {
        self.literal.as_deref()
    }

    /// The pattern, if it is one without expansions.
    pub(super) fn glob(&self) -> Option<&str> {
        self.glob.then_some(self.source.as_str())
    }

    pub(super) fn read(node: Node<'_>, text: &str) -> Self {
        let source = source(node, text);
        let mut glob = false;
        let literal = literal(node, text, &mut glob, 0);
        Self { source: source.to_owned(), literal: literal.filter(|_| !glob), glob }
    }
}

pub(super) fn source<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    text.get(node.byte_range()).unwrap_or_default()
}

// Words are flat; a concatenation is the only one with words in it.
const DEPTH_MAX: u32 = 4;

fn literal(node: Node<'_>, text: &str, glob: &mut bool, depth: u32) -> Option<String> {
    let source = source(node, text);
    match node.kind() {
        "word" | "number" | "variable_name" | "regex" | "extglob_pattern" => unquoted(source, glob),
        "raw_string" => Some(source.strip_prefix('\'')?.strip_suffix('\'')?.to_owned()),
        "string" => {
            let mut cursor = node.walk();
            if node.named_children(&mut cursor).any(|child| child.kind() != "string_content") {
                return None;
            }
            double_quoted(source.strip_prefix('"')?.strip_suffix('"')?)
        }
        "ansi_c_string" => {
            let inner = source.strip_prefix("$'")?.strip_suffix('\'')?;
            (!inner.contains('\\')).then(|| inner.to_owned())
        }
        "concatenation" | "command_name" if depth < DEPTH_MAX => {
            let mut cursor = node.walk();
            let mut out = String::new();
            let mut end = node.start_byte();
            for child in node.children(&mut cursor) {
                // What lies between the pieces is not ours to guess.
                if child.start_byte() != end {
                    return None;
                }
                end = child.end_byte();
                out.push_str(&literal(child, text, glob, depth + 1)?);
            }
            (end == node.end_byte()).then_some(out)
        }
        _ => None,
    }
}

/// A word without quotes around it. Escapes are taken off; braces expand to what can't be told here.
fn unquoted(source: &str, glob: &mut bool) -> Option<String> {
    let mut out = String::new();
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next()?),
            '*' | '?' | '[' | ']' => {
                *glob = true;
                out.push(c);
            }
            '{' | '}' | '$' | '`' | '"' | '\'' => return None,
            // Only at its beginning does it stand for a home; nobody's home is known here.
            '~' if out.is_empty() => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

fn double_quoted(inner: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                escaped @ ('\\' | '"' | '$' | '`') => out.push(escaped),
                '\n' => {}
                other => out.extend(['\\', other]),
            },
            '$' | '`' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}
