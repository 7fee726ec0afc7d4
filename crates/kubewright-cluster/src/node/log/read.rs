//! Reading of a log with the options of `kubectl logs`.

use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use kubewright_apimachinery::watch;

use super::Log;

/// The number of bytes that are read from a file at once.
const CHUNK: usize = 64 << 10;

/// The options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// Whether to follow the log until the container ends.
    pub(crate) follow: bool,
    /// The number of lines to return from the end of the log.
    pub(crate) tail: Option<u64>,
    /// The time from which on lines are returned.
    pub(crate) since: Option<Timestamp>,
    /// Whether to write the time before each line.
    pub(crate) timestamps: bool,
    /// The maximum number of bytes.
    pub(crate) limit: Option<u64>,
}

impl Log {
    /// Reads the requested lines, in chunks.
    pub(crate) fn read(&self, query: Query) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let reader = Reader::new(self.clone(), query);
        futures::stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}

/// A cursor in a log.
struct Reader {
    log: Log,
    query: Query,
    changed: watch::Receiver<()>,
    position: Option<Position>,
    /// The bytes of an incomplete record.
    rest: Vec<u8>,
    /// Whether the last record was part of a line that continues in the next one.
    inside_line: bool,
    /// The number of bytes that may still be returned.
    left: u64,
    tailed: bool,
}

/// The position of the next byte. The file remains open even if it is removed.
struct Position {
    segment: u64,
    file: Arc<File>,
    offset: u64,
}

impl Reader {
    fn new(log: Log, query: Query) -> Self {
        let changed = log.0.changed.subscribe();
        let left = query.limit.unwrap_or(u64::MAX);
        Self { log, query, changed, position: None, rest: Vec::new(), inside_line: false, left, tailed: false }
    }

    /// Returns the next chunk; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(lines) = self.query.tail
            && !self.tailed
        {
            self.tailed = true;
            let chunk = self.tail(lines)?;
            if !chunk.is_empty() {
                return Ok(Some(self.limited(chunk)));
            }
        }
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            let ended = self.log.0.state.lock().ended;
            // Marked as seen before reading, so that later writes wake the reader.
            self.changed.mark_unchanged();
            match self.read()? {
                Some(raw) => {
                    let chunk = self.shown(&raw);
                    if !chunk.is_empty() {
                        return Ok(Some(self.limited(chunk)));
                    }
                }
                None if ended || !self.query.follow => return Ok(None),
                None => {
                    if self.changed.changed().await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Returns the last lines. Memory usage is limited by the size of the result.
    fn tail(&mut self, lines: u64) -> io::Result<Vec<u8>> {
        let mut last: VecDeque<Vec<u8>> = VecDeque::new();
        let mut open = false;
        while let Some(raw) = self.read()? {
            for line in self.shown(&raw).split_inclusive(|byte| *byte == b'\n') {
                match last.back_mut() {
                    Some(begun) if open => begun.extend_from_slice(line),
                    _ => last.push_back(line.to_vec()),
                }
                open = !line.ends_with(b"\n");
                if last.len() as u64 > lines {
                    last.pop_front();
                }
            }
        }
        Ok(last.into_iter().flatten().collect())
    }

    /// Returns the next raw bytes, from the current file or the following one.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(position) = &mut self.position {
                let mut chunk = vec![0; CHUNK];
                let length = position.file.read_at(&mut chunk, position.offset)?;
                if length > 0 {
                    position.offset += length as u64;
                    chunk.truncate(length);
                    return Ok(Some(chunk));
                }
            }
            let after = self.position.as_ref().map(|position| position.segment);
            let state = self.log.0.state.lock();
            let Some(next) = state.segments.iter().find(|segment| after.is_none_or(|after| segment.number > after))
            else {
                return Ok(None);
            };
            self.position = Some(Position { segment: next.number, file: next.file.clone(), offset: 0 });
        }
    }

    /// Returns the records in `raw` in the requested format.
    fn shown(&mut self, raw: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(raw.len());
        self.rest.extend_from_slice(raw);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let later = self.rest.split_off(whole);
        let records = std::mem::replace(&mut self.rest, later);
        for record in records.split_inclusive(|byte| *byte == b'\n') {
            self.show(record, &mut shown);
        }
        shown
    }

    fn show(&mut self, record: &[u8], shown: &mut Vec<u8>) {
        let mut parts = record.splitn(4, |byte| *byte == b' ');
        let (Some(time), Some(_stream), Some(tag), Some(text)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        if let Some(since) = self.query.since {
            let written = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
            if written.is_some_and(|written| written < since) {
                return;
            }
        }
        if self.query.timestamps && !self.inside_line {
            shown.extend_from_slice(time);
            shown.push(b' ');
        }
        let whole = tag == b"F";
        shown.extend_from_slice(if whole { text } else { text.strip_suffix(b"\n").unwrap_or(text) });
        self.inside_line = !whole;
    }

    fn limited(&mut self, mut chunk: Vec<u8>) -> Bytes {
        let allowed = usize::try_from(self.left).unwrap_or(usize::MAX).min(chunk.len());
        chunk.truncate(allowed);
        self.left -= allowed as u64;
        chunk.into()
    }
}
