//! The port to a model that can look at the web by itself, and what its answers are grounded on.
//!
//! A grounded answer comes with metadata: which pages, and up to which byte of the text each of them supports what is
//! said. [`cited`] turns that into `[n]` marks and a list of sources. Source: runtime specification §13.3.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A model that is asked beside the conversation.
#[async_trait]
pub trait WebModel: Send + Sync {
    /// Whether it searches the web by itself.
    fn searches(&self) -> bool;

    /// Whether it reads pages that a prompt names by itself.
    fn reads_pages(&self) -> bool;

    /// Asks. The error is what a person or a model may read.
    async fn ask(&self, task: WebTask, prompt: String, cancel: &CancellationToken) -> Result<Grounded, String>;
}

/// What a model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebTask {
    /// To search the web.
    Search,
    /// To read the pages that the prompt names.
    ReadPages,
    /// To answer from the text in the prompt.
    Digest,
}

/// An answer, and what it is grounded on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grounded {
    /// What the model said.
    pub text: String,
    /// `groundingMetadata` as it came; null where there is none.
    pub grounding: Value,
    /// `urlContextMetadata` as it came; null where there is none.
    pub pages: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Grounding {
    grounding_chunks: Vec<Chunk>,
    grounding_supports: Vec<Support>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Chunk {
    web: Option<Source>,
}

/// A page that an answer is grounded on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Source {
    pub(super) uri: String,
    pub(super) title: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Support {
    segment: Segment,
    grounding_chunk_indices: Vec<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Segment {
    end_index: usize,
}

/// The text with `[n]` where its sources support it, the list of them at its end, and the sources.
pub(super) fn cited(answer: &Grounded) -> (String, Vec<Source>) {
    // What can't be read costs the marks, not the answer.
    let grounding = Grounding::deserialize(&answer.grounding).unwrap_or_default();
    let mut marks: Vec<(usize, String)> = Vec::new();
    for support in &grounding.grounding_supports {
        let known = support.grounding_chunk_indices.iter().filter(|index| **index < grounding.grounding_chunks.len());
        let mark: String = known.map(|index| format!("[{}]", index + 1)).collect();
        // Offsets count bytes. One inside of a character belongs behind it.
        let at = (support.segment.end_index..=answer.text.len()).find(|at| answer.text.is_char_boundary(*at));
        marks.push((at.unwrap_or(answer.text.len()), mark));
    }
    marks.sort_by_key(|(at, _)| *at);
    let mut text = String::with_capacity(answer.text.len());
    let mut next = 0;
    for (at, mark) in marks {
        text.push_str(answer.text.get(next..at).unwrap_or_default());
        text.push_str(&mark);
        next = at;
    }
    text.push_str(answer.text.get(next..).unwrap_or_default());
    let sources: Vec<Source> =
        grounding.grounding_chunks.into_iter().map(|chunk| chunk.web.unwrap_or_default()).collect();
    if !sources.is_empty() {
        text.push_str("\n\nSources:");
        for (number, source) in (1..).zip(&sources) {
            let title = if source.title.is_empty() { "Untitled" } else { &source.title };
            let uri = if source.uri.is_empty() { "no address" } else { &source.uri };
            text.push_str(&format!("\n[{number}] {title} ({uri})"));
        }
    }
    (text, sources)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn grounded(text: &str, grounding: Value) -> Grounded {
        Grounded { text: text.to_owned(), grounding, pages: Value::Null }
    }

    #[test]
    fn marks_stand_where_bytes_say() {
        let grounding = json!({
            "groundingChunks": [{"web": {"uri": "https://a.example/", "title": "A"}}, {"web": {"uri": "https://b.example/"}}, {}],
            "groundingSupports": [
                {"segment": {"startIndex": 8, "endIndex": 14}, "groundingChunkIndices": [1]},
                {"segment": {"endIndex": 7, "text": "Grüße."}, "groundingChunkIndices": [0, 1, 9]},
                {"segment": {"endIndex": 3}, "groundingChunkIndices": [2]},
                {"segment": {"endIndex": 99999}, "groundingChunkIndices": [0]},
            ],
        });
        let (text, sources) = cited(&grounded("Grüße.\n\nÄha.", grounding));
        let expected = "Grü[3]ße[1][2].\n\nÄha[2].[1]\n\nSources:\n[1] A (https://a.example/)\n\
                        [2] Untitled (https://b.example/)\n[3] Untitled (no address)";
        assert_eq!(text, expected);
        assert_eq!(sources.len(), 3);
    }

    #[test]
    fn without_metadata_there_is_only_text() {
        for grounding in [Value::Null, json!({}), json!({"groundingChunks": "odd"}), json!([])] {
            assert_eq!(cited(&grounded("x", grounding)), ("x".to_owned(), Vec::new()));
        }
    }

    proptest! {
        #[test]
        fn no_offset_breaks_the_text(text in "[aé\u{1F980}]{0,8}", ends in proptest::collection::vec(0..40_usize, 0..5)) {
            let supports: Vec<Value> =
                ends.iter().map(|end| json!({"segment": {"endIndex": end}, "groundingChunkIndices": [0]})).collect();
            let grounding = json!({"groundingChunks": [{"web": {"uri": "u", "title": "t"}}], "groundingSupports": supports});
            let (cited, _) = cited(&grounded(&text, grounding));
            let without = cited.strip_suffix("\n\nSources:\n[1] t (u)").unwrap().replace("[1]", "");
            prop_assert_eq!(without, text);
        }
    }
}
