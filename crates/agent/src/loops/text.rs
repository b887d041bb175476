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
/// No place.
const NONE: u32 = u32::MAX;
/// Places are counted anew before they run out.
const PLACES_MAX: usize = (u32::MAX / 2) as usize;
/// The multiplier of the rolling hash; any large odd number does.
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;

/// The tables are made with the first character: most turns say little.
#[derive(Debug, Default)]
pub(super) struct Windows {
    tables: Option<Box<Tables>>,
    /// Characters so far; also the place of the next one.
    len: usize,
    /// The place at which the text that counts begins.
    start: usize,
    hash: u64,
    /// For characters whose windows come back at the same distance each time: how many in a row, and the distance.
    run: (usize, usize),
}

#[derive(Debug)]
struct Tables {
    text: Vec<char>,
    /// Newest place of a window by its hash: the place of its last character, and the rest of the hash.
    newest: Vec<(u32, u32)>,
    /// For each place, the one before it with the same window, and how many there were.
    before: Vec<(u32, u32)>,
    /// `BASE` to the power of `WINDOW`, to take the oldest character out of the hash.
    oldest: u64,
}

impl Tables {
    fn new() -> Box<Self> {
        let oldest = (0..WINDOW).fold(1_u64, |power, _| power.wrapping_mul(BASE));
        Box::new(Self { text: vec!['\0'; RING], newest: vec![(NONE, 0); RING], before: vec![(NONE, 0); RING], oldest })
    }

    fn char_at(&self, place: usize) -> char {
        self.text.get(place & MASK).copied().unwrap_or('\0')
    }

    /// Whether the windows that end at these places are the same text.
    fn same(&self, one: usize, other: usize) -> bool {
        (0..WINDOW).all(|back| self.char_at(one - back) == self.char_at(other - back))
    }

    fn before(&self, place: usize) -> (u32, u32) {
        self.before.get(place & MASK).copied().unwrap_or((NONE, 0))
    }
}

impl Windows {
    /// Forgets everything that was said.
    pub(super) fn clear(&mut self) {
        // Older places stay in the tables and are not looked at.
        (self.start, self.hash, self.run) = (self.len, 0, (0, 0));
    }

    /// Looks at one more character; an excerpt, if it completes a loop.
    pub(super) fn push(&mut self, c: char) -> Option<String> {
        if self.len >= PLACES_MAX {
            *self = Self::default();
        }
        let tables = self.tables.get_or_insert_with(Tables::new);
        let place = self.len;
        let mut hash = self.hash.wrapping_mul(BASE).wrapping_add(u64::from(c) + 1);
        if place - self.start >= WINDOW {
            let oldest = tables.char_at(place - WINDOW);
            hash = hash.wrapping_sub((u64::from(oldest) + 1).wrapping_mul(tables.oldest));
        }
        if let Some(slot) = tables.text.get_mut(place & MASK) {
            *slot = c;
        }
        self.hash = hash;
        self.len += 1;
        if self.len - self.start < WINDOW {
            return None;
        }
        self.look_up(place)
    }

    #[expect(clippy::cast_possible_truncation, reason = "parts of a hash; places are below PLACES_MAX")]
    fn look_up(&mut self, place: usize) -> Option<String> {
        let tables = self.tables.as_mut()?;
        // The high bits of a product are the well mixed ones.
        let mixed = self.hash ^ (self.hash >> 29);
        let mixed = mixed.wrapping_mul(BASE);
        let (index, tag) = ((mixed >> 51) as usize & MASK, mixed as u32);
        let slot = tables.newest.get_mut(index)?;
        let (found, found_tag) = std::mem::replace(slot, (place as u32, tag));
        let earlier = found as usize;
        let known = found != NONE
            && found_tag == tag
            && earlier + 1 >= self.start + WINDOW
            && place - earlier < RING - WINDOW
            && tables.same(place, earlier);
        let (before, count) = if known { (found, tables.before(earlier).1 + 1) } else { (NONE, 1) };
        *tables.before.get_mut(place & MASK)? = (before, count);
        if !known {
            self.run = (0, 0);
            return None;
        }
        let gap = place - earlier;
        self.run = if self.run.1 == gap { (self.run.0 + 1, gap) } else { (1, gap) };
        if (count as usize) < OCCURRENCES || !self.is_loop(place) {
            return None;
        }
        let excerpt = (place + 1 - WINDOW..=place).map(|at| self.tables.as_ref().map_or(' ', |t| t.char_at(at)));
        Some(format!("{}...", excerpt.collect::<String>().trim()))
    }

    /// Whether the occurrences of the window that ends here are close together and have little between them.
    fn is_loop(&self, place: usize) -> bool {
        let Some(tables) = &self.tables else { return false };
        let (run, gap) = self.run;
        if run >= if gap > WINDOW { MONOTONY_OF_ROWS } else { MONOTONY } {
            return true;
        }
        let mut places = vec![place];
        let mut at = place;
        while places.len() < OCCURRENCES || place - at < SPAN_MIN {
            let (before, _) = tables.before(at);
            // What has been written over since is no longer known.
            if before == NONE || place - before as usize >= RING - WINDOW {
                return false;
            }
            at = before as usize;
            places.push(at);
            if place - at > GAP_MAX * (places.len() - 1) {
                return false;
            }
        }
        let mut letters: Vec<char> = (place + 1 - WINDOW..=place)
            .map(|at| tables.char_at(at))
            .filter(|c| c.is_alphabetic())
            .flat_map(char::to_lowercase)
            .collect();
        letters.sort_unstable();
        letters.dedup();
        if letters.len() < LETTERS_MIN {
            return false;
        }
        let mut periods: Vec<(usize, usize)> = Vec::new();
        for (later, earlier) in places.iter().zip(places.iter().skip(1)) {
            let same = |(from, to): &(usize, usize)| {
                to - from == later - earlier
                    && (0..later - earlier).all(|step| tables.char_at(from + step) == tables.char_at(earlier + step))
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
