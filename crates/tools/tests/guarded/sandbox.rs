//! The sandbox holds against a command that tries, and says so where it can't.

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use convoke_stdx::guard::{Mechanism, Spawner};
use convoke_tools::{ApprovalOutcome, ApprovalRequest, Approver, Guards, SandboxOptions};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Session;

/// What a confined program tries: this executable once more, as `… probe WHAT`.
pub(super) fn probe(what: &str) -> ExitCode {
    let reached = match what.split_once(':').unwrap_or((what, "")) {
        ("tcp", address) => std::net::TcpStream::connect(address).is_ok(),
        ("udp", address) => std::net::UdpSocket::bind("0.0.0.0:0").and_then(|it| it.send_to(b"x", address)).is_ok(),
        ("listen", address) => std::net::TcpListener::bind(address).is_ok(),
        ("unix", path) => UnixStream::connect(path).is_ok(),
        ("pair", _) => UnixStream::pair().is_ok(),
        _ => return ExitCode::from(99),
    };
    ExitCode::from(if reached { 0 } else { 7 })
}

/// Says yes, and remembers what was asked.
#[derive(Default)]
struct Yes(Mutex<Vec<Option<String>>>);

#[async_trait]
impl Approver for Yes {
    async fn request(&self, request: ApprovalRequest) -> ApprovalOutcome {
        self.0.lock().unwrap().push(request.reason);
        ApprovalOutcome::ProceedOnce
    }
}

fn confined(via: Mechanism, network: bool) -> (Session, Arc<Yes>) {
    let asked = Arc::new(Yes::default());
    let approver = asked.clone();
    let session = Session::with(|shell, scheduler| {
        shell.sandbox = Some(SandboxOptions { via, writable: Vec::new(), network });
        scheduler.approver = approver;
    });
    (session, asked)
}

pub(super) async fn holds(via: Mechanism) {
    nothing_outside_is_changed(via).await;
    nobody_is_reached(via).await;
    more_is_asked_for(via).await;
}

/// A folder that is not the workspace and that this user may write.
struct Outside(tempfile::TempDir);

impl Outside {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kept"), "kept").unwrap();
        Self(dir)
    }

    fn path(&self) -> String {
        self.0.path().canonicalize().unwrap().display().to_string()
    }

    fn is_untouched(&self) -> bool {
        let names: Vec<_> = std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names == ["kept"] && std::fs::read_to_string(self.0.path().join("kept")).unwrap() == "kept"
    }
}

async fn nothing_outside_is_changed(via: Mechanism) {
    let outside = Outside::new();
    let (session, _) = confined(via, false);
    let there = outside.path();
    let name = session.dir.path().file_name().unwrap().to_str().unwrap().to_owned();
    // What an honest command does still works.
    assert_eq!(session.text("echo hi > a && mkdir b && mv a b/ && cat b/a; echo x > /dev/null").await, "Output: hi");
    assert_eq!(session.text(&format!("cat {there}/kept")).await, "Output: kept", "reading is allowed");
    let attempts = [
        format!("echo x > {there}/new"),
        format!("echo x >> {there}/kept"),
        format!(": > {there}/kept"),
        format!("truncate -s 0 {there}/kept"),
        format!("rm {there}/kept"),
        format!("mv {there}/kept b/"),
        format!("mv b/a {there}/moved"),
        format!("mkdir {there}/folder"),
        format!("ln -s /etc/passwd {there}/link"),
        format!("mkfifo {there}/pipe"),
        // Through a link, and through the parent of the workspace.
        format!("ln -sfn {there} way && echo x > way/new"),
        format!("echo x > ../{name}/../new-$$ 2>&1"),
        // A link that is swapped while somebody writes through it.
        format!(
            "mkdir -p spot; for i in $(seq 50); do (rm -rf spot; ln -sfn {there} spot) & echo x > spot/race$i; rm -rf \
             spot; mkdir -p spot; wait; done; false"
        ),
        // A process that outlives its shell is confined like it.
        format!("setsid sh -c 'echo x > {there}/late' & wait; false"),
        // Leaving by another namespace.
        format!("unshare -Urm sh -c 'mount -t tmpfs none {there} && echo x > {there}/ns'; echo x > {there}/after"),
    ];
    for attempt in &attempts {
        let text = session.text(attempt).await;
        assert!(outside.is_untouched(), "{}: {attempt}: {text}", via.name());
        assert!(text.contains("[The command ran in a sandbox"), "{attempt}: {text}");
    }
    let left = std::fs::read_dir(session.dir.path().parent().unwrap()).unwrap();
    assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with("new-")));
}

async fn nobody_is_reached(via: Mechanism) {
    let (closed, _) = confined(via, false);
    let (open, _) = confined(via, true);
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let this = std::env::current_exe().unwrap().display().to_string();
    for what in [format!("tcp:{address}"), format!("udp:{address}"), "listen:127.0.0.1:0".to_owned()] {
        let command = format!("{this} probe {what}");
        // In a namespace of its own a program may listen and send; nobody outside hears it.
        if via == Mechanism::Landlock || what.starts_with("tcp") {
            assert!(closed.text(&command).await.contains("Exit Code: 7"), "{}: {what}", via.name());
        }
        assert_eq!(open.text(&command).await, "Output: (empty)", "{}: {what}", via.name());
    }
    assert_eq!(closed.text(&format!("{this} probe pair")).await, "Output: (empty)");
    if via == Mechanism::Landlock {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("engine.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let command = format!("{this} probe unix:{}", path.display());
        assert!(closed.text(&command).await.contains("Exit Code: 7"), "a socket leads to somebody with the network");
        assert_eq!(open.text(&command).await, "Output: (empty)");
    }
}

async fn more_is_asked_for(via: Mechanism) {
    let outside = Outside::new();
    let (session, asked) = confined(via, false);
    let command = format!("echo x > {}/new", outside.path());
    let args = json!({"command": command, "additional_permissions": {"write": [outside.path()]}});
    // The mode allows everything: leaving the sandbox is asked about all the same.
    let text = session.run(args, &CancellationToken::new()).await;
    assert_eq!(text, "Output: (empty)", "{}", via.name());
    let reasons = asked.0.lock().unwrap().clone();
    let expected = format!("This command asks to leave the sandbox for writing in {}.", outside.path());
    assert_eq!(reasons, [Some(expected)]);
    assert_eq!(std::fs::read_to_string(format!("{}/new", outside.path())).unwrap(), "x\n");
    let odd = json!({"command": "true", "additional_permissions": {"root": true}});
    let text = session.run(odd, &CancellationToken::new()).await;
    assert!(text.contains("unknown field `root`"), "{text}");
}

/// Without a guard nothing would enforce it, so nothing runs.
pub(super) async fn needs_a_guard() {
    let session = Session::with(|shell, _| {
        shell.guards = Guards::new(Spawner::unguarded());
        shell.sandbox = Some(SandboxOptions { via: Mechanism::Landlock, writable: Vec::new(), network: false });
    });
    let text = session.text("echo x > made").await;
    assert!(text.contains("there is no guard to confine the program"), "{text}");
    assert!(!session.dir.path().join("made").exists());
}
