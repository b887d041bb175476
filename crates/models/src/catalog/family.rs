//! Families: what does a model's id say about it?

/// How large a model is among its kind; a larger one costs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The smallest.
    FlashLite,
    /// For most work.
    Flash,
    /// The largest.
    Pro,
}

impl Tier {
    /// The tier that settings call so.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "pro" => Some(Self::Pro),
            "flash" => Some(Self::Flash),
            "flash-lite" => Some(Self::FlashLite),
            _ => None,
        }
    }
}

/// Whether the id is of the Gemini 3 family, whose function calls must carry a thought signature.
#[must_use]
pub fn is_gemini_3(id: &str) -> bool {
    is_family(id, "gemini-3")
}

/// Whether the model can be asked for its thoughts.
pub(crate) fn has_thoughts(id: &str) -> bool {
    is_gemini_3(id) || id.starts_with("gemini-2.5")
}

fn is_family(id: &str, family: &str) -> bool {
    id.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

/// The alias with the parameters of a conversation with this model. Other servers' models keep their server's defaults.
pub(super) fn chat_alias(id: &str) -> Option<&'static str> {
    match id {
        id if is_gemini_3(id) => Some("chat-base-3"),
        id if id.starts_with("gemini-2.5") => Some("chat-base-2.5"),
        id if id.starts_with("gemini-") => Some("chat-base-plain"),
        _ => None,
    }
}

pub(super) fn token_limit(id: &str) -> Option<u64> {
    match id {
        id if id.starts_with("gemini-") => Some(1_048_576),
        id if id.starts_with("gemma-4") => Some(256_000),
        _ => None,
    }
}

pub(super) fn tier(id: &str) -> Option<Tier> {
    if !id.starts_with("gemini-") {
        return None;
    }
    let has = |word: &str| id.split('-').any(|part| part == word);
    match () {
        () if has("flash") && has("lite") => Some(Tier::FlashLite),
        () if has("flash") => Some(Tier::Flash),
        () if has("pro") => Some(Tier::Pro),
        () => None,
    }
}
