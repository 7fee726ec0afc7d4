//! The tokens of packed bytes. A head byte has three bits of class and five bits of size or value; content may follow.

use std::{fmt, ops::RangeInclusive, str};

use jiff::Timestamp;

/// A UUID as the API server writes it, in 16 bytes instead of 36 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

/// The positions of the hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// The position of the first digit of each byte.
const PAIRS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

impl Uuid {
    /// Parses the text of a UUID in the form in which the API server writes it: lower case, with hyphens. Any other
    /// text is `None`, so that displaying the UUID gives the same text.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 36] = text.try_into().ok()?;
        if HYPHENS.iter().any(|at| text[*at] != b'-') {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, at) in bytes.iter_mut().zip(PAIRS) {
            *byte = hex_byte(text[at], text[at + 1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'-'; 36];
        for (byte, at) in self.0.iter().zip(PAIRS) {
            [text[at], text[at + 1]] = hex_digits(*byte);
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

/// A hash in hexadecimal, such as `containerd://9f2c…`, in one byte for two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash<'a> {
    /// The position in [`PREFIXES`].
    prefix: u8,
    bytes: &'a [u8],
}

/// What precedes the digits: nothing, an algorithm (images), or a container runtime (containers).
const PREFIXES: [&str; 5] = ["", "sha256:", "containerd://", "cri-o://", "docker://"];
/// The lengths of hashes, in bytes. Shorter ones gain little.
const HASHES: RangeInclusive<usize> = 16..=64;

impl fmt::Display for Hash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIXES.get(usize::from(self.prefix)).copied().unwrap_or_default())?;
        self.bytes.iter().try_for_each(|byte| f.write_str(str::from_utf8(&hex_digits(*byte)).unwrap_or_default()))
    }
}

/// Appends a string that the dictionary doesn't have.
pub(super) fn write_unknown(text: &[u8], out: &mut Vec<u8>) {
    let is_hash = (0..).zip(PREFIXES).any(|(number, prefix)| {
        text.strip_prefix(prefix.as_bytes()).is_some_and(|digits| write_hash(number, digits, out))
    });
    if !is_hash {
        write_text(text, out);
    }
}

/// Appends a hash and returns `true` if these are its digits in the form in which it is displayed.
fn write_hash(prefix: u8, digits: &[u8], out: &mut Vec<u8>) -> bool {
    let (pairs, odd) = digits.as_chunks();
    if !odd.is_empty() || !HASHES.contains(&pairs.len()) {
        return false;
    }
    let mut bytes = [0; *HASHES.end()];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let Some(parsed) = hex_byte(*high, *low) else { return false };
        *byte = parsed;
    }
    Token::Hash(Hash { prefix, bytes: &bytes[..pairs.len()] }).write(out);
    true
}

/// The byte of two lower-case hexadecimal digits.
fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    Some(digit(high)? << 4 | digit(low)?)
}

fn hex_digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0xf].map(|digit| if digit < 10 { b'0' + digit } else { b'a' + digit - 10 })
}

/// One token. A list or map is its begin, its values (or its keys and values in turn), and [`Token::End`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// `-1 - n`.
    Negative(u64),
    Float(f64),
    Text(&'a str),
    /// A string of the dictionary.
    Shared(u64),
    /// A list or map of the dictionary, with everything inside of it.
    SharedValue(u64),
    /// A string that is a UUID.
    Uuid(Uuid),
    /// A string that is a hash.
    Hash(Hash<'a>),
    /// A string that is a time in whole seconds, `2026-01-01T00:00:00Z`, as seconds since 1970.
    Time(u64),
    List,
    Map,
    End,
}

// The classes.
const SIMPLE: u8 = 0;
const UNSIGNED: u8 = 1;
const NEGATIVE: u8 = 2;
const TEXT: u8 = 3;
const SHARED: u8 = 4;
const TIME: u8 = 5;
const SHARED_VALUE: u8 = 6;
const HASH: u8 = 7;

// The values of `SIMPLE`.
const NULL: u64 = 0;
const FALSE: u64 = 1;
const TRUE: u64 = 2;
const FLOAT: u64 = 3;
const UUID: u64 = 4;
const LIST: u64 = 5;
const MAP: u64 = 6;
const END: u64 = 7;

/// The first value that doesn't fit the head. What exceeds it follows, seven bits per byte, lowest first.
const LONG: u64 = 31;

impl Token<'_> {
    /// Appends the token.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Null => head(out, SIMPLE, NULL),
            Self::Bool(value) => head(out, SIMPLE, if value { TRUE } else { FALSE }),
            Self::Unsigned(value) => head(out, UNSIGNED, value),
            Self::Negative(value) => head(out, NEGATIVE, value),
            Self::Float(value) => {
                head(out, SIMPLE, FLOAT);
                out.extend(value.to_bits().to_le_bytes());
            }
            Self::Text(text) => write_text(text.as_bytes(), out),
            Self::Shared(number) => head(out, SHARED, number),
            Self::SharedValue(number) => head(out, SHARED_VALUE, number),
            Self::Uuid(Uuid(bytes)) => {
                head(out, SIMPLE, UUID);
                out.extend(bytes);
            }
            Self::Hash(Hash { prefix, bytes }) => {
                head(out, HASH, bytes.len() as u64);
                out.push(prefix);
                out.extend(bytes);
            }
            Self::Time(seconds) => head(out, TIME, seconds),
            Self::List => head(out, SIMPLE, LIST),
            Self::Map => head(out, SIMPLE, MAP),
            Self::End => head(out, SIMPLE, END),
        }
    }
}

/// Appends a [`Token::Text`].
pub(super) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    head(out, TEXT, text.len() as u64);
    out.extend(text);
}

/// The head byte of a simple token.
const fn simple(value: u64) -> u8 {
    SIMPLE << 5 | value as u8
}

fn head(out: &mut Vec<u8>, class: u8, value: u64) {
    let small = value.min(LONG) as u8;
    out.push(class << 5 | small);
    if let Some(mut rest) = value.checked_sub(LONG) {
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
}

impl Token<'_> {
    /// Returns the short form of a string that needs no dictionary, if it has one.
    pub(super) fn short(text: &[u8]) -> Option<Self> {
        // The length alone rules out most strings.
        match text.len() {
            36 => Uuid::parse(text).map(Self::Uuid),
            20 => parse_time(text).map(Self::Time),
            _ => None,
        }
    }
}

/// Parses a time whose canonical text is exactly this one.
fn parse_time(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok().filter(|text| text.ends_with('Z'))?;
    let seconds = u64::try_from(text.parse::<Timestamp>().ok()?.as_second()).ok()?;
    show_time(seconds).filter(|shown| shown == text).map(|_| seconds)
}

/// The text of a [`Token::Time`].
pub(super) fn show_time(seconds: u64) -> Option<String> {
    Some(Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?.to_string())
}

/// An iterator over tokens. It ends at the end of the bytes, and at malformed ones.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The pieces that follow these bytes, each with the offset at which it begins.
    then: &'a [(&'a [u8], usize)],
}

impl<'a> Tokens<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, then: &[] }
    }

    /// Chains these bytes, which must not be empty, with other pieces, each from an offset on.
    pub(super) fn joined(bytes: &'a [u8], then: &'a [(&'a [u8], usize)]) -> Self {
        Self { bytes, at: 0, then }
    }

    /// The offset of the next token within its piece.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The number of pieces after the current one.
    pub(super) fn pieces_left(&self) -> usize {
        self.then.len()
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.clone().next()
    }

    /// Whether the entered list or map ends here.
    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.get(self.at).is_none_or(|head| *head == simple(END))
    }

    /// Whether no token is left.
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn is_at_null(&self) -> bool {
        self.bytes.get(self.at) == Some(&simple(NULL))
    }

    pub(super) fn is_at_map(&self) -> bool {
        self.bytes.get(self.at) == Some(&simple(MAP))
    }

    pub(super) fn is_at_list(&self) -> bool {
        self.bytes.get(self.at) == Some(&simple(LIST))
    }

    /// Returns the next token's bytes if it is text that is written in place, and advances. It is cheaper than
    /// [`Tokens::next`], because it doesn't validate UTF-8. Truncated text ends the iteration.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let head = *self.bytes.get(self.at)?;
        if head >> 5 != TEXT {
            return None;
        }
        self.byte()?;
        let length = self.number(head).and_then(|length| usize::try_from(length).ok());
        let text = length.and_then(|length| self.take(length));
        if text.is_none() {
            (self.bytes, self.at, self.then) = (&[], 0, &[]);
        }
        text
    }

    /// Skips a value and everything inside of it.
    pub(super) fn pass(&mut self) {
        let mut depth = 0;
        while let Some(change) = self.skip() {
            depth += change;
            if depth <= 0 {
                return;
            }
        }
    }

    /// Skips a token; returns the change of the nesting depth.
    fn skip(&mut self) -> Option<i32> {
        let head = self.byte()?;
        let value = self.number(head)?;
        let (length, change) = match (head >> 5, value) {
            (SIMPLE, LIST | MAP) => (0, 1),
            (SIMPLE, END) => (0, -1),
            (SIMPLE, FLOAT) => (8, 0),
            (SIMPLE, UUID) => (16, 0),
            (TEXT, length) => (usize::try_from(length).ok()?, 0),
            (HASH, length) => (usize::try_from(length).ok()?.checked_add(1)?, 0),
            _ => (0, 0),
        };
        if length > 0 {
            self.take(length)?;
        }
        Some(change)
    }

    /// Returns the bytes of a value, including everything inside of it, and advances.
    pub(super) fn value(&mut self) -> &'a [u8] {
        let from = self.at;
        self.pass();
        self.bytes.get(from..self.at).unwrap_or_default()
    }

    /// [`Tokens::value`], faster if the value equals `known`.
    pub(super) fn value_like(&mut self, known: &[u8]) -> &'a [u8] {
        match self.bytes.get(self.at..).and_then(|bytes| bytes.get(..known.len())) {
            // Values are self-delimiting, so no value is a prefix of another.
            Some(same) if same == known && !known.is_empty() => {
                self.at += known.len();
                self.turn();
                same
            }
            _ => self.value(),
        }
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..length)?;
        self.at += length;
        self.turn();
        Some(taken)
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        self.turn();
        Some(byte)
    }

    /// Continues with the next piece at the end of one.
    #[inline]
    fn turn(&mut self) {
        if self.at >= self.bytes.len() && !self.then.is_empty() {
            self.next_piece();
        }
    }

    #[cold]
    fn next_piece(&mut self) {
        while self.at >= self.bytes.len()
            && let Some((next, rest)) = self.then.split_first()
        {
            (self.bytes, self.at) = *next;
            self.then = rest;
        }
    }

    /// Returns the value in the head byte, or the one that follows it.
    #[inline]
    fn number(&mut self, head: u8) -> Option<u64> {
        let small = u64::from(head & 0x1f);
        if small < LONG { Some(small) } else { self.long_number() }
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut value = LONG;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value = value.checked_add(u64::from(byte & 0x7f).checked_shl(shift)?)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let head = self.byte()?;
        let value = self.number(head)?;
        Some(match head >> 5 {
            SIMPLE => match value {
                NULL => Token::Null,
                FALSE => Token::Bool(false),
                TRUE => Token::Bool(true),
                FLOAT => Token::Float(f64::from_bits(u64::from_le_bytes(self.take(8)?.try_into().ok()?))),
                UUID => Token::Uuid(Uuid(self.take(16)?.try_into().ok()?)),
                LIST => Token::List,
                MAP => Token::Map,
                END => Token::End,
                _ => return None,
            },
            UNSIGNED => Token::Unsigned(value),
            NEGATIVE => Token::Negative(value),
            TEXT => Token::Text(str::from_utf8(self.take(usize::try_from(value).ok()?)?).ok()?),
            SHARED => Token::Shared(value),
            SHARED_VALUE => Token::SharedValue(value),
            TIME => Token::Time(value),
            HASH => {
                let prefix = self.byte()?;
                Token::Hash(Hash { prefix, bytes: self.take(usize::try_from(value).ok()?)? })
            }
            _ => return None,
        })
    }
}
