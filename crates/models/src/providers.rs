//! Providers: how does each vendor want to be asked, and how does it answer?

pub(crate) mod gemini;
pub(crate) mod openai;
