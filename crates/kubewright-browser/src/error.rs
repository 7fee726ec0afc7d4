//! What can go wrong with a browser.

use std::io;

use thiserror::Error;

/// Why a browser didn't do what it was told.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// There is no browser to be started.
    #[error(
        "there is no Chromium on the path. Install it (as root on Debian: apt-get install chromium), or set CHROMIUM to the \
         path of a Chromium or Chrome"
    )]
    Missing,
    /// It could not be started.
    #[error("{program} could not be started")]
    Start {
        /// What was to be started.
        program: String,
        /// Why it wasn't.
        #[source]
        source: io::Error,
    },
    /// It has ended, or closed its pipe.
    #[error("the browser has ended; its last words: {0}")]
    Gone(String),
    /// It took longer than [`DEADLINE`](crate::DEADLINE).
    #[error("within a minute it did not come about that {0}")]
    TimedOut(String),
    /// It refused a command.
    #[error("the browser refused {method}: {message}")]
    Refused {
        /// The command.
        method: String,
        /// Its reason.
        message: String,
    },
    /// It said what can't be read.
    #[error("the browser said something that can't be read")]
    Garbled,
    /// Nothing answers at an address.
    #[error("{url} can't be opened: {why}")]
    Unreachable {
        /// The address.
        url: String,
        /// Chromium's word for it, such as `net::ERR_CONNECTION_REFUSED`.
        why: String,
    },
    /// A JavaScript expression threw.
    #[error("{expression} threw {thrown}")]
    Script {
        /// The expression.
        expression: String,
        /// What it threw.
        thrown: String,
    },
    /// An element can't be clicked.
    #[error("{selector} can't be clicked: {why}")]
    Element {
        /// What was looked for.
        selector: String,
        /// Why not.
        why: String,
    },
    /// A picture can't be written.
    #[error("{path} can't be written")]
    Picture {
        /// Where it belongs.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}
