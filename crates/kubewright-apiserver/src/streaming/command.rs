//! The streams of a command.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use kubewright_apimachinery::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

use super::{
    Frame, Output, QUEUE,
    channels::{self, Framing, MAX_MESSAGE, Receive},
    spdy::{self, SpdyUpgrade, Stream},
};
use crate::{
    action::ActionRequest,
    body::Body,
    strconv::is_true,
    websocket::{PendingSocket, Upgrade},
};

/// The subprotocol of WebSockets whose channels can be closed.
pub(crate) const CLOSABLE: &str = "v5.channel.k8s.io";
/// The subprotocols of WebSockets. Those with numbers report the result as a `Status`; `v5` can close channels.
const WEBSOCKET: [&str; 5] =
    ["channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", CLOSABLE];
/// The subprotocols of SPDY. `v4` reports the result as a `Status`, and `v3` has sizes of terminals.
const SPDY: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// A message that closes the channel of the next byte.
const CLOSE: u8 = 255;

/// The time in which a client has to open its streams.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// The streams that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Whether there is standard input.
    pub stdin: bool,
    /// Whether there is standard output.
    pub stdout: bool,
    /// Whether there is standard error. A terminal has none.
    pub stderr: bool,
    /// Whether the command runs in a terminal.
    pub tty: bool,
}

impl StreamOptions {
    /// Returns the options of a request.
    ///
    /// # Errors
    /// Returns 400 if there is no stream.
    pub fn of(request: &ActionRequest) -> Result<Self, Status> {
        let options = Self::parse(&request.query);
        if !options.stdin && !options.stdout && !options.stderr {
            return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(options)
    }

    /// Returns the options of query parameters.
    pub(crate) fn parse(query: &[(String, String)]) -> Self {
        let flag = |name| query.iter().find(|(key, _)| key == name).is_some_and(|(_, value)| is_true(value));
        let [stdin, stdout, stderr, tty] = ["stdin", "stdout", "stderr", "tty"].map(flag);
        Self { stdin, stdout, stderr: stderr && !tty, tty }
    }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct TerminalSize {
    /// The number of columns.
    #[serde(rename = "Width", alias = "width")]
    pub width: u16,
    /// The number of rows.
    #[serde(rename = "Height", alias = "height")]
    pub height: u16,
}

/// The sizes of a client's terminal.
#[derive(Debug)]
pub struct TerminalSizes(mpsc::Receiver<Bytes>);

impl TerminalSizes {
    /// Returns the next size; `None` after the client has closed the stream. Cancel safe.
    pub async fn next(&mut self) -> Option<TerminalSize> {
        loop {
            // Malformed sizes are ignored.
            if let Ok(size) = serde_json::from_slice(&self.0.recv().await?) {
                return Some(size);
            }
        }
    }
}

/// The streams of a command.
#[derive(Debug)]
pub struct CommandStreams {
    /// Chunks of standard input, until the client closes it.
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    /// Standard output.
    pub stdout: Option<Output>,
    /// Standard error.
    pub stderr: Option<Output>,
    /// The sizes of the terminal.
    pub resize: Option<TerminalSizes>,
}

/// The end of a command that didn't succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The command ended with an exit code other than zero.
    ExitCode(i32, String),
    /// The command could not be executed.
    Failed(String),
    /// The server that has to execute the command could not be reached, or has failed.
    Unreachable(String),
}

impl CommandError {
    /// Returns the `Status` that clients receive.
    fn status(&self) -> Value {
        match self {
            Self::ExitCode(code, why) => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: {why}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Self::Failed(why) => internal(&format!("error executing command in container: {why}")),
            Self::Unreachable(why) => internal(why),
        }
    }
}

fn internal(why: &str) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError",
        "message": format!("Internal error occurred: {why}"),
        "details": {"causes": [{"message": why}]}, "code": 500,
    })
}

/// Returns the text that reports a result: a `Status`, or only the message of an error.
fn report(result: &Result<(), CommandError>, as_status: bool) -> Option<Bytes> {
    let text = match result {
        Ok(()) => as_status.then(|| json!({"metadata": {}, "status": "Success"}).to_string()),
        Err(error) if as_status => Some(error.status().to_string()),
        Err(error) => error.status()["message"].as_str().map(str::to_owned),
    };
    text.map(Bytes::from)
}

/// Connects a client to a command, by WebSocket or SPDY. Returns the response to its request; a task of the connection
/// runs the command, and drops it when the client disconnects.
///
/// # Errors
/// Returns 400 if the client doesn't ask for an upgrade.
pub fn serve_command<F>(
    request: &ActionRequest,
    options: StreamOptions,
    command: impl FnOnce(CommandStreams) -> F + Send + 'static,
) -> Result<Response<Body>, Status>
where
    F: Future<Output = Result<(), CommandError>> + Send + 'static,
{
    if let Some(upgrade) = Upgrade::requested(&request.parts) {
        return Ok(serve_websocket(upgrade, &WEBSOCKET, options, command));
    }
    let upgrade = SpdyUpgrade::requested(&request.parts, &SPDY)?;
    let (response, tasks) = (upgrade.response(), upgrade.tasks.clone());
    let closing = tasks.closing.clone();
    tasks.spawn(async move {
        let version = upgrade.protocol;
        let Some(connection) = upgrade.open().await else { return };
        let (queue, frames) = mpsc::channel(QUEUE);
        let (opened, streams) = mpsc::channel(QUEUE);
        let work = by_spdy(streams, options, version, command);
        let _ended = closing.run_until_cancelled(spdy::serve(connection, opened, queue, frames, work)).await;
    });
    Ok(response)
}

/// Connects a client to a command by the subprotocol of WebSockets whose channels can be closed.
pub(crate) fn serve_closable<F>(
    upgrade: Upgrade,
    options: StreamOptions,
    command: impl FnOnce(CommandStreams) -> F + Send + 'static,
) -> Response<Body>
where
    F: Future<Output = Result<(), CommandError>> + Send + 'static,
{
    serve_websocket(upgrade, &[CLOSABLE], options, command)
}

fn serve_websocket<F>(
    upgrade: Upgrade,
    protocols: &[&str],
    options: StreamOptions,
    command: impl FnOnce(CommandStreams) -> F + Send + 'static,
) -> Response<Body>
where
    F: Future<Output = Result<(), CommandError>> + Send + 'static,
{
    let (response, pending) = upgrade.negotiate(protocols);
    if let Some(pending) = pending {
        let tasks = pending.tasks.clone();
        tasks.spawn(by_websocket(pending, options, command));
    }
    response
}

/// Runs a command with channels of a WebSocket.
async fn by_websocket<F>(
    pending: PendingSocket,
    options: StreamOptions,
    command: impl FnOnce(CommandStreams) -> F + Send,
) where
    F: Future<Output = Result<(), CommandError>> + Send,
{
    let closing = pending.tasks.closing.clone();
    let (framing, as_status) = (Framing::of(&pending.protocol), pending.protocol.starts_with('v'));
    let Some(socket) = pending.open(MAX_MESSAGE).await else { return };
    let (queue, frames) = mpsc::channel(QUEUE);
    let (streams, input) = streams(options, &queue);
    let first = match options {
        StreamOptions { stdout: true, .. } => STDOUT,
        StreamOptions { stderr: true, .. } => STDERR,
        _ => ERROR,
    };
    let run = async {
        let result = command(streams).await;
        // A client that is gone doesn't need the result.
        if let Some(text) = report(&result, as_status) {
            let _gone = queue.send(Frame::Data(ERROR.into(), text)).await;
        }
        let _gone = queue.send(Frame::Last).await;
    };
    channels::serve(socket, &closing, framing, vec![(first.into(), Bytes::new())], frames, input, run).await;
}

/// The receiving ends of the client's channels.
#[derive(Debug)]
struct Input {
    stdin: Option<mpsc::Sender<Bytes>>,
    resize: Option<mpsc::Sender<Bytes>>,
}

fn streams(options: StreamOptions, queue: &mpsc::Sender<Frame>) -> (CommandStreams, Input) {
    let output = |wanted: bool, channel: u8| wanted.then(|| Output { stream: channel.into(), queue: queue.clone() });
    let (stdin_sender, stdin) = options.stdin.then(|| mpsc::channel(QUEUE)).unzip();
    let (resize_sender, resize) = options.tty.then(|| mpsc::channel(QUEUE)).unzip();
    let streams = CommandStreams {
        stdin,
        stdout: output(options.stdout, STDOUT),
        stderr: output(options.stderr, STDERR),
        resize: resize.map(TerminalSizes),
    };
    (streams, Input { stdin: stdin_sender, resize: resize_sender })
}

impl Receive for Input {
    async fn receive(&mut self, channel: u8, bytes: Bytes) {
        let target = match channel {
            STDIN => &mut self.stdin,
            RESIZE => &mut self.resize,
            CLOSE if bytes.first() == Some(&STDIN) => return self.stdin = None,
            _ => return,
        };
        // A command that doesn't read its input any more doesn't need the rest.
        if let Some(sender) = target
            && !bytes.is_empty()
            && sender.send(bytes).await.is_err()
        {
            *target = None;
        }
    }
}

/// Runs a command with the streams that a client opens.
async fn by_spdy<F>(
    mut opened: mpsc::Receiver<Stream>,
    options: StreamOptions,
    version: &str,
    command: impl FnOnce(CommandStreams) -> F + Send,
) where
    F: Future<Output = Result<(), CommandError>> + Send,
{
    let resizes = options.tty && matches!(version, "v4.channel.k8s.io" | "v3.channel.k8s.io");
    let wanted = [options.stdin, options.stdout, options.stderr, resizes].iter().filter(|wanted| **wanted).count() + 1;
    let mut streams = CommandStreams { stdin: None, stdout: None, stderr: None, resize: None };
    let mut error = None;
    let all = async {
        for _ in 0..wanted {
            let Some(stream) = opened.recv().await else { return };
            let kind = stream.headers.get("streamtype").map(String::as_str).unwrap_or_default();
            match kind {
                "stdin" => streams.stdin = Some(stream.input),
                "stdout" => streams.stdout = Some(stream.output),
                "stderr" => streams.stderr = Some(stream.output),
                "resize" => streams.resize = Some(TerminalSizes(stream.input)),
                "error" => error = Some(stream.output),
                other => return tracing::debug!(kind = other, "unexpected stream type"),
            }
        }
    };
    if timeout(STREAM_TIMEOUT, all).await.is_err() {
        return tracing::debug!("timed out waiting for client to create streams");
    }
    let Some(error) = error else { return };
    let outputs: Vec<_> = [&streams.stdout, &streams.stderr].into_iter().flatten().cloned().collect();
    let result = command(streams).await;
    if let Some(text) = report(&result, version == SPDY[0]) {
        let _gone = error.send(text).await;
    }
    for output in outputs.iter().chain([&error]) {
        output.end().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_statuses() {
        let exit = CommandError::ExitCode(3, "error executing command [sh], exit code 3".into()).status();
        let cause = json!({"reason": "ExitCode", "message": "3"});
        assert_eq!((&exit["reason"], &exit["details"]["causes"][0]), (&json!("NonZeroExitCode"), &cause));
        let failed = CommandError::Failed("no such program".into()).status();
        let why = "Internal error occurred: error executing command in container: no such program";
        assert_eq!(failed["message"], why);
        assert_eq!(report(&Ok(()), false), None);
    }

    #[tokio::test]
    async fn sizes_are_json() {
        let (sender, receiver) = mpsc::channel(4);
        for text in ["{}", r#"{"Width":80,"Height":24}"#, r#"{"width":1,"height":2}"#] {
            sender.send(text.into()).await.unwrap();
        }
        drop(sender);
        let mut sizes = TerminalSizes(receiver);
        assert_eq!(sizes.next().await, Some(TerminalSize { width: 80, height: 24 }));
        assert_eq!(sizes.next().await, Some(TerminalSize { width: 1, height: 2 }));
        assert_eq!(sizes.next().await, None);
    }
}
