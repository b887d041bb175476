//! testkit
pub mod fake_model;
