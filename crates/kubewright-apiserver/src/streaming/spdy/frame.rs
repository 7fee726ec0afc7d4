//! Frames of SPDY/3.1 (<https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/#TOC-2.2-Framing>).

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};

use super::headers::{HeaderReader, Headers, block};

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// The first bits of control frames: the mark, and the version 3.
const CONTROL: u32 = 0x8003_0000;
/// The flag of the last frame of a stream.
const FIN: u8 = 1;
/// The status of a stream that is refused.
const REFUSED_STREAM: u32 = 3;

/// The maximum length of a control frame.
const MAX_CONTROL: usize = 64 << 10;
/// The maximum size of the chunks into which data frames are split.
const CHUNK: usize = 32 << 10;

/// A frame of the other side.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A new stream. `ended` means that no data follows.
    Open { stream: u32, headers: Headers, ended: bool },
    /// Data of a stream.
    Data { stream: u32, bytes: Bytes, ended: bool },
    /// The end of a stream in both directions.
    Reset(u32),
    /// A ping to answer.
    Ping(u32),
    /// The other side opens no further streams.
    GoAway,
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    stream: BufReader<R>,
    headers: HeaderReader,
    /// The rest of a data frame: the stream, the length, and whether it is the last frame.
    rest: Option<(u32, usize, bool)>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        Self { stream: BufReader::new(stream), headers: HeaderReader::new(), rest: None }
    }

    /// Returns the next frame; `None` at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Received>> {
        loop {
            if let Some(rest) = self.rest.take() {
                return self.data(rest).await.map(Some);
            }
            let word = match self.stream.read_u32().await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                word => word?,
            };
            let flags = self.stream.read_u8().await?;
            let length = self.length().await?;
            if word & 0x8000_0000 == 0 {
                self.rest = Some((word, length, flags & FIN != 0));
                continue;
            }
            if length > MAX_CONTROL {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a control frame is too long"));
            }
            let mut content = vec![0; length];
            self.stream.read_exact(&mut content).await?;
            if let Some(frame) = self.control((word & 0xffff) as u16, flags, &content)? {
                return Ok(Some(frame));
            }
        }
    }

    async fn length(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 4];
        self.stream.read_exact(&mut bytes[1..]).await?;
        Ok(u32::from_be_bytes(bytes) as usize)
    }

    async fn data(&mut self, (stream, length, ended): (u32, usize, bool)) -> io::Result<Received> {
        let mut bytes = BytesMut::zeroed(length.min(CHUNK));
        self.stream.read_exact(&mut bytes).await?;
        let rest = length - bytes.len();
        if rest > 0 {
            self.rest = Some((stream, rest, ended));
        }
        Ok(Received::Data { stream, bytes: bytes.freeze(), ended: ended && rest == 0 })
    }

    fn control(&mut self, kind: u16, flags: u8, content: &[u8]) -> io::Result<Option<Received>> {
        let first = || {
            let bytes = content.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
            bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a control frame is too short"))
        };
        Ok(match kind {
            SYN_STREAM => {
                // After the stream come the associated stream, the priority and a slot.
                let headers = self.headers.read(content.get(10..).unwrap_or_default())?;
                Some(Received::Open { stream: first()? & 0x7fff_ffff, headers, ended: flags & FIN != 0 })
            }
            RST_STREAM => Some(Received::Reset(first()? & 0x7fff_ffff)),
            PING => Some(Received::Ping(first()?)),
            GOAWAY => Some(Received::GoAway),
            // Settings and windows: frames are as short as the queues behind them.
            _ => None,
        })
    }
}

/// Returns a data frame, and whether it is the last one of its stream.
pub(super) fn data(stream: u32, bytes: &[u8], ended: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(bytes.len() + 8);
    frame.put_u32(stream);
    put_length(&mut frame, if ended { FIN } else { 0 }, bytes.len());
    frame.put_slice(bytes);
    frame.freeze()
}

/// Returns the opening of a stream. `first` is true for the first frame with headers of a connection.
pub(super) fn open(stream: u32, headers: &Headers, first: bool) -> Bytes {
    let mut content = stream.to_be_bytes().to_vec();
    // No associated stream, the highest priority, no slot.
    content.extend([0; 6]);
    content.extend(block(first, headers));
    control(SYN_STREAM, &content)
}

/// Returns the acceptance of a stream. `first` is true for the first frame with headers of a connection.
pub(super) fn accept(stream: u32, first: bool) -> Bytes {
    let mut content = stream.to_be_bytes().to_vec();
    content.extend(block(first, &Headers::new()));
    control(SYN_REPLY, &content)
}

/// Returns the refusal of a stream.
pub(super) fn refuse(stream: u32) -> Bytes {
    control(RST_STREAM, &[stream.to_be_bytes(), REFUSED_STREAM.to_be_bytes()].concat())
}

/// Returns the answer to a ping.
pub(super) fn pong(id: u32) -> Bytes {
    control(PING, &id.to_be_bytes())
}

fn control(kind: u16, content: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(content.len() + 8);
    frame.put_u32(CONTROL | u32::from(kind));
    put_length(&mut frame, 0, content.len());
    frame.put_slice(content);
    frame.freeze()
}

/// Writes flags and a length, which have 8 and 24 bits. Our frames are shorter than that.
fn put_length(frame: &mut BytesMut, flags: u8, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX) & 0x00ff_ffff;
    frame.put_u32(u32::from(flags) << 24 | length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_back() {
        let long = vec![b'x'; CHUNK + 1];
        let headers = Headers::from([("streamtype".to_owned(), "error".to_owned())]);
        let opening = open(9, &headers, true);
        let bytes = [data(1, b"ab", false), pong(7), refuse(3), opening, data(5, &long, true)].concat();
        let mut reader = FrameReader::new(&*bytes);
        let mut next = async || reader.next().await.unwrap();
        assert_eq!(next().await, Some(Received::Data { stream: 1, bytes: Bytes::from("ab"), ended: false }));
        assert_eq!(next().await, Some(Received::Ping(7)));
        assert_eq!(next().await, Some(Received::Reset(3)));
        assert_eq!(next().await, Some(Received::Open { stream: 9, headers, ended: false }));
        let chunk = Bytes::from(vec![b'x'; CHUNK]);
        assert_eq!(next().await, Some(Received::Data { stream: 5, bytes: chunk, ended: false }));
        assert_eq!(next().await, Some(Received::Data { stream: 5, bytes: Bytes::from("x"), ended: true }));
        assert_eq!(next().await, None);
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_or_too_short_is_an_error() {
        let mut long = control(PING, &[0; 8]).to_vec();
        long[5] = 0xff;
        for bytes in [&long[..], &control(PING, &[0; 3]), &control(SYN_STREAM, &[0; 4])] {
            FrameReader::new(bytes).next().await.unwrap_err();
        }
    }
}
