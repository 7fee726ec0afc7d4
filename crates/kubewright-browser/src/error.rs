//! The errors of a browser.

use std::io;

use thiserror::Error;

/// An error of a browser.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// No browser is installed.
    #[error(
        "Chromium not found on the path: install it (as root on Debian: apt-get install chromium), or set CHROMIUM to the path \
         of Chromium or Chrome"
    )]
    Missing,
    /// The browser could not be started.
    #[error("failed to start {program}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The browser has exited, or closed its pipe.
    #[error("the browser has exited; the end of its log: {0}")]
    Exited(String),
    /// An operation took longer than [`DEADLINE`](crate::DEADLINE).
    #[error("timed out after a minute waiting until {0}")]
    TimedOut(String),
    /// The browser refused a command.
    #[error("the browser refused {method}: {message}")]
    Refused {
        /// The command.
        method: String,
        /// The browser's message.
        message: String,
    },
    /// The browser sent an invalid message.
    #[error("the browser sent an invalid message")]
    InvalidMessage,
    /// No server answers at an address.
    #[error("failed to open {url}: {why}")]
    Unreachable {
        /// The address.
        url: String,
        /// Chromium's error, such as `net::ERR_CONNECTION_REFUSED`.
        why: String,
    },
    /// A JavaScript expression threw.
    #[error("{expression} threw {thrown}")]
    Script {
        /// The expression.
        expression: String,
        /// The exception.
        thrown: String,
    },
    /// An element can't be clicked.
    #[error("failed to click {selector}: {why}")]
    Element {
        /// The CSS selector.
        selector: String,
        /// The reason.
        why: String,
    },
    /// A picture can't be written.
    #[error("failed to write {path}")]
    Picture {
        /// The path.
        path: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}
