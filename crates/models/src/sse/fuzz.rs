//! Whatever a server sends as an event stream, in whatever pieces: the same events, and never more than the bound.

use std::path::Path;

use super::*;

const BOUND: usize = 512;

fn target(bytes: &[u8]) {
    let whole = decode([bytes].into_iter());
    // The input's own bytes say where it is cut.
    let size = usize::from(bytes.first().copied().unwrap_or(1) % 7) + 1;
    assert_eq!(decode(bytes.chunks(size)), whole, "cut into pieces of {size}");
    if let Ok(events) = whole {
        assert!(events.iter().all(|event| event.len() <= BOUND + events.len()), "an event is over the bound");
        assert!(events.iter().map(Vec::len).sum::<usize>() <= bytes.len(), "more came out than went in");
    }
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, EventTooLong> {
    let mut decoder = SseDecoder::new(BOUND);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events)?;
    }
    decoder.finish(&mut events)?;
    Ok(events)
}

#[test]
fn event_streams() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/sse");
    convoke_testkit::fuzz(
        &corpus,
        &["data:", "data: ", "\n\n", "\r\n", "\r", "\u{feff}", "event: x\n", ": c\n"],
        target,
    );
}
