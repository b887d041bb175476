//! `convoke attach --stdio URL`: a seat at a daemon's session for an editor that knows only ACP on stdio.

mod relay;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use convoke_acp::transport::{self, DialError, Incoming, Outgoing};
use convoke_acp::{Line, Lines};
use convoke_protocol::ExitCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::io::{AsyncWriteExt, Stdin, Stdout};
use tokio::time::Instant;

use crate::args::AttachArgs;
use crate::environment::Environment;
use crate::failure::{Exit, complain};
use crate::home::Home;
use crate::serve::{TOKEN_VARIABLES, read_token};
use crate::signals::Interrupts;
use relay::{Output, Relay};

/// Longest line of an editor: what a daemon takes as one message.
const LINE_BYTES: usize = 10 * 1024 * 1024;

/// For how long a lost daemon is looked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first wait between two attempts, and the longest.
const WAIT: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How a connection ended.
enum End {
    /// The editor is done, or a signal came.
    Done,
    /// The daemon is gone.
    Lost,
}

/// Relays until the editor is done. Only ACP goes to stdout.
pub(crate) fn run(args: &AttachArgs) -> Exit {
    match attach(args) {
        Ok(()) => Exit::ok(),
        Err(error) => Exit::because(ExitCode::Failure, format!("attach: {error:#}")),
    }
}

fn attach(args: &AttachArgs) -> anyhow::Result<()> {
    let environment = Environment::of_process();
    let uri = transport::address(&args.url)?;
    let token = token(args, &environment, uri.host().unwrap_or_default())?;
    convoke_models::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let relaying = async {
        let dial = || async { transport::dial(&uri, token.as_ref().map(ExposeSecret::expose_secret)).await };
        let first = dial().await.map_err(explain)?;
        let mut seat = Seat {
            relay: Relay::new(args.session.clone()),
            lines: Lines::new(tokio::io::stdin(), LINE_BYTES),
            stdout: tokio::io::stdout(),
            interrupts: Interrupts::listen(),
        };
        let mut connection = first;
        loop {
            match seat.follow(connection).await? {
                End::Done => return Ok(()),
                End::Lost if !seat.relay.is_initialized() => bail!("the daemon closed the connection"),
                End::Lost => complain("the connection to the daemon was lost; trying again"),
            }
            connection = tokio::select! {
                found = find_again(dial) => found?,
                () = seat.interrupts.next() => return Ok(()),
            };
            let mut out = Vec::new();
            seat.relay.back(&mut out);
            for output in out {
                if let Output::Daemon(message) = output {
                    // A connection that broke at once is seen as such when it is read.
                    let _ = connection.0.send(message.to_string()).await;
                }
            }
        }
    };
    let result = runtime.block_on(relaying);
    // A read of stdin can't be taken back; the process ends without it.
    runtime.shutdown_background();
    result
}

/// Dials until the daemon answers, with longer and longer waits.
async fn find_again<F>(dial: impl Fn() -> F) -> anyhow::Result<(Outgoing, Incoming)>
where
    F: Future<Output = Result<(Outgoing, Incoming), DialError>>,
{
    let (deadline, mut wait) = (Instant::now() + PATIENCE, WAIT);
    loop {
        tokio::time::sleep(wait).await;
        match dial().await {
            Ok(connection) => return Ok(connection),
            Err(error) if error.may_pass() && Instant::now() < deadline => {}
            Err(error) => return Err(explain(error)),
        }
        wait = (wait * 2).min(WAIT_MAX);
    }
}

fn explain(error: DialError) -> anyhow::Error {
    let hint = error.is_unauthorized();
    let error = anyhow::Error::new(error);
    if hint { error.context("the token is missing or wrong; see --token-file and QWEN_SERVER_TOKEN") } else { error }
}

/// The editor's side of everything.
struct Seat {
    relay: Relay,
    lines: Lines<Stdin>,
    stdout: Stdout,
    interrupts: Interrupts,
}

impl Seat {
    /// Relays on one connection until it or the editor ends.
    async fn follow(&mut self, (mut outgoing, mut incoming): (Outgoing, Incoming)) -> anyhow::Result<End> {
        let mut out = Vec::new();
        loop {
            tokio::select! {
                message = incoming.next() => match message {
                    Some(text) => self.relay.daemon(&text, &mut out),
                    None => break,
                },
                // What the editor says waits in its pipe while its sessions are being resumed.
                line = self.lines.next(), if self.relay.is_up() => match line.context("read stdin")? {
                    Line::Bytes(line) => self.relay.editor(&line, &mut out),
                    Line::TooLong => bail!("read stdin: a line is longer than {LINE_BYTES} bytes"),
                    Line::End => {
                        outgoing.close().await;
                        return Ok(End::Done);
                    }
                },
                () = self.interrupts.next() => {
                    outgoing.close().await;
                    return Ok(End::Done);
                }
            }
            for output in out.drain(..) {
                match output {
                    Output::Editor(message) => {
                        if !self.tell(&message).await? {
                            outgoing.close().await;
                            return Ok(End::Done);
                        }
                    }
                    // That it broke is seen when it is read.
                    Output::Daemon(message) => _ = outgoing.send(message.to_string()).await,
                    Output::Say(line) => complain(&line),
                }
            }
        }
        self.relay.lost(&mut out);
        for output in out {
            if let Output::Editor(message) = output
                && !self.tell(&message).await?
            {
                return Ok(End::Done);
            }
        }
        Ok(End::Lost)
    }

    /// Whether the editor is still there: one that leaves may close both pipes in any order.
    async fn tell(&mut self, message: &Value) -> anyhow::Result<bool> {
        let mut line = message.to_string();
        line.push('\n');
        let written = async {
            self.stdout.write_all(line.as_bytes()).await?;
            self.stdout.flush().await
        };
        match written.await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error).context("write to stdout"),
        }
    }
}

/// The token: from a file, from the environment, or for a daemon of this machine from where it leaves it.
fn token(args: &AttachArgs, environment: &Environment, host: &str) -> anyhow::Result<Option<SecretString>> {
    if let Some(path) = &args.token_file {
        let token = read_token(path).with_context(|| format!("use --token-file {}", path.display()))?;
        return Ok(Some(token));
    }
    let mut variables = TOKEN_VARIABLES.iter().filter_map(|name| environment.of_process_only(name)).map(str::trim);
    if let Some(token) = variables.find(|token| !token.is_empty()) {
        return Ok(Some(SecretString::from(token)));
    }
    // The file of this machine's daemon is nobody else's business.
    if !is_this_machine(host) {
        return Ok(None);
    }
    let file = Home::find(environment).map(|home| home.folder().join("run").join("serve-token"));
    Ok(file.as_deref().filter(|path| Path::exists(path)).and_then(|path| read_token(path).ok()))
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn args(token_file: Option<PathBuf>) -> AttachArgs {
        AttachArgs { url: "http://127.0.0.1:1".to_owned(), stdio: true, session: None, token_file }
    }

    /// A file over the environment over the daemon's own file, which never goes to another machine.
    #[test]
    fn where_the_token_comes_from() {
        let home = tempfile::tempdir().unwrap();
        let left = home.path().join(".convoke/run");
        std::fs::create_dir_all(&left).unwrap();
        std::fs::write(left.join("serve-token"), "left").unwrap();
        let given = home.path().join("given");
        std::fs::write(&given, "given\n").unwrap();
        let folder = home.path().to_str().unwrap();
        let with = |pairs: &[(&str, &str)]| Environment::of(pairs);
        let shown = |args: &AttachArgs, environment: &Environment, host: &str| {
            token(args, environment, host).unwrap().map(|token| token.expose_secret().to_owned())
        };
        let plain = with(&[("HOME", folder)]);
        let set = with(&[("HOME", folder), ("CONVOKE_TOKEN", " set ")]);
        assert_eq!(shown(&args(Some(given)), &set, "127.0.0.1").as_deref(), Some("given"));
        assert_eq!(shown(&args(None), &set, "far.example").as_deref(), Some("set"));
        for host in ["127.0.0.1", "localhost", "[::1]"] {
            assert_eq!(shown(&args(None), &plain, host).as_deref(), Some("left"), "{host}");
        }
        for host in ["far.example", "10.0.0.1", "localhost.example"] {
            assert_eq!(shown(&args(None), &plain, host), None, "{host}");
        }
        assert!(token(&args(Some("/nowhere".into())), &plain, "localhost").is_err());
    }
}
