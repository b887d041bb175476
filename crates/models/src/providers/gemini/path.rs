//! Paths: where does a model live?

/// `models/{model}:{method}`. Names of tuned models keep their collection; what a path can't hold is escaped.
pub(super) fn of(model: &str, method: &str) -> String {
    format!("{}:{method}", name(model))
}

/// The resource name of a model.
pub(super) fn name(model: &str) -> String {
    let (collection, id) = match model.split_once('/') {
        Some((collection @ ("models" | "tunedModels"), id)) => (collection, id),
        _ => ("models", model),
    };
    let mut name = format!("{collection}/");
    for byte in id.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'@' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(of("gemini-2.5-flash", "countTokens"), "models/gemini-2.5-flash:countTokens");
        assert_eq!(of("models/x", "m"), "models/x:m");
        assert_eq!(of("tunedModels/x", "m"), "tunedModels/x:m");
        assert_eq!(of("a/../b?c#d:e", "m"), "models/a%2F..%2Fb%3Fc%23d%3Ae:m");
    }
}
