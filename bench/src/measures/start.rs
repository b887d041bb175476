//! Cold start: what does `convoke --version` cost beyond starting any program?

use crate::measures::Effort;
use crate::run::{Pair, Programs, Subject, run};
use crate::table::{Row, Target};

pub(crate) async fn measure(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let (ours, floor) = (programs.find("convoke")?, programs.find("floor-hello")?);
    let (mut wall, mut cpu, mut memory) = (Pair::default(), Pair::default(), Pair::default());
    // The first run of each reads the binary from disk and does not count.
    for round in 0..=effort.runs {
        for subject in Subject::BOTH {
            let cost = match subject {
                Subject::Ours => run(programs, &ours, &["--version"], &[], folder.path(), None).await?,
                Subject::Floor => run(programs, &floor, &[], &[], folder.path(), None).await?,
            };
            if round > 0 {
                wall.push(subject, cost.wall_ms);
                cpu.push(subject, cost.cpu_ms);
                memory.push(subject, cost.rss_max_mib);
            }
        }
    }
    Ok(vec![
        Row::new("`--version`: wall, ms", &wall.ours, &wall.floor, Some(Target::at_most(5.0, 2.0))),
        Row::new("`--version`: CPU, ms", &cpu.ours, &cpu.floor, Some(Target::at_most(3.0, 1.0))),
        Row::new("`--version`: max RSS, MiB", &memory.ours, &memory.floor, None),
    ])
}
