//! `convoke -p` and two hundred tool calls: what does each cost over the model, and does it grow with the history?

use anyhow::{Context, bail};

use super::headless::{Extra, Rig, span_ms};
use crate::measures::Effort;
use crate::model_server::{Exchange, ModelServer, Story};
use crate::run::{Pair, Programs, Subject};
use crate::stats::Summary;
use crate::table::{Row, Target};

/// Tool calls of the loop.
const CALLS: usize = 200;
/// The calls at either end whose times are compared.
const EDGE: usize = 20;

/// What the calls are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// `read_file`, each of another file of 1 KB.
    Reads,
    /// `read_file`, each of another file nearly as long as an output may be: a history of 8 MB at the end.
    LargeReads,
    /// `run_shell_command`, each of a command that does nothing.
    Shells,
}

impl Calls {
    fn story(self, calls: usize, rig: &Rig<'_>) -> Story {
        match self {
            Self::Reads | Self::LargeReads => Story::Reads { calls, folder: rig.folder.path().to_owned() },
            Self::Shells => Story::Shells { calls },
        }
    }

    fn prepare(self, rig: &Rig<'_>) -> std::io::Result<()> {
        let line = "The quick brown fox jumps over the lazy dog, again.\n";
        let lines = match self {
            Self::Reads => 20,
            Self::LargeReads => 760,
            Self::Shells => return Ok(()),
        };
        for number in 0..CALLS {
            std::fs::write(ModelServer::file(rig.folder.path(), number), line.repeat(lines))?;
        }
        Ok(())
    }

    fn name(self) -> &'static str {
        match self {
            Self::Reads => "tool loop",
            Self::LargeReads => "tool loop, 40 KB a call",
            Self::Shells => "shell loop",
        }
    }

    /// Of a call, of the slope, and of the growth. The peers' shell calls had no floor but the shell's own start.
    fn targets(self) -> [Option<Target>; 3] {
        match self {
            Self::Reads => {
                [Some(Target::at_most(1.5, 0.55)), Some(Target::at_most(6.0, 4.0)), Some(Target::at_most(3.0, 2.0))]
            }
            Self::LargeReads => [None; 3],
            Self::Shells => [Some(Target::at_most(6.0, 1.8)), None, Some(Target::at_most(3.0, 2.0))],
        }
    }
}

/// Two hundred calls, one an answer.
pub(crate) async fn measure(programs: &Programs, effort: Effort, calls: Calls) -> anyhow::Result<Vec<Row>> {
    let rig = Rig::start(programs).await?;
    calls.prepare(&rig)?;
    // A command would wait for somebody who allows it.
    let extra = Extra { args: if calls == Calls::Shells { &["--yolo"] } else { &[] }, ..Extra::default() };
    let (mut each, mut first, mut last, mut slope, mut growth) = <(Pair, Pair, Pair, Pair, Pair)>::default();
    for _ in 0..effort.loops {
        for subject in Subject::BOTH {
            // One call, so that the code of the tool is loaded in both and only the history differs.
            let (short, _) = rig.play(subject, calls.story(1, &rig), extra).await?;
            let (cost, exchanges) = rig.play(subject, calls.story(CALLS, &rig), extra).await?;
            if exchanges.len() != CALLS + 1 {
                bail!("measure the {}: {} requests came instead of {}", calls.name(), exchanges.len(), CALLS + 1);
            }
            let times: Vec<f64> = exchanges.windows(2).filter_map(between_ms).collect();
            let (head, tail) = (median(times.iter().take(EDGE))?, median(times.iter().rev().take(EDGE))?);
            each.push(subject, median(times.iter())?);
            first.push(subject, head);
            last.push(subject, tail);
            // Between the middles of the two edges.
            slope.push(subject, (tail - head) * 1000.0 / (CALLS - EDGE) as f64);
            growth.push(subject, cost.rss_max_mib - short.rss_max_mib);
        }
    }
    let [call, by_history, memory] = calls.targets();
    Ok(vec![
        Row::new(format!("{}: per call, ms", calls.name()), &each.ours, &each.floor, call),
        Row::new("… the first 20, ms", &first.ours, &first.floor, None),
        Row::new("… the last 20, ms", &last.ours, &last.floor, None),
        Row::new("… slope, µs per call of history", &slope.ours, &slope.floor, by_history),
        Row::new("… memory growth from call 1 to call 200, MiB", &growth.ours, &growth.floor, memory),
    ])
}

fn between_ms(pair: &[Exchange]) -> Option<f64> {
    let [before, after] = pair else { return None };
    Some(span_ms(before.answered_ns, after.asked_ns))
}

fn median<'a>(values: impl Iterator<Item = &'a f64>) -> anyhow::Result<f64> {
    let values: Vec<f64> = values.copied().collect();
    Ok(Summary::of(&values).context("summarise nothing")?.median)
}
