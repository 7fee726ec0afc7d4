//! Reading a data directory: the latest snapshot, and the logs since.

use std::{
    fs::{self, File},
    io::{BufReader, Write},
    path::Path,
};

use super::{
    ChangeLog, DiskOptions,
    directory::{Directory, Files},
    error::DataDirError,
    record::{BadLine, FORMAT, FileKind, Found, Reader, Record, Written, check_line},
};
use crate::storage::FIRST_REVISION;

/// How far the revision counter advances if the machine has failed, so that no revision is used twice that someone may
/// have seen, but that wasn't on the disk. Far more changes than are made between two syncs.
const LOST_AT_MOST: u64 = 1_000_000;

/// What receives the content of a data directory.
pub(in crate::storage) trait Restore {
    /// Adds an object of a snapshot.
    ///
    /// # Errors
    /// Returns what was expected instead.
    fn object(&mut self, written: &Written<'_>) -> Result<(), String>;

    /// Repeats a change.
    ///
    /// # Errors
    /// Returns what was expected instead.
    fn change(&mut self, removed: bool, written: &Written<'_>) -> Result<(), String>;

    /// Sets the revision counter and forgets the history.
    ///
    /// # Errors
    /// Returns what was expected instead.
    fn set_floor(&mut self, revision: u64) -> Result<(), String>;

    /// Returns the revision counter.
    fn revision(&self) -> u64;
}

/// Opens a data directory, which is created if it doesn't exist, and restores what it contains.
///
/// # Errors
/// If another server uses it, if it is damaged or newer, or if it can't be read or written. A record at the end of the
/// log that was never completed isn't an error: its change wasn't answered. It is cut off.
pub(in crate::storage) fn open(options: DiskOptions, store: &mut impl Restore) -> Result<ChangeLog, DataDirError> {
    let directory = Directory::lock(&options.path)?;
    let Files { snapshots, logs, .. } = directory.files()?;
    if logs.is_empty() && snapshots.is_empty() {
        let failed = DataDirError::io("create", &directory.file(FileKind::Log, FIRST_REVISION));
        let (file, ()) = directory.create(FileKind::Log, FIRST_REVISION, |_| Ok(())).map_err(failed)?;
        return begin(directory, FIRST_REVISION, file, options, None);
    }
    let base = snapshots.last().copied().unwrap_or(FIRST_REVISION);
    if snapshots.is_empty()
        && let Some(first) = logs.first().filter(|first| **first != FIRST_REVISION)
    {
        return Err(DataDirError::Missing { path: directory.file(FileKind::Snapshot, *first) });
    }
    let logs: Vec<_> = logs.into_iter().filter(|revision| *revision >= base).collect();
    let Some(last) = logs.last().copied().filter(|_| logs.first() == Some(&base)) else {
        return Err(DataDirError::Missing { path: directory.file(FileKind::Log, base) });
    };
    if !snapshots.is_empty() {
        read_snapshot(&directory.file(FileKind::Snapshot, base), base, store)?;
    }
    let mut end = End::default();
    for revision in logs {
        let path = directory.file(FileKind::Log, revision);
        if revision != store.revision() {
            let path = directory.file(FileKind::Log, store.revision());
            return Err(DataDirError::Missing { path });
        }
        read_log(&path, revision, revision == last, &mut end, store)?;
    }
    let path = directory.file(FileKind::Log, last);
    let file = File::options().append(true).open(&path).map_err(DataDirError::io("open", &path))?;
    if end.torn {
        tracing::warn!(path = %path.display(), offset = end.offset, "cutting off a change that was never completed");
        file.set_len(end.offset).map_err(DataDirError::io("shorten", &path))?;
    }
    directory.remove_replaced(base);
    // What was seen before the machine failed may be lost.
    let boot = boot_id();
    let lost = end.opened.is_some_and(|opened| opened.is_empty() || opened != boot);
    let floor = lost.then(|| store.revision().saturating_add(LOST_AT_MOST));
    if let Some(floor) = floor {
        tracing::warn!(
            revision = floor,
            "the machine stopped while the cluster ran; resource versions continue further on"
        );
        // The revision has just been increased, so the store accepts it.
        let _ = store.set_floor(floor);
    }
    begin(directory, last, file, options, floor)
}

/// Reads the credentials of the server; `make` returns them if there are none yet.
///
/// # Errors
/// If they can't be read or written, or are damaged.
pub(super) fn credentials<E: From<DataDirError>>(
    directory: &Directory,
    make: impl FnOnce() -> Result<Vec<u8>, E>,
) -> Result<Vec<u8>, E> {
    let path = directory.file(FileKind::Credentials, 0);
    if !path.exists() {
        let text = make()?;
        let written = Written { revision: 0, storage: "", namespace: "", name: "", object: &text };
        let write = |file: &mut File| {
            let mut buffer = Vec::new();
            Record::Put(written).encode(&mut buffer)?;
            file.write_all(&buffer)
        };
        directory.create(FileKind::Credentials, 0, write).map_err(DataDirError::io("write", &path))?;
        return Ok(text);
    }
    let mut reader = open_file(&path, FileKind::Credentials, 0)?;
    let offset = reader.offset();
    let text = match reader.next().map_err(DataDirError::io("read", &path))? {
        Found::Record(Record::Put(written)) => written.object.to_owned(),
        _ => return Err(damaged(&path, offset, "a record with credentials").into()),
    };
    let offset = reader.offset();
    match reader.next().map_err(DataDirError::io("read", &path))? {
        Found::End => Ok(text),
        _ => Err(damaged(&path, offset, "the end of the file").into()),
    }
}

/// Continues a log.
fn begin(
    directory: Directory,
    revision: u64,
    file: File,
    options: DiskOptions,
    floor: Option<u64>,
) -> Result<ChangeLog, DataDirError> {
    let path = directory.file(FileKind::Log, revision);
    let failed = || DataDirError::io("write", &path);
    let length = file.metadata().map_err(failed())?.len();
    let mut log = ChangeLog::new(directory, revision, file, length, options).map_err(failed())?;
    let boot = boot_id();
    let floor = floor.map(Record::Floor);
    for record in floor.iter().chain([&Record::Opened(&boot)]) {
        log.append(record)?;
    }
    log.file.sync_all().map_err(failed())?;
    Ok(log)
}

/// Returns what identifies the time since the machine has started; empty if the system doesn't tell.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The end of the logs.
#[derive(Debug, Default)]
struct End {
    /// The offset behind the last complete record.
    offset: u64,
    /// Whether the beginning of another record follows.
    torn: bool,
    /// What the last server that opened the directory, and didn't close it, has recorded.
    opened: Option<String>,
}

fn open_file(path: &Path, kind: FileKind, revision: u64) -> Result<Reader<BufReader<File>>, DataDirError> {
    let file = File::open(path).map_err(DataDirError::io("open", path))?;
    let mut reader = Reader::new(BufReader::with_capacity(1 << 20, file));
    let line = reader.line().map_err(DataDirError::io("read", path))?;
    check_line(line, kind, revision).map_err(|bad| match bad {
        BadLine::Newer(format) => DataDirError::Newer { path: path.to_owned(), format, supported: FORMAT },
        BadLine::Unexpected => damaged(path, 0, format!("the first line of a {} at revision {revision}", kind.name())),
    })?;
    Ok(reader)
}

fn damaged(path: &Path, offset: u64, expected: impl Into<String>) -> DataDirError {
    DataDirError::Damaged { path: path.to_owned(), offset, expected: expected.into() }
}

fn read_snapshot(path: &Path, revision: u64, store: &mut impl Restore) -> Result<(), DataDirError> {
    let mut reader = open_file(path, FileKind::Snapshot, revision)?;
    let (mut count, mut complete) = (0, false);
    loop {
        let offset = reader.offset();
        let expected = match reader.next().map_err(DataDirError::io("read", path))? {
            Found::Record(Record::Put(written)) if !complete && written.revision <= revision => {
                count += 1;
                store.object(&written).err()
            }
            Found::Record(Record::End(counted)) if !complete && counted == count => {
                complete = true;
                None
            }
            Found::End if complete => break,
            Found::Damaged(expected) => Some(expected.to_owned()),
            _ if complete => Some("the end of the file".to_owned()),
            _ => Some("an object, or the number of objects before".to_owned()),
        };
        if let Some(expected) = expected {
            return Err(damaged(path, offset, expected));
        }
    }
    store.set_floor(revision).map_err(|expected| damaged(path, 0, expected))
}

/// Repeats the changes of a log. Only the last log may end with a record that was never completed.
fn read_log(
    path: &Path,
    revision: u64,
    last: bool,
    end: &mut End,
    store: &mut impl Restore,
) -> Result<(), DataDirError> {
    let mut reader = open_file(path, FileKind::Log, revision)?;
    loop {
        let offset = reader.offset();
        end.offset = offset;
        let result = match reader.next().map_err(DataDirError::io("read", path))? {
            Found::Record(Record::Put(written)) => store.change(false, &written),
            Found::Record(Record::Remove(written)) => store.change(true, &written),
            Found::Record(Record::Floor(revision)) => store.set_floor(revision),
            Found::Record(Record::Opened(boot)) => {
                end.opened = Some(boot.to_owned());
                Ok(())
            }
            Found::Record(Record::Closed) => {
                end.opened = None;
                Ok(())
            }
            Found::Record(Record::End(_)) => Err("a change".to_owned()),
            Found::Damaged(expected) => Err(expected.to_owned()),
            Found::Torn if last => {
                end.torn = true;
                return Ok(());
            }
            Found::Torn => Err("a complete record, since another log follows".to_owned()),
            Found::End => return Ok(()),
        };
        result.map_err(|expected| damaged(path, offset, expected))?;
    }
}
