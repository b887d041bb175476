//! What the programs of this package share: one clock, and the words a bench says to its scripted agent.
//!
//! The bench itself is the binary `convoke-bench`; the other binaries are what it measures against (`floor-*`), what it
//! measures with (`run-one`) and who answers (`scripted-agent`). Nothing here depends on the product's own crates: what
//! is measured is the finished binary, from outside.

pub mod clock;
pub mod script;
