//! What the record says of files: its lines, and what they come to from a point on. Pure.
//!
//! ```text
//! {"$files":{"begin":"call","at":…,"effect":{…},"paths":[["/w/a",{"file":{…}}]]}}     a call is about to write these
//! {"$files":{"begin":"call","at":…,"effect":{…},"base":"digest","delta":[…]}}         a call may write anything below /w
//! {"$files":{"end":"call","changes":[["/w/a",before,after]]}}                         it came back, having changed this
//! {"$files":{"rewind":"id","changes":[…]},"$rewindTo":"message"}                      a way back, of files and conversation
//! ```
//! A call without an end was running when its process was killed. What it changed is seen when the session is opened again,
//! and since others may have written meanwhile it is marked as unsure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::State;

/// What a line of the record says of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FilesLine {
    /// A call that is about to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) begin: Option<String>,
    /// When, in milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<u64>,
    /// What it may do that can't be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<Effect>,
    /// What it is going to write, as it is now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) paths: Vec<(String, State)>,
    /// For a call that may write anything: a blob with all that is there, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base: Option<String>,
    /// … and what is different by now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) delta: Vec<(String, State)>,
    /// A call that came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<String>,
    /// A way back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rewind: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<Change>,
    /// Lines of text that were added and removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lines: Option<(usize, usize)>,
    /// Whether somebody else may have made these changes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unsure: bool,
    /// Whether it belongs to the prompt behind it, which is written once its commands have run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) early: bool,
}

/// Path, before, after.
pub(super) type Change = (String, State, State);

/// Something that can't be undone, or not by us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(super) kind: EffectKind,
    /// The command or tool.
    pub(super) what: String,
}

/// What kind of effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EffectKind {
    /// A command ran: what it did outside of the workspace, in ignored files and over the network stays.
    Command,
    /// A tool ran of which the same is true.
    Tool,
    /// A command or tool ran while the workspace was too large to be looked at.
    Unwatched,
}

impl FilesLine {
    /// The way back that it tells of.
    pub(crate) fn is_rewind(&self, id: &str) -> bool {
        self.rewind.as_deref() == Some(id)
    }

    /// The paths that it says are different now.
    pub(super) fn changed(&self) -> impl Iterator<Item = &str> {
        self.changes.iter().map(|(path, ..)| path.as_str())
    }

    /// Every blob that it names.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &str> {
        let states = self.paths.iter().chain(&self.delta).map(|(_, state)| state);
        let states = states.chain(self.changes.iter().flat_map(|(_, before, after)| [before, after]));
        let named = states.filter_map(|state| match state {
            State::File { blob, .. } => Some(blob.as_str()),
            _ => None,
        });
        named.chain(self.base.as_deref())
    }
}

/// What became of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub(super) before: State,
    pub(super) after: State,
    /// Whether somebody else changed it in between, so that not all of the way back is ours.
    pub(super) broken: bool,
    pub(super) unsure: bool,
}

/// What these lines come to, by path. What is as it was is left out.
pub(super) fn net<'a>(lines: impl IntoIterator<Item = &'a FilesLine>) -> BTreeMap<&'a str, Net> {
    let mut nets: BTreeMap<&str, Net> = BTreeMap::new();
    for line in lines {
        for (path, before, after) in &line.changes {
            match nets.get_mut(path.as_str()) {
                Some(net) => {
                    // What a way back overwrote was agreed to.
                    net.broken |= line.rewind.is_none() && net.after != *before;
                    net.unsure |= line.unsure;
                    net.after = after.clone();
                }
                None => {
                    let net = Net { before: before.clone(), after: after.clone(), broken: false, unsure: line.unsure };
                    nets.insert(path, net);
                }
            }
        }
    }
    nets
}

/// What can't be undone, the same thing once.
pub(super) fn effects<'a>(lines: impl IntoIterator<Item = &'a FilesLine>) -> Vec<&'a Effect> {
    let mut effects: Vec<&Effect> = Vec::new();
    for effect in lines.into_iter().filter_map(|line| line.effect.as_ref()) {
        if !effects.contains(&effect) {
            effects.push(effect);
        }
    }
    effects
}

/// The calls that began and never came back, in their order.
pub(super) fn unfinished(lines: &[FilesLine]) -> Vec<&FilesLine> {
    let mut open: Vec<&FilesLine> = Vec::new();
    for line in lines {
        if line.begin.is_some() {
            open.push(line);
        }
        if let Some(end) = &line.end {
            open.retain(|begun| begun.begin.as_ref() != Some(end));
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(blob: &str) -> State {
        State::File { blob: blob.into(), mode: 0o644 }
    }

    fn changes(changes: &[(&str, State, State)]) -> FilesLine {
        let changes = changes.iter().map(|(path, a, b)| ((*path).to_owned(), a.clone(), b.clone())).collect();
        FilesLine { changes, ..FilesLine::default() }
    }

    #[test]
    fn the_first_state_and_the_last_one_count_and_a_stranger_in_between_is_noticed() {
        let lines = [
            changes(&[("a", State::Absent, file("1")), ("b", file("x"), file("y"))]),
            changes(&[("a", file("1"), file("2")), ("b", file("hand"), file("z"))]),
        ];
        let nets = net(&lines);
        let (a, b) = (&nets["a"], &nets["b"]);
        assert_eq!((&a.before, &a.after, a.broken), (&State::Absent, &file("2"), false));
        assert_eq!((&b.before, &b.after, b.broken), (&file("x"), &file("z"), true));
        assert_eq!(net(&lines[1..])["b"].before, file("hand"));
    }

    #[test]
    fn lines_are_written_as_the_documentation_shows_them() {
        let line = FilesLine {
            begin: Some("c".into()),
            at: Some(7),
            effect: Some(Effect { kind: EffectKind::Command, what: "make".into() }),
            paths: vec![("/w/a".into(), file("1")), ("/w/b".into(), State::Absent)],
            ..FilesLine::default()
        };
        let json = serde_json::json!({"begin": "c", "at": 7, "effect": {"kind": "command", "what": "make"},
            "paths": [["/w/a", {"file": {"blob": "1", "mode": 0o644}}], ["/w/b", "absent"]]});
        assert_eq!(serde_json::to_value(&line).unwrap(), json);
        assert_eq!(serde_json::from_value::<FilesLine>(json).unwrap(), line);
        let end = FilesLine { end: Some("c".into()), ..changes(&[("/w/a", file("1"), State::Folder)]) };
        let json =
            serde_json::json!({"end": "c", "changes": [["/w/a", {"file": {"blob": "1", "mode": 0o644}}, "folder"]]});
        assert_eq!(serde_json::to_value(&end).unwrap(), json);
        assert_eq!(unfinished(std::slice::from_ref(&line)), [&line]);
        assert!(unfinished(&[line, end]).is_empty());
    }
}
