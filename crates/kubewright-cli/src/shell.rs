//! The one place that prints, and asks.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one module that may")]

use std::{
    fmt::Display,
    io::{self, BufRead, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::Duration,
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
    is_terminal: bool,
    verbosity: Verbosity,
    /// What is being waited for; on a terminal its line is the last one, and is written over.
    progress: Mutex<Option<String>>,
}

/// How wide the line of the progress may be: a longer one would be two, of which one stays.
const WIDTH: usize = 79;

impl Shell {
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let colours = is_terminal && std::env::var_os("NO_COLOR").is_none();
        Self { colours, is_terminal, verbosity, progress: Mutex::default() }
    }

    /// A result, for people and for scripts.
    pub(crate) fn result(&self, line: &str) {
        self.end_progress();
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
        self.end_progress();
        eprintln!("{} {what}", self.word(word));
    }

    fn word(&self, word: &str) -> String {
        if self.colours { format!("\x1b[1;32m{word:>12}\x1b[0m") } else { format!("{word:>12}") }
    }

    /// What is waited for, and for how long now. On a terminal it is one line, which the next output takes the place of; elsewhere there is
    /// a line whenever what is waited for is something else.
    pub(crate) fn progress(&self, word: &str, what: &str, passed: Duration) {
        if self.verbosity < Verbosity::Normal {
            return;
        }
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_terminal {
            let time = format!(" ({} s)", passed.as_secs());
            let room = WIDTH.saturating_sub(13 + time.len());
            let what: String = what.chars().take(room).collect();
            eprint!("\r\x1b[K{} {what}{time}", self.word(word));
            // A line that can't be shown is nothing to stop for.
            let _ = io::stderr().flush();
        } else if progress.as_deref() != Some(what) {
            eprintln!("{} {what}", self.word(word));
        }
        *progress = Some(what.to_owned());
    }

    /// Makes room for what is printed next.
    fn end_progress(&self) {
        let waited = self.progress.lock().unwrap_or_else(PoisonError::into_inner).take();
        if waited.is_some() && self.is_terminal {
            eprint!("\r\x1b[K");
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
        self.end_progress();
        if self.colours {
            eprintln!("\x1b[1;33mwarning\x1b[0m: {text}");
        } else {
            eprintln!("warning: {text}");
        }
    }

    /// What went wrong, with the chain of causes.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        self.end_progress();
        if self.colours {
            eprintln!("\x1b[1;31merror\x1b[0m: {error:#}");
        } else {
            eprintln!("error: {error:#}");
        }
    }
}
