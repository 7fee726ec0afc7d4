//! The form of files: a line that names format and content, followed by records with digests.
//!
//! A record is a header of 16 bytes and a body. The header contains the length of the body (four bytes, little endian),
//! the first eight bytes of the body's SHA-256 digest, and the first four of the digest of these twelve bytes, which
//! distinguish a wrong length from a record whose end is missing. A body ends with a line feed, so that its last byte
//! is never zero.

use std::io::{self, Read};

use ring::digest::{SHA256, digest};

use crate::storage::{ChangeKind, Key};

/// The format of the files that this version writes, and the newest that it reads.
pub(super) const FORMAT: u64 = 1;
/// The size of a record's header.
pub(super) const HEADER: usize = 16;
/// The maximum length of a body. Objects have at most 1.5 MiB, but their stored form can be longer than what was
/// limited.
const MAX_BODY: usize = 64 << 20;
/// The maximum length of the first line of a file.
const MAX_LINE: usize = 80;

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// An object after a write. In a snapshot, each object is such a record.
    Put(Written<'a>),
    /// The last state of an object that was removed.
    Remove(Written<'a>),
    /// The revision counter continues at this number, and earlier revisions can't be read.
    Floor(u64),
    /// A server has opened the directory; contains what identifies the time between two starts of the machine.
    Opened(&'a str),
    /// The server has closed the directory, and everything before is on the disk.
    Closed,
    /// The end of a snapshot; contains the number of its objects.
    End(u64),
}

/// A version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::storage) struct Written<'a> {
    pub(in crate::storage) revision: u64,
    pub(in crate::storage) storage: &'a str,
    pub(in crate::storage) namespace: &'a str,
    pub(in crate::storage) name: &'a str,
    /// The JSON text of the object.
    pub(in crate::storage) object: &'a [u8],
}

impl<'a> Written<'a> {
    pub(super) fn new(storage: &'a str, key: &'a Key, revision: u64, object: &'a [u8]) -> Self {
        Self { revision, storage, namespace: &key.namespace, name: &key.name, object }
    }
}

const PUT: u8 = b'P';
const REMOVE: u8 = b'R';
const FLOOR: u8 = b'F';
const OPENED: u8 = b'O';
const CLOSED: u8 = b'C';
const END: u8 = b'E';

impl<'a> Record<'a> {
    /// Returns the record of a change.
    pub(super) fn of_change(kind: ChangeKind, written: Written<'a>) -> Self {
        match kind {
            ChangeKind::Deleted => Self::Remove(written),
            ChangeKind::Added | ChangeKind::Modified => Self::Put(written),
        }
    }

    /// Replaces the content of `buffer` with the record in its written form.
    pub(super) fn encode(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        buffer.resize(HEADER, 0);
        match self {
            Self::Put(written) => written.encode(PUT, buffer)?,
            Self::Remove(written) => written.encode(REMOVE, buffer)?,
            Self::Floor(revision) => encode_number(FLOOR, *revision, buffer),
            Self::Opened(boot) => {
                buffer.push(OPENED);
                buffer.extend_from_slice(boot.as_bytes());
            }
            Self::Closed => buffer.push(CLOSED),
            Self::End(count) => encode_number(END, *count, buffer),
        }
        buffer.push(b'\n');
        let (header, body) = buffer.split_at_mut(HEADER);
        let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "the object is too large");
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_BODY).ok_or_else(too_long)?;
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..12].copy_from_slice(&hash::<8>(body));
        let check = hash::<4>(&header[..12]);
        header[12..].copy_from_slice(&check);
        Ok(())
    }

    /// Reads a body whose digest is right. `None` if it has an unknown form.
    pub(super) fn decode(body: &'a [u8]) -> Option<Self> {
        let (kind, rest) = body.strip_suffix(b"\n")?.split_first()?;
        let number = || Some(u64::from_le_bytes(rest.try_into().ok()?));
        Some(match *kind {
            PUT => Self::Put(Written::decode(rest)?),
            REMOVE => Self::Remove(Written::decode(rest)?),
            FLOOR => Self::Floor(number()?),
            OPENED => Self::Opened(std::str::from_utf8(rest).ok()?),
            CLOSED if rest.is_empty() => Self::Closed,
            END => Self::End(number()?),
            _ => return None,
        })
    }
}

impl<'a> Written<'a> {
    fn encode(&self, kind: u8, buffer: &mut Vec<u8>) -> io::Result<()> {
        encode_number(kind, self.revision, buffer);
        for text in [self.storage, self.namespace, self.name] {
            let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "the object's name is too long");
            let length = u16::try_from(text.len()).map_err(too_long)?;
            buffer.extend_from_slice(&length.to_le_bytes());
            buffer.extend_from_slice(text.as_bytes());
        }
        buffer.extend_from_slice(self.object);
        Ok(())
    }

    fn decode(body: &'a [u8]) -> Option<Self> {
        let (revision, mut rest) = body.split_first_chunk::<8>()?;
        let mut text = || {
            let (length, tail) = rest.split_first_chunk::<2>()?;
            let (text, tail) = tail.split_at_checked(u16::from_le_bytes(*length).into())?;
            rest = tail;
            std::str::from_utf8(text).ok()
        };
        let (storage, namespace, name) = (text()?, text()?, text()?);
        Some(Self { revision: u64::from_le_bytes(*revision), storage, namespace, name, object: rest })
    }
}

fn encode_number(kind: u8, number: u64, buffer: &mut Vec<u8>) {
    buffer.push(kind);
    buffer.extend_from_slice(&number.to_le_bytes());
}

/// Returns the first bytes of the SHA-256 digest.
fn hash<const LENGTH: usize>(bytes: &[u8]) -> [u8; LENGTH] {
    let digest = digest(&SHA256, bytes);
    let mut first = [0; LENGTH];
    first.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    first
}

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// The changes after a revision.
    Log,
    /// The objects at a revision.
    Snapshot,
    /// The credentials of the server, in one record.
    Credentials,
}

impl FileKind {
    /// Returns the first part of the names of these files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Snapshot => "snapshot",
            Self::Credentials => "credentials",
        }
    }
}

/// Returns the first line of a file.
pub(super) fn first_line(kind: FileKind, revision: u64) -> String {
    format!("kubewright {} {revision} format {FORMAT}\n", kind.name())
}

/// A reason not to read a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadLine {
    Newer(u64),
    Unexpected,
}

/// Checks the first line of a file.
pub(super) fn check_line(line: &[u8], kind: FileKind, revision: u64) -> Result<(), BadLine> {
    let line = std::str::from_utf8(line).map_err(|_| BadLine::Unexpected)?;
    let start = format!("kubewright {} {revision} format ", kind.name());
    let format = line.strip_prefix(&start).and_then(|rest| rest.strip_suffix('\n'));
    match format.and_then(|format| format.parse().ok()) {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(BadLine::Newer(newer)),
        _ => Err(BadLine::Unexpected),
    }
}

/// Reads the records of a file.
#[derive(Debug)]
pub(super) struct Reader<R> {
    source: R,
    /// The offset of the next record.
    offset: u64,
    buffer: Vec<u8>,
}

/// What a reader has found at its offset.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A record.
    Record(Record<'a>),
    /// The end of the file.
    End,
    /// The beginning of a record that was never completed: the file ends in it, or has only zeros from some place in
    /// it.
    Torn,
    /// Something else.
    Damaged(&'static str),
}

impl<R: Read> Reader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, offset: 0, buffer: Vec::new() }
    }

    /// Reads the first line; what there is of it, if there is none.
    pub(super) fn line(&mut self) -> io::Result<&[u8]> {
        self.buffer.clear();
        let mut byte = [0];
        while self.buffer.len() < MAX_LINE && self.source.read(&mut byte)? == 1 {
            self.buffer.push(byte[0]);
            if byte[0] == b'\n' {
                break;
            }
        }
        self.offset = self.buffer.len() as u64;
        Ok(&self.buffer)
    }

    /// Returns the offset up to which records were read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next record.
    pub(super) fn next(&mut self) -> io::Result<Found<'_>> {
        self.buffer.clear();
        match self.fill(HEADER)? {
            0 => return Ok(Found::End),
            HEADER => {}
            _ => return Ok(Found::Torn),
        }
        let header = &self.buffer[..HEADER];
        let length = header.first_chunk::<4>().map_or(0, |length| u32::from_le_bytes(*length)) as usize;
        if hash::<4>(&header[..12]) != header[12..] || length > MAX_BODY {
            return self.zeros_or("the header of a record");
        }
        if self.fill(length)? < length {
            return Ok(Found::Torn);
        }
        if hash::<8>(&self.buffer[HEADER..]) != self.buffer[4..12] {
            return self.zeros_or("a record whose digest is that of its header");
        }
        self.offset += self.buffer.len() as u64;
        Ok(match Record::decode(&self.buffer[HEADER..]) {
            Some(record) => Found::Record(record),
            None => Found::Damaged("a record of a known form"),
        })
    }

    /// Appends up to `length` bytes to the buffer, and returns their number.
    fn fill(&mut self, length: usize) -> io::Result<usize> {
        (&mut self.source).take(length as u64).read_to_end(&mut self.buffer)
    }

    /// Returns [`Found::Torn`] if the damaged record in the buffer ends with a zero and only zeros follow: a file
    /// system may have extended the file before the machine failed, without its content.
    fn zeros_or(&mut self, expected: &'static str) -> io::Result<Found<'static>> {
        let mut zeros = self.buffer.last() == Some(&0);
        let mut block = [0; 4096];
        while zeros {
            let count = self.source.read(&mut block)?;
            if count == 0 {
                return Ok(Found::Torn);
            }
            zeros = block[..count].iter().all(|byte| *byte == 0);
        }
        Ok(Found::Damaged(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record<'static>> {
        let written =
            Written { revision: 300, storage: "/pods", namespace: "ns", name: "a", object: br#"{"metadata":{}}"# };
        vec![
            Record::Put(written.clone()),
            Record::Remove(written),
            Record::Floor(1 << 40),
            Record::Opened("6b86b273"),
            Record::Closed,
            Record::End(0),
        ]
    }

    fn written(records: &[Record<'_>]) -> Vec<u8> {
        let (mut file, mut buffer) = (first_line(FileKind::Log, 7).into_bytes(), Vec::new());
        for record in records {
            record.encode(&mut buffer).unwrap();
            file.extend_from_slice(&buffer);
        }
        file
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let file = written(&records());
        let mut reader = Reader::new(&*file);
        assert_eq!(check_line(reader.line().unwrap(), FileKind::Log, 7), Ok(()));
        for expect in records() {
            assert!(matches!(reader.next().unwrap(), Found::Record(record) if record == expect), "{expect:?}");
        }
        assert!(matches!(reader.next().unwrap(), Found::End));
        assert_eq!(reader.offset(), file.len() as u64);
    }

    #[test]
    fn a_flipped_bit_is_damage_and_a_missing_end_is_not() {
        let file = written(&records());
        let start = first_line(FileKind::Log, 7).len();
        let end_of = |bytes: &[u8]| {
            let mut reader = Reader::new(bytes);
            reader.line().unwrap();
            loop {
                match reader.next().unwrap() {
                    Found::Record(_) => {}
                    Found::End => return "end",
                    Found::Torn => return "torn",
                    Found::Damaged(_) => return "damaged",
                }
            }
        };
        for place in start..file.len() {
            for bit in 0..8 {
                let mut flipped = file.clone();
                flipped[place] ^= 1 << bit;
                assert_eq!(end_of(&flipped), "damaged", "bit {bit} at {place}");
            }
            assert!(matches!(end_of(&file[..place]), "end" | "torn"), "cut at {place}");
            let mut zeros = file.clone();
            zeros[place..].fill(0);
            assert_eq!(end_of(&zeros), "torn", "zeros from {place}");
        }
    }

    #[test]
    fn a_newer_format_is_distinguished_from_another_file() {
        let check = |line: &str| check_line(line.as_bytes(), FileKind::Log, 7);
        assert_eq!(check("kubewright log 7 format 1\n"), Ok(()));
        assert_eq!(check("kubewright log 7 format 2\n"), Err(BadLine::Newer(2)));
        for line in ["kubewright log 8 format 1\n", "kubewright log 7 format 1", "kubewright log 7 format 0\n", ""] {
            assert_eq!(check(line), Err(BadLine::Unexpected), "{line}");
        }
    }
}
