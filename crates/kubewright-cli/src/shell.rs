//! The one place that prints, and asks.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one module that may")]

use std::{
    fmt::Display,
    io::{self, BufRead, IsTerminal, Write},
};

use anyhow::{Context, Result, bail};

/// How much is told besides results and errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Nothing.
    Quiet,
    /// What is done.
    #[default]
    Normal,
    /// What is done, each step.
    Verbose,
}

/// Results go to standard output, everything else to standard error; colours only on a terminal.
#[derive(Debug)]
pub(crate) struct Shell {
    colours: bool,
    verbosity: Verbosity,
}

impl Shell {
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colours, verbosity }
    }

    /// A result, for people and for scripts.
    pub(crate) fn result(&self, line: &str) {
        println!("{line}");
    }

    /// What is done, as cargo says it: a word at the left, and of what.
    pub(crate) fn status(&self, word: &str, what: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.line(word, what);
        }
    }

    /// What is done, for those who want to know it all.
    pub(crate) fn detail(&self, word: &str, what: impl Display) {
        if self.verbosity >= Verbosity::Verbose {
            self.line(word, what);
        }
    }

    fn line(&self, word: &str, what: impl Display) {
        if self.colours {
            eprintln!("\x1b[1;32m{word:>12}\x1b[0m {what}");
        } else {
            eprintln!("{word:>12} {what}");
        }
    }

    /// Asks, until there is a `y` or an `n`. Without a terminal nobody is asked, and the answer is yes.
    pub(crate) fn ask(&self, question: &str) -> Result<bool> {
        if !io::stdin().is_terminal() {
            return Ok(true);
        }
        loop {
            eprint!("{question} [y/n] ");
            io::stderr().flush().context("ask")?;
            let mut answer = String::new();
            if io::stdin().lock().read_line(&mut answer).context("read the answer")? == 0 {
                eprintln!();
                bail!("{question}: there was no answer");
            }
            match answer.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }

    /// What may turn out badly.
    pub(crate) fn warning(&self, text: &str) {
        if self.colours {
            eprintln!("\x1b[1;33mwarning\x1b[0m: {text}");
        } else {
            eprintln!("warning: {text}");
        }
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
