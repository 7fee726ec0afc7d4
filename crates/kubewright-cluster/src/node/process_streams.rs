//! The streams of a process: pipes, or a pseudo terminal.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    process::{self, Stdio},
    task::{Context, Poll},
};

use kubewright_apiserver::streaming::TerminalSize;
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use rustix::{fs::fchown, io::Errno, process::Uid};
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
    /// Starts a command with pipes, which belong to `user`, so that the command can open them by their paths, such as
    /// `/dev/stdout`. Without `stdin`, its standard input is empty.
    pub(super) fn of_pipes(
        mut command: process::Command,
        stdin: bool,
        user: Option<u32>,
    ) -> io::Result<(Self, process::Child)> {
        let [(input_end, input), (output, output_end), (errors, errors_end)] = [io::pipe()?, io::pipe()?, io::pipe()?]
            .map(|(reader, writer)| (OwnedFd::from(reader), OwnedFd::from(writer)));
        for end in [&input_end, &output_end, &errors_end] {
            give(end, user)?;
        }
        command.stdin(if stdin { Stdio::from(input_end) } else { Stdio::null() });
        let child = command.stdout(output_end).stderr(errors_end).spawn()?;
        let stdin = stdin.then(|| ChildStdin::from_std(input.into())).transpose()?;
        let (stdout, stderr) = (ChildStdout::from_std(output.into())?, ChildStderr::from_std(errors.into())?);
        Ok((Self { stdin: stdin.map(Stdin::Pipe), stdout: Box::new(stdout), stderr: Some(Box::new(stderr)) }, child))
    }

    /// Starts a command in a new terminal, which belongs to `user`, as the leader of a session. Without `stdin`, the
    /// terminal's input is only used for its size.
    pub(super) fn in_terminal(
        command: process::Command,
        stdin: bool,
        user: Option<u32>,
    ) -> io::Result<(Self, tokio::process::Child)> {
        let (terminal, other_side) = pty_process::open().map_err(io::Error::other)?;
        give(&other_side, user)?;
        let command = pty_process::Command::from(tokio::process::Command::from(command));
        let child = command.spawn(other_side).map_err(io::Error::other)?;
        let (output, input) = terminal.into_split();
        let stdin = Some(Stdin::Terminal { input, open: stdin });
        Ok((Self { stdin, stdout: Box::new(TerminalOutput(output)), stderr: None }, child))
    }
}

/// Lets a user own a stream.
fn give(stream: &impl AsFd, user: Option<u32>) -> io::Result<()> {
    Ok(user.map_or(Ok(()), |user| fchown(stream, Some(Uid::from_raw(user)), None))?)
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
