//! The room as its clients see it: a real listener, a raw HTTP client, a scripted agent.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that is surprised has failed")]

mod acp_client;
mod acp_http;
mod acp_socket;
mod agents;
mod audit;
mod chaos;
mod client;
mod context;
mod edge;
mod lifecycle;
mod load;
mod mediation;
mod metrics;
mod named;
mod openapi;
mod rig;
mod served;
mod stored;
mod streams;
mod transcripts;
mod wall;
