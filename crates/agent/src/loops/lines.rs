//! Sans-IO: which lines of a text may count as repetition?
//!
//! Lists, tables, headings, quotes and dividers look alike by nature, and code repeats itself: such lines count as
//! nothing and make what came before count as nothing, code between fences is not looked at. Everything goes by lines and
//! characters, so where a text is cut makes no difference. Source: runtime specification §9, with part (c) 20 and 21.

use super::text::Windows;

/// Most characters at a line's beginning that it takes to tell what it is; a divider may be longer.
const HEAD_MAX: usize = 64;

/// A text, line by line.
#[derive(Debug, Default)]
pub(super) struct Lines {
    windows: Windows,
    line: Line,
    in_code: bool,
    /// Whether the last character that counted was white space: runs of it count as one.
    spaced: bool,
}

/// What is known of the current line.
#[derive(Debug, Default)]
enum Line {
    /// Nothing: there was only white space.
    #[default]
    Start,
    /// It depends on what comes; these characters wait for it.
    Open(String),
    /// Ordinary text.
    Text,
    /// Nothing that counts; the rest of the line is skipped.
    Skipped,
}

/// What a line turns out to be.
enum Verdict {
    Unknown,
    Text,
    Structure,
    Fence,
}

impl Lines {
    /// Looks at more text; an excerpt of what repeats, as soon as something does.
    pub(super) fn add(&mut self, text: &str) -> Option<String> {
        text.chars().find_map(|c| self.push(c))
    }

    fn push(&mut self, c: char) -> Option<String> {
        if c == '\n' {
            return self.end_line();
        }
        match &mut self.line {
            Line::Text => self.count(c),
            Line::Skipped => None,
            Line::Start if c.is_whitespace() => None,
            Line::Start if self.in_code && c != '`' && c != '~' => {
                self.line = Line::Skipped;
                None
            }
            Line::Start => self.open(String::from(c)),
            Line::Open(head) => {
                let mut head = std::mem::take(head);
                head.push(c);
                self.open(head)
            }
        }
    }

    /// A line that begins with `head`.
    fn open(&mut self, head: String) -> Option<String> {
        match verdict(&head) {
            // Its end decides, and it is never this long but for a divider.
            Verdict::Unknown if head.len() > HEAD_MAX => self.structure(),
            Verdict::Unknown => {
                self.line = Line::Open(head);
                None
            }
            Verdict::Fence => {
                self.in_code = !self.in_code;
                self.structure()
            }
            Verdict::Structure => self.structure(),
            Verdict::Text if self.in_code => self.structure(),
            Verdict::Text => {
                self.line = Line::Text;
                head.chars().find_map(|c| self.count(c))
            }
        }
    }

    fn structure(&mut self) -> Option<String> {
        self.windows.clear();
        self.line = Line::Skipped;
        None
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if self.in_code {
            return None;
        }
        match line {
            // Made of nothing but what dividers are made of.
            Line::Open(_) => {
                self.windows.clear();
                None
            }
            Line::Text => self.count(' '),
            Line::Start | Line::Skipped => None,
        }
    }

    fn count(&mut self, c: char) -> Option<String> {
        let c = if c.is_whitespace() { ' ' } else { c };
        if c == ' ' && std::mem::replace(&mut self.spaced, true) {
            return None;
        }
        self.spaced = c == ' ';
        self.windows.push(c)
    }
}

/// What a line is that begins so; white space before it is gone.
fn verdict(head: &str) -> Verdict {
    let mut chars = head.chars();
    let Some(first) = chars.next() else { return Verdict::Unknown };
    let rest = chars.as_str();
    match first {
        '|' | '>' => Verdict::Structure,
        '#' => after_run(head, '#', |next| if next.is_whitespace() { Verdict::Structure } else { Verdict::Text }),
        '`' | '~' => match head.chars().take_while(|c| *c == first).count() {
            run if run >= 3 => Verdict::Fence,
            run if run == head.chars().count() => Verdict::Unknown,
            _ => Verdict::Text,
        },
        '0'..='9' => numbered(head),
        c if is_bullet(c) && rest.chars().next().is_some_and(char::is_whitespace) => Verdict::Structure,
        c if is_divider(c) || is_bullet(c) => {
            let plain = |c: char| is_divider(c) || is_bullet(c) || c.is_whitespace();
            if rest.chars().all(plain) { Verdict::Unknown } else { Verdict::Text }
        }
        _ => Verdict::Text,
    }
}

fn after_run(head: &str, of: char, then: impl Fn(char) -> Verdict) -> Verdict {
    head.chars().find(|c| *c != of).map_or(Verdict::Unknown, then)
}

/// `12. ` and `12) ` are items of a list, `12:30` and `0x12` are not.
fn numbered(head: &str) -> Verdict {
    let mut rest = head.trim_start_matches(|c: char| c.is_ascii_digit()).chars();
    match (rest.next(), rest.next()) {
        (None, _) | (Some('.' | ')'), None) => Verdict::Unknown,
        (Some('.' | ')'), Some(next)) if next.is_whitespace() => Verdict::Structure,
        _ => Verdict::Text,
    }
}

fn is_bullet(c: char) -> bool {
    matches!(c, '-' | '*' | '+' | '•' | '–' | '▪' | '◦')
}

fn is_divider(c: char) -> bool {
    matches!(c, '-' | '=' | '_' | '*' | '+' | '.' | '·' | '…' | '~' | '—' | '\u{2500}'..='\u{257F}' | '\u{2580}'..='\u{259F}')
}
