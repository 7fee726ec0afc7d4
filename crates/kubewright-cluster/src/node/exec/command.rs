//! Commands in running containers.

use std::{convert::Infallible, future::pending, io, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::future::OptionFuture;
use kubewright_apiserver::streaming::{CommandError, CommandStreams, Output, TerminalSize, TerminalSizes};
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

/// Executes a command in a container's environment, until it or the container has ended. Dropping the future kills it.
pub(super) async fn execute(
    container: Arc<RunningContainer>,
    argv: Vec<String>,
    tty: bool,
    streams: CommandStreams,
) -> Result<(), CommandError> {
    let text = argv.join(" ");
    let mut line = CommandLine { argv, ..container.line.clone() };
    if tty {
        line.use_terminal();
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
    let _running = container.add_command(process.id());
    let stderr = OptionFuture::from(own.stderr.map(|stderr| send(stderr, streams.stderr)));
    // The rest of the process group is killed with its leader, so the output ends.
    let end = async { tokio::join!(process.ended(), send(own.stdout, streams.stdout), stderr).0 };
    let mut stdin = own.stdin;
    let input = async {
        feed(&mut stdin, streams.stdin, streams.resize, true).await;
        pending::<Infallible>().await
    };
    let status = tokio::select! {
        biased;
        status = end => status,
        never = input => match never {},
    };
    status.map(exit_code).map_err(|error| error.to_string())
}

/// Sends the output of a process to a client, if it wants it. The rest is dropped when the client has disconnected.
async fn send(mut reader: Reader, mut output: Option<Output>) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        if reader.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let chunk = buffer.split().freeze();
        if let Some(connected) = &output
            && connected.send(chunk).await.is_err()
        {
            output = None;
        }
    }
}

/// Passes on the input and the sizes of the terminal, for as long as it is polled. `ends` says whether the process's
/// input ends with the client's. If it doesn't, returns at the end of the client's.
pub(super) async fn feed(
    own: &mut Option<Stdin>,
    mut stdin: Option<mpsc::Receiver<Bytes>>,
    mut resize: Option<TerminalSizes>,
    ends: bool,
) {
    while let Some(input) = own.as_mut() {
        tokio::select! {
            biased;
            Some(size) = next_size(&mut resize) => input.resize(size),
            chunk = next(&mut stdin) => match chunk {
                // A process that doesn't read its input any more doesn't need the rest.
                Some(chunk) => if input.write(&chunk).await.is_err() {
                    break;
                },
                None if !ends => return,
                None => {
                    stdin = None;
                    if let Some(input) = own.take() {
                        *own = input.end().await.unwrap_or_default();
                    }
                }
            }
        }
    }
    // Whatever else the client sends is dropped.
    drop((stdin, resize));
    pending().await
}

/// Returns the next value of a channel; never, if there is no channel.
async fn next<T>(receiver: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => pending().await,
    }
}

async fn next_size(sizes: &mut Option<TerminalSizes>) -> Option<TerminalSize> {
    match sizes {
        Some(sizes) => sizes.next().await,
        None => pending().await,
    }
}
