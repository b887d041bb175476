//! What do clients have to show? The operator's token, one that is made at start, or nothing.
//!
//! `--token` or `--token-file` over the process's environment. A `.env` file sets no token: agents read those, too.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use convoke_daemon::TokenOption;
use secrecy::SecretString;

use crate::args::ServeArgs;
use crate::environment::Environment;
use crate::failure::complain;

/// Where the process's environment may have the token.
pub(crate) const TOKEN_VARIABLES: &[&str] = &["QWEN_SERVER_TOKEN", "CONVOKE_TOKEN"];

/// A token is no longer than this: what a header can carry with room for the others.
const TOKEN_BYTES: usize = 4096;

/// The token that the operator gave; an empty one counts as none given.
pub(super) fn token(args: &ServeArgs, environment: &Environment) -> anyhow::Result<TokenOption> {
    if args.no_auth {
        complain("warning: --no-auth lets every process of this machine drive the agent");
        return Ok(TokenOption::NoAuth);
    }
    let flag = args.token.as_deref().map(str::trim).filter(|token| !token.is_empty());
    if flag.is_some() {
        complain(
            "warning: a token on the command line is visible to every user of this machine; use QWEN_SERVER_TOKEN \
             or --token-file",
        );
    }
    if let Some(token) = flag {
        return Ok(TokenOption::Given(SecretString::from(token)));
    }
    if let Some(path) = &args.token_file {
        return read_token(path)
            .map(TokenOption::Given)
            .with_context(|| format!("use --token-file {}", path.display()));
    }
    let variables = TOKEN_VARIABLES.iter().filter_map(|name| environment.of_process_only(name));
    Ok(match variables.map(str::trim).find(|token| !token.is_empty()) {
        Some(token) => TokenOption::Given(SecretString::from(token)),
        None => TokenOption::Generate,
    })
}

/// The token in a file.
pub(crate) fn read_token(path: &Path) -> anyhow::Result<SecretString> {
    let meta = std::fs::metadata(path)?;
    if meta.permissions().mode() & 0o077 != 0 {
        complain(&format!("warning: {} can be read by others than its owner", path.display()));
    }
    if meta.len() > TOKEN_BYTES as u64 {
        bail!("it is longer than {TOKEN_BYTES} bytes");
    }
    let text = std::fs::read_to_string(path)?;
    let token = text.trim();
    if token.is_empty() {
        bail!("it holds no token");
    }
    Ok(SecretString::from(token))
}
