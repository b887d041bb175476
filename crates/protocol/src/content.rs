//! Content of messages and tool displays.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One piece of a message. Source: runtime specification §1.3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Plain or Markdown text.
    Text {
        /// The text.
        text: String,
    },
    /// What the model says it is thinking.
    Thought {
        /// The thought.
        thought: String,
        /// The provider's opaque signature of the thought.
        #[serde(rename = "thoughtSignature", default, skip_serializing_if = "Option::is_none")]
        thought_signature: Option<String>,
    },
    /// An image, a sound or a document, inline or by address.
    Media {
        /// Base64 of the bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// Where the bytes are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uri: Option<String>,
        /// Such as `image/png`.
        #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A mention of something outside of the message, with its text where it is known.
    Reference {
        /// What to read.
        text: String,
        /// Base64 of the referenced bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// Where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uri: Option<String>,
        /// Such as `text/plain`.
        #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

impl ContentPart {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text of a text part.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Thought { .. } | Self::Media { .. } | Self::Reference { .. } => None,
        }
    }
}

/// What a tool does, in ACP's words (`ToolKind`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Reads files or data.
    Read,
    /// Changes files.
    Edit,
    /// Removes files.
    Delete,
    /// Moves or renames files.
    Move,
    /// Searches.
    Search,
    /// Runs commands.
    Execute,
    /// Plans or notes.
    Think,
    /// Fetches from elsewhere.
    Fetch,
    /// Changes the session's mode.
    SwitchMode,
    /// Anything else.
    #[default]
    #[serde(other)]
    Other,
}

/// A file that a tool call touches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolLocation {
    /// Absolute path.
    pub path: String,
    /// Line, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// How to show a tool call to a person. Source: runtime specification §1.3.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDisplay {
    /// The tool's name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What this call does, such as `src/main.rs` or `cargo test`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// One line about the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// The result itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<DisplayContent>,
}

/// A tool result as a person sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum DisplayContent {
    /// Text or Markdown.
    Text {
        /// The text.
        text: String,
    },
    /// A file before and after.
    #[serde(rename_all = "camelCase")]
    Diff {
        /// Absolute path.
        path: String,
        /// Content before; `null` for a new file.
        before_text: Option<String>,
        /// Content after.
        after_text: String,
    },
    /// Output of a command.
    #[serde(rename_all = "camelCase")]
    Terminal {
        /// Process id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        /// Exit code, once it ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// What it printed, escape sequences included.
        ansi: String,
    },
    /// Data without a display of its own.
    Json {
        /// The data.
        value: Value,
    },
}
