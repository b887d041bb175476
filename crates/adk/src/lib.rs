//! adk
