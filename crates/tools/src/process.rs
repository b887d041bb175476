//! Commands as children of this process: how are they started, how much of their output is kept, who ends them?
//!
//! Every command has a guard, which runs one after the other, or a [`Leash`](convoke_stdx::guard::Leash): dropping either
//! ends the command and what it started.
//! Standard input is empty. Both output streams go into one pipe, so that lines stay in the order they were written.

mod background;
mod capture;
mod child;
mod guards;

pub use background::{BackgroundLimits, BackgroundProcess, BackgroundProcesses, BackgroundStatus};
pub(crate) use capture::Capture;
pub(crate) use child::{Exit, Happened, Launch, Running};
pub use guards::Guards;
