//! The error that a program's `main` returns.

use std::{error::Error, fmt};

use crate::client::explain;

/// An error of `main`, which the standard library prints as one line: `Error: `, the error and its causes. `?` converts
/// any error.
///
/// Unlike `Box<dyn Error>`, it prints a message for users. Unlike `anyhow::Error`, it prints no backtrace when
/// `RUST_BACKTRACE` is set, as in many containers: a port in use is not a defect of the program.
///
/// ```no_run
/// use kubewright_runtime::{exit::MainError, manager::Manager};
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), MainError> {
///     Ok(Manager::from_args()?.run().await?)
/// }
/// ```
pub struct MainError(Box<dyn Error + Send + Sync>);

impl MainError {
    /// Wraps an error that doesn't implement [`Error`], such as `anyhow::Error` or a string.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for MainError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

/// Formats the error and its causes, as `main` prints them.
impl fmt::Debug for MainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&explain(self.0.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("can't read the settings")]
    struct Settings(#[source] io::Error);

    #[test]
    fn an_error_and_its_causes_are_one_line() {
        let error: MainError = Settings(io::ErrorKind::NotFound.into()).into();
        assert_eq!(format!("{error:?}"), "can't read the settings: entity not found");
        assert_eq!(format!("{:?}", MainError::new("no cow")), "no cow");
    }
}
