//! Reading a log: the options of `kubectl logs`.

use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use futures::Stream as Chunks;
use jiff::Timestamp;
use tokio::sync::watch;

use super::{Log, Stream};

/// How much is read from a file at once.
const CHUNK: usize = 64 << 10;

/// Which lines, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// Goes on with what is written later, until the container ends.
    pub(crate) follow: bool,
    /// Only the last lines.
    pub(crate) tail: Option<u64>,
    /// Only lines written then or later.
    pub(crate) since: Option<Timestamp>,
    /// With the time before each line.
    pub(crate) timestamps: bool,
    /// At most so many bytes.
    pub(crate) limit: Option<u64>,
    /// Only one of the two streams.
    pub(crate) stream: Option<Stream>,
}

impl Log {
    /// What the query asks for, in chunks.
    pub(crate) fn read(&self, query: Query) -> impl Chunks<Item = io::Result<Bytes>> + Send + use<> {
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
    /// Bytes of a record whose end hasn't been read yet.
    rest: Vec<u8>,
    /// The last record was the piece of a line, which goes on.
    inside_line: bool,
    /// How many bytes may still be given out.
    left: u64,
    tailed: bool,
}

/// Where the next byte is. The file stays open, also when it is removed meanwhile.
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

    /// The next chunk; `None` at the end.
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
            // Marked as seen before reading, so that what is written meanwhile wakes us up again.
            self.changed.borrow_and_update();
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

    /// All present lines, reduced to the last ones. Memory is bounded by what is shown.
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

    /// The next raw bytes, from the file at hand or the one after it.
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

    /// The records in `raw` as the query wants them shown.
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
        let (Some(time), Some(stream), Some(tag), Some(text)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        if self.query.stream.is_some_and(|wanted| stream != wanted.name().as_bytes()) {
            return;
        }
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
