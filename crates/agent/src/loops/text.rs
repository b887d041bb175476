//! Sans-IO: does a text say the same again and again?
//!
//! Each window of 50 characters is looked up under a rolling hash, and each place remembers the place before it with the
//! same window. Ten of them close together, with no more than five different texts between them, are a loop: the same
//! sentence with another file name each time is not. All tables have a fixed size. Source: runtime specification §9.

/// Characters of a window.
const WINDOW: usize = 50;
/// So many occurrences of a window are a loop.
const OCCURRENCES: usize = 10;
/// Most characters from one to the next, on average.
const GAP_MAX: usize = 5 * WINDOW;
/// Most different texts from one to the next.
const PERIODS_MAX: usize = 5;
/// How far the first of the occurrences must be back: short words come ten times in a breath, and mean nothing.
const SPAN_MIN: usize = WINDOW * (OCCURRENCES - 1);
/// Text with fewer different letters is no language: dots, digits, hexadecimal numbers.
const LETTERS_MIN: usize = 8;
/// Such text is a loop only when it goes on like this for so many characters.
const MONOTONY: usize = 3_000;
/// The same where it comes in rows, longer than a window: a matrix of zeros is as long as that, and is no loop.
const MONOTONY_OF_ROWS: usize = 12_000;

/// Characters that are remembered. A power of two above the 5 000 of the specification; no loop is longer than
/// `OCCURRENCES * GAP_MAX`.
const RING: usize = 8_192;
const MASK: usize = RING - 1;
/// How far back a place may be whose window is still known whole.
const REACH: usize = RING - WINDOW;
/// The multiplier of the rolling hash; any large odd number does.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
/// `BASE` to the power of `WINDOW`, to take the oldest character out of the hash.
const OLDEST: u64 = {
    let (mut power, mut left) = (1_u64, WINDOW);
    while left > 0 {
        power = power.wrapping_mul(BASE);
        left -= 1;
    }
    power
};

/// The tables are made with the first character: most turns say little.
#[derive(Debug, Default)]
pub(super) struct Windows {
    tables: Option<Box<Tables>>,
    place: Place,
}

/// How far the text is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Characters so far; also the place of the next one.
    len: usize,
    /// The place at which the text that counts begins.
    start: usize,
    hash: u64,
    /// For characters whose windows come back at the same distance each time: how many in a row, and the distance.
    run: (usize, usize),
}

/// Small enough to stay near the processor.
#[derive(Debug)]
struct Tables {
    text: Ring<char>,
    /// The newest place of a window, at its hash.
    newest: Ring<Seen>,
    /// For each place, how far back the one before it with the same window is (0: there is none), and how many there
    /// were, itself counted in.
    before: Ring<(u16, u16)>,
}

/// The lower bits of a place, and some of its window's hash: enough to pass over most places with another window. The text
/// itself decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    place: u16,
    tag: u16,
}

#[derive(Debug)]
struct Ring<T>([T; RING]);

impl<T: Copy + Default> Ring<T> {
    fn new() -> Self {
        Self([T::default(); RING])
    }

    fn at(&self, place: usize) -> T {
        self.0.get(place & MASK).copied().unwrap_or_default()
    }

    fn replace(&mut self, place: usize, value: T) -> T {
        self.0.get_mut(place & MASK).map(|slot| std::mem::replace(slot, value)).unwrap_or_default()
    }
}

impl Windows {
    /// Forgets everything that was said.
    pub(super) fn clear(&mut self) {
        // Older places stay in the tables and are not looked at.
        let len = self.place.len;
        self.place = Place { len, start: len, ..Place::default() };
    }

    /// Looks at more characters; an excerpt, if one of them completes a loop, and those behind it are not looked at.
    pub(super) fn push(&mut self, text: impl Iterator<Item = char>) -> Option<String> {
        let tables = self
            .tables
            .get_or_insert_with(|| Box::new(Tables { text: Ring::new(), newest: Ring::new(), before: Ring::new() }));
        // By itself, so that the processor need not fetch it from memory for each character.
        let mut place = self.place;
        let found = { text }.find_map(|c| tables.push(&mut place, c).then(|| tables.excerpt(place.len - 1)));
        self.place = place;
        found
    }
}

impl Tables {
    /// Looks at one more character; whether it completes a loop.
    #[inline]
    fn push(&mut self, now: &mut Place, c: char) -> bool {
        let place = now.len;
        now.len += 1;
        now.hash = now.hash.wrapping_mul(BASE).wrapping_add(u64::from(c) + 1);
        if now.len - now.start > WINDOW {
            let oldest = self.text.at(place - WINDOW);
            now.hash = now.hash.wrapping_sub((u64::from(oldest) + 1).wrapping_mul(OLDEST));
        }
        self.text.replace(place, c);
        if now.len - now.start < WINDOW {
            return false;
        }
        self.look_up(now, place)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a hash, and the lower bits of a place")]
    fn look_up(&mut self, now: &mut Place, place: usize) -> bool {
        // The high bits of a product are the well mixed ones.
        let mixed = (now.hash ^ (now.hash >> 29)).wrapping_mul(BASE);
        let seen = Seen { place: place as u16, tag: mixed as u16 };
        let earlier = self.newest.replace((mixed >> 51) as usize, seen);
        if earlier.tag == seen.tag {
            let gap = usize::from(seen.place.wrapping_sub(earlier.place));
            if (1..REACH).contains(&gap) && place + 1 - now.start >= gap + WINDOW && self.same(place, place - gap) {
                return self.again(now, place, gap);
            }
        }
        self.before.replace(place, (0, 1));
        now.run = (0, 0);
        false
    }

    /// The window that ends here was there `gap` characters ago.
    fn again(&mut self, now: &mut Place, place: usize, gap: usize) -> bool {
        let count = self.before.at(place - gap).1.saturating_add(1);
        self.before.replace(place, (u16::try_from(gap).unwrap_or_default(), count));
        now.run = if now.run.1 == gap { (now.run.0 + 1, gap) } else { (1, gap) };
        usize::from(count) >= OCCURRENCES && self.is_loop(place, now.run)
    }

    /// Whether the windows that end at these places are the same text.
    fn same(&self, one: usize, other: usize) -> bool {
        (0..WINDOW).all(|back| self.text.at(one - back) == self.text.at(other - back))
    }

    fn window(&self, place: usize) -> impl Iterator<Item = char> {
        (place + 1 - WINDOW..=place).map(|at| self.text.at(at))
    }

    fn excerpt(&self, place: usize) -> String {
        format!("{}...", self.window(place).collect::<String>().trim())
    }

    /// Whether the occurrences of the window that ends here are close together and have little between them.
    fn is_loop(&self, place: usize, (run, gap): (usize, usize)) -> bool {
        if run >= if gap > WINDOW { MONOTONY_OF_ROWS } else { MONOTONY } {
            return true;
        }
        let mut places = vec![place];
        let mut at = place;
        while places.len() < OCCURRENCES || place - at < SPAN_MIN {
            let back = usize::from(self.before.at(at).0);
            // What has been written over since is no longer known.
            if back == 0 || place - at + back >= REACH {
                return false;
            }
            at -= back;
            places.push(at);
            if place - at > GAP_MAX * (places.len() - 1) {
                return false;
            }
        }
        let mut letters: Vec<char> =
            self.window(place).filter(|c| c.is_alphabetic()).flat_map(char::to_lowercase).collect();
        letters.sort_unstable();
        letters.dedup();
        if letters.len() < LETTERS_MIN {
            return false;
        }
        let mut periods: Vec<(usize, usize)> = Vec::new();
        for (later, earlier) in places.iter().zip(places.iter().skip(1)) {
            let same = |(from, to): &(usize, usize)| {
                to - from == later - earlier
                    && (0..later - earlier).all(|step| self.text.at(from + step) == self.text.at(earlier + step))
            };
            if !periods.iter().any(same) {
                periods.push((*earlier, *later));
            }
            if periods.len() > PERIODS_MAX {
                return false;
            }
        }
        true
    }
}
