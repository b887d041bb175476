//! A guard that runs one program after the other: what it is told, and what it answers.
//!
//! ```text
//! parent ──stdin──▶ guard    a job: four bytes of length, little end first, then its fields, each with a NUL behind it
//! parent ◀─stdout── guard    a line each: `taken`, then `started PID` or `failed ERRNO MESSAGE`, then `ended code N` or
//!                            `ended signal N`
//! ```
//! Starting a guard costs more than most commands do, so one that is done waits for the next job. Its standard input is
//! the leash as well: when that is closed, what runs is ended, and the guard with it. There is one job at a time. It is
//! over when nothing of its tree is left, so what one job left behind is never taken for another's.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use super::watch::{End, Wake, Watch};

/// Bytes of a job: more than the arguments and the environment of a program may have.
const JOB_BYTES_MAX: u32 = 8 << 20;

/// How long a guard without a job waits for one. A session that thinks for longer starts another guard.
const IDLE_MAX: Duration = Duration::from_secs(60);

const OUTPUT: &str = "--output=";
const FOLDER: &str = "--folder=";
const SET: &str = "--set=";
const UNSET: &str = "--unset=";
const PROGRAM: &str = "--";

/// A program to run. Its standard input is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The descriptor, in the parent, of the pipe that standard output and standard error go to. The parent keeps it open
    /// until the program is started.
    pub output: u32,
    /// Where it runs.
    pub folder: PathBuf,
    /// Variables that it sees besides those of the guard.
    pub set: Vec<(OsString, OsString)>,
    /// Variables of the guard that it does not see.
    pub unset: Vec<OsString>,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What a guard says of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The program will be started. A guard that ends without having said so has started nothing: another one may.
    Taken,
    /// The program runs, under this process id.
    Started(u32),
    /// It could not be started; the guard is ready for another job.
    Failed {
        /// What the system said.
        errno: Option<i32>,
        /// The same in words.
        message: String,
    },
    /// Nothing of it runs any more; the guard is ready for another job, if its standard input is still open.
    Ended(End),
}

impl Job {
    /// As it is sent. An error if a field has a NUL in it, or all of it is too long.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut fields =
            vec![OsString::from(format!("{OUTPUT}{}", self.output)), joined(FOLDER, self.folder.as_os_str())];
        for (name, value) in &self.set {
            let mut field = joined(SET, name);
            field.push("=");
            field.push(value);
            fields.push(field);
        }
        fields.extend(self.unset.iter().map(|name| joined(UNSET, name)));
        fields.push(PROGRAM.into());
        fields.push(self.program.clone());
        fields.extend(self.args.iter().cloned());
        if fields.iter().any(|field| field.as_bytes().contains(&0)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is a NUL in what is to be run"));
        }
        let length: usize = fields.iter().map(|field| field.len() + 1).sum();
        let length = u32::try_from(length).ok().filter(|length| *length <= JOB_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::ArgumentListTooLong))?;
        let mut bytes = length.to_le_bytes().to_vec();
        for field in fields {
            bytes.extend_from_slice(field.as_bytes());
            bytes.push(0);
        }
        Ok(bytes)
    }

    /// Reads what [`Self::to_bytes`] writes, its length left out; `None` if it is anything else.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.strip_suffix(&[0])?.split(|byte| *byte == 0);
        let output = std::str::from_utf8(fields.next()?.strip_prefix(OUTPUT.as_bytes())?).ok()?.parse().ok()?;
        let folder = PathBuf::from(owned(fields.next()?.strip_prefix(FOLDER.as_bytes())?));
        let (mut set, mut unset) = (Vec::new(), Vec::new());
        loop {
            let field = fields.next()?;
            if field == PROGRAM.as_bytes() {
                break;
            } else if let Some(pair) = field.strip_prefix(SET.as_bytes()) {
                let at = pair.iter().position(|byte| *byte == b'=')?;
                set.push((owned(pair.get(..at)?), owned(pair.get(at + 1..)?)));
            } else {
                unset.push(owned(field.strip_prefix(UNSET.as_bytes())?));
            }
        }
        Some(Self { output, folder, set, unset, program: owned(fields.next()?), args: fields.map(owned).collect() })
    }

    fn command(&self, parent: u32) -> io::Result<Command> {
        let output = OpenOptions::new().write(true).open(format!("/proc/{parent}/fd/{}", self.output))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .current_dir(&self.folder)
            .envs(self.set.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            .process_group(0);
        for name in &self.unset {
            command.env_remove(name);
        }
        Ok(command)
    }
}

fn joined(key: &str, value: &OsStr) -> OsString {
    let mut field = OsString::from(key);
    field.push(value);
    field
}

fn owned(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("taken"),
            Self::Started(pid) => write!(f, "started {pid}"),
            // One line, whatever is in it.
            Self::Failed { errno, message } => {
                write!(f, "failed {} {}", errno.unwrap_or_default(), message.replace(['\n', '\r'], " "))
            }
            Self::Ended(End::Code(code)) => write!(f, "ended code {code}"),
            Self::Ended(End::Signal(signal)) => write!(f, "ended signal {signal}"),
        }
    }
}

impl FromStr for Answer {
    type Err = io::Error;

    fn from_str(line: &str) -> Result<Self, io::Error> {
        let mut words = line.splitn(3, ' ');
        let (what, first, rest) = (words.next(), words.next(), words.next());
        let read = match (what, first, rest) {
            (Some("taken"), None, None) => Some(Self::Taken),
            (Some("started"), Some(pid), None) => pid.parse().ok().map(Self::Started),
            (Some("failed"), Some(errno), Some(message)) => errno.parse().ok().map(|errno: i32| Self::Failed {
                errno: Some(errno).filter(|errno| *errno != 0),
                message: message.to_owned(),
            }),
            (Some("ended"), Some("code"), Some(code)) => code.parse().ok().map(|code| Self::Ended(End::Code(code))),
            (Some("ended"), Some("signal"), Some(signal)) => {
                signal.parse().ok().map(|signal| Self::Ended(End::Signal(signal)))
            }
            _ => None,
        };
        read.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a guard answered something else"))
    }
}

impl From<&io::Error> for Answer {
    fn from(error: &io::Error) -> Self {
        Self::Failed { errno: error.raw_os_error(), message: error.to_string() }
    }
}

/// Runs what standard input says until that is closed, or nothing comes for a while.
pub(super) fn serve(parent: u32, grace: Duration) -> io::Result<()> {
    let mut watch = Watch::start()?;
    let jobs = watch.sender();
    thread::spawn(move || read_jobs(&mut io::stdin().lock(), &jobs));
    while let Some(job) = watch.next_job(IDLE_MAX) {
        answer(&Answer::Taken)?;
        let started = job.command(parent).and_then(|command| watch.run(command));
        let leader = match started {
            Ok(leader) => leader,
            Err(error) => {
                answer(&Answer::from(&error))?;
                continue;
            }
        };
        answer(&Answer::Started(leader.pid()))?;
        let end = watch.until_over(leader, grace);
        // Before it is told: the next job may come at once.
        let free = watch.is_free();
        answer(&Answer::Ended(end))?;
        if !free {
            break;
        }
    }
    Ok(())
}

fn answer(answer: &Answer) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{answer}")?;
    stdout.flush()
}

/// Ends with what it reads from, or with something that is no job.
fn read_jobs(from: &mut impl Read, wake: &Sender<Wake>) {
    while let Some(job) = read_job(from) {
        if wake.send(Wake::Job(job)).is_err() {
            return;
        }
    }
    // Nobody is there to be told that nobody is there.
    let _ = wake.send(Wake::LeashGone);
}

fn read_job(from: &mut impl Read) -> Option<Job> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let length = Some(u32::from_le_bytes(length)).filter(|length| *length <= JOB_BYTES_MAX)?;
    let mut bytes = Vec::new();
    let count = from.take(u64::from(length)).read_to_end(&mut bytes).ok()?;
    if u32::try_from(count) == Ok(length) { Job::parse(&bytes) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        let odd = OsString::from_vec(b"a \xff=\n".to_vec());
        Job {
            output: 7,
            folder: PathBuf::from(&odd),
            set: vec![("NAME".into(), odd.clone()), ("EMPTY".into(), OsString::new())],
            unset: vec!["KEY".into()],
            program: "bash".into(),
            args: vec!["-c".into(), odd, OsString::new(), "--".into()],
        }
    }

    #[test]
    fn a_job_is_read_as_it_was_written_and_so_is_the_next() {
        let plain = Job { set: Vec::new(), unset: Vec::new(), args: Vec::new(), ..job() };
        let bytes = [job().to_bytes().unwrap(), plain.to_bytes().unwrap()].concat();
        let mut rest = bytes.as_slice();
        assert_eq!(read_job(&mut rest), Some(job()));
        assert_eq!(read_job(&mut rest), Some(plain));
        assert_eq!(read_job(&mut rest), None);
    }

    #[test]
    fn what_is_cut_or_is_no_job_is_none() {
        let bytes = job().to_bytes().unwrap();
        for end in 0..bytes.len() {
            assert_eq!(read_job(&mut bytes.get(..end).unwrap()), None, "{end}");
        }
        for fields in [
            "",
            "x\0",
            "--output=1\0--folder=/\0",
            "--output=1\0--folder=/\0--\0",
            "--output=1\0--folder=/\0x\0--\0p\0",
        ] {
            assert_eq!(Job::parse(fields.as_bytes()), None.filter(|_: &Job| true), "{fields:?}");
        }
        assert_eq!(read_job(&mut [0xff; 64].as_slice()), None);
    }

    #[test]
    fn what_can_not_be_sent_is_refused() {
        let nul = Job { args: vec![OsString::from_vec(vec![b'a', 0])], ..job() };
        assert_eq!(nul.to_bytes().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let long = Job { args: vec![OsString::from_vec(vec![b'a'; JOB_BYTES_MAX as usize])], ..job() };
        assert_eq!(long.to_bytes().unwrap_err().kind(), io::ErrorKind::ArgumentListTooLong);
    }

    #[test]
    fn answers_survive_their_lines() {
        let failed = |errno, message: &str| Answer::Failed { errno, message: message.to_owned() };
        let answers = [
            Answer::Taken,
            Answer::Started(17),
            failed(Some(2), "No such file or directory (os error 2)"),
            failed(None, "it  is so"),
            Answer::Ended(End::Code(255)),
            Answer::Ended(End::Signal(9)),
        ];
        for answer in answers {
            assert_eq!(answer.to_string().parse::<Answer>().unwrap(), answer);
        }
        assert_eq!(failed(None, "a\nb").to_string(), "failed 0 a b");
        for line in
            ["", "taken 1", "started", "started x", "started 1 2", "ended", "ended code 300", "ended well", "hello 1 2"]
        {
            assert!(line.parse::<Answer>().is_err(), "{line:?}");
        }
    }
}
