//! The daemon's wire: `qwen serve` v1.
//!
//! Frames of the event stream in [`Frame`], bodies of the routes in [`dto`], feature tags in [`capability`].
//! Source: the daemon specification, §c to §f.

pub mod capability;
pub mod dto;
mod frame;

pub use frame::{EncodedFrame, Frame, FrameKind, FrameMeta};
