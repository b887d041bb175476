//! `convoke -p`: what does one answer cost, over what the model takes?

use std::path::Path;

use anyhow::{Context, bail};

use crate::measures::Effort;
use crate::model_server::{Exchange, ModelServer, Story};
use crate::run::{Cost, Pair, Programs, Subject, run};
use crate::table::{Row, Target};

/// One answered prompt.
pub(crate) async fn one_prompt(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let rig = Rig::start(programs).await?;
    let (mut wall, mut cpu, mut memory, mut ending) = <(Pair, Pair, Pair, Pair)>::default();
    // The first run of each reads the binary from disk and does not count.
    for round in 0..=effort.runs {
        for subject in Subject::BOTH {
            let (cost, exchanges) = rig.play(subject, Story::Text, Extra::default()).await?;
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

pub(super) fn span_ms(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

/// What a run has besides its prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra<'a> {
    /// Further arguments, of the product only.
    pub(super) args: &'a [&'a str],
    /// What is on its standard input.
    pub(super) stdin: Option<&'a Path>,
    /// The product's home; a new one otherwise.
    pub(super) home: Option<&'a Path>,
}

/// A model server and a folder to work in.
pub(super) struct Rig<'a> {
    programs: &'a Programs,
    model: ModelServer,
    pub(super) folder: tempfile::TempDir,
    /// Length of the product's first request, which the floor sends as well.
    body_bytes: usize,
}

impl<'a> Rig<'a> {
    pub(super) async fn start(programs: &'a Programs) -> anyhow::Result<Self> {
        let model = ModelServer::start().await?;
        let mut rig = Self { programs, model, folder: tempfile::tempdir()?, body_bytes: 0 };
        let (_, exchanges) = rig.play(Subject::Ours, Story::Text, Extra::default()).await?;
        rig.body_bytes = exchanges.first().context("measure a prompt: no request came")?.bytes;
        Ok(rig)
    }

    pub(super) async fn play(
        &self,
        subject: Subject,
        story: Story,
        extra: Extra<'_>,
    ) -> anyhow::Result<(Cost, Vec<Exchange>)> {
        self.model.tell(story);
        let new_home = tempfile::tempdir()?;
        let url = self.model.url();
        let home_path = path_text(extra.home.unwrap_or(new_home.path()))?;
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
                let args = [&["-p", "hi"], extra.args].concat();
                run(self.programs, &program, &args, &env, self.folder.path(), extra.stdin).await?
            }
            Subject::Floor => {
                let program = self.programs.find("floor-headless")?;
                run(self.programs, &program, &["hi", &length], &env, self.folder.path(), extra.stdin).await?
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
