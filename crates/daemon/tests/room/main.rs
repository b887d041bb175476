//! The room as its clients see it: a real listener, a raw HTTP client, a scripted agent.

mod agents;
mod client;
mod edge;
mod lifecycle;
mod mediation;
mod rig;
mod streams;
mod transcripts;
