//! Parameters of a request that only its server understands: which of them go into a body, and over what?

use serde::Serialize;
use serde::ser::SerializeMap;
use serde_json::{Map, Value};

/// Parameters that come as JSON: the options' own, then the request's. Of the latter, names with a capital letter are
/// Gemini's and stay away, as do Gemini's tools.
pub(super) struct Extra<'a> {
    extra: &'a Map<String, Value>,
    body: &'a Map<String, Value>,
}

impl<'a> Extra<'a> {
    /// A request's own parameters, under those of the options.
    pub(super) fn new(extra: &'a Map<String, Value>, body: &'a Map<String, Value>) -> Self {
        Self { extra, body }
    }

    /// Writes an entry unless the extras have their own.
    pub(super) fn entry<M: SerializeMap>(
        &self,
        map: &mut M,
        key: &str,
        value: Option<impl Serialize>,
    ) -> Result<(), M::Error> {
        match value {
            Some(value) if !self.body.contains_key(key) && !self.is_passed(key) => map.serialize_entry(key, &value),
            _ => Ok(()),
        }
    }

    /// Writes what no entry has taken.
    pub(super) fn rest<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        for (key, value) in self.extra.iter().filter(|(key, _)| !self.body.contains_key(*key) && self.is_passed(key)) {
            map.serialize_entry(key, value)?;
        }
        for (key, value) in self.body {
            map.serialize_entry(key, value)?;
        }
        Ok(())
    }

    fn is_passed(&self, key: &str) -> bool {
        self.extra.contains_key(key)
            && !key.contains(|c: char| c.is_ascii_uppercase())
            && !matches!(key, "tools" | "labels")
    }
}
