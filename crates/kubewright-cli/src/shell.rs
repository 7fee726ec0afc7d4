//! Output and prompts. No other module prints.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one module that may")]

use std::{
    fmt::Display,
    io::{self, BufRead, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// The amount of output in addition to results, warnings and errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// No status lines.
    Quiet,
    /// The main steps.
    #[default]
    Normal,
    /// Each step.
    Verbose,
}

/// The terminal. Results are written to standard output, everything else to standard error, in colour if that is a
/// terminal.
#[derive(Debug)]
pub(crate) struct Shell {
    colours: bool,
    is_terminal: bool,
    verbosity: Verbosity,
    /// The pending condition that is shown. On a terminal it is in the last line, which the next output overwrites.
    progress: Mutex<Option<String>>,
}

/// The width of a progress line. A longer line would wrap, and could not be overwritten.
const WIDTH: usize = 79;

impl Shell {
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let colours = is_terminal && std::env::var_os("NO_COLOR").is_none();
        Self { colours, is_terminal, verbosity, progress: Mutex::default() }
    }

    /// Prints a result to standard output.
    pub(crate) fn result(&self, line: &str) {
        self.end_progress();
        println!("{line}");
    }

    /// Prints a status line in the style of cargo: a right-aligned word and a text.
    pub(crate) fn status(&self, word: &str, what: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.line(word, what);
        }
    }

    /// Prints a status line that only `--verbose` shows.
    pub(crate) fn detail(&self, word: &str, what: impl Display) {
        if self.verbosity >= Verbosity::Verbose {
            self.line(word, what);
        }
    }

    fn line(&self, word: &str, what: impl Display) {
        self.end_progress();
        eprintln!("{} {what}", self.word(word));
    }

    fn word(&self, word: &str) -> String {
        if self.colours { format!("\x1b[1;32m{word:>12}\x1b[0m") } else { format!("{word:>12}") }
    }

    /// Shows the pending condition, details that change more often, and how long it has been pending. On a terminal
    /// this is one line, which the next output overwrites. Otherwise a line without the details is printed whenever the
    /// condition changes.
    pub(crate) fn progress(&self, word: &str, what: &str, detail: &str, passed: Duration) {
        if self.verbosity < Verbosity::Normal {
            return;
        }
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_terminal {
            let time = format!(" ({}s)", passed.as_secs());
            let room = WIDTH.saturating_sub(13 + time.len());
            let what: String = what.chars().chain(detail.chars()).take(room).collect();
            eprint!("\r\x1b[K{} {what}{time}", self.word(word));
            // A failure to show progress is ignored.
            let _ = io::stderr().flush();
        } else if progress.as_deref() != Some(what) {
            eprintln!("{} {what}", self.word(word));
        }
        *progress = Some(what.to_owned());
    }

    /// Clears the progress line before other output.
    fn end_progress(&self) {
        let waited = self.progress.lock().unwrap_or_else(PoisonError::into_inner).take();
        if waited.is_some() && self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }

    /// Asks a yes-or-no question. If there is no terminal, the answer is yes.
    pub(crate) fn ask(&self, question: &str) -> Result<bool> {
        if !io::stdin().is_terminal() {
            return Ok(true);
        }
        loop {
            eprint!("{question} [y/n] ");
            io::stderr().flush().context("write the question")?;
            let mut answer = String::new();
            if io::stdin().lock().read_line(&mut answer).context("read the answer")? == 0 {
                eprintln!();
                bail!("{question}: no answer");
            }
            match answer.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }

    /// Prints a warning.
    pub(crate) fn warning(&self, text: &str) {
        self.end_progress();
        if self.colours {
            eprintln!("\x1b[1;33mwarning\x1b[0m: {text}");
        } else {
            eprintln!("warning: {text}");
        }
    }

    /// Prints an error with its causes.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        self.end_progress();
        if self.colours {
            eprintln!("\x1b[1;31merror\x1b[0m: {error:#}");
        } else {
            eprintln!("error: {error:#}");
        }
    }
}
