//! The streams of a command that another server executes, such as a kubelet: the client's side of SPDY.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::future::OptionFuture;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use super::{
    CommandError, CommandStreams, Output, StreamOptions, TerminalSizes,
    spdy::{self, Headers, Stream},
};

/// The subprotocols, the preferred one first. Those with numbers from 4 report the result as a `Status`, and those from
/// 3 have sizes of terminals.
pub(crate) const PROTOCOLS: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];

/// The maximum length of a report. What is longer is cut off, and then no `Status`.
const MAX_REPORT: usize = 1 << 20;

/// Connects the streams of a client to a command, by the subprotocol that its server has selected, until the command
/// ends.
pub(crate) async fn execute(
    connection: impl AsyncRead + AsyncWrite,
    protocol: &str,
    options: StreamOptions,
    client: CommandStreams,
) -> Result<(), CommandError> {
    let version = PROTOCOLS.iter().rev().position(|name| *name == protocol).map_or(1, |index| index + 1);
    let resizes = options.tty && version >= 3;
    let kinds = [
        ("error", true),
        ("stdin", options.stdin),
        ("stdout", options.stdout),
        ("stderr", options.stderr),
        ("resize", resizes),
    ];
    let headers = kinds.iter().filter(|(_, wanted)| *wanted);
    let headers = headers.map(|(kind, _)| Headers::from([("streamtype".to_owned(), (*kind).to_owned())])).collect();
    spdy::open(connection, headers, |opened| relay(opened, client, version >= 4)).await
}

/// Relays between the streams of the client and those of the command.
async fn relay(opened: Vec<Stream>, client: CommandStreams, as_status: bool) -> Result<(), CommandError> {
    let kind = |stream: &Stream| stream.headers.get("streamtype").cloned().unwrap_or_default();
    let mut opened: BTreeMap<_, _> = opened.into_iter().map(|stream| (kind(&stream), stream)).collect();
    let mut take = |kind: &str| opened.remove(kind);
    let stdin = client.stdin.zip(take("stdin")).map(|(from, to)| send_input(from, to));
    let resize = client.resize.zip(take("resize")).map(|(from, to)| send_sizes(from, to));
    let stdout = client.stdout.zip(take("stdout")).map(|(to, from)| receive(from, to));
    let stderr = client.stderr.zip(take("stderr")).map(|(to, from)| receive(from, to));
    let error = take("error").map(read_report);
    let input = async {
        tokio::join!(OptionFuture::from(stdin), OptionFuture::from(resize));
        std::future::pending::<()>().await;
    };
    let output =
        async { tokio::join!(OptionFuture::from(stdout), OptionFuture::from(stderr), OptionFuture::from(error)).2 };
    tokio::select! {
        biased;
        report = output => result(&report.unwrap_or_default(), as_status),
        () = input => Ok(()),
    }
}

/// Sends the input of a client, until either side ends it.
async fn send_input(mut from: mpsc::Receiver<Bytes>, mut to: Stream) {
    loop {
        tokio::select! {
            biased;
            bytes = from.recv() => {
                let Some(bytes) = bytes else { break };
                if to.output.send(bytes).await.is_err() {
                    break;
                }
            }
            ended = to.input.recv() => if ended.is_none() {
                break;
            },
        }
    }
    to.output.end().await;
}

async fn send_sizes(mut from: TerminalSizes, to: Stream) {
    while let Some(size) = from.next().await {
        let text = format!("{}\n", json!({"Width": size.width, "Height": size.height}));
        if to.output.send(text.into()).await.is_err() {
            return;
        }
    }
}

/// Passes on what a command writes. What a client that is gone doesn't get is read all the same.
async fn receive(mut from: Stream, to: Output) {
    while let Some(bytes) = from.input.recv().await {
        let _gone = to.send(bytes).await;
    }
}

/// Reads the report about the end of a command.
async fn read_report(mut from: Stream) -> Vec<u8> {
    let mut report = Vec::new();
    while let Some(bytes) = from.input.recv().await {
        let left = MAX_REPORT.saturating_sub(report.len());
        report.extend_from_slice(bytes.get(..left).unwrap_or(&bytes));
    }
    report
}

/// Returns the result of a command by the report of its server. An empty report is a success.
fn result(report: &[u8], as_status: bool) -> Result<(), CommandError> {
    let failed = |why: String| Err(CommandError::Unreachable(why));
    let text = String::from_utf8_lossy(report);
    if text.is_empty() {
        return Ok(());
    }
    if !as_status {
        return failed(format!("error executing remote command: {text}"));
    }
    let status: Value = match serde_json::from_str(&text) {
        Ok(status) => status,
        Err(error) => return failed(format!("error stream protocol error: {error} in {text:?}")),
    };
    match (status["status"].as_str(), status["reason"].as_str()) {
        (Some("Success"), _) => return Ok(()),
        (Some("Failure"), Some("NonZeroExitCode")) => {}
        (Some("Failure"), _) => return failed(status["message"].as_str().unwrap_or_default().to_owned()),
        _ => return failed("error stream protocol error: unknown error".to_owned()),
    }
    let mut causes = status["details"]["causes"].as_array().into_iter().flatten();
    let Some(code) = causes.find(|cause| cause["reason"] == "ExitCode") else {
        return failed("error stream protocol error: no ExitCode cause given".to_owned());
    };
    let code = code["message"].as_str().unwrap_or_default();
    match code.parse::<u8>() {
        Ok(code) => Err(CommandError::ExitCode(code.into(), format!("command terminated with exit code {code}"))),
        Err(_) => failed(format!("error stream protocol error: invalid exit code value {code:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_status_or_a_message() {
        let check = |report: &Value, expect: Result<(), CommandError>| {
            assert_eq!(result(report.to_string().as_bytes(), true), expect, "{report}");
        };
        let unreachable = |why: &str| Err(CommandError::Unreachable(why.to_owned()));
        check(&json!({"status": "Success"}), Ok(()));
        let causes = json!({"causes": [{"reason": "ExitCode", "message": "3"}]});
        let exit = json!({"status": "Failure", "reason": "NonZeroExitCode", "details": causes});
        check(&exit, Err(CommandError::ExitCode(3, "command terminated with exit code 3".into())));
        check(&json!({"status": "Failure", "message": "no such program"}), unreachable("no such program"));
        check(&json!({}), unreachable("error stream protocol error: unknown error"));
        let no_code = json!({"status": "Failure", "reason": "NonZeroExitCode"});
        check(&no_code, unreachable("error stream protocol error: no ExitCode cause given"));
        assert_eq!(result(b"", true), Ok(()));
        assert_eq!(result(b"gone", false), unreachable("error executing remote command: gone"));
    }
}
