//! Content on both sides: ACP's blocks and ours.

use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use convoke_protocol::{ContentPart, DisplayContent, PermissionContent};
use serde_json::{Value, json};

use crate::rpc_error::RpcError;

/// Bytes of text in one prompt: what a pipe may bring to a headless run. No model reads more.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of one prompt with its images, sounds and files, in base64. Providers take some 20 MB of them.
const PROMPT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Refuses a prompt that is larger than any model takes, instead of sending it there.
pub(super) fn check(parts: &[ContentPart]) -> Result<(), RpcError> {
    let mut text_bytes = 0_usize;
    let mut bytes = 0_usize;
    for part in parts {
        let (text, data) = match part {
            ContentPart::Text { text } => (text.len(), 0),
            ContentPart::Reference { text, data, .. } => (text.len(), data.as_ref().map_or(0, String::len)),
            ContentPart::Media { data, .. } => (0, data.as_ref().map_or(0, String::len)),
            ContentPart::Thought { .. } => (0, 0),
        };
        text_bytes = text_bytes.saturating_add(text);
        bytes = bytes.saturating_add(text).saturating_add(data);
    }
    if text_bytes > TEXT_BYTES_MAX {
        return Err(RpcError::too_large("text", text_bytes, TEXT_BYTES_MAX));
    }
    if bytes > PROMPT_BYTES_MAX {
        return Err(RpcError::too_large("content", bytes, PROMPT_BYTES_MAX));
    }
    Ok(())
}

/// A prompt as the agent reads it. A block of a kind that has no type yet is left out.
pub(super) fn parts(blocks: Vec<ContentBlock>) -> Vec<ContentPart> {
    blocks.into_iter().filter_map(part).collect()
}

fn part(block: ContentBlock) -> Option<ContentPart> {
    let media = |data, uri, mime_type| ContentPart::Media { data, uri, mime_type };
    Some(match block {
        ContentBlock::Text(text) => ContentPart::Text { text: text.text },
        ContentBlock::Image(image) => media(Some(image.data), image.uri, Some(image.mime_type)),
        ContentBlock::Audio(audio) => media(Some(audio.data), None, Some(audio.mime_type)),
        ContentBlock::ResourceLink(link) => ContentPart::Reference {
            text: mention(&link.uri),
            data: None,
            uri: Some(link.uri),
            mime_type: link.mime_type,
        },
        ContentBlock::Resource(resource) => match resource.resource {
            EmbeddedResourceResource::TextResourceContents(text) => {
                ContentPart::Reference { text: text.text, data: None, uri: Some(text.uri), mime_type: text.mime_type }
            }
            EmbeddedResourceResource::BlobResourceContents(blob) => {
                media(Some(blob.blob), Some(blob.uri), blob.mime_type)
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// How a link is written in a prompt: a file as people mention files, anything else by its address.
fn mention(uri: &str) -> String {
    match uri.strip_prefix("file://") {
        Some(path) => format!("@{path}"),
        None => uri.to_owned(),
    }
}

/// A part of an agent's message as an ACP content block; `None` for a thought, which is no content of a message.
pub(super) fn block(part: &ContentPart) -> Option<Value> {
    Some(match part {
        ContentPart::Text { text } => text_block(text),
        ContentPart::Thought { .. } => return None,
        ContentPart::Media { data: Some(data), uri, mime_type } => {
            let mime = mime_type.as_deref().unwrap_or("application/octet-stream");
            match mime.split('/').next() {
                Some(kind @ ("image" | "audio")) => json!({"type": kind, "data": data, "mimeType": mime}),
                _ => {
                    let uri = uri.as_deref().unwrap_or("data:");
                    json!({"type": "resource", "resource": {"blob": data, "uri": uri, "mimeType": mime}})
                }
            }
        }
        ContentPart::Media { data: None, uri: Some(uri), mime_type } => link(uri, uri, mime_type.as_deref()),
        ContentPart::Reference { text, uri: Some(uri), mime_type, .. } => link(uri, text, mime_type.as_deref()),
        ContentPart::Reference { text, uri: None, .. } => text_block(text),
        ContentPart::Media { data: None, uri: None, .. } => return None,
    })
}

fn link(uri: &str, name: &str, mime_type: Option<&str>) -> Value {
    let mut link = json!({"type": "resource_link", "uri": uri, "name": name});
    if let (Some(mime), Value::Object(link)) = (mime_type, &mut link) {
        link.insert("mimeType".to_owned(), json!(mime));
    }
    link
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// An ordinary piece of a tool call's content.
pub(super) fn tool_block(block: &Value) -> Value {
    json!({"type": "content", "content": block})
}

fn diff(path: &str, old: Option<&str>, new: &str) -> Value {
    json!({"type": "diff", "path": path, "oldText": old, "newText": new})
}

/// A tool's result as ACP shows it: a diff stays one, everything else is text.
pub(super) fn display(content: &DisplayContent) -> Value {
    match content {
        DisplayContent::Text { text } => tool_block(&text_block(text)),
        DisplayContent::Diff { path, before_text, after_text } => diff(path, before_text.as_deref(), after_text),
        DisplayContent::Terminal { ansi, .. } => tool_block(&text_block(ansi)),
        DisplayContent::Json { value } => tool_block(&text_block(&format!("{value:#}"))),
    }
}

/// What a person sees before answering.
pub(super) fn asked(content: &PermissionContent) -> Value {
    match content {
        PermissionContent::Text(text) => tool_block(&text_block(text)),
        PermissionContent::Diff { path, old_text, new_text } => diff(path, old_text.as_deref(), new_text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_a_prompt_has_its_part() {
        let blocks = json!([
            {"type": "text", "text": "look at"},
            {"type": "resource_link", "uri": "file:///work/a.rs", "name": "a.rs", "mimeType": "text/rust"},
            {"type": "resource_link", "uri": "https://x.test/b", "name": "b"},
            {"type": "resource", "resource": {"uri": "file:///c", "text": "inside", "mimeType": "text/plain"}},
            {"type": "resource", "resource": {"uri": "file:///d", "blob": "AAAA"}},
            {"type": "image", "data": "iVBO", "mimeType": "image/png"},
            {"type": "audio", "data": "UklG", "mimeType": "audio/wav"},
        ]);
        let read = parts(serde_json::from_value(blocks).unwrap());
        let reference = |text: &str, uri: &str, mime: Option<&str>| ContentPart::Reference {
            text: text.into(),
            data: None,
            uri: Some(uri.into()),
            mime_type: mime.map(Into::into),
        };
        let media = |data: &str, uri: Option<&str>, mime: Option<&str>| ContentPart::Media {
            data: Some(data.into()),
            uri: uri.map(Into::into),
            mime_type: mime.map(Into::into),
        };
        assert_eq!(
            read,
            [
                ContentPart::text("look at"),
                reference("@/work/a.rs", "file:///work/a.rs", Some("text/rust")),
                reference("https://x.test/b", "https://x.test/b", None),
                reference("inside", "file:///c", Some("text/plain")),
                media("AAAA", Some("file:///d"), None),
                media("iVBO", None, Some("image/png")),
                media("UklG", None, Some("audio/wav")),
            ]
        );
    }

    #[test]
    fn what_an_agent_shows_is_content_of_acp() {
        let media = |data: Option<&str>, uri: Option<&str>, mime: &str| ContentPart::Media {
            data: data.map(Into::into),
            uri: uri.map(Into::into),
            mime_type: Some(mime.into()),
        };
        for part in [
            ContentPart::text("a"),
            media(Some("iVBO"), None, "image/png"),
            media(Some("AAAA"), None, "application/pdf"),
            media(None, Some("https://x.test"), "text/html"),
            ContentPart::Reference { text: "t".into(), data: None, uri: None, mime_type: None },
        ] {
            let shown = block(&part).unwrap();
            serde_json::from_value::<ContentBlock>(shown).unwrap();
        }
        assert_eq!(block(&ContentPart::Thought { thought: "hm".into(), thought_signature: None }), None);
    }
}
