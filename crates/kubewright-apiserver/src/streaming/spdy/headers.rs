//! Blocks of headers in SPDY/3.1, compressed by one zlib stream per direction
//! (<https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/#TOC-2.6.10-Name-Value-Header-Block>).

use std::{collections::BTreeMap, fmt, io};

use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_HAS_MORE_INPUT},
};

/// The text that both sides have as the beginning of the compressed stream.
const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");
/// The size of the window of the compression, a power of two.
const WINDOW: usize = 32 << 10;
/// The maximum size of a block.
const MAX_BLOCK: usize = 64 << 10;

/// Headers with names in lower case.
pub(in super::super) type Headers = BTreeMap<String, String>;

/// Reads the header blocks of a client.
pub(super) struct HeaderReader {
    inflate: Box<DecompressorOxide>,
    window: Vec<u8>,
    position: usize,
    has_begun: bool,
}

impl fmt::Debug for HeaderReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderReader").field("position", &self.position).finish_non_exhaustive()
    }
}

impl HeaderReader {
    pub(super) fn new() -> Self {
        let inflate = Box::new(DecompressorOxide::new());
        Self { inflate, window: vec![0; WINDOW], position: 0, has_begun: false }
    }

    /// Decompresses and parses a block.
    pub(super) fn read(&mut self, mut block: &[u8]) -> io::Result<Headers> {
        if !self.has_begun {
            block = self.begin(block)?;
        }
        let mut text = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.inflate, block, &mut self.window, self.position, TINFL_FLAG_HAS_MORE_INPUT);
            text.extend_from_slice(&self.window[self.position..self.position + written]);
            self.position = (self.position + written) % WINDOW;
            block = block.get(read..).unwrap_or_default();
            if text.len() > MAX_BLOCK {
                return Err(malformed("the headers are too large"));
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput | TINFLStatus::Done if block.is_empty() => break,
                _ => return Err(malformed("the headers are not compressed correctly")),
            }
        }
        parse(&text).ok_or_else(|| malformed("the headers end too early"))
    }

    /// Skips the beginning of the zlib stream.
    fn begin<'a>(&mut self, block: &'a [u8]) -> io::Result<&'a [u8]> {
        const HAS_DICTIONARY: u8 = 0x20;
        self.has_begun = true;
        let (flags, length) = match block.get(1) {
            Some(flags) if flags & HAS_DICTIONARY != 0 => (*flags, 6),
            Some(flags) => (*flags, 2),
            None => return Err(malformed("the headers are empty")),
        };
        if flags & HAS_DICTIONARY != 0 {
            self.window[..DICTIONARY.len()].copy_from_slice(DICTIONARY);
            self.position = DICTIONARY.len();
        }
        block.get(length..).ok_or_else(|| malformed("the headers end too early"))
    }
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn parse(mut text: &[u8]) -> Option<Headers> {
    let mut headers = Headers::new();
    for _ in 0..number(&mut text)? {
        let (name, value) = (string(&mut text)?, string(&mut text)?);
        headers.insert(name.to_lowercase(), value);
    }
    Some(headers)
}

fn number(text: &mut &[u8]) -> Option<usize> {
    let (first, rest) = text.split_first_chunk::<4>()?;
    *text = rest;
    usize::try_from(u32::from_be_bytes(*first)).ok()
}

fn string(text: &mut &[u8]) -> Option<String> {
    let length = number(text)?;
    let (first, rest) = text.split_at_checked(length)?;
    *text = rest;
    Some(String::from_utf8_lossy(first).into_owned())
}

/// Returns a block with these headers. The first one of a direction begins the zlib stream.
pub(super) fn block(first: bool, headers: &Headers) -> Vec<u8> {
    let mut text = length(headers.len()).to_vec();
    for part in headers.iter().flat_map(|(name, value)| [name, value]) {
        text.extend(length(part.len()));
        text.extend(part.as_bytes());
    }
    let mut block = if first { vec![0x78, 0x01] } else { Vec::new() };
    // Uncompressed blocks, and an empty one, which makes the reader flush.
    for part in text.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(part);
    }
    block
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn blocks_are_read_with_the_dictionary_and_those_before() {
        let mut reader = HeaderReader::new();
        let first = reader.read(&bytes("78f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45e01c6061606100a4398b20d198094ade8c0600000000ffff")).unwrap();
        let expect = |kind: &str| -> Headers {
            [("port", "8080"), ("requestid", "0"), ("streamtype", kind)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        };
        assert_eq!(first, expect("error"));
        assert_eq!(reader.read(&bytes("c2aa19540e2512d60b000000ffff")).unwrap(), expect("data"));
    }

    #[test]
    fn our_blocks_are_read_back() {
        let mut reader = HeaderReader::new();
        let headers = Headers::from([("streamtype".to_owned(), "stdout".to_owned())]);
        assert_eq!(reader.read(&block(true, &Headers::new())).unwrap(), Headers::new());
        assert_eq!(reader.read(&block(false, &headers)).unwrap(), headers);
    }

    #[test]
    fn malformed_blocks_are_errors() {
        for block in [&[][..], &[0x78], &[0x78, 0xbb, 1, 2], &[0x78, 1, 0xff, 0xff], &[0x78, 1, 0, 1, 0, 0xfe, 0xff, 9]]
        {
            HeaderReader::new().read(block).unwrap_err();
        }
    }
}
