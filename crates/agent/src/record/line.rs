//! One line of a record: its fields, and the checksum behind them.
//!
//! Gemini CLI's lines have the same fields without the checksum. Fields that are unknown here are passed over.

use std::borrow::Cow;
use std::fmt;

use convoke_adk::{Content, Part, UsageMetadata};
use serde::de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::rewind::FilesLine;

/// The version that is written. A reader refuses newer ones: it can't know what it would lose.
pub(super) const V: u32 = 1;

/// How a checksum begins; eight hexadecimal digits and `"}` follow, and then the line's end.
const SEAL: &[u8] = b",\"#\":\"";
/// Bytes of a checksum with everything around it.
const SEAL_LEN: usize = SEAL.len() + 8 + 2;

type Parts<'a> = Option<Cow<'a, [Part]>>;

/// A line of any kind: which fields are there says which.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Line<'a> {
    /// `user`, `gemini`, `tool`, `error`; others are Gemini CLI's notes to its user. First, so that lists can count.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) what: Option<Cow<'a, str>>,

    // About the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) v: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) project_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_updated: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<String>,
    /// All messages: the old format of Gemini CLI, one object for the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages: Option<Vec<Line<'a>>>,

    // A message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<String>,
    /// Who says it, where the type does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) author: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "parts")]
    pub(super) content: Parts<'a>,
    /// What a person sees instead of the content.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "parts")]
    pub(super) display_content: Parts<'a>,
    /// Which parts of the content a person wrote: from, to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt: Option<[usize; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokens: Option<Tokens>,
    /// Gemini CLI's; ours are parts of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thoughts: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish_reason: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Box<ErrorRecord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state_delta: Option<Cow<'a, Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Cow<'a, Map<String, Value>>>,
    /// Whose results these are, as they were written with the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) responses: Option<Vec<String>>,
    /// Gemini CLI's: the calls of this message with their results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_calls: Option<Vec<CallLine>>,
    /// Ours: one call that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<Box<CallLine>>,

    // A change of what stands above.
    #[serde(rename = "$set", skip_serializing_if = "Option::is_none")]
    pub(super) set: Option<Box<Set<'a>>>,
    #[serde(rename = "$rewindTo", skip_serializing_if = "Option::is_none")]
    pub(super) rewind_to: Option<Cow<'a, str>>,
    #[serde(rename = "$mask", skip_serializing_if = "Option::is_none")]
    pub(super) mask: Option<Box<Mask>>,
    #[serde(rename = "$compress", skip_serializing_if = "Option::is_none")]
    pub(super) compress: Option<Box<Compress<'a>>>,
    /// What calls did to files.
    #[serde(rename = "$files", skip_serializing_if = "Option::is_none")]
    pub(super) files: Option<Box<FilesLine>>,

    /// The checksum. Written and checked as bytes; seen here only where that failed.
    #[serde(rename = "#", skip_serializing)]
    pub(super) seal: Option<String>,
}

/// What is known of the session by now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Set<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_updated: Option<String>,
    /// Again, for a file whose first line is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<String>,
    /// Prompts and answers so far, so that a list need not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_count: Option<usize>,
    /// The first prompt in short; again for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    /// A name that somebody gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<String>,
    /// Gemini CLI's: takes the place of all messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages: Option<Vec<Line<'a>>>,
}

/// One call, as it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CallLine {
    pub(super) id: String,
    pub(super) name: String,
    /// Gemini CLI's, or ours where another call ran than the model wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) args: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    /// The response, then media beside it.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "parts")]
    pub(super) result: Parts<'static>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result_display: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result_summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_kind: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) locations: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_file: Option<String>,
}

/// Takes the place of one response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Mask {
    /// The event that gave the response to the model.
    pub(super) event_id: String,
    pub(super) call_id: String,
    /// Which of the event's responses with this id, from 0.
    pub(super) ordinal: usize,
    pub(super) response: Value,
}

/// Takes the place of everything before a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Compress<'a> {
    /// The first message that stays; nothing does without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<String>,
    pub(super) messages: Vec<Line<'a>>,
}

/// What went wrong with an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ErrorRecord {
    pub(super) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    pub(super) message: String,
}

/// Tokens of one answer, in Gemini CLI's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    input: u64,
    output: u64,
    cached: u64,
    thoughts: u64,
    tool: u64,
    total: u64,
}

impl From<&UsageMetadata> for Tokens {
    fn from(usage: &UsageMetadata) -> Self {
        Self {
            input: usage.prompt_token_count,
            output: usage.candidates_token_count,
            cached: usage.cached_content_token_count,
            thoughts: usage.thoughts_token_count,
            tool: usage.tool_use_prompt_token_count,
            total: usage.total_token_count,
        }
    }
}

impl From<Tokens> for UsageMetadata {
    fn from(tokens: Tokens) -> Self {
        Self {
            prompt_token_count: tokens.input,
            candidates_token_count: tokens.output,
            total_token_count: tokens.total,
            thoughts_token_count: tokens.thoughts,
            cached_content_token_count: tokens.cached,
            tool_use_prompt_token_count: tokens.tool,
        }
    }
}

impl Line<'_> {
    /// The line as it stands in the file, with its checksum and its end. Empty if it can't be said in JSON.
    pub(super) fn sealed(&self) -> Vec<u8> {
        let Ok(mut bytes) = serde_json::to_vec(self) else { return Vec::new() };
        // The closing brace comes behind the checksum. A line has a field at least, so a comma is right.
        bytes.pop();
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(SEAL);
        bytes.extend_from_slice(format!("{sum:08x}\"}}\n").as_bytes());
        bytes
    }
}

/// Whether `line` ends with the checksum of what comes before it.
pub(super) fn is_sealed(line: &[u8]) -> bool {
    let Some((body, seal)) = line.len().checked_sub(SEAL_LEN).and_then(|at| line.split_at_checked(at)) else {
        return false;
    };
    seal.starts_with(SEAL) && seal.get(SEAL.len()..) == Some(format!("{:08x}\"}}", crc32fast::hash(body)).as_bytes())
}

/// The whole lines inside of one that is damaged: its end may be what was damaged, and the next line stands right
/// behind it.
pub(super) fn whole_lines_in(bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut start = 0;
    for at in 0..bytes.len().saturating_sub(SEAL_LEN - 1) {
        let end = at + SEAL_LEN;
        let candidate = bytes.get(start..end).unwrap_or_default();
        if at >= start && bytes.get(at..).is_some_and(|rest| rest.starts_with(SEAL)) && is_sealed(candidate) {
            found.push(candidate);
            // One byte stands where the line's end was.
            start = end + 1;
        }
    }
    found
}

/// Content as Gemini CLI may write it: text, a part, or a list of either.
fn parts<'de, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Parts<'a>, D::Error> {
    struct List;

    #[derive(Deserialize)]
    #[serde(transparent)]
    struct One(#[serde(deserialize_with = "one")] Part);

    fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Part, D::Error> {
        struct Single;
        impl<'de> Visitor<'de> for Single {
            type Value = Part;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a part")
            }
            fn visit_str<E>(self, text: &str) -> Result<Part, E> {
                Ok(Part::text(text))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Part, A::Error> {
                Part::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Single)
    }

    impl<'de> Visitor<'de> for List {
        type Value = Option<Vec<Part>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text, a part or a list of parts")
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(vec![Part::text(text)]))
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            Part::deserialize(MapAccessDeserializer::new(map)).map(|part| Some(vec![part]))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut parts = Vec::new();
            while let Some(One(part)) = list.next_element()? {
                parts.push(part);
            }
            Ok(Some(parts))
        }
    }
    Ok(deserializer.deserialize_any(List)?.map(Cow::Owned))
}

/// The content's parts, borrowed.
pub(super) fn borrowed(content: &Content) -> Parts<'_> {
    Some(Cow::Borrowed(content.parts.as_slice()))
}
