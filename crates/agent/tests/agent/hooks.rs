//! Hooks as programs of a session: what they are told, what their answers do, and that none of them outlives it.

mod contract;
mod events;
mod model;
mod rig;
mod trust;
