//! What has to be done to files to go back to a point, and what stands in the way?

use std::path::Path;

use convoke_protocol::RewindConflict;

use super::ledger::Ledger;
use super::state::State;
use super::timeline::{FilesLine, Net, net};

/// One path: what it is, and what it is to be.
pub(super) type Step = (String, State, State);

/// What has to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// What somebody else changed; part of the steps where they were asked for nevertheless.
    pub(super) conflicts: Vec<RewindConflict>,
    /// What can't be taken back.
    pub(super) left: Vec<RewindConflict>,
}

/// Compares what these lines say with the disk. Blocks.
pub(super) fn plan(lines: &[FilesLine], ledger: &mut Ledger, force: bool, now_ms: u64) -> Plan {
    let mut plan = Plan::default();
    for (path, net) in net(lines) {
        let now = ledger.look(Path::new(path), now_ms);
        if now == net.before {
            continue;
        }
        let told = |why: &str| RewindConflict { path: path.to_owned(), why: why.to_owned() };
        if let Some(why) = impossible(path, &net, ledger) {
            plan.left.push(told(why));
            continue;
        }
        if let Some(why) = objection(&net, &now) {
            plan.conflicts.push(told(why));
            if !force {
                continue;
            }
        }
        plan.steps.push((path.to_owned(), now, net.before));
    }
    plan
}

/// Why a path can't be taken back at all.
fn impossible(path: &str, net: &Net, ledger: &Ledger) -> Option<&'static str> {
    if !ledger.workspace().roots().iter().any(|root| Path::new(path).starts_with(root)) {
        return Some("it is outside of the workspace");
    }
    match &net.before {
        State::Unkept { why, .. } => Some(why.words()),
        State::File { blob, .. } if ledger.blobs().read(blob).is_err() => {
            Some("what was kept of it is damaged or gone")
        }
        State::File { .. } | State::Link { .. } | State::Folder | State::Absent => None,
    }
}

/// Why taking a path back would take something from somebody else.
fn objection(net: &Net, now: &State) -> Option<&'static str> {
    if *now != net.after {
        // A folder that is still there holds nothing of its own: it only goes if it is empty.
        return Some("it was changed since by somebody else");
    }
    if net.broken {
        return Some("somebody else changed it between two changes of the agent");
    }
    net.unsure.then_some("it was changed while the agent was ended from outside, and it can't be told by whom")
}
