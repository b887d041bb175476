use super::*;

const SEEDS: u64 = 200;
const STEPS: usize = 250;

#[test]
fn random_walks_keep_every_promise() {
    let mut reached: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 1..=SEEDS {
        let report = run(seed, STEPS).unwrap_or_else(|failure| panic!("{}", failure.shortened()));
        report.reached.into_iter().for_each(|(name, count)| *reached.entry(name).or_default() += count);
    }
    let expected = "Session Prompt Done Heartbeat Metadata SessionNotFound SessionClosing InvalidClientId SessionLimit \
        ClientLimit SessionIdConflict RestoreInProgress StartFailed Draining PromptQueueFull SubscriberLimit \
        RequestNotFound AlreadyResolved InvalidOption Forbidden InvalidMetadata FirstResponder DesignatedOriginator \
        ConsensusQuorum LocalOnlyLoopback VoterCancelled AgentCancelled Timeout SessionClosed Selected timeout \
        session_closed agent_cancelled SentinelCollision permission_partial_vote permission_forbidden \
        permission_already_resolved permission_resolved turn_complete turn_error prompt_cancelled \
        pending_prompt_added pending_prompt_started pending_prompt_completed session_snapshot replay_complete \
        epoch_reset ring_evicted replay_budget_exceeded queue_overflow queue_bytes_overflow writer_idle_timeout \
        slow_client_warning late_joiner checked_to_the_end too_many_pending repeated_request_id \
        cancel_sentinel_collision session_not_found session_closing session_closed session_died";
    for name in expected.split_whitespace() {
        let spaced = name.replace('_', " ");
        let found = reached.get(name).or_else(|| reached.get(&spaced)).copied().unwrap_or_default();
        assert!(found >= 5, "the walks reach {name:?} only {found} times: {reached:?}");
    }
}

#[test]
fn the_same_seed_makes_the_same_walk() {
    let walk = |seed| {
        let mut walk = Walk::new(seed);
        (0..100).for_each(|_| walk.random_step().unwrap_or_else(|broken| panic!("{broken:?}")));
        walk.trace
    };
    assert_eq!(walk(3), walk(3));
    assert_ne!(walk(3), walk(4));
}
