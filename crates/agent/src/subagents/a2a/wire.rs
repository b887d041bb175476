//! Sans-IO: how are things said over A2A, in the two dialects of its JSON-RPC binding, and where does a card send us?
//!
//! A card with `supportedInterfaces` speaks 1.0 (or names 0.3 there), one with a `url` of its own 0.3. What is asked
//! is asked in the dialect that the card names; answers are understood in either ([`Exchange`](super::exchange)).
//! Source: the A2A specification, "JSON-RPC protocol binding" and "Agent card", versions 0.3.0 and 1.0.

use serde_json::{Value, json};

/// Which version an agent speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V03,
    V1,
}

/// What is asked of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Send,
    Stream,
    Get,
    Cancel,
}

impl Version {
    pub(super) fn method(self, method: Method) -> &'static str {
        match (self, method) {
            (Self::V03, Method::Send) => "message/send",
            (Self::V03, Method::Stream) => "message/stream",
            (Self::V03, Method::Get) => "tasks/get",
            (Self::V03, Method::Cancel) => "tasks/cancel",
            (Self::V1, Method::Send) => "SendMessage",
            (Self::V1, Method::Stream) => "SendStreamingMessage",
            (Self::V1, Method::Get) => "GetTask",
            (Self::V1, Method::Cancel) => "CancelTask",
        }
    }

    /// The value of the header `A2A-Version`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V03 => "0.3",
            Self::V1 => "1.0",
        }
    }
}

/// Where an agent listens and how, as its card says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) url: String,
    pub(super) version: Version,
    pub(super) streams: bool,
    /// Whom to address behind that address, where several share it.
    tenant: Option<String>,
}

impl Interface {
    /// The JSON-RPC interface of a card, the newest first.
    pub(super) fn of_card(card: &Value) -> Result<Self, &'static str> {
        let streams = card.pointer("/capabilities/streaming").and_then(Value::as_bool).unwrap_or(false);
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let list = |key: &str| card.get(key).and_then(Value::as_array).into_iter().flatten();
        for version in [Version::V1, Version::V03] {
            let found = list("supportedInterfaces").find_map(|listed| {
                let named = text(listed, "protocolVersion").unwrap_or_default();
                let fits = match version {
                    Version::V1 => named == "1" || named.starts_with("1."),
                    Version::V03 => named.starts_with("0.3"),
                };
                let is_ours = fits && text(listed, "protocolBinding").as_deref() == Some("JSONRPC");
                let url = text(listed, "url").filter(|_| is_ours)?;
                let tenant = text(listed, "tenant").filter(|tenant| !tenant.is_empty());
                Some(Self { url, version, streams, tenant })
            });
            if let Some(found) = found {
                return Ok(found);
            }
        }
        let own = text(card, "url").filter(|_| text(card, "preferredTransport").is_none_or(|kind| kind == "JSONRPC"));
        let mut more =
            list("additionalInterfaces").filter(|more| text(more, "transport").as_deref() == Some("JSONRPC"));
        match own.or_else(|| more.find_map(|more| text(more, "url"))) {
            Some(url) => Ok(Self { url, version: Version::V03, streams, tenant: None }),
            None => Err("it names no JSON-RPC interface of version 1 or 0.3"),
        }
    }

    /// A request.
    pub(super) fn request(&self, method: Method, id: &str, mut params: Value) -> Value {
        if let (Some(tenant), Value::Object(params)) = (&self.tenant, &mut params) {
            params.insert("tenant".to_owned(), tenant.as_str().into());
        }
        json!({"jsonrpc": "2.0", "id": id, "method": self.version.method(method), "params": params})
    }

    /// Parameters of a message with this text, in a conversation and to a task that are known or begin with it.
    ///
    /// The answer is to come at once: a task that can be named can be cancelled.
    pub(super) fn message(&self, text: &str, id: &str, context: Option<&str>, task: Option<&str>) -> Value {
        let (mut message, configuration) = match self.version {
            Version::V03 => (
                json!({"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}),
                json!({"acceptedOutputModes": ["text/plain"], "blocking": false}),
            ),
            Version::V1 => (
                json!({"role": "ROLE_USER", "parts": [{"text": text}]}),
                json!({"acceptedOutputModes": ["text/plain"], "returnImmediately": true}),
            ),
        };
        if let Value::Object(message) = &mut message {
            message.insert("messageId".to_owned(), id.into());
            message.extend(context.map(|id| ("contextId".to_owned(), id.into())));
            message.extend(task.map(|id| ("taskId".to_owned(), id.into())));
        }
        json!({"message": message, "configuration": configuration})
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn cards_of_both_versions_name_their_interface() {
        let read = |card: Value| Interface::of_card(&card).map(|found| (found.url, found.version, found.streams));
        let new = json!({"url": "http://old", "capabilities": {"streaming": true}, "supportedInterfaces": [
            {"url": "http://grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "http://old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": "http://new", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        ]});
        assert_eq!(read(new), Ok(("http://new".into(), Version::V1, true)));
        let compatible = json!({"supportedInterfaces": [
            {"url": "http://later", "protocolBinding": "JSONRPC", "protocolVersion": "2.0"},
            {"url": "http://old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3.0"},
        ]});
        assert_eq!(read(compatible), Ok(("http://old".into(), Version::V03, false)));
        let old = json!({"url": "http://a", "protocolVersion": "0.3.0"});
        assert_eq!(read(old), Ok(("http://a".into(), Version::V03, false)));
        let other = json!({"url": "http://a", "preferredTransport": "GRPC",
            "additionalInterfaces": [{"url": "http://b", "transport": "JSONRPC"}]});
        assert_eq!(read(other), Ok(("http://b".into(), Version::V03, false)));
        for nothing in [json!({"url": "http://a", "preferredTransport": "GRPC"}), json!([]), json!({"url": 1})] {
            assert!(read(nothing).is_err());
        }
    }

    #[test]
    fn a_message_is_said_in_the_dialect_of_the_card() {
        let at = |interface: Value| Interface::of_card(&json!({"supportedInterfaces": [interface]})).unwrap();
        let new = at(json!({"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"}));
        assert_eq!(
            new.request(Method::Stream, "1", new.message("hi", "m", Some("c"), None)),
            json!({"jsonrpc": "2.0", "id": "1", "method": "SendStreamingMessage", "params": {
                "message": {"role": "ROLE_USER", "parts": [{"text": "hi"}], "messageId": "m", "contextId": "c"},
                "configuration": {"acceptedOutputModes": ["text/plain"], "returnImmediately": true},
                "tenant": "t",
            }})
        );
        let old = at(json!({"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}));
        assert_eq!(
            old.request(Method::Send, "1", old.message("hi", "m", None, Some("k")))["params"]["message"],
            json!({"kind": "message", "role": "user", "parts": [{"kind": "text", "text": "hi"}], "messageId": "m", "taskId": "k"})
        );
    }
}
