//! `convoke -p` with much on its standard input: how long from its start until the model has the request?

use std::io::Write;

use anyhow::{Context, bail};

use super::headless::{Extra, Rig, span_ms};
use crate::measures::Effort;
use crate::model_server::Story;
use crate::run::{Pair, Programs, Subject};
use crate::table::{Row, Target};

/// A prompt of so many kilobytes.
pub(crate) async fn measure(
    programs: &Programs,
    effort: Effort,
    kilobytes: usize,
    target: Target,
) -> anyhow::Result<Vec<Row>> {
    let rig = Rig::start(programs).await?;
    let mut file = tempfile::NamedTempFile::new()?;
    // A line of a hundred bytes, like what people pipe.
    let line = format!("{:.<99}\n", "2026-11-21T12:00:00Z info: a line of a log, as programs write them");
    file.write_all(line.repeat(kilobytes * 10).as_bytes())?;
    let extra = Extra { stdin: Some(file.path()), ..Extra::default() };
    let (mut until, mut memory) = <(Pair, Pair)>::default();
    for round in 0..=effort.runs {
        for subject in Subject::BOTH {
            let (cost, exchanges) = rig.play(subject, Story::Text, extra).await?;
            let request = exchanges.first().context("measure a prompt: no request came")?;
            if request.bytes < kilobytes * 1000 {
                bail!("measure a prompt: a request of {} bytes came instead of all", request.bytes);
            }
            // The first run of each reads the binary from disk and does not count.
            if round > 0 {
                until.push(subject, span_ms(cost.started_ns, request.asked_ns));
                memory.push(subject, cost.rss_max_mib);
            }
        }
    }
    let size = if kilobytes < 1000 { format!("{kilobytes} KB") } else { format!("{} MB", kilobytes / 1000) };
    Ok(vec![
        Row::new(format!("{size} on stdin → request, ms"), &until.ours, &until.floor, Some(target)),
        Row::new("… max RSS, MiB", &memory.ours, &memory.floor, None),
    ])
}
