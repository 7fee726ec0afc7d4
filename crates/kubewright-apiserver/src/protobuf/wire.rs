//! The wire format (<https://protobuf.dev/programming-guides/encoding/>).
//!
//! Groups, which Kubernetes has never used, are rejected.

use super::error::ProtobufError;

/// Reads the fields of one message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// An encoded field.
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) payload: Payload<'a>,
}

/// The payload of a field, by its wire type.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next field, or `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<Field<'a>>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let illegal = || ProtobufError::IllegalTag(tag);
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or_else(illegal)?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(self.array()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                let (bytes, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
                self.rest = rest;
                Payload::Bytes(bytes)
            }
            5 => {
                self.array::<4>()?;
                Payload::Fixed32
            }
            _ => return Err(illegal()),
        };
        Ok(Some(Field { number, payload }))
    }

    /// Returns the numbers of a packed list.
    pub(super) fn packed(mut self, mut each: impl FnMut(u64)) -> Result<(), ProtobufError> {
        while !self.rest.is_empty() {
            each(self.varint()?);
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(ProtobufError::Truncated)?;
            self.rest = rest;
            // Only the lowest bit of the tenth byte fits.
            if shift == 63 && *byte > 1 {
                return Err(ProtobufError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Overflow)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }
}

impl<'a> Payload<'a> {
    /// Returns a string, a message or bytes. `field` is the name in errors.
    pub(super) fn bytes(self, field: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(self.mismatch(field)),
        }
    }

    /// Returns a string.
    pub(super) fn text(self, field: &str) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| ProtobufError::NotUtf8(field.to_owned()))
    }

    /// Returns an integer.
    pub(super) fn varint(self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            Self::Varint(number) => Ok(number),
            _ => Err(self.mismatch(field)),
        }
    }

    /// Returns a floating-point number.
    pub(super) fn double(self, field: &str) -> Result<f64, ProtobufError> {
        match self {
            Self::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            _ => Err(self.mismatch(field)),
        }
    }

    fn mismatch(self, field: &str) -> ProtobufError {
        let wire = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        };
        ProtobufError::WireType { field: field.to_owned(), wire }
    }
}
