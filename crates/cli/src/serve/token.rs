//! What do clients have to show? The token of the arguments or the environment, or one that is made at start.

use convoke_daemon::TokenOption;
use secrecy::SecretString;

use crate::args::ServeArgs;
use crate::environment::Environment;
use crate::failure::complain;

/// The token that the operator gave; an empty one counts as none given.
pub(super) fn token(args: &ServeArgs, environment: &Environment) -> TokenOption {
    let given = args.token.as_deref().or_else(|| environment.get("QWEN_SERVER_TOKEN"));
    if args.token.is_some() {
        complain(
            "warning: a token on the command line is visible to every user of this machine; use QWEN_SERVER_TOKEN",
        );
    }
    if args.no_auth {
        complain("warning: --no-auth lets every process of this machine drive the agent");
        return TokenOption::NoAuth;
    }
    match given.map(str::trim).filter(|token| !token.is_empty()) {
        Some(token) => TokenOption::Given(SecretString::from(token)),
        None => TokenOption::Generate,
    }
}
