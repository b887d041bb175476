//! From a syntax tree to parts: which programs are called in it, with which words, and where does their output go?

use tree_sitter::{Node, Tree};

use super::words::{Word, source};
use super::{Part, Role, Script, wrappers};

// Deeper than people nest, far from the end of the stack.
const DEPTH_MAX: u32 = 150;

/// Where redirections lead that change nothing.
const HARMLESS_TARGETS: [&str; 3] = ["/dev/null", "/dev/stdout", "/dev/stderr"];

/// Variables that change how something is told, and not what is done.
const HARMLESS_VARIABLES: [&str; 12] = [
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "TZ",
    "CI",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "COLUMNS",
    "RUST_BACKTRACE",
    "RUST_LOG",
];

/// What a command gets from the redirections around it.
#[derive(Clone, Default)]
struct Around {
    words: Vec<Word>,
    writes: bool,
    reads: Vec<Word>,
    /// What it reads as its input, where that is written down.
    input: Option<String>,
}

pub(super) fn walk(script: &mut Script, tree: &Tree, text: &str, depth: u32) {
    let root = tree.root_node();
    if !is_covered(root, text, 0) {
        script.not_clear("its words can't be told apart");
    }
    Walk { script, text, depth }.visit(root, 0, &Around::default());
}

/// Whether nothing but blanks lies between the words: what the grammar skips, a shell might not.
fn is_covered(node: Node<'_>, text: &str, level: u32) -> bool {
    if level > DEPTH_MAX {
        return false;
    }
    if node.child_count() == 0 {
        return true;
    }
    let quoted =
        matches!(node.kind(), "string" | "heredoc_body" | "heredoc_redirect" | "expansion" | "translated_string");
    let is_blank = |from: usize, to: usize| {
        let Some(gap) = text.get(from..to) else { return false };
        quoted || gap.replace("\\\n", "").chars().all(|c| matches!(c, ' ' | '\t' | '\n'))
    };
    let mut end = node.start_byte();
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        if !is_blank(end, child.start_byte()) || !is_covered(child, text, level + 1) {
            return false;
        }
        end = child.end_byte().max(end);
    }
    is_blank(end, node.end_byte())
}

struct Walk<'a, 'b> {
    script: &'a mut Script,
    text: &'b str,
    depth: u32,
}

impl Walk<'_, '_> {
    fn visit(&mut self, node: Node<'_>, level: u32, around: &Around) {
        if level > DEPTH_MAX {
            self.script.not_clear("it is nested too deeply");
            return;
        }
        match node.kind() {
            "comment" => {}
            "command" => self.command(node, level, around),
            "redirected_statement" => self.redirected(node, level, around),
            "declaration_command" | "unset_command" => self.declaration(node, level, around),
            "test_command" => {
                let mut part = Part::new(Role::Runs, source(node, self.text), vec![Word::plain("[")]);
                part.writes = around.writes;
                self.script.push(part);
                self.children(node, level, &Around::default());
            }
            "variable_assignment" => {
                self.assignment(source(node, self.text));
                self.children(node, level, &Around::default());
            }
            "for_statement" | "select_statement" => {
                let header: String = source(node, self.text).lines().take(1).collect();
                self.assignment(&header);
                self.children(node, level, around);
            }
            "expansion" => {
                let source = source(node, self.text);
                // Expands what is in a variable, substitutions included.
                if source.contains("@P") {
                    self.script.not_clear("it expands a variable as a prompt");
                }
                // Within quotes the grammar takes these for text.
                if source.contains('`') || source.matches("$(").count() > substitutions(node, 0) {
                    self.script.not_clear("it has a substitution within an expansion");
                }
                self.children(node, level, &Around::default());
            }
            "command_substitution" | "process_substitution" => self.children(node, level, &Around::default()),
            // What goes to a file is what the last of them says.
            "pipeline" | "list" => {
                let mut cursor = node.walk();
                let last = node.named_children(&mut cursor).last().map(|child| child.id());
                for child in node.children(&mut node.walk()) {
                    let nothing = Around::default();
                    self.visit(child, level + 1, if Some(child.id()) == last { around } else { &nothing });
                }
            }
            _ => self.children(node, level, around),
        }
    }

    fn children(&mut self, node: Node<'_>, level: u32, around: &Around) {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            self.visit(child, level + 1, around);
        }
    }

    fn command(&mut self, node: Node<'_>, level: u32, around: &Around) {
        let mut around = around.clone();
        let mut words = Vec::new();
        let mut assigns = false;
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "variable_assignment" => {
                    assigns |= !is_harmless(child, self.text);
                    self.children(child, level, &Around::default());
                }
                "file_redirect" | "heredoc_redirect" | "herestring_redirect" => {
                    let more = self.redirect(child, level);
                    words.extend(more.words);
                    around.writes |= more.writes;
                    around.reads.extend(more.reads);
                    around.input = more.input.or(around.input);
                }
                _ => {
                    words.push(Word::read(child, self.text));
                    self.visit(child, level + 1, &Around::default());
                }
            }
        }
        self.emit(source(node, self.text), words, assigns, around);
    }

    fn emit(&mut self, text: &str, mut words: Vec<Word>, assigns: bool, around: Around) {
        let Around { words: more, writes, reads, input } = around;
        let mut text = text.to_owned();
        for word in &more {
            text.push(' ');
            text.push_str(word.source());
        }
        words.extend(more);
        let part = Part { assigns, writes, reads, ..Part::new(Role::Runs, text, words) };
        wrappers::unwrap(self.script, part, input.as_deref(), self.depth);
    }

    fn redirected(&mut self, node: Node<'_>, level: u32, outer: &Around) {
        let body = node.child_by_field_name("body");
        let mut around = outer.clone();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if matches!(child.kind(), "file_redirect" | "heredoc_redirect" | "herestring_redirect") {
                let more = self.redirect(child, level);
                around.words.extend(more.words);
                around.writes |= more.writes;
                around.reads.extend(more.reads);
                around.input = more.input.or(around.input);
            } else if Some(child.id()) != body.map(|body| body.id()) {
                self.visit(child, level + 1, &Around::default());
            }
        }
        match body {
            Some(body) => self.visit(body, level + 1, &around),
            // Only redirections, or what the grammar took for their targets.
            None => self.emit(source(node, self.text), Vec::new(), false, around),
        }
    }

    /// One redirection. The grammar takes words behind a target for further targets; they are arguments.
    fn redirect(&mut self, node: Node<'_>, level: u32) -> Around {
        let mut around = Around::default();
        let mut operator = "";
        let mut cursor = node.walk();
        let mut targets = Vec::new();
        for child in node.children(&mut cursor) {
            match child.kind() {
                "file_descriptor" | "heredoc_start" | "heredoc_end" | "\n" => {}
                "heredoc_body" => {
                    around.input = Some(source(child, self.text).to_owned());
                    self.children(child, level + 1, &Around::default());
                }
                "file_redirect" | "herestring_redirect" => {
                    let more = self.redirect(child, level + 1);
                    around.words.extend(more.words);
                    around.writes |= more.writes;
                    around.reads.extend(more.reads);
                    around.input = more.input.or(around.input);
                }
                kind if !child.is_named() && kind.contains(['<', '>']) => operator = source(child, self.text),
                _ if !child.is_named() => {}
                "pipeline"
                | "list"
                | "command"
                | "subshell"
                | "compound_statement"
                | "redirected_statement"
                | "negated_command"
                | "test_command" => self.visit(child, level + 1, &Around::default()),
                _ => {
                    targets.push(Word::read(child, self.text));
                    self.visit(child, level + 1, &Around::default());
                }
            }
        }
        if node.kind() == "heredoc_redirect" {
            around.words.extend(targets);
            return around;
        }
        let mut targets = targets.into_iter();
        let target = targets.next();
        around.words.extend(targets);
        let literal = target.as_ref().and_then(Word::literal);
        match operator {
            "<<<" => around.input = target.as_ref().map(|word| word.literal().unwrap_or(word.source()).to_owned()),
            "<" => around.reads.extend(target),
            "<&" | "<&-" | ">&-" => {}
            ">&" if literal.is_some_and(|target| target == "-" || target.bytes().all(|b| b.is_ascii_digit())) => {}
            _ => around.writes |= !literal.is_some_and(|target| HARMLESS_TARGETS.contains(&target)),
        }
        around
    }

    /// `export`, `declare`, `unset` and their like: builtins with words.
    fn declaration(&mut self, node: Node<'_>, level: u32, around: &Around) {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if child.is_named() {
                words.push(Word::read(child, self.text));
                if child.kind() == "variable_assignment" {
                    self.children(child, level, &Around::default());
                } else {
                    self.visit(child, level + 1, &Around::default());
                }
            } else {
                words.push(Word::plain(source(child, self.text)));
            }
        }
        self.emit(source(node, self.text), words, false, around.clone());
    }

    /// A variable that changes for whatever comes next. No rule about programs speaks for it: the next program may be
    /// found by it, and what it holds may be run by an expansion.
    fn assignment(&mut self, text: &str) {
        let part = Part { assigns: true, ..Part::new(Role::Runs, text, Vec::new()) };
        self.script.push(part);
    }
}

/// How many substitutions the grammar sees in a node.
fn substitutions(node: Node<'_>, level: u32) -> usize {
    if level > DEPTH_MAX {
        return 0;
    }
    let mut cursor = node.walk();
    let inside: usize = node.children(&mut cursor).map(|child| substitutions(child, level + 1)).sum();
    inside + usize::from(matches!(node.kind(), "command_substitution" | "arithmetic_expansion"))
}

fn is_harmless(assignment: Node<'_>, text: &str) -> bool {
    let name = assignment.child_by_field_name("name").map(|name| source(name, text)).unwrap_or_default();
    HARMLESS_VARIABLES.contains(&name)
}
