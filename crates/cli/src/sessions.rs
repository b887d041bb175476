//! Recorded sessions on the command line: which one is meant, which there are, how long they are kept.

use std::path::Path;
use std::time::Duration;

use convoke_agent::{RecordOptions, Records, Retention};
use convoke_protocol::{ExitCode, LoadFrom, SessionId, StoredSession};
use convoke_stdx::Clock;

use crate::args::SessionArgs;
use crate::failure::{Exit, complain, print};
use crate::home::Home;
use crate::settings::Settings;
use crate::startup::Startup;

/// The name of the session that was used last.
const LATEST: &str = "latest";

/// Where sessions are recorded; nowhere without a home.
pub(crate) fn record_options(startup: &Startup) -> Result<Option<RecordOptions>, Exit> {
    let Some(home) = &startup.home else { return Ok(None) };
    let [theirs, ours] = home.folders();
    Ok(Some(RecordOptions {
        folder: ours.join("tmp"),
        read_folders: vec![theirs.join("tmp")],
        outputs: Some(output_folder(home)),
        retention: retention(&startup.settings)?,
    }))
}

/// Where output is kept that is too large for the model.
pub(crate) fn output_folder(home: &Home) -> std::path::PathBuf {
    home.folder().join("tmp").join("tool-outputs")
}

/// `general.sessionRetention`. Source: runtime specification §11.4.
fn retention(settings: &Settings) -> Result<Option<Retention>, Exit> {
    let key = |name: &str| format!("general.sessionRetention.{name}");
    if settings.flag(&key("enabled")) == Some(false) {
        return Ok(None);
    }
    let ours = Retention::default();
    let duration = |name: &str| -> Result<Option<Duration>, Exit> {
        let Some(text) = settings.text(&key(name)) else { return Ok(None) };
        let wrong = || {
            let why = format!("use {} \"{text}\": write a number and h, d, w or m, such as 30d", key(name));
            Exit::because(ExitCode::Configuration, why)
        };
        parse_duration(text).map(Some).ok_or_else(wrong)
    };
    let max_count = settings.integer(&key("maxCount")).and_then(|count| usize::try_from(count).ok());
    Ok(Some(Retention {
        max_age: duration("maxAge")?.or(ours.max_age),
        max_count,
        min_age: duration("minRetention")?.unwrap_or(ours.min_age),
    }))
}

/// Hours, days, weeks, months of thirty days.
fn parse_duration(text: &str) -> Option<Duration> {
    const HOUR: u64 = 60 * 60;
    let unit = match text.chars().last()? {
        'h' => HOUR,
        'd' => 24 * HOUR,
        'w' => 7 * 24 * HOUR,
        'm' => 30 * 24 * HOUR,
        _ => return None,
    };
    let count: u64 = text.get(..text.len() - 1)?.parse().ok().filter(|count| *count > 0)?;
    count.checked_mul(unit).map(Duration::from_secs)
}

/// What was asked for instead of a prompt, done; `None` if there is a prompt to run.
pub(crate) fn instead_of_a_prompt(args: &SessionArgs, startup: &Startup) -> Result<Option<Exit>, Exit> {
    if !args.list_sessions && args.delete_session.is_none() {
        return Ok(None);
    }
    let sessions = Sessions::of(startup)?;
    if let Some(which) = &args.delete_session {
        let session = sessions.find(which)?;
        let deleted = sessions.records.delete(session.id.as_str());
        deleted.map_err(|error| Exit::because(ExitCode::Input, error))?;
        print(&format!("Deleted session {} ({}).", session.id, name(session)));
        return Ok(Some(Exit::ok()));
    }
    if sessions.list.is_empty() {
        print("No sessions of this folder were recorded.");
        return Ok(Some(Exit::ok()));
    }
    print(&format!("Sessions of {}:", startup.workspace.display()));
    let now_ms = Clock::start().now().wall_ms;
    for (index, session) in sessions.list.iter().enumerate() {
        let age = age(now_ms.saturating_sub(session.updated_ms));
        print(&format!("  {}. {} ({age}) [{}]", index + 1, name(session), session.id));
    }
    Ok(Some(Exit::ok()))
}

/// What the run goes on with, if it is to go on with something.
pub(crate) fn past(args: &SessionArgs, startup: &Startup) -> Result<Option<LoadFrom>, Exit> {
    if let Some(path) = &args.session_file {
        return Ok(Some(LoadFrom::File(startup.workspace.join(path))));
    }
    let Some(which) = &args.resume else { return Ok(None) };
    let sessions = Sessions::of(startup)?;
    if which == LATEST && args.rewind.is_none() && sessions.list.is_empty() {
        // As the peer: a script that always goes on must be able to begin.
        complain("warning: NO_SESSIONS_FOUND: no sessions of this folder were recorded; this is a new one");
        return Ok(None);
    }
    Ok(Some(LoadFrom::Session(sessions.find(which)?.id.clone())))
}

/// What is done before the first prompt: going back, as somebody would type it.
pub(crate) fn first(args: &SessionArgs) -> Option<String> {
    let to = args.rewind.as_ref()?;
    let force = if args.rewind_force { " force" } else { "" };
    Some(format!("/rewind {to} {}{force}", args.rewind_mode))
}

fn name(session: &StoredSession) -> &str {
    session.title.as_deref().unwrap_or("untitled")
}

/// How long ago, in the largest unit.
fn age(ms: u64) -> String {
    let minutes = ms / 60_000;
    let (count, unit) = match minutes {
        0 => return "just now".to_owned(),
        1..60 => (minutes, "minute"),
        60..1440 => (minutes / 60, "hour"),
        _ => (minutes / 1440, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

/// The sessions of a folder, in the order in which they began.
struct Sessions {
    records: Records,
    list: Vec<StoredSession>,
}

impl Sessions {
    fn of(startup: &Startup) -> Result<Self, Exit> {
        let records = Records::new(record_options(startup)?.unwrap_or_default());
        let list = in_order(&records, &startup.workspace);
        Ok(Self { records, list })
    }

    /// The one that is meant by `latest`, a number from 1, or an id.
    fn find(&self, which: &str) -> Result<&StoredSession, Exit> {
        if self.list.is_empty() {
            let why = "NO_SESSIONS_FOUND: no sessions of this folder were recorded";
            return Err(Exit::because(ExitCode::Input, why));
        }
        choose(&self.list, which).ok_or_else(|| {
            let why = format!(
                "INVALID_SESSION_IDENTIFIER: there is no session \"{which}\" in this folder; use latest, a number of \
                 --list-sessions, or an id"
            );
            Exit::because(ExitCode::Input, why)
        })
    }
}

fn in_order(records: &Records, workspace: &Path) -> Vec<StoredSession> {
    let mut list = records.list(Some(workspace));
    list.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
    list
}

fn choose<'a>(list: &'a [StoredSession], which: &str) -> Option<&'a StoredSession> {
    if which == LATEST {
        return list.iter().max_by_key(|session| session.updated_ms);
    }
    let by_id = list.iter().find(|session| session.id == SessionId::from(which));
    let number = || which.parse::<usize>().ok().and_then(|number| list.get(number.checked_sub(1)?));
    by_id.or_else(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        const DAY: u64 = 24 * 60 * 60;
        for (text, seconds) in [("1h", 3600), ("30d", 30 * DAY), ("2w", 14 * DAY), ("3m", 90 * DAY)] {
            assert_eq!(parse_duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "d", "30", "0d", "-1d", "1y", "é"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_session_is_the_latest_a_number_or_an_id() {
        let stored = |id: &str, created_ms, updated_ms| StoredSession {
            id: id.into(),
            cwd: "/w".into(),
            title: None,
            created_ms,
            updated_ms,
            message_count: 1,
        };
        let list = [stored("a", 1, 9), stored("2", 2, 5)];
        let chosen = |which: &str| choose(&list, which).map(|session| session.created_ms);
        assert_eq!(chosen("latest"), Some(1));
        assert_eq!((chosen("1"), chosen("2"), chosen("a")), (Some(1), Some(2), Some(1)));
        assert_eq!((chosen("0"), chosen("3"), chosen("b")), (None, None, None));
    }

    #[test]
    fn ages_are_in_the_largest_unit() {
        let minute = 60_000;
        let ages = [0, minute, 59 * minute, 60 * minute, 48 * 60 * minute].map(age);
        assert_eq!(ages, ["just now", "1 minute ago", "59 minutes ago", "1 hour ago", "2 days ago"]);
    }
}
