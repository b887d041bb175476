//! Safety checkers: who else has a say about calls that the rules do not refuse?
//!
//! This module says which ones and about what; the executor runs them. A checker can ask or refuse, never allow.
//! Source: runtime specification §6.6, "Safety checkers".

use std::path::PathBuf;

use serde_json::Value;

use super::{Priority, Scope, Source};

/// One checker.
#[derive(Clone, Debug, PartialEq)]
pub struct Checker {
    /// Its name.
    pub name: String,
    /// What it is asked about.
    pub scope: Scope,
    /// The greatest is asked first.
    pub priority: Priority,
    /// What it is.
    pub kind: CheckerKind,
    /// What it is told beside the call.
    pub config: Value,
    /// Where it was written.
    pub source: Source,
}

/// What a checker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckerKind {
    /// A program that reads the call as JSON and writes its decision as JSON.
    External(PathBuf),
    /// Whether all paths among the arguments lie in the workspace.
    AllowedPath,
}
