//! `convoke -p`: one answer, and a loop of two hundred tool calls, over what the model takes.

use std::path::Path;

use anyhow::{Context, bail};

use crate::measures::Effort;
use crate::model_server::{Exchange, ModelServer, Story};
use crate::run::{Cost, Pair, Programs, Subject, run};
use crate::stats::Summary;
use crate::table::{Row, Target};

/// Tool calls of the loop.
const CALLS: usize = 200;
/// The calls at either end whose times are compared.
const EDGE: usize = 20;

/// One answered prompt.
pub(crate) async fn one_prompt(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let rig = Rig::start(programs).await?;
    let (mut wall, mut cpu, mut memory, mut ending) = <(Pair, Pair, Pair, Pair)>::default();
    // The first run of each reads the binary from disk and does not count.
    for round in 0..=effort.runs {
        for subject in Subject::BOTH {
            let (cost, exchanges) = rig.play(subject, Story::Text).await?;
            if round > 0 {
                let last = exchanges.last().context("measure a prompt: no request came")?;
                wall.push(subject, cost.wall_ms);
                cpu.push(subject, cost.cpu_ms);
                memory.push(subject, cost.rss_max_mib);
                ending.push(subject, span_ms(last.answered_ns, cost.ended_ns));
            }
        }
    }
    Ok(vec![
        Row::new("one prompt: wall, ms", &wall.ours, &wall.floor, Some(Target::at_most(40.0, 17.0))),
        Row::new("one prompt: CPU, ms", &cpu.ours, &cpu.floor, Some(Target::at_most(30.0, 6.0))),
        Row::new("one prompt: max RSS, MiB", &memory.ours, &memory.floor, Some(Target::at_most(25.0, 3.0))),
        Row::new("last model byte → exit, ms", &ending.ours, &ending.floor, Some(Target::at_most(5.0, 0.7))),
    ])
}

/// Two hundred calls of `read_file`, each over another file.
pub(crate) async fn tool_loop(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let rig = Rig::start(programs).await?;
    let story = |calls| Story::Reads { calls, folder: rig.folder.path().to_owned() };
    let line = "The quick brown fox jumps over the lazy dog, again.\n";
    for number in 0..CALLS {
        std::fs::write(ModelServer::file(rig.folder.path(), number), line.repeat(20))?;
    }
    let (mut each, mut first, mut last, mut slope, mut growth) = <(Pair, Pair, Pair, Pair, Pair)>::default();
    for _ in 0..effort.loops {
        for subject in Subject::BOTH {
            // One call, so that the code of the tool is loaded in both and only the history differs.
            let (short, _) = rig.play(subject, story(1)).await?;
            let (cost, exchanges) = rig.play(subject, story(CALLS)).await?;
            if exchanges.len() != CALLS + 1 {
                bail!("measure the tool loop: {} requests came instead of {}", exchanges.len(), CALLS + 1);
            }
            let calls: Vec<f64> = exchanges.windows(2).filter_map(between_ms).collect();
            let (head, tail) = (median(calls.iter().take(EDGE))?, median(calls.iter().rev().take(EDGE))?);
            each.push(subject, median(calls.iter())?);
            first.push(subject, head);
            last.push(subject, tail);
            // Between the middles of the two edges.
            slope.push(subject, (tail - head) * 1000.0 / (CALLS - EDGE) as f64);
            growth.push(subject, cost.rss_max_mib - short.rss_max_mib);
        }
    }
    Ok(vec![
        Row::new("tool loop: per call, ms", &each.ours, &each.floor, Some(Target::at_most(1.5, 0.55))),
        Row::new("… the first 20, ms", &first.ours, &first.floor, None),
        Row::new("… the last 20, ms", &last.ours, &last.floor, None),
        Row::new("… slope, µs per call of history", &slope.ours, &slope.floor, Some(Target::at_most(6.0, 4.0))),
        Row::new(
            "… memory growth from call 1 to call 200, MiB",
            &growth.ours,
            &growth.floor,
            Some(Target::at_most(3.0, 2.0)),
        ),
    ])
}

fn between_ms(pair: &[Exchange]) -> Option<f64> {
    let [before, after] = pair else { return None };
    Some(span_ms(before.answered_ns, after.asked_ns))
}

fn span_ms(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

fn median<'a>(values: impl Iterator<Item = &'a f64>) -> anyhow::Result<f64> {
    let values: Vec<f64> = values.copied().collect();
    Ok(Summary::of(&values).context("summarise nothing")?.median)
}

/// A model server and a folder to work in.
struct Rig<'a> {
    programs: &'a Programs,
    model: ModelServer,
    folder: tempfile::TempDir,
    /// Length of the product's first request, which the floor sends as well.
    body_bytes: usize,
}

impl<'a> Rig<'a> {
    async fn start(programs: &'a Programs) -> anyhow::Result<Self> {
        let model = ModelServer::start().await?;
        let mut rig = Self { programs, model, folder: tempfile::tempdir()?, body_bytes: 0 };
        let (_, exchanges) = rig.play(Subject::Ours, Story::Text).await?;
        rig.body_bytes = exchanges.first().context("measure a prompt: no request came")?.bytes;
        Ok(rig)
    }

    async fn play(&self, subject: Subject, story: Story) -> anyhow::Result<(Cost, Vec<Exchange>)> {
        self.model.tell(story);
        let home = tempfile::tempdir()?;
        let url = self.model.url();
        let home_path = path_text(home.path())?;
        let env = [
            ("GEMINI_API_KEY", "x"),
            ("GOOGLE_GEMINI_BASE_URL", &url),
            // `auto` would ask a classifier first.
            ("GEMINI_MODEL", "gemini-3-flash-preview"),
            ("CONVOKE_HOME", home_path),
            ("HOME", home_path),
        ];
        let length = self.body_bytes.to_string();
        let cost = match subject {
            Subject::Ours => {
                let program = self.programs.find("convoke")?;
                run(self.programs, &program, &["-p", "hi"], &env, self.folder.path()).await?
            }
            Subject::Floor => {
                let program = self.programs.find("floor-headless")?;
                run(self.programs, &program, &["hi", &length], &env, self.folder.path()).await?
            }
        };
        if cost.stdout != "Hello from the model.\n" {
            bail!("measure a prompt: the answer is {:?}", cost.stdout);
        }
        if let Some(path) = self.model.refused().first() {
            bail!("measure a prompt: it asked for {path} besides");
        }
        Ok((cost, self.model.exchanges()))
    }
}

fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a temporary folder whose name is no text")
}
