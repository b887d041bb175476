use std::fs;

use super::*;

struct Folders {
    dir: tempfile::TempDir,
}

impl Folders {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["home", "work"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { dir }
    }

    fn load(&self, trusted: bool) -> Result<Settings, SettingsError> {
        let home = self.dir.path().join("home");
        let system = |name: &str| self.dir.path().join("etc").join(name).display().to_string();
        let environment = Environment::of(&[
            ("CONVOKE_HOME", home.to_str().unwrap()),
            ("NAME", "value"),
            ("GEMINI_CLI_SYSTEM_DEFAULTS_PATH", &system("system-defaults.json")),
            ("GEMINI_CLI_SYSTEM_SETTINGS_PATH", &system("settings.json")),
        ]);
        let home = Home::find(&environment).unwrap();
        let workspace = self.dir.path().join("work");
        Settings::load(&Sources { home: Some(&home), workspace: &workspace, trusted, environment: &environment })
    }
}

#[test]
fn nearer_layers_win_key_by_key() {
    let folders = Folders::new(&[
        ("home/.gemini/settings.json", r#"{"model": {"name": "theirs"}, "output": {"format": "json"}}"#),
        ("home/.convoke/settings.json", "{\"model\": {\"name\": \"ours\"}} // comment"),
        ("work/.gemini/settings.json", r#"{"tools": {"allowed": ["a"]}}"#),
        ("work/.convoke/settings.json", r#"{"tools": {"allowed": ["b"]},}"#),
    ]);
    let settings = folders.load(true).unwrap();
    assert_eq!(settings.text("model.name"), Some("ours"));
    assert_eq!(settings.text("output.format"), Some("json"));
    assert_eq!(settings.texts("tools.allowed"), Some(vec!["b".to_owned()]));
    assert!(settings.warnings().is_empty());
}

#[test]
fn the_machine_s_defaults_lie_below_all_and_its_settings_over_all() {
    let hook = r#"{"BeforeAgent": [{"hooks": [{"type": "command", "command": "audit"}]}]}"#;
    let overrides = format!(r#"{{"security": {{"disableYoloMode": true}}, "hooks": {hook}}}"#);
    let mut files = vec![
        ("etc/system-defaults.json", r#"{"model": {"name": "default"}, "output": {"format": "json"}}"#),
        ("home/.gemini/settings.json", r#"{"model": {"name": "mine"}, "security": {"disableYoloMode": false}}"#),
        (
            "work/.convoke/settings.json",
            r#"{"security": {"disableYoloMode": false}, "hooksConfig": {"enabled": false}}"#,
        ),
    ];
    let free = Folders::new(&files).load(true).unwrap();
    assert_eq!((free.text("model.name"), free.text("output.format")), (Some("mine"), Some("json")));
    assert_eq!(free.flag("security.disableYoloMode"), Some(false));
    files.push(("etc/settings.json", &overrides));
    let bound = Folders::new(&files).load(true).unwrap();
    assert_eq!((bound.text("model.name"), bound.flag("security.disableYoloMode")), (Some("mine"), Some(true)));
    let hooks = convoke_agent::HookSettings::read(&bound.hook_layers()).hooks;
    let told: Vec<_> = hooks.iter().map(|hook| (&hook.source, hook.command.as_str(), hook.enabled)).collect();
    assert_eq!(told, [(&HookSource::System, "audit", true)]);
    files.push(("etc/settings.json", "{ broken"));
    assert!(Folders::new(&files).load(false).is_err(), "what an administrator wrote is not passed over");
}

#[test]
fn an_untrusted_workspace_is_ignored_with_one_warning() {
    let folders = Folders::new(&[
        ("work/.gemini/settings.json", "{ broken"),
        ("work/.convoke/settings.json", r#"{"model": {"name": "evil"}}"#),
    ]);
    let settings = folders.load(false).unwrap();
    assert_eq!(settings.text("model.name"), None);
    assert_eq!(settings.warnings().len(), 1);
    assert!(folders.load(true).is_err());
}

#[test]
fn a_broken_file_names_file_line_and_column() {
    let folders = Folders::new(&[("home/.convoke/settings.json", "{\n  \"a\": ]\n}")]);
    let error = folders.load(true).unwrap_err().to_string();
    assert!(error.contains("home/.convoke/settings.json: line 2, column 8: "), "{error}");
}

#[test]
fn other_roots_than_objects_are_refused_and_empty_files_are_fine() {
    let folders = Folders::new(&[("home/.convoke/settings.json", "[1]")]);
    assert!(folders.load(true).unwrap_err().to_string().contains("not an array"));
    let folders = Folders::new(&[("home/.convoke/settings.json", "")]);
    assert!(folders.load(true).is_ok());
}

#[test]
fn unknown_keys_warn_in_our_files_only() {
    let text = r#"{"modle": 1, "model": {"nmae": 2, "name": "x"}, "policy": {"anything": 1}}"#;
    let folders = Folders::new(&[("home/.gemini/settings.json", text)]);
    assert!(folders.load(true).unwrap().warnings().is_empty());
    let folders = Folders::new(&[("home/.convoke/settings.json", text)]);
    let warnings = folders.load(true).unwrap().warnings().to_vec();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].ends_with("settings.json: modle, model.nmae"), "{warnings:?}");
}

#[test]
fn variables_expand_with_defaults() {
    let text = r#"{"model": {"name": "$NAME-${NAME}-${NOPE:-d}-$NOPE-${NOPE}-$"}}"#;
    let folders = Folders::new(&[("home/.convoke/settings.json", text)]);
    assert_eq!(folders.load(true).unwrap().text("model.name"), Some("value-value-d-$NOPE-${NOPE}-$"));
}
