//! The streams of a command, in the subprotocols `v5.channel.k8s.io` and older ones: the first byte of each message is the
//! number of its channel.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::Response;
use kubewright_apimachinery::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Message, protocol::frame::coding::CloseCode};

use crate::{
    action::ActionRequest,
    body::Body,
    websocket::{self, PendingSocket, Socket, Upgrade},
};

/// The subprotocols, the most capable ones last. Those with numbers report the result as a `Status`; `v5` can close
/// channels.
const PROTOCOLS: [&str; 5] =
    ["channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "v5.channel.k8s.io"];

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// A message that closes the channel of the next byte.
const CLOSE: u8 = 255;

/// The maximum size of a message of a client.
const MAX_MESSAGE: usize = 8 << 20;
/// The number of messages in a queue.
const QUEUE: usize = 4;

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
        let flag = |name: &str| request.parameter(name).is_some_and(|value| !matches!(value, "0" | "false"));
        let tty = flag("tty");
        let options = Self { stdin: flag("stdin"), stdout: flag("stdout"), stderr: flag("stderr") && !tty, tty };
        if !options.stdin && !options.stdout && !options.stderr {
            return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(options)
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
    pub resize: Option<mpsc::Receiver<TerminalSize>>,
}

/// A stream to the client.
#[derive(Clone, Debug)]
pub struct Output {
    channel: u8,
    queue: mpsc::Sender<(u8, Bytes)>,
}

impl Output {
    /// Sends a chunk. Waits while the client doesn't read.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn send(&self, chunk: Bytes) -> std::io::Result<()> {
        let sent = self.queue.send((self.channel, chunk)).await;
        sent.map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe))
    }
}

/// The end of a command that didn't succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The command ended with an exit code other than zero.
    ExitCode(i32, String),
    /// The command could not be executed.
    Failed(String),
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
            Self::Failed(why) => {
                let why = format!("error executing command in container: {why}");
                json!({
                    "metadata": {}, "status": "Failure", "reason": "InternalError",
                    "message": format!("Internal error occurred: {why}"),
                    "details": {"causes": [{"message": why}]}, "code": 500,
                })
            }
        }
    }
}

/// Connects a client to a command. Returns the response to its request; a task of the connection runs the command,
/// and drops it when the client disconnects.
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
    let upgrade = Upgrade::requested(&request.parts);
    let upgrade = upgrade.ok_or_else(|| Status::bad_request("Upgrade request required"))?;
    let (response, pending) = upgrade.negotiate(&PROTOCOLS);
    if let Some(pending) = pending {
        let tasks = pending.tasks.clone();
        let abort = tasks.abort.clone();
        tasks.tracker.spawn(async move {
            tokio::select! {
                () = connect(pending, options, command) => {}
                () = abort.cancelled() => {}
            }
        });
    }
    Ok(response)
}

/// Runs a command with the streams of a connection.
async fn connect<F>(pending: PendingSocket, options: StreamOptions, command: impl FnOnce(CommandStreams) -> F)
where
    F: Future<Output = Result<(), CommandError>>,
{
    let (closing, _permit) = (pending.tasks.closing.clone(), pending.tasks.permit.clone());
    let framing = Framing { base64: pending.protocol.contains("base64"), status: pending.protocol.starts_with('v') };
    let Some(socket) = pending.open(MAX_MESSAGE).await else { return };
    let (queue, messages) = mpsc::channel(QUEUE);
    let (streams, input) = streams(options, &queue);
    let (mut sink, mut source) = socket.split();
    let end = {
        let run = async {
            let text = match command(streams).await {
                Ok(()) if framing.status => Some(json!({"metadata": {}, "status": "Success"}).to_string()),
                Ok(()) => None,
                Err(error) if framing.status => Some(error.status().to_string()),
                Err(error) => error.status()["message"].as_str().map(str::to_owned),
            };
            if let Some(text) = text {
                // A client that is gone doesn't need the result.
                let _gone = queue.send((ERROR, text.into())).await;
            }
            drop(queue);
        };
        let write = write(&mut sink, messages, framing, first_output(options));
        let work = std::pin::pin!(async { tokio::join!(run, write).1 });
        let read = std::pin::pin!(read(&mut source, input, framing));
        tokio::select! {
            biased;
            () = closing.cancelled() => Some(CloseCode::Away),
            written = work => written.then_some(CloseCode::Normal),
            () = read => None,
        }
    };
    if let Some(code) = end
        && let Ok(mut socket) = sink.reunite(source)
    {
        websocket::close(&mut socket, code).await;
    }
}

/// The encoding of messages.
#[derive(Clone, Copy, Debug)]
struct Framing {
    /// The number of the channel is a digit, and the rest is in Base64.
    base64: bool,
    /// The result is a `Status`.
    status: bool,
}

/// The receiving ends of the client's channels.
#[derive(Debug)]
struct Input {
    stdin: Option<mpsc::Sender<Bytes>>,
    resize: Option<mpsc::Sender<TerminalSize>>,
}

fn streams(options: StreamOptions, queue: &mpsc::Sender<(u8, Bytes)>) -> (CommandStreams, Input) {
    let output = |wanted: bool, channel| wanted.then(|| Output { channel, queue: queue.clone() });
    let (stdin_sender, stdin) = options.stdin.then(|| mpsc::channel(QUEUE)).unzip();
    let (resize_sender, resize) = options.tty.then(|| mpsc::channel(QUEUE)).unzip();
    let streams = CommandStreams {
        stdin,
        stdout: output(options.stdout, STDOUT),
        stderr: output(options.stderr, STDERR),
        resize,
    };
    (streams, Input { stdin: stdin_sender, resize: resize_sender })
}

/// Returns the channel whose first, empty message shows that the connection is established.
fn first_output(options: StreamOptions) -> u8 {
    match options {
        StreamOptions { stdout: true, .. } => STDOUT,
        StreamOptions { stderr: true, .. } => STDERR,
        _ => ERROR,
    }
}

impl Framing {
    fn encode(self, channel: u8, bytes: &[u8]) -> Message {
        if self.base64 {
            return Message::text(format!("{channel}{}", STANDARD.encode(bytes)));
        }
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(channel);
        message.extend_from_slice(bytes);
        Message::binary(message)
    }

    /// Returns the channel and the content of a message; `None` for control frames and malformed messages.
    fn decode(self, message: Message) -> Option<(u8, Bytes)> {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::from(text),
            _ => return None,
        };
        let first = *bytes.first()?;
        let rest = bytes.slice(1..);
        if self.base64 {
            Some((first.checked_sub(b'0')?, STANDARD.decode(rest).ok()?.into()))
        } else {
            Some((first, rest))
        }
    }
}

/// Sends messages until all outputs are closed. Returns false if the connection fails.
async fn write(
    sink: &mut futures::stream::SplitSink<Socket, Message>,
    mut messages: mpsc::Receiver<(u8, Bytes)>,
    framing: Framing,
    first: u8,
) -> bool {
    let mut next = Some((first, Bytes::new()));
    while let Some((channel, bytes)) = next {
        if let Err(error) = sink.send(framing.encode(channel, &bytes)).await {
            tracing::debug!(%error, "failed to send to a WebSocket");
            return false;
        }
        next = messages.recv().await;
    }
    true
}

/// Receives messages until the client disconnects.
async fn read(source: &mut futures::stream::SplitStream<Socket>, mut input: Input, framing: Framing) {
    while let Some(message) = source.next().await {
        let message = match message {
            Ok(message) => message,
            Err(error) => return tracing::debug!(%error, "a WebSocket failed"),
        };
        let Some((channel, bytes)) = framing.decode(message) else { continue };
        match channel {
            STDIN if !bytes.is_empty() => {
                if let Some(stdin) = &input.stdin
                    && stdin.send(bytes).await.is_err()
                {
                    input.stdin = None;
                }
            }
            RESIZE => {
                if let (Some(resize), Ok(size)) = (&input.resize, serde_json::from_slice(&bytes)) {
                    // A command that doesn't follow the size doesn't need it.
                    let _unread = resize.send(size).await;
                }
            }
            CLOSE if bytes.first() == Some(&STDIN) => input.stdin = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_begin_with_their_channel() {
        let binary = Framing { base64: false, status: true };
        assert_eq!(binary.encode(STDOUT, b"a"), Message::binary(b"\x01a".to_vec()));
        assert_eq!(binary.decode(Message::text("\0a")), Some((STDIN, Bytes::from("a"))));
        assert_eq!(binary.decode(Message::binary(vec![255, 0])), Some((CLOSE, Bytes::from(vec![0]))));
        assert_eq!(binary.decode(Message::binary(Vec::new())), None);
        assert_eq!(binary.decode(Message::Ping(Bytes::new())), None);
        let base64 = Framing { base64: true, status: true };
        assert_eq!(base64.encode(ERROR, b"a"), Message::text("3YQ=="));
        assert_eq!(base64.decode(Message::text("0YQ==")), Some((STDIN, Bytes::from("a"))));
        assert_eq!(base64.decode(Message::text("0?")), None);
    }

    #[test]
    fn results_are_statuses() {
        let exit = CommandError::ExitCode(3, "error executing command [sh], exit code 3".into()).status();
        assert_eq!(
            (&exit["reason"], &exit["details"]["causes"][0]),
            (&json!("NonZeroExitCode"), &json!({"reason": "ExitCode", "message": "3"}),)
        );
        let failed = CommandError::Failed("no such program".into()).status();
        let why = "Internal error occurred: error executing command in container: no such program";
        assert_eq!(failed["message"], why);
    }
}
