//! Definition files, good ones and bad ones.

use convoke_tools::policy::ToolPattern;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Vec<AgentDefinition>, Wrong> {
    definitions(text, &AgentSource::BuiltIn)
}

fn read_local(text: &str) -> (AgentDefinition, LocalAgent) {
    let definition = read(text).unwrap().remove(0);
    match definition.kind.clone() {
        AgentKind::Local(agent) => (definition, *agent),
        AgentKind::Remote(_) => panic!("{text}"),
    }
}

#[test]
fn a_whole_local_agent() {
    let (definition, agent) = read_local(
        "---\r\nname: test-writer_2\ndisplay_name: Test writer\ndescription: Writes tests.\nkind: local\n\
         tools:\n  - read_file\n  - mcp_*\n  - ShellTool\nmodel: flash\ntemperature: 0.2\nmax_turns: 5\n\
         timeout_mins: 1.5\nworkspace_directories: [tests]\nmemory: write\n\
         mcp_servers:\n  db: {command: db, args: [--ro]}\n---\n\nYou write tests for ${query}.\n---\nmore\n",
    );
    assert_eq!((definition.name.as_str(), definition.description.as_str()), ("test-writer_2", "Writes tests."));
    assert_eq!(definition.display_name.as_deref(), Some("Test writer"));
    assert_eq!(agent.prompt, "You write tests for ${query}.\n---\nmore");
    let exact = |name: &str| ToolPattern::Exact(name.into());
    assert_eq!(
        agent.tools,
        Some(vec![exact("read_file"), ToolPattern::Prefix("mcp_".into()), exact("run_shell_command")])
    );
    assert_eq!((agent.model.as_deref(), agent.temperature, agent.max_turns), (Some("flash"), Some(0.2), 5));
    assert_eq!(agent.timeout, Duration::from_secs(90));
    assert_eq!((agent.directories, agent.writes_memory), (vec![PathBuf::from("tests")], true));
    assert_eq!(serde_json::Value::Object(agent.mcp_servers), json!({"db": {"command": "db", "args": ["--ro"]}}));
}

#[test]
fn what_is_left_out_has_its_default() {
    let (_, agent) = read_local("---\nname: a\ndescription: b\nmodel: inherit\n---\ndo it");
    assert_eq!(agent, LocalAgent::new("do it"));
    assert!(agent.may_call("anything"));
    let (_, none) = read_local("---\nname: a\ndescription: b\ntools: []\n---\ndo it");
    assert!(!none.may_call("read_file"));
}

fn variable(text: &str) -> SecretVariable {
    SecretVariable::parse(text).unwrap()
}

#[test]
fn remote_agents_alone_and_in_a_list() {
    let one = read(
        "---\nkind: remote\nname: far\nagent_card_url: https://x.test/card.json\nauth:\n  type: apiKey\n  key: $KEY\n---\n",
    )
    .unwrap();
    let auth = Some(RemoteAuth::ApiKey { key: variable("$KEY"), header: "X-API-Key".into() });
    let remote =
        RemoteAgent { card: AgentCardSource::Url("https://x.test/card.json".into()), auth, timeout: REMOTE_TIMEOUT };
    assert_eq!(one[0].kind, AgentKind::Remote(Box::new(remote)));
    assert_eq!(one[0].description, "The remote agent far.");
    let two = read(
        "---\n- kind: remote\n  name: a\n  agent_card_json: '{\"url\": \"http://h\"}'\n  auth: {type: http, scheme: Bearer, token: $T}\n\
         - kind: remote\n  name: b\n  agent_card_url: http://b\n  auth: {type: http, scheme: Basic, username: u, password: '${P}'}\n---\n",
    )
    .unwrap();
    let auths: Vec<_> = two
        .iter()
        .map(|definition| match &definition.kind {
            AgentKind::Remote(agent) => agent.auth.clone().unwrap(),
            AgentKind::Local(_) => panic!("it is remote"),
        })
        .collect();
    let basic = RemoteAuth::Basic { username: "u".into(), password: variable("$P") };
    assert_eq!(auths, [RemoteAuth::Bearer(variable("$T")), basic]);
}

#[test]
fn what_is_wrong_is_named() {
    let local = |keys: &str| format!("---\nname: a\ndescription: b\n{keys}---\nbody\n");
    for (text, expected) in [
        ("no front matter".to_owned(), "the file must begin with front matter between two lines of ---"),
        ("---\nname: a\n".to_owned(), "the file must begin with front matter between two lines of ---"),
        ("---\n- 1\n---\n".to_owned(), "key '[0]': expected keys and values, found 1"),
        ("---\njust text\n---\n".to_owned(), "expected keys and values, found \"just text\""),
        ("---\ndescription: b\n---\nbody".to_owned(), "key 'name' is missing"),
        ("---\nname: a\n---\nbody".to_owned(), "key 'description' is missing"),
        (
            "---\nname: a\ndescription: b\n---\n\n".to_owned(),
            "the text below the front matter is the agent's instruction, and there is none",
        ),
        (local("max_turns: many\n"), "key 'max_turns': expected a whole number from 1 to 1000, found \"many\""),
        (local("max_turns: 0\n"), "key 'max_turns': expected a whole number from 1 to 1000, found 0"),
        (local("temperature: 3\n"), "key 'temperature': expected a number from 0 to 2, found 3"),
        (local("kind: distant\n"), "key 'kind': expected local or remote, found \"distant\""),
        (local("tools: {a: b}\n"), "key 'tools': expected a list of texts, found keys and values"),
        (local("memory: both\n"), "key 'memory': expected read or write, found \"both\""),
        (
            local("agent_card_url: x\n"),
            "key 'agent_card_url' is unknown; there are kind, name, display_name, description, tools, mcp_servers, model, temperature, max_turns, timeout_mins, workspace_directories, memory",
        ),
        (
            "---\nname: A b\ndescription: c\n---\nd".to_owned(),
            "key 'name': expected lowercase letters, digits, - and _, found \"A b\"",
        ),
        (
            "---\nkind: remote\nname: a\n---\n".to_owned(),
            "exactly one of the keys 'agent_card_url' and 'agent_card_json' must be there",
        ),
        (
            "---\nkind: remote\nname: a\nagent_card_url: u\nauth: {type: oauth, client_id: x}\n---\n".to_owned(),
            "key 'auth.type': oauth is not supported; there are apiKey and http",
        ),
        (
            "---\nkind: remote\nname: a\nagent_card_url: u\nauth: {type: apiKey, key: sk-1}\n---\n".to_owned(),
            "key 'auth.key': expected the variable that holds the secret, such as $TOKEN; secrets don't stand in files",
        ),
        (
            "---\nkind: remote\nname: a\nagent_card_url: u\nauth: {type: http}\n---\n".to_owned(),
            "key 'auth.scheme' is missing",
        ),
        (
            "---\n- kind: remote\n  name: a\n  agent_card_url: u\n  colour: red\n---\n".to_owned(),
            "key '[0].colour' is unknown; there are kind, name, display_name, description, agent_card_url, agent_card_json, auth",
        ),
    ] {
        assert_eq!(read(&text).unwrap_err(), expected, "{text}");
    }
    let broken = read("---\nname: [a\n---\nbody").unwrap_err();
    assert!(broken.starts_with("read the front matter: "), "{broken}");
}

#[test]
fn overrides() {
    let read = read_override(json!({
        "enabled": true,
        "modelConfig": {"model": "pro", "generateContentConfig": {"temperature": 0.5}},
        "runConfig": {"maxTurns": 7, "maxTimeMinutes": 2},
        "tools": ["glob"],
    }))
    .unwrap();
    assert_eq!(read.model.as_deref(), Some("pro"));
    assert_eq!((read.enabled, read.temperature, read.max_turns), (Some(true), Some(0.5), Some(7)));
    assert_eq!((read.timeout, read.tools), (Some(Duration::from_secs(120)), Some(vec!["glob".to_owned()])));
    let wrong = read_override(json!({"runConfig": {"turns": 7}})).unwrap_err();
    assert_eq!(wrong, "key 'runConfig.turns' is unknown; there are maxTurns, maxTimeMinutes");
}
