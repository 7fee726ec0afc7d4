//! The streams of a process: pipes, or a pseudo terminal.

use std::{
    fmt, io,
    pin::Pin,
    process,
    task::{Context, Poll},
};

use kubewright_apiserver::streaming::TerminalSize;
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use rustix::io::Errno;
use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadBuf},
    process::{ChildStderr, ChildStdin, ChildStdout},
};

/// The character that ends the input of a terminal.
const END_OF_INPUT: u8 = 4;

/// An output stream.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// The streams of a process.
pub(crate) struct Streams {
    /// Standard input, if it isn't closed.
    pub(crate) stdin: Option<Stdin>,
    /// Standard output, or the terminal's output.
    pub(crate) stdout: Reader,
    /// Standard error. A terminal has none.
    pub(crate) stderr: Option<Reader>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("stdin", &self.stdin).finish_non_exhaustive()
    }
}

impl Streams {
    /// Takes the pipes of a child.
    pub(super) fn of_pipes(child: &mut process::Child) -> io::Result<Self> {
        let stdin = child.stdin.take().map(ChildStdin::from_std).transpose()?;
        let missing = || io::Error::other("its output is not connected");
        let stdout = ChildStdout::from_std(child.stdout.take().ok_or_else(missing)?)?;
        let stderr = ChildStderr::from_std(child.stderr.take().ok_or_else(missing)?)?;
        Ok(Self { stdin: stdin.map(Stdin::Pipe), stdout: Box::new(stdout), stderr: Some(Box::new(stderr)) })
    }

    /// Starts a command in a new terminal, as the leader of a session. Without `stdin`, the terminal's input is only used
    /// for its size.
    pub(super) fn in_terminal(command: process::Command, stdin: bool) -> io::Result<(Self, tokio::process::Child)> {
        let (terminal, other_side) = pty_process::open().map_err(io::Error::other)?;
        let command = pty_process::Command::from(tokio::process::Command::from(command));
        let child = command.spawn(other_side).map_err(io::Error::other)?;
        let (output, input) = terminal.into_split();
        let stdin = Some(Stdin::Terminal { input, open: stdin });
        Ok((Self { stdin, stdout: Box::new(TerminalOutput(output)), stderr: None }, child))
    }
}

/// The standard input of a process.
#[derive(Debug)]
pub(crate) enum Stdin {
    Pipe(ChildStdin),
    Terminal {
        input: OwnedWritePty,
        /// Whether input is accepted.
        open: bool,
    },
}

impl Stdin {
    /// Writes a chunk.
    pub(crate) async fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.write_all(chunk).await,
            Self::Terminal { input, open: true } => input.write_all(chunk).await,
            Self::Terminal { open: false, .. } => Ok(()),
        }
    }

    /// Ends the input. Returns what remains of a terminal, which still has a size.
    pub(crate) async fn end(self) -> io::Result<Option<Self>> {
        match self {
            Self::Pipe(_) => Ok(None),
            Self::Terminal { mut input, open } => {
                if open {
                    input.write_all(&[END_OF_INPUT]).await?;
                }
                Ok(Some(Self::Terminal { input, open: false }))
            }
        }
    }

    /// Returns whether it is that of a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Sets the size of a terminal.
    pub(crate) fn resize(&self, size: TerminalSize) {
        if let Self::Terminal { input, .. } = self
            && let Err(error) = input.resize(Size::new(size.height, size.width))
        {
            tracing::debug!(%error, "failed to resize a terminal");
        }
    }
}

/// The output of a terminal. It ends when no process has the terminal open any more, which systems report as an error.
struct TerminalOutput(OwnedReadPty);

impl AsyncRead for TerminalOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(context, buffer) {
            Poll::Ready(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Poll::Ready(Ok(())),
            other => other,
        }
    }
}
