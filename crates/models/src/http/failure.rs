//! Transport failures: which of them may heal?

use std::error::Error;

use convoke_adk::{ModelError, ModelErrorKind};

/// Says what a failure below HTTP means. The URL, which may hold a key, is not told; `origin` is.
pub(super) fn transport_error(error: &reqwest::Error, origin: &str) -> ModelError {
    let cause = innermost(error);
    if let Some(tls) = find::<rustls::Error>(error) {
        let kind = if may_heal(tls) { ModelErrorKind::Network } else { ModelErrorKind::Other };
        return ModelError::new(kind, format!("no secure connection to {origin}: {tls}"));
    }
    let message = if error.is_connect() && error.is_timeout() {
        format!("no connection to {origin} in time")
    } else if error.is_connect() {
        format!("no connection to {origin}: {cause}")
    } else if error.is_timeout() {
        format!("{origin} stopped answering")
    } else if error.is_body() || error.is_decode() {
        format!("the answer of {origin} broke off: {cause}")
    } else if error.is_builder() {
        return ModelError::new(ModelErrorKind::Other, format!("make a request to {origin}: {cause}"));
    } else {
        format!("no answer from {origin}: {cause}")
    };
    ModelError::new(ModelErrorKind::Network, message)
}

/// A damaged record or a refusal in passing; a bad certificate or a server that speaks no TLS stays what it is.
fn may_heal(error: &rustls::Error) -> bool {
    use rustls::{AlertDescription, Error};
    matches!(
        error,
        Error::DecryptError
            | Error::PeerMisbehaved(_)
            | Error::AlertReceived(
                AlertDescription::BadRecordMac | AlertDescription::InternalError | AlertDescription::CloseNotify
            )
    )
}

/// The text of the last cause: the ones before it repeat that something failed.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    // No chain is longer; a cycle would be a bug elsewhere, not our endless loop.
    for _ in 0..16 {
        match cause.source() {
            Some(next) => cause = next,
            None => break,
        }
    }
    if std::ptr::addr_eq(std::ptr::from_ref(cause), std::ptr::from_ref(error)) {
        // Without causes, the error's own text would tell the URL.
        return "the request failed".to_owned();
    }
    cause.to_string()
}

fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    for _ in 0..16 {
        let current = next?;
        if let Some(found) = current.downcast_ref::<T>() {
            return Some(found);
        }
        // `io::Error` hides what it wraps: its `source` is the wrapped error's source.
        if let Some(inner) = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            if let Some(found) = inner.downcast_ref::<T>() {
                return Some(found);
            }
            next = Some(inner);
            if let Some(nested) = inner.downcast_ref::<std::io::Error>() {
                next = Some(nested);
            }
            continue;
        }
        next = current.source();
    }
    None
}
