//! Commands as children of this process: how are they started, how much of their output is kept, who ends them?
//!
//! Every child runs under a [`Leash`](convoke_stdx::guard::Leash): dropping it ends the child and what it started.
//! Standard input is empty. Both output streams go into one pipe, so that lines stay in the order they were written.

mod background;
mod capture;
mod child;

pub use background::{BackgroundLimits, BackgroundProcess, BackgroundProcesses, BackgroundStatus};
pub(crate) use capture::Capture;
pub(crate) use child::{Exit, Happened, Launch, Running};
