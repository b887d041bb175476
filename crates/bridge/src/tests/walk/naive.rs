//! A naive model of the policies: does every decision follow from what the audit says was voted?

use std::collections::BTreeMap;

use super::*;
use crate::AuditResolution;

/// The policies once more, from the audit alone: who was there, who voted for what, and hence what had to happen.
pub(super) fn check_audit(records: &[AuditRecord], options: &BridgeOptions) {
    struct Model {
        originator: Option<ClientId>,
        voters: Vec<ClientId>,
        votes: BTreeMap<ClientId, String>,
        last: Option<(Option<ClientId>, Option<String>, bool)>,
        done: bool,
    }
    let mut models: BTreeMap<&RequestId, Model> = BTreeMap::new();
    for record in records {
        let id = &record.request_id;
        match &record.event {
            AuditEvent::Requested { voters_at_issue, .. } => {
                let (originator, voters) = (record.originator_client_id.clone(), voters_at_issue.to_vec());
                let model = Model { originator, voters, votes: BTreeMap::new(), last: None, done: false };
                assert!(models.insert(id, model).is_none(), "{id} was issued twice");
            }
            AuditEvent::Voted { client_id, option_id, from_loopback, outcome } => {
                let model = models.get_mut(id).unwrap();
                assert!(!model.done, "{id}: a vote counted after the decision");
                if let (Some(client), Some(option)) = (client_id, option_id) {
                    model.votes.insert(client.clone(), option.clone());
                }
                model.last = Some((client_id.clone(), option_id.clone(), *from_loopback));
                assert_eq!(*outcome == "recorded", option_id.is_some() && !decides(model.into(), options), "{id}");
            }
            AuditEvent::Forbidden { client_id, from_loopback, .. } => {
                let model = &models[id];
                assert!(!model.done, "{id}: refused by policy after the decision");
                let allowed = match options.policy {
                    PermissionPolicy::FirstResponder => true,
                    PermissionPolicy::Designated => model.originator.is_none() || *client_id == model.originator,
                    PermissionPolicy::Consensus => client_id.as_ref().is_some_and(|c| model.voters.contains(c)),
                    PermissionPolicy::LocalOnly => *from_loopback,
                };
                assert!(!allowed, "{id}: {client_id:?} may vote");
            }
            AuditEvent::Resolved { resolution, .. } => {
                let model = models.get_mut(id).unwrap();
                assert!(!model.done, "{id} was resolved twice");
                model.done = true;
                if let AuditResolution::Option { option_id } = resolution {
                    assert!(decides((&*model).into(), options), "{id}: decided against the policy");
                    assert_eq!(model.last.as_ref().and_then(|(_, option, _)| option.as_ref()), Some(option_id));
                }
            }
            AuditEvent::NotAsked { .. } => {}
            AuditEvent::Timeout { .. } => assert!(!models[id].done),
        }
    }
    assert!(models.values().all(|model| model.done), "a request was never resolved");

    /// A model as the rule below needs it.
    struct View<'a> {
        originator: &'a Option<ClientId>,
        voters: &'a [ClientId],
        votes: &'a BTreeMap<ClientId, String>,
        last: &'a Option<(Option<ClientId>, Option<String>, bool)>,
    }
    impl<'a> From<&'a Model> for View<'a> {
        fn from(model: &'a Model) -> Self {
            Self { originator: &model.originator, voters: &model.voters, votes: &model.votes, last: &model.last }
        }
    }
    impl<'a> From<&'a mut Model> for View<'a> {
        fn from(model: &'a mut Model) -> Self {
            (&*model).into()
        }
    }
    /// Whether the last vote decides.
    fn decides(view: View<'_>, options: &BridgeOptions) -> bool {
        let Some((client, Some(option), loopback)) = view.last else { return false };
        match options.policy {
            PermissionPolicy::FirstResponder => true,
            PermissionPolicy::Designated => view.originator.is_none() || client == view.originator,
            PermissionPolicy::LocalOnly => *loopback,
            PermissionPolicy::Consensus => {
                let majority = view.voters.len() / 2 + 1;
                let needed = options.quorum.map_or(majority, |wanted| wanted.max(1).min(view.voters.len().max(1)));
                view.votes.values().filter(|vote| *vote == option).count() >= needed
            }
        }
    }
}
