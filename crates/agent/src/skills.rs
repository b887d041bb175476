//! Skills: which folders of instructions are there?
//!
//! A skill is a folder with a `SKILL.md` that begins with front matter: `name` and `description`. Of two of one name the
//! later folder's wins, so that a workspace can have its own. One that can't be read is told of and left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use convoke_tools::builtin::Skill;

use crate::context_files::read;

const FILE: &str = "SKILL.md";
// Each is named in every request to the model.
const SKILLS_MAX: usize = 100;
const DESCRIPTION_CHARS_MAX: usize = 1024;

/// The skills below these folders, by name.
pub(crate) fn find_skills(folders: &[PathBuf]) -> Vec<Skill> {
    let mut found = BTreeMap::new();
    for folder in folders {
        // Most of these folders don't exist.
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for file in entries.into_iter().map(|entry| entry.join(FILE)).filter(|file| file.is_file()) {
            match skill(&file) {
                Ok(skill) if found.len() < SKILLS_MAX || found.contains_key(&skill.name) => {
                    found.insert(skill.name.clone(), skill);
                }
                Ok(_) => tracing::warn!(path = %file.display(), "a skill is left out: there are {SKILLS_MAX} already"),
                Err(error) => tracing::warn!(path = %file.display(), error, "a skill can't be read"),
            }
        }
    }
    found.into_values().collect()
}

fn skill(file: &Path) -> Result<Skill, String> {
    let text = read(file).map_err(|error| error.to_string())?;
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok()).ok_or("its folder is gone")?;
    let (front, body) = split(&text).ok_or("it does not begin with front matter between lines of ---")?;
    let fields = fields(front);
    let field = |name: &str| fields.get(name).filter(|value| !value.is_empty()).ok_or(format!("it has no {name}"));
    let name: String =
        field("name")?.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let description = field("description")?.chars().take(DESCRIPTION_CHARS_MAX).collect();
    Ok(Skill { name, description, body: body.to_owned(), folder })
}

/// What stands between the first two lines of `---`, and what is behind them.
fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches('\u{feff}').strip_prefix("---")?;
    let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'))?;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((rest.get(..at)?, rest.get(at + line.len()..)?));
        }
        at += line.len();
    }
    None
}

/// The fields of front matter that are text: on one line, quoted or not, or indented below `>` or `|`. Others are none of
/// ours, and are left out.
fn fields(front: &str) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut open: Option<String> = None;
    for line in front.lines() {
        let is_inner = line.starts_with([' ', '\t']) || line.trim().is_empty();
        match (is_inner, &open, line.split_once(':')) {
            (true, Some(name), _) => {
                let value = fields.entry(name.clone()).or_default();
                if !value.is_empty() && !line.trim().is_empty() {
                    value.push(' ');
                }
                value.push_str(line.trim());
            }
            (false, _, Some((name, value))) if !line.starts_with('#') => {
                let value = value.trim();
                let is_block = matches!(value, "" | ">" | "|" | ">-" | "|-" | ">+" | "|+");
                open = Some(name.trim().to_owned());
                let quoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
                let value = if is_block { "" } else { quoted.unwrap_or(value) };
                fields.insert(name.trim().to_owned(), value.to_owned());
            }
            _ => open = None,
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn later_folders_win_and_broken_skills_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("user/a/SKILL.md", "---\nname: a\ndescription: \"of: the user\"\n---\nText\n---\nmore\n");
        write(
            "user/b/SKILL.md",
            "---\r\nname: b b\r\ndescription: >-\r\n  two\r\n  lines\r\nmetadata:\r\n  x: 1\r\n---\r\nB\r\n",
        );
        write("user/none/SKILL.md", "no front matter");
        write("user/half/SKILL.md", "---\nname: half\n");
        write("user/nameless/SKILL.md", "---\ndescription: x\n---\n");
        write("user/loose.md", "---\nname: loose\ndescription: x\n---\n");
        write("work/a/SKILL.md", "---\n# of the workspace\nname: a\ndescription: 'of the workspace'\n---\n");
        let at = |name: &str| dir.path().join(name);
        let of_user = find_skills(&[at("user"), at("missing")]);
        let told: Vec<_> = of_user.iter().map(|skill| (skill.name.as_str(), skill.description.as_str())).collect();
        assert_eq!(told, [("a", "of: the user"), ("b-b", "two lines")]);
        assert_eq!((of_user[0].body.as_str(), of_user[1].body.as_str()), ("Text\n---\nmore\n", "B\r\n"));
        let both = find_skills(&[at("user"), at("work")]);
        assert_eq!(both[0].description, "of the workspace");
        assert_eq!(both[0].folder, at("work/a").canonicalize().unwrap());
    }
}
