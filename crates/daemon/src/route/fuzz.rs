//! Whatever a client asks for: a path leads to one route or nowhere, and its ids are what was encoded.

use std::path::Path;

use super::*;

fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, asked) = text.split_once('?').unwrap_or((&text, ""));
    for method in METHODS {
        if let Match::Route(route) = find(&method, path) {
            let (name, session) = route.name();
            assert!(name.starts_with(method.as_str()), "{name} was found for {method}");
            assert!(session.is_none_or(|id| !id.is_empty()), "{path} has a session without a name");
        }
    }
    for name in ["deep", "maxQueued", "size", ""] {
        assert!(query(Some(asked), name).is_none() || asked.contains('=') || asked.contains(name));
    }
    if let Some(decoded) = decode(path) {
        assert!(decoded.len() <= path.len());
    }
}

#[test]
fn paths() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/path");
    convoke_testkit::fuzz(
        &corpus,
        &["/", "//", "%2F", "%", "%00", "..", "?", "&", "=", "/session", ":id", "%ff"],
        target,
    );
}
