//! The demo, as a newcomer runs it: no key, no browser, one command.

use convoke_testkit::{TestEnvironment, run};

#[test]
fn the_script_plays_to_its_end() {
    let environment = TestEnvironment::new();
    let ran = run(environment.command(env!("CARGO_BIN_EXE_convoke")).args(["demo", "--script"]), "");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let count = |text: &str| ran.stdout.matches(text).count();
    assert_eq!((count(" creates session"), count(" attaches to session")), (1, 2), "{}", ran.stdout);
    assert_eq!(count("permission_request "), 3);
    assert_eq!(count("permission_resolved "), 3);
    // Two race for the first request; one of them is told that it was late.
    assert_eq!(count("→ 200"), 3);
    assert_eq!(count("→ 404 permission_already_resolved"), 1);
    assert_eq!(count("permission_already_resolved  "), 1);
    assert_eq!(count("cancel, by bob"), 1);
    assert!(ran.stdout.contains("nothing was pushed"));
    assert!(ran.stdout.contains("All three clients saw the same"));
}
