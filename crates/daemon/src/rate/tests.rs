use super::*;

const WINDOW: Duration = Duration::from_secs(60);

fn options() -> RateOptions {
    RateOptions { prompt: 10, mutation: 30, read: 120, window: WINDOW }
}

fn at(millis: u64) -> Now {
    Now { tick: Tick(millis), wall_ms: 0 }
}

fn remote(n: u8) -> PeerKey {
    PeerKey::Remote(IpAddr::from([10, 0, 0, n]))
}

fn passes(limiter: &mut Limiter, millis: u64, peer: PeerKey) -> bool {
    let verdict = limiter.take(at(millis), Tier::Prompt, peer);
    limiter.check_invariants();
    verdict == Admission::Pass
}

#[test]
fn a_burst_passes_and_then_one_in_a_while() {
    let mut limiter = Limiter::new(options());
    assert_eq!((0..12).filter(|_| passes(&mut limiter, 1000, PeerKey::Local)).count(), 10);
    // Ten a minute is one every six seconds; a quarter of a second of them has passed.
    let wait = Admission::Wait { retry_after: Duration::from_millis(5750), limit: 10 };
    assert_eq!(limiter.take(at(1250), Tier::Prompt, PeerKey::Local), wait);
    assert!(!passes(&mut limiter, 6999, PeerKey::Local));
    assert!(passes(&mut limiter, 7000, PeerKey::Local));
    assert!(!passes(&mut limiter, 7000, PeerKey::Local));
    // Another tier and another peer are other buckets.
    assert_eq!(limiter.take(at(7000), Tier::Read, PeerKey::Local), Admission::Pass);
    assert!(passes(&mut limiter, 7000, remote(1)));
    // A minute of silence, and all is as before.
    assert_eq!((0..12).filter(|_| passes(&mut limiter, 67_000, PeerKey::Local)).count(), 10);
}

#[test]
fn a_peer_is_what_the_socket_proves() {
    let key = |text: &str| PeerKey::of(Peer::Tcp(text.parse().unwrap()));
    assert_eq!(key("127.0.0.1:1"), PeerKey::of(Peer::Unix));
    assert_eq!(key("127.0.0.2:1"), key("[::1]:2"));
    assert_eq!(key("10.0.0.1:1"), key("[::ffff:10.0.0.1]:2"));
    assert_ne!(key("10.0.0.1:1"), key("10.0.0.2:1"));
    assert_eq!(key("[2001:db8:0:1::1]:1"), key("[2001:db8:0:1:ffff::2]:1"));
    assert_ne!(key("[2001:db8:0:1::1]:1"), key("[2001:db8:0:2::1]:1"));
}

#[test]
fn tiers_of_requests() {
    let tier = |method: Method, path: &str| Tier::of(&method, &crate::route::find(&method, path));
    for (method, path, expected) in [
        (Method::POST, "/session/x/prompt", Some(Tier::Prompt)),
        (Method::POST, "/session", Some(Tier::Mutation)),
        (Method::POST, "/session/x/permission/y", Some(Tier::Mutation)),
        (Method::PATCH, "/session/x/metadata", Some(Tier::Mutation)),
        (Method::DELETE, "/session/x", Some(Tier::Mutation)),
        (Method::PUT, "/nope", Some(Tier::Mutation)),
        (Method::GET, "/capabilities", Some(Tier::Read)),
        (Method::HEAD, "/capabilities", Some(Tier::Read)),
        (Method::GET, "/nope", Some(Tier::Read)),
        (Method::GET, "/health", None),
        (Method::GET, "/session/x/events", None),
        (Method::POST, "/session/x/heartbeat", None),
        (Method::OPTIONS, "/session", None),
    ] {
        assert_eq!(tier(method.clone(), path), expected, "{method} {path}");
    }
}

#[test]
fn a_flood_of_peers_resets_nobody() {
    let mut limiter = Limiter::with_room_for(3, options());
    while passes(&mut limiter, 0, remote(1)) {}
    for n in 2..200 {
        passes(&mut limiter, 0, remote(n));
    }
    assert!(!passes(&mut limiter, 0, remote(1)), "its debt was forgotten");
    // Those that found no room shared one burst.
    assert!(!passes(&mut limiter, 0, remote(200)));
    // What is paid makes room.
    assert!(passes(&mut limiter, 60_000, remote(200)));
    assert!(limiter.debts.contains_key(&(Tier::Prompt, remote(200))));
}

/// Peers that ask at random moments, more of them than there is room for, and a clock that jumps.
#[test]
fn no_walk_gets_more_than_its_share() {
    for seed in 1..=200_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = move |bound: u64| {
            // xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let (limit, window) = (1 + below(12), 1 + below(5000));
        let limits = u32::try_from(limit).unwrap();
        let options =
            RateOptions { prompt: limits, mutation: limits, read: limits, window: Duration::from_millis(window) };
        let mut limiter = Limiter::with_room_for(3, options);
        let mut granted: BTreeMap<(Tier, u8), Vec<u64>> = BTreeMap::new();
        let mut now = 0;
        for _ in 0..400 {
            now += [0, 0, 1, below(window) / 4, below(window * 3)][usize::try_from(below(5)).unwrap()];
            let (tier, peer) = (Tier::ALL[usize::try_from(below(3)).unwrap()], u8::try_from(below(6)).unwrap());
            match limiter.take(at(now), tier, remote(peer)) {
                Admission::Pass => granted.entry((tier, peer)).or_default().push(now),
                Admission::Wait { retry_after, limit } => {
                    assert_eq!(limit, limits);
                    let wait = u64::try_from(retry_after.as_millis()).unwrap();
                    assert!(wait > 0, "seed {seed}: told to come back at once");
                    // The word holds: not a millisecond earlier, and then it passes.
                    let mut again = Limiter { debts: limiter.debts.clone(), by_end: limiter.by_end.clone(), ..limiter };
                    // A peer without a bucket may get one meanwhile.
                    if again.debts.contains_key(&(tier, remote(peer))) {
                        let early = again.take(at(now + wait - 1), tier, remote(peer));
                        assert!(matches!(early, Admission::Wait { .. }), "seed {seed}: it passed before its time");
                    }
                    assert_eq!(again.take(at(now + wait), tier, remote(peer)), Admission::Pass, "seed {seed}");
                    limiter.check_invariants();
                }
            }
            limiter.check_invariants();
        }
        for (key, times) in granted {
            for (first, from) in times.iter().enumerate() {
                for (last, to) in times.iter().enumerate().skip(first) {
                    let count = u64::try_from(last - first + 1).unwrap();
                    // A bucket of its own and the shared one, each full at the start.
                    let share = 2 * (limit * window + (to - from) * limit);
                    assert!(count * window <= share, "seed {seed}: {key:?} got {count} from {from} to {to}");
                }
            }
        }
    }
}
