//! The dependency graph, as `cargo metadata` tells it: which packages are there, and who asked for them?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// The prefix that package names carry and room names do not.
const PREFIX: &str = "convoke-";

/// The workspace and everything it resolves to on Linux.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) packages: Vec<Package>,
    /// Package id → the packages it is built or run with, and whether what it ships needs them.
    edges: BTreeMap<String, Vec<(String, bool)>>,
}

/// One package of the graph.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: Option<String>,
    /// Set for a member of this workspace.
    pub(crate) room: Option<Room>,
}

/// A workspace member: a room of the house.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// Its name without the product's prefix.
    pub(crate) name: String,
    /// Its manifest, from the repository's root.
    pub(crate) manifest: String,
    pub(crate) manifest_text: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency as declared in a manifest.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Normal,
    Dev,
    Build,
}

impl Dependency {
    /// The room meant, if it is one of ours.
    pub(crate) fn room(&self) -> Option<&str> {
        room_of(&self.name)
    }
}

impl Room {
    /// The line of the manifest that names `dependency`, or 1.
    pub(crate) fn line_of(&self, dependency: &str) -> usize {
        self.manifest_text
            .lines()
            .position(|line| {
                line.trim_start().strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
            })
            .map_or(1, |index| index + 1)
    }
}

fn room_of(package: &str) -> Option<&str> {
    package.strip_prefix(PREFIX).or((package == "xtask").then_some(package))
}

impl Graph {
    /// Asks cargo. Only what this platform resolves to is listed, with the features that are on.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Self> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["metadata", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(root)
            .output()
            .context("failed to run cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        let metadata = serde_json::from_slice(&output.stdout).context("failed to read cargo metadata")?;
        Self::from_metadata(metadata, root)
    }

    fn from_metadata(metadata: Metadata, root: &Path) -> anyhow::Result<Self> {
        let members: BTreeSet<_> = metadata.workspace_members.into_iter().collect();
        // What a macro needs runs in the compiler and is in nobody's binary.
        let mut macros = BTreeSet::new();
        let mut graph = Self::default();
        for package in metadata.packages {
            if package.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro")) {
                macros.insert(package.id.clone());
            }
            let room = if members.contains(&package.id) {
                let path = Path::new(&package.manifest_path);
                Some(Room {
                    name: room_of(&package.name).unwrap_or(&package.name).to_owned(),
                    manifest: path.strip_prefix(root).unwrap_or(path).display().to_string(),
                    manifest_text: std::fs::read_to_string(path).with_context(|| format!("failed to read {path:?}"))?,
                    dependencies: package.dependencies.into_iter().map(Dependency::from).collect(),
                })
            } else {
                None
            };
            let Pkg { id, name, version, license: licence, .. } = package;
            graph.packages.push(Package { id, name, version, licence, room });
        }
        for node in metadata.resolve.nodes {
            let in_compiler = macros.contains(&node.id);
            let edges = node.deps.into_iter().map(|dep| {
                let linked = dep.dep_kinds.iter().any(|kind| kind.kind.is_none());
                (dep.pkg, linked && !in_compiler)
            });
            graph.edges.insert(node.id, edges.collect());
        }
        Ok(graph)
    }

    /// The workspace members.
    pub(crate) fn rooms(&self) -> Vec<&Room> {
        self.packages.iter().filter_map(|package| package.room.as_ref()).collect()
    }

    /// The outside packages that are reached from the workspace; with `shipped_only`, those in its binaries.
    pub(crate) fn reached(&self, shipped_only: bool) -> Vec<&Package> {
        let mut seen = BTreeSet::new();
        let mut queue: Vec<&str> =
            self.packages.iter().filter(|package| package.room.is_some()).map(|package| package.id.as_str()).collect();
        while let Some(id) = queue.pop() {
            if !seen.insert(id) {
                continue;
            }
            let edges = self.edges.get(id).map(Vec::as_slice).unwrap_or_default();
            queue.extend(edges.iter().filter(|(_, shipped)| *shipped || !shipped_only).map(|(id, _)| id.as_str()));
        }
        self.packages.iter().filter(|package| package.room.is_none() && seen.contains(package.id.as_str())).collect()
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Pkg>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Pkg {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    manifest_path: String,
    dependencies: Vec<Declared>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Declared {
    name: String,
    kind: Option<Kind>,
}

impl From<Declared> for Dependency {
    fn from(declared: Declared) -> Self {
        Self { name: declared.name, kind: declared.kind.unwrap_or(Kind::Normal) }
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}

#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<NodeDepKind>,
}

#[derive(Deserialize)]
struct NodeDepKind {
    kind: Option<Kind>,
}

/// Small graphs for the tests of the checks.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A room whose manifest has `manifest` as text; lines under `[dev-dependencies]` are for tests.
    pub(crate) fn room(name: &str, manifest: &str) -> Package {
        let mut kind = Kind::Normal;
        let mut dependencies = Vec::new();
        for line in manifest.lines() {
            match line {
                "[dependencies]" => kind = Kind::Normal,
                "[dev-dependencies]" => kind = Kind::Dev,
                _ => dependencies.extend(line.split('.').next().map(|name| Dependency { name: name.to_owned(), kind })),
            }
        }
        let room = Room {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            manifest_text: manifest.to_owned(),
            dependencies,
        };
        let name = format!("{PREFIX}{name}");
        Package { id: name.clone(), name, version: "0.1.0".to_owned(), licence: None, room: Some(room) }
    }

    /// An outside package.
    pub(crate) fn outside(name: &str, version: &str, licence: Option<&str>) -> Package {
        Package {
            id: format!("{name} {version}"),
            name: name.to_owned(),
            version: version.to_owned(),
            licence: licence.map(str::to_owned),
            room: None,
        }
    }

    /// A graph with edges `(from, to, shipped)` between package ids.
    pub(crate) fn graph(packages: Vec<Package>, edges: &[(&str, &str, bool)]) -> Graph {
        let mut graph = Graph { packages, edges: BTreeMap::new() };
        for (from, to, shipped) in edges {
            graph.edges.entry((*from).to_owned()).or_default().push(((*to).to_owned(), *shipped));
        }
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_cargo_writes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("crates/a")).unwrap();
        let manifest = folder.path().join("crates/a/Cargo.toml");
        std::fs::write(&manifest, "[dependencies]\nserde.workspace = true\n").unwrap();
        let package = |id: &str, name: &str, path: &str, kind: &str| {
            serde_json::json!({"id": id, "name": name, "version": "1.0.0", "license": null, "manifest_path": path,
                               "targets": [{"kind": [kind]}], "dependencies": []})
        };
        let mut room = package("a", "convoke-a", manifest.to_str().unwrap(), "lib");
        room["dependencies"] = serde_json::json!([{"name": "serde", "kind": null}, {"name": "insta", "kind": "dev"}]);
        let dep = |id: &str, kinds: &[Option<&str>]| {
            let kinds: Vec<_> = kinds.iter().map(|kind| serde_json::json!({"kind": kind})).collect();
            serde_json::json!({"pkg": id, "dep_kinds": kinds})
        };
        let metadata = serde_json::json!({
            "packages": [room, package("s", "serde", "/s", "lib"), package("i", "insta", "/i", "lib"),
                         package("m", "macro", "/m", "proc-macro"), package("n", "in-the-macro", "/n", "lib"),
                         package("b", "in-the-build", "/b", "lib"), package("u", "unused", "/u", "lib")],
            "workspace_members": ["a"],
            "resolve": {"nodes": [
                {"id": "a", "deps": [dep("s", &[None, Some("dev")]), dep("i", &[Some("dev")])]},
                {"id": "s", "deps": [dep("m", &[None]), dep("b", &[Some("build")])]},
                {"id": "m", "deps": [dep("n", &[None])]}]}});
        let graph = Graph::from_metadata(serde_json::from_value(metadata).unwrap(), folder.path()).unwrap();

        let rooms = graph.rooms();
        assert_eq!((rooms[0].name.as_str(), rooms[0].manifest.as_str()), ("a", "crates/a/Cargo.toml"));
        assert_eq!((rooms[0].line_of("serde"), rooms[0].line_of("serd")), (2, 1));
        let names =
            |shipped_only| graph.reached(shipped_only).iter().map(|package| package.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(true), ["serde", "macro"]);
        assert_eq!(names(false), ["serde", "insta", "macro", "in-the-macro", "in-the-build"]);
    }
}
