//! The one place that prints.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one module that may")]

use std::io::IsTerminal;

/// Results go to standard output, everything else to standard error; colours only on a terminal.
#[derive(Debug)]
pub(crate) struct Shell {
    colours: bool,
}

impl Shell {
    pub(crate) fn new() -> Self {
        let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colours }
    }

    /// A result, for people and for scripts.
    pub(crate) fn result(&self, line: &str) {
        println!("{line}");
    }

    /// What went wrong, with the chain of causes.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        if self.colours {
            eprintln!("\x1b[1;31merror\x1b[0m: {error:#}");
        } else {
            eprintln!("error: {error:#}");
        }
    }
}
