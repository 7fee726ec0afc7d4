//! Streams in both directions, over connections that actions upgrade: those of a command (`pods/exec`, `pods/attach`).
//!
//! The streams are channels of one WebSocket connection, as in `k8s.io/kubelet/pkg/cri/streaming`. What is received and
//! what is to be sent passes through short queues, so that a slow side slows down the other one.

mod command;

pub use self::command::{CommandError, CommandStreams, Output, StreamOptions, TerminalSize, serve_command};
