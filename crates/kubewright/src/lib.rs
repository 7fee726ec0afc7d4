//! The operator SDK for Rust.
