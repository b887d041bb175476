//! What do the guards of a long session cost, where that can't be seen from outside of the process?
//!
//! `cargo xtask bench --only inside` runs it. One line for each figure, `name: median unit (minimum–maximum, rounds)`, and
//! beside it the least that does the same work, measured in the same round. Nothing is compared here: see `bench/`.

#![expect(clippy::unwrap_used, reason = "a measure that can't be taken ends the program")]

use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use convoke_adk::{Content, Event, FunctionCall, FunctionResponse, Part, Role, Session};
use convoke_agent::{LoopDetector, MaskingOptions, MeasuredMasking, MeasuredRecord};
use serde_json::json;

/// Outputs of the long session, and the bytes of each: a hundred megabytes.
const OUTPUTS: usize = 10_000;
const OUTPUT_BYTES: usize = 10_000;
/// Text that the loop detector is shown.
const TEXT_BYTES: usize = 32 * 1024 * 1024;
/// What was said in the record that is loaded, in bytes and in turns.
const RECORD_BYTES: usize = 50_000_000;
const RECORD_TURNS: usize = 5_000;
/// Times that a pass over a session that does not change is repeated: one alone is too short for a clock.
const STEADY: u32 = 20;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name || one == "inside");
    let rounds = if std::env::args().any(|arg| arg == "--quick") { 1 } else { 5 };
    if wanted("inside-masking") {
        masking(rounds);
    }
    if wanted("inside-loops") {
        loops(rounds);
    }
    if wanted("inside-record") {
        record(rounds);
    }
}

/// Values of one figure.
struct Figure {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
}

impl Figure {
    fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Self { name: name.into(), unit, values: Vec::new() }
    }

    fn say(mut self) {
        let mut stdout = std::io::stdout().lock();
        self.values.sort_by(f64::total_cmp);
        let [min, median, max] = [0, self.values.len() / 2, self.values.len() - 1].map(|at| self.values[at]);
        let Self { name, unit, values } = self;
        writeln!(stdout, "{name}: {median:.3} {unit} ({min:.3}–{max:.3}, {})", values.len()).unwrap();
    }
}

fn ms(step: impl FnOnce()) -> f64 {
    let start = Instant::now();
    step();
    start.elapsed().as_secs_f64() * 1e3
}

/// Lines of different text, as long as wanted; the same for the same number.
fn prose(seed: usize, bytes: usize) -> String {
    let mut state = seed as u64 + 1;
    let mut text = String::with_capacity(bytes + 64);
    while text.len() < bytes {
        // Numbers of a linear congruence: words that do not come again soon.
        for _ in 0..8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let letters = (0..5).map(|at| char::from(b'a' + ((state >> (20 + at * 5)) % 26) as u8));
            text.extend(letters.chain([' ']));
        }
        text.push('\n');
    }
    text.truncate(bytes);
    text
}

fn session() -> Session {
    let answered = |number: usize| {
        let id = format!("call-{number}");
        let call = FunctionCall { id: Some(id), name: "grep_search".into(), args: json!({}) };
        let part = Part::response(&FunctionResponse::output(&call, prose(number, OUTPUT_BYTES)));
        Event {
            id: format!("event-{number}"),
            invocation_id: "earlier".into(),
            content: Some(Arc::new(Content { role: Role::User, parts: vec![part] })),
            ..Event::default()
        }
    };
    Session { events: (0..OUTPUTS).map(answered).collect(), ..Session::default() }
}

/// The floor of masking: the same files, and nothing decided or remembered.
fn write_files(session: &Session, folder: &Path) {
    for (number, event) in session.events.iter().enumerate() {
        let response = &event.content.as_ref().unwrap().function_responses()[0].response;
        std::fs::write(folder.join(number.to_string()), response["output"].as_str().unwrap()).unwrap();
    }
}

fn masking(rounds: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pass = |masking: &MeasuredMasking| runtime.block_on(masking.pass());
    let name = |what: &str| format!("masking of {OUTPUTS} outputs, 100 MB: {what}");
    let mut nothing = Figure::new(name("first pass, which counts them and finds nothing to do"), "ms");
    let mut scan = Figure::new(name("floor, one scan of the text"), "ms");
    let mut same = Figure::new(name("next pass, unmasked"), "ms");
    let mut first = Figure::new(name("first pass, with a file for each"), "ms");
    let mut files = Figure::new(name("floor, the files alone"), "ms");
    let mut steady = Figure::new(name("next pass, masked"), "ms");
    for _ in 0..rounds {
        let original = session();
        scan.values.push(ms(|| {
            for event in &original.events {
                for part in &event.content.as_ref().unwrap().parts {
                    let text = part.raw()["functionResponse"]["response"]["output"].as_str().unwrap();
                    black_box(text.as_bytes().iter().filter(|byte| byte.is_ascii()).count());
                }
            }
        }));
        let folder = tempfile::tempdir().unwrap();
        let undue = MaskingOptions { protection_tokens: u64::MAX, ..MaskingOptions::default() };
        let masking = MeasuredMasking::new(original.clone(), folder.path().join("undue"), undue);
        nothing.values.push(ms(|| assert_eq!(pass(&masking), 0)));
        same.values.push(ms(|| (0..STEADY).for_each(|_| assert_eq!(pass(&masking), 0))) / f64::from(STEADY));

        let floor = folder.path().join("floor");
        std::fs::create_dir(&floor).unwrap();
        files.values.push(ms(|| write_files(&original, &floor)));
        let masking = MeasuredMasking::new(original, folder.path().join("due"), MaskingOptions::default());
        let mut masked = 0;
        first.values.push(ms(|| masked = pass(&masking)));
        // All but the newest 50 000 tokens.
        assert!(masked > OUTPUTS - 50, "{masked} were masked");
        // The masked contents are new, and counted once more.
        assert_eq!(pass(&masking), 0);
        steady.values.push(ms(|| (0..STEADY).for_each(|_| assert_eq!(pass(&masking), 0))) / f64::from(STEADY));
    }
    for figure in [nothing, scan, same, first, files, steady] {
        figure.say();
    }
}

/// The floor of loop detection: a rolling hash of fifty bytes, and a table of where it was seen.
fn rolling(text: &str) -> usize {
    const WINDOW: usize = 50;
    const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
    let oldest = (0..WINDOW).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let bytes = text.as_bytes();
    let (mut table, mut hash, mut seen) = (vec![0_u64; 8192], 0_u64, 0);
    for (at, byte) in bytes.iter().enumerate() {
        hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte));
        if let Some(gone) = at.checked_sub(WINDOW).and_then(|at| bytes.get(at)) {
            hash = hash.wrapping_sub(u64::from(*gone).wrapping_mul(oldest));
        }
        let slot = &mut table[(hash >> 51) as usize];
        seen += usize::from(*slot == hash);
        *slot = hash;
    }
    seen
}

fn loops(rounds: usize) {
    let text = prose(7, TEXT_BYTES);
    let rate = |ms: f64| TEXT_BYTES as f64 / 1e3 / ms;
    for delta in [20, 200] {
        let pieces: Vec<&str> = text.as_bytes().chunks(delta).map(|piece| str::from_utf8(piece).unwrap()).collect();
        let mut figure = Figure::new(format!("loop detection of text, {delta} characters a delta"), "MB/s");
        for _ in 0..rounds {
            let mut detector = LoopDetector::default();
            let mut found = 0;
            let took = ms(|| found = pieces.iter().filter(|piece| detector.add(piece)).count());
            assert_eq!(found, 0, "the text has no loop");
            figure.values.push(rate(took));
        }
        figure.say();
    }
    let mut floor = Figure::new("loop detection of text: floor, a rolling hash and a table", "MB/s");
    floor.values.extend((0..rounds).map(|_| {
        rate(ms(|| {
            black_box(rolling(black_box(&text)));
        }))
    }));
    floor.say();
}

/// Turns of a prompt, a call with its result, and an answer, in lines as Gemini CLI writes them.
fn spoken() -> String {
    let head =
        json!({"sessionId": "measured", "projectHash": "00", "startTime": "2026-05-01T10:00:00.000Z", "kind": "main"});
    let mut lines = format!("{head}\n");
    for turn in 0..RECORD_TURNS {
        let time = "2026-05-01T10:00:01.000Z";
        let id = format!("call-{turn}");
        let output = prose(turn, RECORD_BYTES / RECORD_TURNS);
        let response = json!({"functionResponse": {"id": id, "name": "read_file", "response": {"output": output}}});
        let call = json!({"id": id, "name": "read_file", "args": {"file_path": "src/lib.rs"}, "status": "success", "result": [response]});
        for line in [
            json!({"id": format!("p{turn}"), "timestamp": time, "type": "user", "content": [{"text": "and the next one?"}]}),
            json!({"id": format!("c{turn}"), "timestamp": time, "type": "gemini", "content": "I read it.", "toolCalls": [call]}),
            json!({"id": format!("a{turn}"), "timestamp": time, "type": "gemini", "content": "It is fine."}),
        ] {
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
    }
    lines
}

fn record(rounds: usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spoken.jsonl");
    std::fs::write(&file, spoken()).unwrap();
    let record = MeasuredRecord::adopt(folder.path(), &file).unwrap();
    let mut load = Figure::new("a record of 50 MB and 20 000 events is loaded", "ms");
    let mut floor = Figure::new("a record of 50 MB: floor, each line as untyped JSON", "ms");
    for _ in 0..rounds {
        let mut loaded = None;
        load.values.push(ms(|| loaded = Some(record.load().unwrap())));
        assert_eq!(loaded.unwrap().events(), RECORD_TURNS * 4);
        floor.values.push(ms(|| {
            let text = std::fs::read_to_string(&file).unwrap();
            for line in text.lines() {
                black_box(serde_json::from_str::<serde_json::Value>(line).unwrap());
            }
        }));
    }
    load.say();
    floor.say();
}
