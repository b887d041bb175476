//! Who decided what, and whether it can be read afterwards.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use convoke_daemon::{AuditSink, DaemonOptions, TokenOption};
use serde_json::{Value, json};

use crate::rig::{Rig, request_id};

/// A daemon that audits into this file.
async fn audited(file: PathBuf, change: impl FnOnce(&mut DaemonOptions)) -> Rig {
    let rig = Rig::with(|options| {
        options.token = TokenOption::Given("tok123".into());
        options.audit_file = Some(file);
        change(options);
    })
    .await;
    rig.authorized("tok123")
}

/// Has one request decided, and returns the records in memory.
async fn decide(rig: &Rig) -> Vec<Value> {
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    assert_eq!(member.vote(&request, "proceed_once").await.0, 200);
    stream.until("turn_complete").await;
    rig.client.get("/audit").await.json()["records"].as_array().unwrap().clone()
}

fn lines(file: &Path) -> Vec<Result<Value, String>> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).map_err(|_| line.to_owned())).collect()
}

#[tokio::test]
async fn decisions_are_audited_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let rig = audited(file.clone(), |_| {}).await;
    let records = decide(&rig).await;
    let kinds: Vec<_> = records.iter().map(|record| record["event"]["type"].clone()).collect();
    assert_eq!(kinds, ["permission.requested", "permission.voted", "permission.resolved"]);
    let digest = records[0]["actionDigest"].as_str().unwrap();
    assert_eq!((digest.len(), digest.starts_with("sha256:")), (71, true), "{digest}");
    assert!(records.iter().all(|record| record["actionDigest"] == digest && record["v"] == 1));
    rig.shutdown.cancel();
    rig.ended().await;
    assert_eq!(lines(&file), records.into_iter().map(Ok).collect::<Vec<_>>());
}

/// The file goes on where it was, also after a crash in the middle of a line, and a killed daemon loses nothing.
#[tokio::test]
async fn an_audit_file_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let rig = audited(file.clone(), |_| {}).await;
    let mut expected: Vec<_> = decide(&rig).await.into_iter().map(Ok).collect();
    rig.kill.cancel();
    rig.ended().await;
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("{\"v\":1,\"recor");
    std::fs::write(&file, text).unwrap();
    expected.push(Err("{\"v\":1,\"recor".to_owned()));
    let rig = audited(file.clone(), |_| {}).await;
    expected.extend(decide(&rig).await.into_iter().map(Ok));
    rig.shutdown.cancel();
    rig.ended().await;
    assert_eq!(lines(&file), expected);
}

/// A disk that takes nothing changes no decision, and an embedder's own sink gets them all.
#[tokio::test]
async fn a_full_disk_changes_no_decision() {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&taken);
    let rig = audited("/dev/full".into(), |options| {
        let take = move |record: &convoke_bridge::AuditRecord| sink.lock().unwrap().push(json!(record));
        options.audit_sink = Some(AuditSink(Arc::new(take)));
    })
    .await;
    let records = decide(&rig).await;
    assert_eq!(records.len(), 3);
    rig.shutdown.cancel();
    rig.ended().await;
    assert_eq!(*taken.lock().unwrap(), records);
}

#[tokio::test]
async fn an_audit_file_that_can_not_be_written_is_told_at_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let mut options = crate::rig::options(&folder.path().canonicalize().unwrap());
    options.audit_file = Some(folder.path().join("file/audit.jsonl"));
    let daemon = convoke_daemon::Daemon::bind(options).await.unwrap();
    assert!(daemon.notices().iter().any(|notice| notice.contains("audit file")), "{:?}", daemon.notices());
}
