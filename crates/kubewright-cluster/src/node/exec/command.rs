//! Commands in running containers.

use std::{future::pending, io, sync::Arc};

use bytes::BytesMut;
use futures::future::OptionFuture;
use kubewright_apiserver::streaming::{CommandError, CommandStreams, Output, TerminalSize};
use tokio::{io::AsyncReadExt, sync::mpsc};

use super::RunningContainer;
use crate::node::{
    process::{CommandLine, exit_code},
    process_streams::{Reader, Stdin},
};

/// The maximum size of a chunk of output.
const CHUNK: usize = 32 << 10;
/// The exit code of a command whose container has ended.
const KILLED: i32 = 137;

/// Executes a command in a container's environment. Dropping the future kills it.
pub(super) async fn execute(
    container: Arc<RunningContainer>,
    argv: Vec<String>,
    tty: bool,
    streams: CommandStreams,
) -> Result<(), CommandError> {
    let text = argv.join(" ");
    let mut line = CommandLine { argv, ..container.line.clone() };
    if tty && !line.environment.iter().any(|(name, _)| name == "TERM") {
        line.environment.push(("TERM".into(), "xterm".into()));
    }
    let run = run(&container, &line, tty, streams);
    let code = tokio::select! {
        biased;
        code = run => code.map_err(CommandError::Failed)?,
        () = container.ended.cancelled() => KILLED,
    };
    match code {
        0 => Ok(()),
        code => Err(CommandError::ExitCode(code, format!("error executing command [{text}], exit code {code}"))),
    }
}

/// Runs a command until it has ended and its output is sent. Returns its exit code.
async fn run(
    container: &RunningContainer,
    line: &CommandLine,
    tty: bool,
    streams: CommandStreams,
) -> Result<i32, String> {
    let spawned = container.processes.spawn_with_streams(line, streams.stdin.is_some(), tty);
    let (process, own) = spawned.map_err(|error| format!("failed to exec in container: {error}"))?;
    let stderr = OptionFuture::from(own.stderr.map(|stderr| send(stderr, streams.stderr)));
    // The rest of the process group is killed with its leader, so the output ends.
    let end = async { tokio::join!(process.ended(), send(own.stdout, streams.stdout), stderr).0 };
    let input = feed(own.stdin, streams.stdin, streams.resize);
    let status = tokio::select! {
        biased;
        status = end => status,
        never = input => match never {},
    };
    status.map(exit_code).map_err(|error| error.to_string())
}

/// Sends the output of a process to a client, if it wants it.
pub(super) async fn send(mut reader: Reader, output: Option<Output>) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        if reader.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let chunk = buffer.split().freeze();
        if let Some(output) = &output {
            output.send(chunk).await?;
        }
    }
}

/// Passes on the input and the sizes of the terminal, for as long as it is polled.
async fn feed(
    mut own: Option<Stdin>,
    mut stdin: Option<mpsc::Receiver<bytes::Bytes>>,
    mut resize: Option<mpsc::Receiver<TerminalSize>>,
) -> std::convert::Infallible {
    while let Some(input) = &mut own {
        tokio::select! {
            biased;
            Some(size) = next(&mut resize) => input.resize(size),
            chunk = next(&mut stdin) => {
                let written = match &chunk {
                    Some(chunk) => input.write(chunk).await,
                    None => Ok(()),
                };
                if chunk.is_none() {
                    stdin = None;
                    own = match own.take() {
                        Some(input) => input.end().await.unwrap_or_default(),
                        None => None,
                    };
                }
                // A process that doesn't read its input any more doesn't need the rest.
                if written.is_err() {
                    break;
                }
            }
        }
    }
    // Whatever else the client sends is dropped.
    drop((own, stdin, resize));
    pending().await
}

/// Returns the next value of a channel; never, if there is no channel.
async fn next<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => pending().await,
    }
}
