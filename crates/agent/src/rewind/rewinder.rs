//! The way back of one session: points, the way itself, and branches.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use convoke_adk::Event;
use convoke_protocol::{
    BranchOutcome, LastingEffect, RewindOutcome, RewindPoint, RewindRequest, RewindWhat, Rewound, SessionId,
    TurnChanges,
};

use super::keeper::Keeper;
use super::plan::plan;
use super::restore::{Journal, Seam};
use super::state::State;
use super::timeline::{EffectKind, FilesLine, effects, net};
use crate::record::{AGENT, Conversation, PromptPoint, RecordError, Recorder, Records};

/// Names of files, and effects, that a point tells; there may be thousands.
const TOLD_MAX: usize = 100;

/// Takes one session back.
pub(crate) struct Rewinder {
    pub(crate) records: Arc<Records>,
    pub(crate) recorder: Recorder,
    /// `None` where files are not kept.
    pub(crate) keeper: Option<Keeper>,
    pub(crate) cwd: PathBuf,
}

/// What a way back came to.
pub(crate) struct Done {
    pub(crate) outcome: RewindOutcome,
    /// What the session is to know from now on, if that is something else than before.
    pub(crate) events: Option<Vec<Event>>,
    pub(crate) title: Option<String>,
}

impl From<RewindOutcome> for Done {
    fn from(outcome: RewindOutcome) -> Self {
        Self { outcome, events: None, title: None }
    }
}

impl Rewinder {
    /// The points, oldest first.
    pub(crate) async fn points(self: &Arc<Self>) -> Result<Vec<RewindPoint>, String> {
        if let Some(keeper) = &self.keeper {
            keeper.settle_past().await;
        }
        let rewinder = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || rewinder.recorder.read()).await;
        let conversation = read.map_err(|error| error.to_string())?;
        Ok(points(&conversation.map_err(|error| format!("read the record: {error}"))?))
    }

    /// Goes back. The session must not be in a turn.
    pub(crate) async fn rewind(self: &Arc<Self>, request: RewindRequest) -> Done {
        if let Some(keeper) = &self.keeper {
            keeper.settle().await;
        }
        let rewinder = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let mut nothing_stops_it = || Ok(());
            rewinder.rewind_with(&request, &mut nothing_stops_it)
        });
        match done.await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => RewindOutcome::Failed { why: error.to_string() }.into(),
            Err(error) => RewindOutcome::Failed { why: error.to_string() }.into(),
        }
    }

    /// Begins a branch.
    pub(crate) async fn branch(self: &Arc<Self>, at: Option<&str>) -> BranchOutcome {
        let (rewinder, at) = (Arc::clone(self), at.map(ToOwned::to_owned));
        let done = tokio::task::spawn_blocking(move || rewinder.branch_now(at.as_deref())).await;
        done.unwrap_or_else(|error| BranchOutcome::Unavailable { why: error.to_string() })
    }

    pub(super) fn rewind_with(&self, request: &RewindRequest, seam: Seam<'_>) -> io::Result<Done> {
        let conversation = self.recorder.read()?;
        let Some((at, point)) = find(&conversation, &request.to) else { return Ok(RewindOutcome::UnknownPoint.into()) };
        let mut rewound = Rewound {
            id: point.id.clone(),
            number: at + 1,
            what: request.what,
            prompt: point.text,
            ..Rewound::default()
        };
        let to = (request.what != RewindWhat::Files).then_some(point.id);
        let conversation = if request.what == RewindWhat::Conversation {
            seam()?;
            self.recorder.rewound(to.as_deref(), None)?
        } else {
            let Some(keeper) = &self.keeper else {
                return Ok(RewindOutcome::Unavailable { why: "files are not kept in this session".to_owned() }.into());
            };
            let lines = conversation.files.get(point.files_before..).unwrap_or_default();
            match self.restore(keeper, lines, to, request.force, &mut rewound, seam)? {
                Ok(conversation) => conversation,
                Err(refused) => return Ok(refused.into()),
            }
        };
        let title = conversation.title();
        let events = (request.what != RewindWhat::Files).then(|| conversation.into_events(AGENT));
        Ok(Done { outcome: RewindOutcome::Done(rewound), events, title })
    }

    /// Takes files back, and the conversation with the same line of the record.
    fn restore(
        &self,
        keeper: &Keeper,
        lines: &[FilesLine],
        to: Option<String>,
        force: bool,
        rewound: &mut Rewound,
        seam: Seam<'_>,
    ) -> io::Result<Result<Conversation, RewindOutcome>> {
        let folder = self.recorder.rewind_folder();
        let folder = folder.ok_or_else(|| io::Error::other("this session is not recorded any further"))?;
        keeper.with(|ledger, now_ms| {
            let plan = plan(lines, ledger, force, now_ms);
            if !plan.conflicts.is_empty() && !force {
                return Ok(Err(RewindOutcome::Conflicts(plan.conflicts)));
            }
            rewound.left = plan.left;
            if plan.steps.is_empty() {
                // There is nothing that could be left half done.
                return match &to {
                    Some(to) => {
                        seam()?;
                        self.recorder.rewound(Some(to), None).map(Ok)
                    }
                    None => self.recorder.read().map(Ok),
                };
            }
            let journal = Journal::new(self.recorder.session_id(), to, plan.steps);
            let path = Journal::path(&folder, &self.recorder.file_id());
            journal.write(&path, &mut *seam)?;
            let failed = journal.apply(ledger.blobs(), &mut *seam)?;
            ledger.forget();
            let line = journal.line(&failed);
            rewound.files = line.changed().map(ToOwned::to_owned).collect();
            rewound.left.extend(failed);
            seam()?;
            let conversation = self.recorder.rewound(journal.to.as_deref(), Some(line))?;
            seam()?;
            std::fs::remove_file(&path)?;
            Ok(Ok(conversation))
        })
    }

    fn branch_now(&self, at: Option<&str>) -> BranchOutcome {
        let mut conversation = match self.recorder.read() {
            Ok(conversation) => conversation,
            Err(error) => return BranchOutcome::Unavailable { why: format!("read the record: {error}") },
        };
        if let Some(at) = at {
            let Some((_, point)) = find(&conversation, at) else { return BranchOutcome::UnknownPoint };
            conversation.rewind_to(&point.id);
        }
        match self.records.branch(conversation, &self.cwd) {
            Ok((id, title)) => BranchOutcome::Branched { session: SessionId(id), title },
            Err(RecordError::Empty(_)) => {
                BranchOutcome::Unavailable { why: "nothing was said before that point".to_owned() }
            }
            Err(error) => BranchOutcome::Unavailable { why: error.to_string() },
        }
    }
}

/// The point that is meant: by its id, or by its number.
fn find(conversation: &Conversation, to: &str) -> Option<(usize, PromptPoint)> {
    let points = conversation.prompts();
    let by_id = points.iter().position(|point| point.id == to);
    let by_number = || to.parse::<usize>().ok()?.checked_sub(1);
    let at = by_id.or_else(by_number)?;
    Some((at, points.into_iter().nth(at)?))
}

fn points(conversation: &Conversation) -> Vec<RewindPoint> {
    let prompts = conversation.prompts();
    let ends = prompts.iter().skip(1).map(|next| next.files_before).chain([conversation.files.len()]);
    let ends: Vec<usize> = ends.collect();
    let mut points = Vec::with_capacity(prompts.len());
    for (index, (prompt, end)) in prompts.into_iter().zip(ends).enumerate() {
        let since = conversation.files.get(prompt.files_before..).unwrap_or_default();
        let turn = conversation.files.get(prompt.files_before..end).unwrap_or_default();
        let nets = net(since);
        let different = || nets.iter().filter(|(_, net)| net.before != net.after);
        let unkept = different().filter(|(_, net)| matches!(net.before, State::Unkept { .. }));
        let unkept = unkept.map(|(path, _)| LastingEffect { kind: "file", what: (*path).to_owned() });
        let effects = effects(since).into_iter();
        let effects = effects.map(|effect| LastingEffect { kind: name(effect.kind), what: effect.what.clone() });
        let lines = || turn.iter().filter_map(|line| line.lines);
        points.push(RewindPoint {
            id: prompt.id,
            number: index + 1,
            prompt: prompt.title,
            at_ms: prompt.at_ms,
            files: different().map(|(path, _)| (*path).to_owned()).take(TOLD_MAX).collect(),
            files_total: different().count(),
            turn: TurnChanges {
                files: net(turn).values().filter(|net| net.before != net.after).count(),
                added: lines().map(|(added, _)| added).sum(),
                removed: lines().map(|(_, removed)| removed).sum(),
            },
            lasting: unkept.chain(effects).take(TOLD_MAX).collect(),
        });
    }
    points
}

fn name(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::Command => "command",
        EffectKind::Tool => "tool",
        EffectKind::Unwatched => "unwatched",
    }
}
