//! Answers: how is a body read that may be endless, cut, or of another kind than asked for?

use std::collections::VecDeque;

use bytes::Bytes;
use convoke_adk::{ModelError, ModelErrorKind};
use reqwest::Response;

use super::failure::transport_error;
use crate::sse::{EVENT_BYTES_MAX, SseDecoder};

/// The most that one answer may have in all. Generous: the longest text answers are below 1 MiB, and what is more are
/// images. A server that sends for ever ends here and not in our memory.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// An answer whose body is yet to be read.
#[derive(Debug)]
pub(crate) struct Answer {
    response: Response,
    sent: usize,
    origin: String,
}

impl Answer {
    pub(super) fn new(response: Response, origin: String) -> Self {
        Self { response, sent: 0, origin }
    }

    /// The whole body.
    pub(crate) async fn bytes(mut self) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// The whole body, if it has no more than `max` bytes.
    pub(crate) async fn bytes_up_to(mut self, max: usize) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            body.extend_from_slice(&bytes);
            if body.len() > max {
                let message = format!("read an answer of more than {max} bytes where a short one was expected");
                return Err(ModelError::new(ModelErrorKind::Other, message));
            }
        }
        Ok(body)
    }

    /// The JSON texts that the body consists of: the data of each event, or the body where it is plain JSON.
    pub(crate) fn documents(self) -> Documents {
        Documents { answer: self, form: Form::Unknown, ready: VecDeque::new() }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        let bytes = self.response.chunk().await.map_err(|error| transport_error(&error, &self.origin))?;
        self.sent += bytes.as_ref().map_or(0, Bytes::len);
        if self.sent > ANSWER_BYTES_MAX {
            let message = format!("read an answer of more than {ANSWER_BYTES_MAX} bytes");
            return Err(ModelError::new(ModelErrorKind::Other, message));
        }
        Ok(bytes)
    }
}

/// The JSON texts of an answer, as they arrive.
#[derive(Debug)]
pub(crate) struct Documents {
    answer: Answer,
    form: Form,
    /// Complete texts: what one read brought, which [`EVENT_BYTES_MAX`] and the size of a read bound.
    ready: VecDeque<Vec<u8>>,
}

/// Told by the first byte rather than by the content type, which servers get wrong.
#[derive(Debug)]
enum Form {
    Unknown,
    Events(SseDecoder),
    Json(Vec<u8>),
    Done,
}

impl Documents {
    /// The next text; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ModelError> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Ok(Some(text));
            }
            if matches!(self.form, Form::Done) {
                return Ok(None);
            }
            match self.answer.chunk().await {
                Ok(Some(bytes)) => self.take(&bytes)?,
                Ok(None) => match std::mem::replace(&mut self.form, Form::Done) {
                    Form::Events(mut decoder) => decoder.finish(&mut self.ready).map_err(too_long)?,
                    Form::Json(body) => return Ok(Some(body)),
                    Form::Unknown | Form::Done => {}
                },
                Err(error) => {
                    self.form = Form::Done;
                    return Err(error);
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        if matches!(self.form, Form::Unknown) {
            self.form = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{' | b'[') => Form::Json(Vec::new()),
                Some(b'<') => {
                    let message = format!(
                        "{} answered with a web page where a model's answer was expected; check the base URL",
                        self.answer.origin
                    );
                    self.form = Form::Done;
                    return Err(ModelError::new(ModelErrorKind::Other, message));
                }
                Some(_) => Form::Events(SseDecoder::new(EVENT_BYTES_MAX)),
            };
        }
        match &mut self.form {
            Form::Events(decoder) => decoder.push(bytes, &mut self.ready).map_err(too_long),
            Form::Json(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            Form::Unknown | Form::Done => Ok(()),
        }
    }
}

fn too_long(error: crate::sse::EventTooLong) -> ModelError {
    ModelError::new(ModelErrorKind::Other, error.to_string())
}

/// Reads one JSON text of a stream.
///
/// A text that stops in the middle means that the stream was cut, any other fault that the server can't write JSON;
/// both are worth another attempt.
pub(crate) fn parse_json<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, ModelError> {
    serde_json::from_slice(text).map_err(|error| {
        if error.is_eof() {
            ModelError::new(ModelErrorKind::Network, "the model's answer broke off in the middle of a piece")
        } else {
            ModelError::new(ModelErrorKind::InvalidStream, format!("the model's answer is malformed: {error}"))
        }
    })
}
