//! Faults in the event stream of a watch: held, delayed, doubled and cut off.

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::BoxError;

use super::{Action, ResponseBody, opened};

type WatchLine = Result<Bytes, BoxError>;

/// The maximum number of delayed events.
const IN_FLIGHT: usize = 4096;

/// Applies a fault to the body of a watch.
pub(super) fn body(action: Action, body: ResponseBody) -> ResponseBody {
    let events = lines(body);
    match action {
        Action::Delay(by) => {
            // All events have the same delay, however close they follow each other.
            let late = move |line| async move {
                sleep(by).await;
                line
            };
            whole(events.map(late).buffered(IN_FLIGHT))
        }
        Action::Hold(gate) => whole(events.then(move |line| {
            let gate = gate.clone();
            async move {
                opened(gate).await;
                line
            }
        })),
        Action::CutAfter(count) => whole(cut(events, count)),
        Action::Double => whole(events.flat_map(|line| match line {
            Ok(line) => stream::iter(vec![Ok(line.clone()), Ok(line)]),
            Err(error) => stream::iter(vec![Err(error)]),
        })),
        Action::Expire => whole(stream::iter([Ok(expired())])),
        Action::Refuse { .. } | Action::LoseRequest | Action::LoseAnswer => whole(events),
    }
}

fn whole(events: impl Stream<Item = WatchLine> + Send + 'static) -> ResponseBody {
    StreamBody::new(events.map(|line| line.map(http_body::Frame::data))).boxed_unsync()
}

/// Splits the body into lines, including line ends. One line is one event.
fn lines(body: ResponseBody) -> impl Stream<Item = WatchLine> + Send {
    stream::unfold((body.into_data_stream(), BytesMut::new()), |(mut body, mut buffer)| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1).freeze();
                return Some((Ok(line), (body, buffer)));
            }
            match body.next().await? {
                Ok(bytes) => buffer.extend_from_slice(&bytes),
                Err(error) => return Some((Err(error), (body, buffer))),
            }
        }
    })
}

fn cut(events: impl Stream<Item = WatchLine> + Send + 'static, count: usize) -> impl Stream<Item = WatchLine> + Send {
    stream::unfold((Box::pin(events), count), |(mut events, left)| async move {
        if left == 0 {
            return None;
        }
        let line = events.next().await?;
        let counts = line.as_ref().is_ok_and(|line| !is_bookmark(line));
        Some((line, (events, left - usize::from(counts))))
    })
}

fn is_bookmark(line: &Bytes) -> bool {
    serde_json::from_slice::<Value>(line).is_ok_and(|event| event["type"] == "BOOKMARK")
}

fn expired() -> Bytes {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: scripted fault", "reason": "Expired", "code": 410,
    });
    format!("{}\n", json!({ "type": "ERROR", "object": status })).into()
}
