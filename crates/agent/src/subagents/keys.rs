//! Reading what a person wrote into front matter or settings: which key is wrong, and what was expected of it?

use std::fmt::Display;

use serde_json::{Map, Value};

/// The keys of one object. Each is taken once; what is left in the end is unknown.
pub(crate) struct Keys {
    map: Map<String, Value>,
    /// Where the object stands, such as `auth.`; empty at the top.
    prefix: String,
    known: Vec<&'static str>,
}

/// What is wrong, as a fragment that names the key.
pub(crate) type Wrong = String;

impl Keys {
    /// The keys of `value`, which stands at `prefix`.
    pub(crate) fn new(value: Value, prefix: &str) -> Result<Self, Wrong> {
        match value {
            Value::Object(map) => Ok(Self { map, prefix: prefix.to_owned(), known: Vec::new() }),
            other => {
                let at = prefix.strip_suffix('.').map_or_else(String::new, |key| format!("key '{key}': "));
                Err(format!("{at}expected keys and values, found {}", kind(&other)))
            }
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.map.shift_remove(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, expected: impl Display, found: &Value) -> Wrong {
        format!("key '{}{key}': expected {expected}, found {}", self.prefix, kind(found))
    }

    /// A text that is not empty.
    pub(crate) fn text(&mut self, key: &'static str) -> Result<Option<String>, Wrong> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a text", &other)),
        }
    }

    /// A text that must be there.
    pub(crate) fn required(&mut self, key: &'static str) -> Result<String, Wrong> {
        self.text(key)?.ok_or_else(|| format!("key '{}{key}' is missing", self.prefix))
    }

    /// One of these words.
    pub(crate) fn word(&mut self, key: &'static str, words: &[&'static str]) -> Result<Option<&'static str>, Wrong> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let found = value.as_str().and_then(|text| words.iter().find(|word| **word == text));
        match found {
            Some(word) => Ok(Some(word)),
            None => Err(self.wrong(key, words.join(" or "), &value)),
        }
    }

    /// A list of texts; one text counts as a list of one.
    pub(crate) fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, Wrong> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let items = match &value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(items) => items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect(),
            _ => None,
        };
        items.map(Some).ok_or_else(|| self.wrong(key, "a list of texts", &value))
    }

    /// A whole number within these bounds.
    pub(crate) fn whole(&mut self, key: &'static str, low: u32, high: u32) -> Result<Option<u32>, Wrong> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| (low..=high).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, format!("a whole number from {low} to {high}"), &value)),
        }
    }

    /// A number above `low` and up to `high`.
    pub(crate) fn number(&mut self, key: &'static str, low: f64, high: f64) -> Result<Option<f64>, Wrong> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_f64().filter(|number| *number >= low && *number <= high) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, format!("a number from {low} to {high}"), &value)),
        }
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Wrong> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(key, "true or false", &other)),
        }
    }

    /// An object, to be read in turn.
    pub(crate) fn object(&mut self, key: &'static str) -> Result<Option<Self>, Wrong> {
        let prefix = format!("{}{key}.", self.prefix);
        self.take(key).map(|value| Self::new(value, &prefix)).transpose()
    }

    /// An object whose keys are somebody else's.
    pub(crate) fn free(&mut self, key: &'static str) -> Result<Option<Map<String, Value>>, Wrong> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(self.wrong(key, "keys and values", &other)),
        }
    }

    /// Whatever is left is unknown, and that is an error: a key that was misspelt must not be without effect.
    pub(crate) fn end(self) -> Result<(), Wrong> {
        match self.map.keys().next() {
            None => Ok(()),
            Some(key) => Err(format!("key '{}{key}' is unknown; there are {}", self.prefix, self.known.join(", "))),
        }
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) if text.is_empty() => "an empty text".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("\"{}\"", convoke_stdx::cut::head(text, 60)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "keys and values".to_owned(),
    }
}
