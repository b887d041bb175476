//! What the standard library lacks, and could plausibly have.
//!
//! Time as an input ([`Now`], [`Tick`]), a bounded ring ([`Ring`]), atomic file writes ([`write_atomic`], [`place_file`], [`place_link`]),
//! files that are no pipes ([`open_regular`], [`open_regular_no_link`]), text cuts that respect UTF-8 ([`cut`]) and guarded child processes ([`guard`]). Anything with a noun of the
//! product in it belongs to another room.

mod atomic;
pub mod cut;
pub mod guard;
mod regular;
mod ring;
mod time;

pub use atomic::{place_file, place_link, write_atomic};
pub use regular::{open_regular, open_regular_no_link};
pub use ring::Ring;
pub use time::{Clock, Now, Tick, iso8601, parse_http_date, parse_iso8601};
