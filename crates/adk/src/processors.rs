//! The kernel's own request processors: basic, instructions, contents, in this order.
//!
//! ADK's identity processor is left out on purpose: it puts the agent's internal name into the prompt. Masking,
//! compression and routing are the product's, and go behind [`Contents`].

mod basic;
mod contents;
mod instructions;

pub use basic::Basic;
pub use contents::Contents;
pub use instructions::Instructions;
