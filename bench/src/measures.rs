//! The measures, each of the product and of its floor by turns, so that both have the same weather.

pub(crate) mod acp;
pub(crate) mod fan_out;
pub(crate) mod headless;
pub(crate) mod input;
pub(crate) mod memory;
pub(crate) mod permission;
pub(crate) mod serve;
pub(crate) mod start;
pub(crate) mod tool_loop;

use std::time::Duration;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Runs of programs that end by themselves.
    pub(crate) runs: usize,
    /// Runs of the tool loop.
    pub(crate) loops: usize,
    /// Daemons started for each figure of a daemon.
    pub(crate) daemons: usize,
    /// How long requests are sent as fast as they are answered.
    pub(crate) load: Duration,
    /// Chunks of one paced stream.
    pub(crate) chunks: u32,
    /// Bursts of one saturated stream.
    pub(crate) bursts: u32,
    /// Permission requests of one daemon.
    pub(crate) asks: u32,
    /// Sessions that are opened and closed again.
    pub(crate) lives: u32,
}

impl Effort {
    /// For a figure that one quotes.
    pub(crate) const FULL: Self = Self {
        runs: 20,
        loops: 5,
        daemons: 5,
        load: Duration::from_secs(2),
        chunks: 600,
        bursts: 20,
        asks: 100,
        lives: 1000,
    };

    /// For seeing whether something broke.
    pub(crate) const QUICK: Self = Self {
        runs: 5,
        loops: 1,
        daemons: 1,
        load: Duration::from_millis(500),
        chunks: 200,
        bursts: 5,
        asks: 30,
        lives: 200,
    };
}
