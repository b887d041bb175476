//! Policy files: which ones are read, whose rules are they, and what do settings and flags add?
//!
//! Files of the administrator, of the user and of a trusted workspace; `.convoke/policies` over `.gemini/policies`, file
//! by file. A file that can't be read or understood ends the start: a rule that somebody wrote down and that silently
//! does not hold is worse than no start. Source: runtime specification §6.6.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use convoke_protocol::{ApprovalMode, ExitCode};
use convoke_tools::policy::{CheckerKind, PolicySettings, SAVED_FILE, SavePlace, Tier, parse_policy};
use convoke_tools::{Mode, PolicyOptions};

use crate::args::AgentArgs;
use crate::extensions::Extension;
use crate::failure::Exit;
use crate::home::folders_in;
use crate::settings::Settings;
use crate::startup::Startup;
use crate::trust::Trust;

const FOLDER: &str = "policies";
/// The administrator's, weakest first.
const SYSTEM: [&str; 2] = ["/etc/gemini-cli/policies", "/etc/convoke/policies"];
/// A policy is written by hand.
const BYTES_MAX: u64 = 1 << 20;

/// What a session's policy is made from, and what a person should hear about it.
pub(crate) struct Policies {
    pub(crate) options: PolicyOptions,
    pub(crate) warnings: Vec<String>,
}

/// Everything that decides about calls: mode, flags, settings, files.
///
/// Extensions leave tools out, and have files of rules that make things stricter.
pub(crate) fn read(
    args: &AgentArgs,
    startup: &Startup,
    interactive: bool,
    extensions: &[Extension],
) -> Result<Policies, Exit> {
    let settings = &startup.settings;
    let mut found = Found::default();
    let trusted = startup.trust == Trust::Trusted;
    let read = found.read_all(args, startup, trusted).and_then(|()| found.extensions(extensions));
    read.map_err(|error| Exit::because(ExitCode::Configuration, error))?;
    let mut from_settings = from_settings(args, settings);
    from_settings.exclude.extend(extensions.iter().flat_map(|extension| extension.exclude_tools.clone()));
    let from_settings = from_settings.rules().map_err(|error| Exit::because(ExitCode::Input, error))?;
    found.options.rules.extend(from_settings);
    let always = settings.flag("security.disableAlwaysAllow") != Some(true);
    let saves = always && settings.flag("security.enablePermanentToolApproval") == Some(true);
    let options = PolicyOptions {
        mode: mode(args, settings)?,
        interactive,
        trusted: !startup.needs_trust(),
        yolo_enabled: settings.flag("security.disableYoloMode") != Some(true),
        plan_enabled: settings.flag("general.plan.enabled") != Some(false),
        always_allow_enabled: always,
        save: saves.then(|| save_place(startup, trusted)).flatten(),
        ..found.options
    };
    Ok(Policies { options, warnings: found.warnings })
}

fn mode(args: &AgentArgs, settings: &Settings) -> Result<Mode, Exit> {
    let mode = match (args.mode(), settings.text("general.defaultApprovalMode")) {
        (Some(mode), _) => mode,
        (None, Some(text)) => ApprovalMode::parse(text).ok_or_else(|| {
            let why = format!("use general.defaultApprovalMode \"{text}\": choose default, auto_edit, yolo or plan");
            Exit::because(ExitCode::Configuration, why)
        })?,
        (None, None) => ApprovalMode::Default,
    };
    Ok(match mode {
        ApprovalMode::Plan => Mode::Plan,
        ApprovalMode::Default => Mode::Default,
        ApprovalMode::AutoEdit => Mode::AutoEdit,
        ApprovalMode::Yolo => Mode::Yolo,
    })
}

fn from_settings(args: &AgentArgs, settings: &Settings) -> PolicySettings {
    let texts = |key: &str| settings.texts(key).unwrap_or_default();
    PolicySettings {
        core: settings.texts("tools.core"),
        allowed: texts("tools.allowed").into_iter().chain(args.allowed_tools.iter().cloned()).collect(),
        exclude: texts("tools.exclude"),
        confirmation_required: texts("tools.confirmationRequired"),
        mcp_allowed: texts("mcp.allowed"),
        mcp_excluded: texts("mcp.excluded"),
        // Each tool gets its rule when its server brings it.
        mcp_trusted: Vec::new(),
    }
}

/// In the workspace where it is trusted, so that the rule stays with what it was given for.
fn save_place(startup: &Startup, trusted: bool) -> Option<SavePlace> {
    let (parent, tier) = match &startup.home {
        _ if trusted => (startup.workspace.join(".convoke"), Tier::Workspace),
        Some(home) => (home.folder(), Tier::User),
        None => return None,
    };
    Some(SavePlace { path: parent.join(FOLDER).join(SAVED_FILE), tier })
}

/// Why the policies can't be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("read policy {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("read policy {0}: it is too long")]
    TooLong(PathBuf),
    #[error("read policy {0}: it is a link that leads out of the folder")]
    Escapes(PathBuf),
    #[error(transparent)]
    File(#[from] convoke_tools::policy::PolicyFileError),
}

#[derive(Default)]
struct Found {
    options: PolicyOptions,
    warnings: Vec<String>,
}

impl Found {
    fn read_all(&mut self, args: &AgentArgs, startup: &Startup, trusted: bool) -> Result<(), Unusable> {
        let of = |parent: &Path| folders_in(parent).map(|folder| folder.join(FOLDER)).to_vec();
        self.administrators(&SYSTEM.map(PathBuf::from), &args.admin_policy, 0)?;
        let own: Vec<PathBuf> = match (&args.policy[..], startup.settings.texts("policyPaths")) {
            ([], None) => startup.home.iter().flat_map(|home| of(home.parent())).collect(),
            ([], Some(paths)) => paths.into_iter().map(PathBuf::from).collect(),
            (paths, _) => paths.to_vec(),
        };
        // What was named must be there.
        if let Some(path) = args.policy.iter().find(|path| !path.exists()) {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(Unusable::Read { path: path.clone(), source });
        }
        self.files(&own, Tier::User)?;
        let same = startup.home.as_ref().is_some_and(|home| home.parent() == startup.workspace);
        if same {
            return Ok(());
        }
        let folders = of(&startup.workspace);
        if trusted {
            self.files(&folders, Tier::Workspace)?;
        } else if folders.iter().any(|folder| folder.is_dir()) {
            self.warnings.push(format!(
                "policies of {} are ignored because the folder is not trusted",
                startup.workspace.display()
            ));
        }
        Ok(())
    }

    /// What extensions ask for can only make things stricter: a rule that allows, or is for the mode in which nobody is asked, is
    /// left out as it is read, and here the programs that would be run as checkers, which nobody agreed to when the
    /// extension was installed.
    fn extensions(&mut self, extensions: &[Extension]) -> Result<(), Unusable> {
        for extension in extensions {
            let mut theirs = Self::default();
            theirs.files(&[extension.part(FOLDER)], Tier::Extension)?;
            let before = theirs.options.checkers.len();
            theirs.options.checkers.retain(|checker| !matches!(checker.kind, CheckerKind::External(_)));
            if theirs.options.checkers.len() < before {
                self.warnings
                    .push(format!("checkers of the extension {} that are programs are ignored", extension.name));
            }
            self.options.rules.extend(theirs.options.rules);
            self.options.checkers.extend(theirs.options.checkers);
            self.warnings.extend(theirs.warnings);
        }
        Ok(())
    }

    /// A folder that others may write is not the administrator's. What is named on the command line counts only where
    /// there is no such folder, or the flag would be a way around it.
    fn administrators(&mut self, system: &[PathBuf], named: &[PathBuf], owner: u32) -> Result<(), Unusable> {
        let mut usable = Vec::new();
        for folder in system {
            let Ok(meta) = fs::metadata(folder) else { continue };
            if meta.uid() == owner && meta.mode() & 0o022 == 0 {
                usable.push(folder.clone());
            } else {
                let why = "it must belong to root and be writable by nobody else";
                self.warnings.push(format!("policies in {} are ignored: {why}", folder.display()));
            }
        }
        let files = list(&usable, Tier::Admin)?;
        if files.is_empty() {
            return self.files(named, Tier::Admin);
        }
        if !named.is_empty() {
            self.warnings.push("--admin-policy is ignored: there are policies of the system".to_owned());
        }
        self.parse(files, Tier::Admin)
    }

    fn files(&mut self, paths: &[PathBuf], tier: Tier) -> Result<(), Unusable> {
        let files = list(paths, tier)?;
        self.parse(files, tier)
    }

    fn parse(&mut self, files: Vec<PathBuf>, tier: Tier) -> Result<(), Unusable> {
        for path in files {
            let read = |source| Unusable::Read { path: path.clone(), source };
            if fs::metadata(&path).map_err(read)?.len() > BYTES_MAX {
                return Err(Unusable::TooLong(path));
            }
            let read = |source| Unusable::Read { path: path.clone(), source };
            let text = fs::read_to_string(&path).map_err(read)?;
            let file = parse_policy(&text, &path, tier)?;
            self.options.rules.extend(file.rules);
            self.options.checkers.extend(file.checkers);
            self.warnings.extend(file.warnings);
        }
        Ok(())
    }
}

/// The policy files that `paths` (folders or files) stand for. Of files with one name the last one counts, but for
/// lasting answers: those are kept wherever they were given.
fn list(paths: &[PathBuf], tier: Tier) -> Result<Vec<PathBuf>, Unusable> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut all = Vec::new();
    for path in paths {
        let fail = |source| Unusable::Read { path: path.clone(), source };
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(fail(error)),
        };
        if !meta.is_dir() {
            all.push(path.clone());
            continue;
        }
        for entry in fs::read_dir(path).map_err(fail)? {
            let file = entry.map_err(fail)?.path();
            let Some(name) = file.file_name().and_then(|name| name.to_str()).map(ToOwned::to_owned) else { continue };
            if !name.ends_with(".toml") || file.is_dir() {
                continue;
            }
            // A workspace or an extension may come from anywhere; its links must not reach what is not part of it.
            if matches!(tier, Tier::Workspace | Tier::Extension) {
                let inside = || Ok::<_, io::Error>(file.canonicalize()?.starts_with(path.canonicalize()?));
                if !inside().map_err(fail)? {
                    return Err(Unusable::Escapes(file));
                }
            }
            if name == SAVED_FILE {
                all.push(file);
            } else {
                files.insert(name, file);
            }
        }
    }
    all.extend(files.into_values());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use convoke_tools::policy::Decision;

    use super::*;

    fn write(path: &Path, decision: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("[[rule]]\ntoolName = 'x'\ndecision = '{decision}'\npriority = 1\n")).unwrap();
    }

    #[test]
    fn our_files_replace_theirs_by_name_and_lasting_answers_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let folders = folders_in(dir.path()).map(|folder| folder.join(FOLDER));
        for name in ["a.toml", "b.toml", SAVED_FILE, "c.txt"] {
            write(&folders[0].join(name), "allow");
        }
        write(&folders[1].join("b.toml"), "deny");
        write(&folders[1].join(SAVED_FILE), "allow");
        let files = list(&folders, Tier::User).unwrap();
        let expected = [
            folders[0].join(SAVED_FILE),
            folders[1].join(SAVED_FILE),
            folders[0].join("a.toml"),
            folders[1].join("b.toml"),
        ];
        assert_eq!(files, expected);
        assert!(list(&[dir.path().join("nothing")], Tier::User).unwrap().is_empty());
    }

    #[test]
    fn a_workspace_s_links_stay_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("outside.toml"), "allow");
        let folder = dir.path().join("work");
        write(&folder.join("a.toml"), "allow");
        symlink(folder.join("a.toml"), folder.join("fine.toml")).unwrap();
        assert_eq!(list(std::slice::from_ref(&folder), Tier::Workspace).unwrap().len(), 2);
        symlink(dir.path().join("outside.toml"), folder.join("evil.toml")).unwrap();
        assert!(matches!(list(std::slice::from_ref(&folder), Tier::Workspace), Err(Unusable::Escapes(_))));
        assert_eq!(list(&[folder], Tier::User).unwrap().len(), 3);
    }

    #[test]
    fn an_administrator_s_folder_is_nobody_else_s_and_can_not_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (system, named) = (dir.path().join("system"), dir.path().join("named.toml"));
        write(&system.join("a.toml"), "deny");
        write(&named, "allow");
        let me = fs::metadata(&system).unwrap().uid();
        let mode = |mode: u32| fs::set_permissions(&system, fs::Permissions::from_mode(mode)).unwrap();
        for (bits, owner, from_system) in
            [(0o755, me, true), (0o775, me, false), (0o757, me, false), (0o755, me + 1, false)]
        {
            mode(bits);
            let mut found = Found::default();
            found.administrators(std::slice::from_ref(&system), std::slice::from_ref(&named), owner).unwrap();
            assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
            assert_eq!(found.options.rules.len(), 1);
            let source = found.options.rules[0].source.to_string();
            assert_eq!(source.contains("system/"), from_system, "{bits:o} {owner}: {source}");
        }
    }

    #[test]
    fn extensions_make_things_stricter_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("gemini-extension.json"), "{\"name\": \"e\"}").unwrap();
        let extension = Extension::read(dir.path()).unwrap();
        let policies = dir.path().join(FOLDER);
        for decision in ["allow", "deny", "ask_user"] {
            write(&policies.join(format!("{decision}.toml")), decision);
        }
        let yolo = "[[rule]]\ntoolName = 'x'\ndecision = 'deny'\npriority = 1\nmodes = ['yolo']\n";
        fs::write(policies.join("yolo.toml"), yolo).unwrap();
        let mut found = Found::default();
        found.extensions(std::slice::from_ref(&extension)).unwrap();
        let kept: Vec<_> = found.options.rules.iter().map(|rule| (rule.decision, rule.priority.tier())).collect();
        assert_eq!(kept, [(Decision::Ask, Tier::Extension), (Decision::Deny, Tier::Extension)]);
        assert_eq!(found.warnings.len(), 2, "{:?}", found.warnings);
        symlink(policies.join("deny.toml"), policies.join("fine.toml")).unwrap();
        write(&dir.path().join("outside.toml"), "deny");
        symlink(dir.path().join("outside.toml"), policies.join("evil.toml")).unwrap();
        assert!(matches!(Found::default().extensions(&[extension]), Err(Unusable::Escapes(_))));
    }
}
