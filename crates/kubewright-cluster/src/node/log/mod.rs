//! The log of a container: the lines that it has written, in files of limited size.
//!
//! A line is stored in the format of the container runtime interface, `<time> stdout F <text>`. Each run of a container
//! has at most two files: the current one and the previous one.

mod action;
mod read;
mod store;

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apimachinery::watch;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

pub(crate) use self::{
    action::{LogAction, requested_container},
    read::Query,
    store::LogStore,
};

/// The size at which a file is rotated: the default of the kubelet's `containerLogMaxSize`.
const LONGEST_FILE: u64 = 10 << 20;
/// The length at which a line is split.
const LONGEST_LINE: usize = 16 << 10;

/// The output stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The log of one run of one container. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    longest_file: u64,
    clock: SharedClock,
    state: Mutex<State>,
    /// Notifies followers of new lines and of the end.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    segments: VecDeque<Segment>,
    ended: bool,
}

/// One file.
#[derive(Clone, Debug)]
struct Segment {
    number: u64,
    path: PathBuf,
    file: Arc<File>,
    length: u64,
}

impl Log {
    /// Creates a log whose files are `path` with a number appended. No file is created before the first line is
    /// written.
    pub(crate) fn new(path: PathBuf, clock: SharedClock) -> Self {
        Self::with_longest_file(path, clock, LONGEST_FILE)
    }

    fn with_longest_file(path: PathBuf, clock: SharedClock, longest_file: u64) -> Self {
        let changed = watch::Sender::new(());
        Self(Arc::new(Shared { path, longest_file, clock, state: Mutex::default(), changed }))
    }

    /// Records everything from `input` until it ends.
    pub(crate) async fn record(&self, stream: Stream, mut input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut line = Vec::new();
        let mut chunk = vec![0; 8 << 10];
        loop {
            let length = input.read(&mut chunk).await?;
            let now = self.0.clock.now();
            if length == 0 {
                if !line.is_empty() {
                    // As with containerd, a last line without an end is read without one.
                    self.append(&record(now, stream, false, &line))?;
                }
                return Ok(());
            }
            let mut records = Vec::with_capacity(length + 64);
            for byte in &chunk[..length] {
                if *byte == b'\n' {
                    records.extend(record(now, stream, true, &line));
                    line.clear();
                } else {
                    line.push(*byte);
                    if line.len() >= LONGEST_LINE {
                        records.extend(record(now, stream, false, &line));
                        line.clear();
                    }
                }
            }
            self.append(&records)?;
        }
    }

    /// Appends complete records.
    fn append(&self, records: &[u8]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut state = self.0.state.lock();
        if state.segments.back().is_none_or(|segment| segment.length >= self.0.longest_file) {
            self.rotate(&mut state)?;
        }
        if let Some(segment) = state.segments.back_mut() {
            (&*segment.file).write_all(records)?;
            segment.length += records.len() as u64;
        }
        drop(state);
        self.0.changed.send_replace(());
        Ok(())
    }

    fn rotate(&self, state: &mut State) -> io::Result<()> {
        let number = state.segments.back().map_or(0, |segment| segment.number + 1);
        let path = self.0.path.with_extension(format!("{number}.log"));
        let file = File::options().read(true).append(true).create_new(true).open(&path)?;
        state.segments.push_back(Segment { number, path, file: Arc::new(file), length: 0 });
        if state.segments.len() > 2
            && let Some(oldest) = state.segments.pop_front()
        {
            fs::remove_file(&oldest.path)?;
        }
        Ok(())
    }

    /// Marks the log as complete, so that followers stop.
    pub(crate) fn end(&self) {
        self.0.state.lock().ended = true;
        self.0.changed.send_replace(());
    }

    /// Removes the files. Readers that are open can continue.
    pub(crate) fn remove(&self) {
        self.end();
        let segments = std::mem::take(&mut self.0.state.lock().segments);
        for segment in segments {
            if let Err(error) = fs::remove_file(&segment.path) {
                tracing::debug!(path = %segment.path.display(), %error, "failed to remove a log file");
            }
        }
    }
}

/// Formats a record. Its time has nine decimals, so that the records of a container are aligned.
fn record(now: Timestamp, stream: Stream, whole: bool, text: &[u8]) -> Vec<u8> {
    let tag = if whole { 'F' } else { 'P' };
    let mut record = format!("{now:.9} {} {tag} ", stream.name()).into_bytes();
    record.extend_from_slice(text);
    record.push(b'\n');
    record
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::TryStreamExt;
    use kubewright_apimachinery::clock::VirtualClock;

    use super::*;

    fn start() -> Timestamp {
        Timestamp::from_second(1_700_000_000).expect("a valid time")
    }

    async fn read(log: &Log, query: Query) -> String {
        let bytes: Vec<_> = log.read(query).try_collect().await.expect("readable");
        String::from_utf8(bytes.concat()).expect("text")
    }

    fn log(folder: &tempfile::TempDir) -> Log {
        Log::with_longest_file(folder.path().join("main"), VirtualClock::starting_at(start()), 100)
    }

    #[tokio::test(start_paused = true)]
    async fn all_written_lines_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = log(&folder);
        log.record(Stream::Stdout, &b"one\ntwo\n\nlast"[..]).await.expect("recorded");
        assert_eq!(read(&log, Query::default()).await, "one\ntwo\n\nlast", "a last line without an end");
        assert_eq!(read(&log, Query { tail: Some(2), ..Query::default() }).await, "\nlast");
        assert_eq!(read(&log, Query { tail: Some(0), ..Query::default() }).await, "");
        assert_eq!(read(&log, Query { limit: Some(5), ..Query::default() }).await, "one\nt");
        let stamped = read(&log, Query { timestamps: true, tail: Some(1), ..Query::default() }).await;
        assert_eq!(stamped, "2023-11-14T22:13:20.000000000Z last");
    }

    #[tokio::test(start_paused = true)]
    async fn since_leaves_older_lines_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = log(&folder);
        log.record(Stream::Stdout, &b"old\n"[..]).await.expect("recorded");
        tokio::time::sleep(Duration::from_secs(10)).await;
        log.record(Stream::Stderr, &b"new\n"[..]).await.expect("recorded");
        let since = Some(start() + Duration::from_secs(5));
        assert_eq!(read(&log, Query { since, ..Query::default() }).await, "new\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_sees_all_across_files_until_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = log(&folder);
        let follower = tokio::spawn({
            let log = log.clone();
            async move { read(&log, Query { follow: true, ..Query::default() }).await }
        });
        let mut expect = String::new();
        for number in 0..20 {
            let line = format!("line {number}\n");
            log.record(Stream::Stdout, line.as_bytes()).await.expect("recorded");
            expect += &line;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        log.end();
        assert_eq!(follower.await.expect("no panic"), expect);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "older files are gone");
        log.remove();
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_line_is_cut_in_storage_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = log(&folder);
        let long = "x".repeat(LONGEST_LINE + 5) + "\n";
        log.record(Stream::Stdout, long.as_bytes()).await.expect("recorded");
        assert_eq!(read(&log, Query::default()).await, long);
    }
}
