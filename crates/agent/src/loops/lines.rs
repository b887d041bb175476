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
    /// The beginning of an open line.
    head: String,
    in_code: bool,
    /// Whether the last character that counted was white space: runs of it count as one.
    spaced: bool,
}

/// What is known of the current line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    /// Nothing: there was only white space.
    #[default]
    Start,
    /// It depends on what comes; the head waits for it.
    Open,
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
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find('\n').unwrap_or(rest.len());
            let (line, after) = rest.split_at(end);
            let found = self.line(line);
            if found.is_some() {
                return found;
            }
            rest = after;
            if let Some(next) = rest.strip_prefix('\n') {
                rest = next;
                let found = self.end_line();
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// More of the current line.
    fn line(&mut self, text: &str) -> Option<String> {
        let mut rest = text.chars();
        while matches!(self.line, Line::Start | Line::Open) {
            let found = self.begin(rest.next()?);
            if found.is_some() {
                return found;
            }
        }
        if self.line == Line::Text { self.count(rest.as_str()) } else { None }
    }

    /// A character of a line of which it is not known yet what it is.
    fn begin(&mut self, c: char) -> Option<String> {
        if self.line == Line::Start {
            if c.is_whitespace() {
                return None;
            }
            if self.in_code && c != '`' && c != '~' {
                self.line = Line::Skipped;
                return None;
            }
            self.head.clear();
            self.line = Line::Open;
        }
        self.head.push(c);
        match verdict(&self.head) {
            // Its end decides, and it is never this long but for a divider.
            Verdict::Unknown if self.head.len() > HEAD_MAX => self.structure(),
            Verdict::Unknown => {}
            Verdict::Fence => {
                self.in_code = !self.in_code;
                self.structure();
            }
            Verdict::Structure => self.structure(),
            Verdict::Text if self.in_code => self.structure(),
            Verdict::Text => {
                self.line = Line::Text;
                let head = std::mem::take(&mut self.head);
                let found = self.count(&head);
                self.head = head;
                return found;
            }
        }
        None
    }

    fn structure(&mut self) {
        self.windows.clear();
        self.line = Line::Skipped;
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if self.in_code {
            return None;
        }
        match line {
            // Made of nothing but what dividers are made of.
            Line::Open => {
                self.windows.clear();
                None
            }
            Line::Text => self.count(" "),
            Line::Start | Line::Skipped => None,
        }
    }

    fn count(&mut self, text: &str) -> Option<String> {
        let Self { windows, spaced, .. } = self;
        windows.push(text.chars().filter_map(|c| {
            let c = if c.is_whitespace() { ' ' } else { c };
            let again = std::mem::replace(spaced, c == ' ') && c == ' ';
            (!again).then_some(c)
        }))
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
