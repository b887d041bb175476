//! The port to whoever may say yes: what is asked, and what can be answered?
//!
//! This room does not know who approves. The agent room turns an [`ApprovalRequest`] into a permission request of its
//! own protocol and the answer's option id back into an [`ApprovalOutcome`].

use async_trait::async_trait;
use serde_json::Value;

use crate::policy::LastingOffer;
use crate::{ConfirmationDetails, Kind, Location};

/// Where questions about tool calls go.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Asks and waits for the answer.
    ///
    /// Several questions may be pending at once. Cancellation: dropping the future withdraws the question.
    async fn request(&self, request: ApprovalRequest) -> ApprovalOutcome;
}

/// A question about one call.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The call's id.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// What would happen, in one line: the full command, or the file.
    pub title: String,
    /// What kind of tool it is.
    pub kind: Kind,
    /// What would change.
    pub details: ConfirmationDetails,
    /// Files it would touch.
    pub locations: Vec<Location>,
    /// The arguments as they would be run.
    pub args: Value,
    /// Why this is asked although a rule would have let it pass, as a hook said.
    pub reason: Option<String>,
    /// The answers on offer, in the order to show them.
    pub options: Vec<ApprovalOption>,
}

/// One answer on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalOption {
    /// `proceed_once`, one of the `proceed_always…` or `cancel`; read back by [`ApprovalOutcome::from_option_id`].
    pub id: &'static str,
    /// What a person reads. For a lasting answer it names what will not be asked again.
    pub label: String,
    /// What it means.
    pub kind: ApprovalOptionKind,
}

/// What an answer means, in ACP's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApprovalOptionKind {
    /// Yes, this time.
    AllowOnce,
    /// Yes, and don't ask again in this session.
    AllowAlways,
    /// No.
    RejectOnce,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq)]
pub enum ApprovalOutcome {
    /// Run it, this time.
    ProceedOnce,
    /// Run it, and don't ask for the like again, as the option of this id says. Counts as [`Self::ProceedOnce`] where
    /// that option was not on offer.
    ProceedAlways(&'static str),
    /// Run it with other arguments; those are judged anew.
    Revise {
        /// The arguments to run with.
        args: Value,
    },
    /// A person said no. Ends this call and everything of its batch that has not begun.
    Cancel,
    /// Nobody answered: a timeout, a lost connection. Has the effect of [`Self::Cancel`], but the model is told the
    /// truth.
    Unanswered {
        /// Why, a lowercase fragment such as `the question timed out`.
        reason: String,
    },
}

impl ApprovalOutcome {
    /// The outcome that an option id stands for; `None` for an id that was never on offer.
    #[must_use]
    pub fn from_option_id(id: &str) -> Option<Self> {
        match id {
            PROCEED_ONCE => Some(Self::ProceedOnce),
            CANCEL => Some(Self::Cancel),
            _ => ALWAYS.iter().find(|always| **always == id).map(|always| Self::ProceedAlways(always)),
        }
    }
}

const PROCEED_ONCE: &str = "proceed_once";
/// Lasting answers: in this session, for one tool, for all tools of its server, beyond the session.
const ALWAYS: [&str; 4] = ["proceed_always", "proceed_always_tool", "proceed_always_server", "proceed_always_and_save"];
const CANCEL: &str = "cancel";

/// The options of a question; `always` are the lasting answers with what they would cover.
pub(crate) fn options(details: &ConfirmationDetails, always: &[LastingOffer]) -> Vec<ApprovalOption> {
    let (yes, no) = match details {
        ConfirmationDetails::Plan { .. } => ("Approve, and ask before edits", "Keep planning"),
        ConfirmationDetails::Edit { .. }
        | ConfirmationDetails::Exec { .. }
        | ConfirmationDetails::Mcp { .. }
        | ConfirmationDetails::Info { .. } => ("Allow once", "Reject"),
    };
    let once = ApprovalOption { id: PROCEED_ONCE, label: yes.to_owned(), kind: ApprovalOptionKind::AllowOnce };
    let lasting = always.iter().map(|offer| ApprovalOption {
        id: offer.id,
        label: offer.label.clone(),
        kind: ApprovalOptionKind::AllowAlways,
    });
    let no = ApprovalOption { id: CANCEL, label: no.to_owned(), kind: ApprovalOptionKind::RejectOnce };
    std::iter::once(once).chain(lasting).chain(std::iter::once(no)).collect()
}

/// An approver with nobody behind it. A non-interactive policy never gets this far; this is what keeps a wrongly
/// wired session from waiting for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct NobodyApproves;

#[async_trait]
impl Approver for NobodyApproves {
    async fn request(&self, _request: ApprovalRequest) -> ApprovalOutcome {
        ApprovalOutcome::Unanswered { reason: "there is nobody to ask".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_reads_back_and_others_do_not() {
        let lasting = ALWAYS.map(|id| LastingOffer {
            id,
            label: "Always allow git".to_owned(),
            always: crate::policy::Always::Tool("git".to_owned()),
            save: false,
        });
        let info = ConfirmationDetails::Info { prompt: String::new() };
        assert_eq!(options(&info, &lasting).len(), 6);
        for option in options(&info, &lasting) {
            assert!(ApprovalOutcome::from_option_id(option.id).is_some(), "{option:?}");
        }
        assert_eq!(options(&info, &[]).iter().map(|option| option.id).collect::<Vec<_>>(), ["proceed_once", "cancel"]);
        assert_eq!(ApprovalOutcome::from_option_id("allow"), None);
    }
}
