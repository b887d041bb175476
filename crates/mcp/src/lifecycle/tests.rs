//! The rules one by one, then random walks with a judge that knows what is connected.

use super::*;

/// A small generator of our own: the walks must be the same on every machine.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn at(ms: u64) -> Now {
    Now { tick: Tick(ms), wall_ms: 0 }
}

fn step(life: &mut Lifecycle, ms: u64, input: Input) -> Vec<Output> {
    let mut out = Vec::new();
    life.handle(at(ms), input, &mut out);
    life.check_invariants();
    out
}

#[test]
fn a_server_that_goes_comes_back_three_times() {
    let mut life = Lifecycle::new();
    assert_eq!(step(&mut life, 0, Input::Start), [Output::Connect { generation: 1 }]);
    assert_eq!(step(&mut life, 5, Input::Connected { generation: 1 }), []);
    let mut now = 10;
    for (generation, wait) in [(1, 1_000), (2, 4_000), (3, 16_000)] {
        assert_eq!(step(&mut life, now, Input::Lost { generation }), []);
        assert_eq!(life.next_deadline(), Some(Tick(now + wait)));
        assert_eq!(step(&mut life, now + wait - 1, Input::Tick), []);
        now += wait;
        assert_eq!(step(&mut life, now, Input::Tick), [Output::Connect { generation: generation + 1 }]);
        step(&mut life, now, Input::Connected { generation: generation + 1 });
    }
    step(&mut life, now, Input::Lost { generation: 4 });
    assert_eq!(life.state(), State::Failed);
}

#[test]
fn one_that_held_for_a_minute_gets_its_tries_back() {
    let mut life = Lifecycle::new();
    step(&mut life, 0, Input::Start);
    for round in 0..10 {
        let generation = round + 1;
        let now = round * 100_000;
        step(&mut life, now, Input::Connected { generation });
        step(&mut life, now + 60_000, Input::Lost { generation });
        assert_eq!(life.tries(), 1);
        assert_eq!(step(&mut life, now + 61_000, Input::Tick), [Output::Connect { generation: generation + 1 }]);
    }
}

#[test]
fn what_can_not_work_is_not_tried_again() {
    let mut life = Lifecycle::new();
    step(&mut life, 0, Input::Start);
    step(&mut life, 1, Input::Refused { generation: 1, again: false });
    assert_eq!((life.state(), life.next_deadline()), (State::Failed, None));
}

#[test]
fn announcements_are_gathered_and_a_late_list_is_asked_for_once_more() {
    let mut life = Lifecycle::new();
    step(&mut life, 0, Input::Start);
    step(&mut life, 0, Input::Connected { generation: 1 });
    for ms in 0..50 {
        assert_eq!(step(&mut life, ms, Input::Changed { generation: 1 }), []);
    }
    assert_eq!(step(&mut life, 99, Input::Tick), []);
    assert_eq!(step(&mut life, 100, Input::Tick), [Output::List { generation: 1 }]);
    assert_eq!(step(&mut life, 110, Input::Tick), []);
    step(&mut life, 120, Input::Listed { generation: 1, changed: false });
    assert_eq!(step(&mut life, 620, Input::Tick), [Output::List { generation: 1 }]);
    step(&mut life, 630, Input::Listed { generation: 1, changed: false });
    assert_eq!(life.next_deadline(), None);
    // One that comes while the lists are on their way is not lost.
    step(&mut life, 700, Input::Changed { generation: 1 });
    assert_eq!(step(&mut life, 1_119, Input::Tick), []);
    assert_eq!(step(&mut life, 1_120, Input::Tick), [Output::List { generation: 1 }]);
    step(&mut life, 1_130, Input::Changed { generation: 1 });
    step(&mut life, 1_140, Input::Listed { generation: 1, changed: true });
    assert_eq!(step(&mut life, 1_640, Input::Tick), [Output::List { generation: 1 }]);
}

#[test]
fn walks() {
    for seed in 1..=500 {
        walk(seed, 400);
    }
}

/// The world outside: what was asked for and not answered yet.
#[derive(Default)]
struct World {
    connecting: Option<u64>,
    connected: Option<u64>,
    listing: Option<u64>,
    listed_at: Option<u64>,
    connects: usize,
}

fn walk(seed: u64, steps: usize) {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut life = Lifecycle::new();
    let mut world = World::default();
    let (mut now, mut closed) = (0, false);
    for _ in 0..steps {
        now += chance.below(3_000);
        // Old news are as likely as true ones.
        let stale = chance.below(4);
        let current = world.connecting.or(world.connected).unwrap_or(0);
        let generation = if chance.below(4) == 0 { stale } else { current };
        let input = match chance.below(24) {
            0 => Input::Start,
            1..=5 => Input::Connected { generation },
            6 => Input::Refused { generation, again: chance.below(2) == 0 },
            7 => Input::Lost { generation },
            8..=12 => Input::Changed { generation },
            13..=16 => Input::Listed { generation, changed: chance.below(2) == 0 },
            17 if chance.below(20) == 0 => Input::Close,
            _ => Input::Tick,
        };
        let out = step(&mut life, now, input);
        world.judge(input, &out, &life, now, closed);
        closed |= input == Input::Close;
    }
    // Left alone, a life comes to rest: it connects or gives up, and asks for nothing without end.
    for _ in 0..32 {
        if let Some(generation) = world.connecting {
            let input = Input::Refused { generation, again: true };
            let out = step(&mut life, now, input);
            world.judge(input, &out, &life, now, closed);
        }
        if let Some(generation) = world.listing {
            let input = Input::Listed { generation, changed: true };
            let out = step(&mut life, now, input);
            world.judge(input, &out, &life, now, closed);
        }
        let Some(deadline) = life.next_deadline() else { break };
        now = now.max(deadline.0);
        let out = step(&mut life, now, Input::Tick);
        world.judge(Input::Tick, &out, &life, now, closed);
    }
    assert_eq!(life.next_deadline(), None, "seed {seed}");
}

impl World {
    fn judge(&mut self, input: Input, out: &[Output], life: &Lifecycle, now: u64, closed: bool) {
        assert!(!closed || out.is_empty(), "a closed life does nothing");
        match input {
            Input::Connected { generation } if self.connecting == Some(generation) => {
                (self.connected, self.connecting) = (self.connecting.take(), None);
            }
            Input::Refused { generation, .. } if self.connecting == Some(generation) => self.connecting = None,
            Input::Lost { generation } if self.connected == Some(generation) => {
                (self.connected, self.listing, self.listed_at) = (None, None, None);
            }
            Input::Listed { generation, .. } if self.listing == Some(generation) => self.listing = None,
            _ => {}
        }
        for output in out {
            match *output {
                Output::Connect { generation } => {
                    assert!(self.connecting.is_none() && self.connected.is_none(), "two connections at once");
                    self.connects += 1;
                    assert_eq!(generation, self.connects as u64, "each connection has its own generation");
                    self.connecting = Some(generation);
                }
                Output::List { generation } => {
                    assert_eq!(self.connected, Some(generation), "lists are asked for where there is a connection");
                    assert_eq!(self.listing, None, "one question at a time");
                    assert!(self.listed_at.is_none_or(|before| now >= before + 500), "asked too often");
                    (self.listing, self.listed_at) = (Some(generation), Some(now));
                }
                Output::Disconnect { generation } => {
                    assert_eq!(self.connecting.or(self.connected), Some(generation));
                    (self.connecting, self.connected, self.listing) = (None, None, None);
                }
            }
        }
        let ready = matches!(life.state(), State::Ready(_));
        assert_eq!(ready, self.connected.is_some(), "{:?} after {input:?}", life.state());
        assert_eq!(life.state() == State::Connecting, self.connecting.is_some());
    }
}
