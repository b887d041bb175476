//! Who may call? The bearer token: made, kept, compared.
//!
//! Source: daemon specification, §b, "Bearer"; the token is 32 random bytes where the operator gives none.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, header};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::boot::BootError;
use crate::options::TokenOption;

/// What a caller has to show.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    /// The token and its digest; `None` lets everyone in.
    token: Option<(SecretString, [u8; 32])>,
}

impl Auth {
    /// Takes the operator's token, or makes one.
    pub(crate) fn new(option: &TokenOption) -> Result<Self, BootError> {
        let token = match option {
            TokenOption::Given(token) => token.clone(),
            TokenOption::Generate => generate()?,
            TokenOption::NoAuth => return Ok(Self { token: None }),
        };
        let digest = digest(token.expose_secret().as_bytes());
        Ok(Self { token: Some((token, digest)) })
    }

    /// The token; `None` if there is none.
    pub(crate) fn token(&self) -> Option<&SecretString> {
        self.token.as_ref().map(|(token, _)| token)
    }

    /// Whether the request carries the token, or none is asked for.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some((_, expected)) = &self.token else { return true };
        let Some(shown) = bearer(headers) else { return false };
        // Digests have one length, so the comparison tells nothing about the token's.
        bool::from(digest(shown).ct_eq(expected))
    }

    /// Whether a WebSocket's upgrade shows the token: in the header, or for browsers, which can't send one, as the
    /// subprotocol `qwen-bearer.<base64url of the token>`. Source: daemon specification, §g.
    pub(crate) fn admits_upgrade(&self, headers: &HeaderMap) -> bool {
        let Some((_, expected)) = &self.token else { return true };
        let shown = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
        let mut tokens = shown.flat_map(|value| value.split(',')).filter_map(|protocol| {
            URL_SAFE_NO_PAD.decode(protocol.trim().strip_prefix("qwen-bearer.")?.trim_end_matches('=')).ok()
        });
        self.admits(headers) || tokens.next().is_some_and(|token| bool::from(digest(&token).ct_eq(expected)))
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The token of `Authorization: Bearer TOKEN`: any case of the scheme, one or more spaces, and nothing else between.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("bearer".len())?;
    let start = rest.iter().position(|b| *b != b' ')?;
    let token = rest.get(start..)?;
    (scheme.eq_ignore_ascii_case(b"bearer") && start > 0 && !token.contains(&b'\t')).then_some(token)
}

fn generate() -> Result<SecretString, BootError> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| BootError::Token(error.to_string()))?;
    Ok(SecretString::from(URL_SAFE_NO_PAD.encode(bytes)))
}

/// Leaves the token at `path` with mode 0600, so that clients of the same user find it.
///
/// The file is made beside its place and renamed over it: it never has another mode, and a link in its place is
/// replaced, not followed.
pub(crate) fn write_token_file(path: &Path, token: &SecretString) -> Result<(), BootError> {
    let write = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        // Temporary files are made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        std::io::Write::write_all(&mut file, token.expose_secret().as_bytes())?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|source| BootError::TokenFile { path: path.to_owned(), source })
}

/// Removes the token file, unless a later daemon left its own there.
pub(crate) fn remove_token_file(path: &Path, token: &SecretString) {
    let ours = std::fs::read(path).is_ok_and(|found| found == token.expose_secret().as_bytes());
    if ours && let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(path = %path.display(), %error, "the token file was not removed");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use http::HeaderValue;

    use super::*;

    fn admits(auth: &Auth, value: &'static str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
        auth.admits(&headers)
    }

    #[test]
    fn the_header() {
        let auth = Auth::new(&TokenOption::Given(SecretString::from("tok123"))).unwrap();
        for (value, expected) in [
            ("Bearer tok123", true),
            ("bearer   tok123", true),
            ("BEARER tok123", true),
            ("Bearer\ttok123", false),
            ("Bearer \ttok123", false),
            ("Bearertok123", false),
            ("Bearer nope", false),
            ("Bearer tok1234", false),
            ("Bearer", false),
            ("Bearer ", false),
            ("Basic tok123", false),
            ("tok123", false),
            ("", false),
        ] {
            assert_eq!(admits(&auth, value), expected, "{value:?}");
        }
        assert!(!auth.admits(&HeaderMap::new()));
    }

    #[test]
    fn a_websocket_may_show_the_token_as_a_subprotocol() {
        let auth = Auth::new(&TokenOption::Given(SecretString::from("tok123"))).unwrap();
        let admits = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(value));
            (auth.admits_upgrade(&headers), auth.admits(&headers))
        };
        for (value, expected) in [
            ("qwen-bearer.dG9rMTIz", true),
            ("qwen-ws, qwen-bearer.dG9rMTIz", true),
            ("qwen-bearer.dG9rMTIz==", true),
            ("qwen-bearer.tok123", false),
            ("tok123", false),
            ("qwen-bearer.", false),
            ("qwen-bearer.bm9wZQ, qwen-bearer.dG9rMTIz", false),
            ("", false),
        ] {
            assert_eq!(admits(value), (expected, false), "{value:?}");
        }
    }

    #[test]
    fn without_a_token_everyone_is_let_in() {
        let auth = Auth::new(&TokenOption::NoAuth).unwrap();
        assert!(auth.token().is_none());
        assert!(auth.admits(&HeaderMap::new()));
    }

    #[test]
    fn generated_tokens_differ_and_have_256_bits() {
        let make = || Auth::new(&TokenOption::Generate).unwrap();
        let (one, two) = (make(), make());
        let text = |auth: &Auth| auth.token().unwrap().expose_secret().to_owned();
        assert_eq!(URL_SAFE_NO_PAD.decode(text(&one)).unwrap().len(), 32);
        assert_ne!(text(&one), text(&two));
        assert!(!format!("{one:?}").contains(&text(&one)));
    }

    #[test]
    fn the_token_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/token");
        for token in ["first", "second"] {
            write_token_file(&path, &SecretString::from(token)).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), token);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        remove_token_file(&path, &SecretString::from("first"));
        assert!(path.exists(), "the token of another daemon");
        remove_token_file(&path, &SecretString::from("second"));
        assert!(!path.exists());
    }
}
