use pretty_assertions::assert_eq;
use secrecy::ExposeSecret;
use serde_json::json;

use super::*;

fn parse(value: Value) -> Result<Reference, NoReference> {
    Reference::parse(&value)
}

#[test]
fn references() {
    let env = || Ok(Reference::Env("MY_KEY".to_owned()));
    assert_eq!(parse(json!("$MY_KEY")), env());
    assert_eq!(parse(json!("${MY_KEY}")), env());
    assert_eq!(parse(json!({"env": "MY_KEY"})), env());
    assert_eq!(parse(json!({"file": "~/k"})), Ok(Reference::File("~/k".to_owned())));
    let words = |words: &[&str]| Ok(Reference::Command(words.iter().map(|word| (*word).to_owned()).collect()));
    assert_eq!(parse(json!({"command": "pass show k"})), words(&["sh", "-c", "pass show k"]));
    assert_eq!(parse(json!({"command": ["pass", "show", "k"]})), words(&["pass", "show", "k"]));
    let keyring = |service: &str| Ok(Reference::Keyring { service: service.to_owned(), account: "me".to_owned() });
    assert_eq!(parse(json!({"keyring": "me"})), keyring("convoke"));
    assert_eq!(parse(json!({"keyring": {"account": "me", "service": "s"}})), keyring("s"));
    assert_eq!(parse(json!("sk-literal")), Ok(Reference::Literal("sk-literal".to_owned())));
    assert_eq!(parse(json!("$not a name")), Ok(Reference::Literal("$not a name".to_owned())));
    for odd in [
        json!(""),
        json!(3),
        json!(null),
        json!([]),
        json!({}),
        json!({"env": "A", "file": "b"}),
        json!({"command": []}),
        json!({"command": [1]}),
        json!({"env": ""}),
        json!({"keyring": {"service": "s"}}),
        json!({"keyring": {"account": "a", "user": "b"}}),
        json!({"vault": "x"}),
    ] {
        assert_eq!(parse(odd.clone()), Err(NoReference), "{odd}");
    }
}

#[test]
fn what_can_be_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("key"), " from-file \n").unwrap();
    fs::write(dir.path().join("empty"), "\n").unwrap();
    fs::write(dir.path().join("large"), vec![b'x'; 100_000]).unwrap();
    let environment = Environment::of(&[("HOME", dir.path().to_str().unwrap()), ("MY_KEY", "from-env")]);
    let home = Home::find(&environment);
    let read = |value: Value| {
        let secret = parse(value).unwrap().at_once(&environment, home.as_ref());
        secret.map(|secret| secret.expose_secret().to_owned()).map_err(|error| error.to_string())
    };
    assert_eq!(read(json!("$MY_KEY")), Ok("from-env".to_owned()));
    assert_eq!(read(json!({"file": "~/key"})), Ok("from-file".to_owned()));
    assert_eq!(read(json!("plain")), Ok("plain".to_owned()));
    let command = "the command x can't stand here: only variables and files can";
    assert_eq!(read(json!({"command": "x"})), Err(command.to_owned()));
    assert_eq!(read(json!("$OTHER")), Err("the variable OTHER is not set".to_owned()));
    assert_eq!(read(json!({"file": "~/empty"})), Err("the file ~/empty can't be read: it is empty".to_owned()));
    assert!(read(json!({"file": "~/large"})).unwrap_err().ends_with("which is no secret"));
    assert!(read(json!({"file": "~/none"})).unwrap_err().starts_with("the file ~/none can't be read: No such file"));
}

#[test]
fn nothing_secret_is_printed() {
    let literal = parse(json!("sk-literal")).unwrap();
    assert!(!format!("{literal:?}{literal}").contains("sk-literal"));
}

#[cfg(not(feature = "keyring"))]
#[test]
fn a_keyring_that_is_not_built_in_is_named() {
    let error = parse(json!({"keyring": "me"})).unwrap().credential(&Environment::default(), None).unwrap_err();
    let expected = "the keyring's entry convoke/me can't be read: this convoke is built without the feature `keyring`";
    assert_eq!(error.to_string(), expected);
}
