//! Messages that aren't JSON objects.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    encode,
    error::ProtobufError,
    wire::{Field, Payload, Reader},
};
use crate::meta;

/// The start of the year 1, the first year of RFC 3339 and Go, in seconds.
const FIRST_SECOND: i64 = -62_135_596_800;

/// Calls a function with the payload of each field with a number.
pub(super) fn each<'a>(
    bytes: &'a [u8],
    wanted: u32,
    mut visit: impl FnMut(Payload<'a>) -> Result<(), ProtobufError>,
) -> Result<(), ProtobufError> {
    let mut reader = Reader::new(bytes);
    while let Some(Field { number, payload }) = reader.field()? {
        if number == wanted {
            visit(payload)?;
        }
    }
    Ok(())
}

/// Returns the last field with a number.
pub(super) fn last(bytes: &[u8], wanted: u32) -> Result<Option<Payload<'_>>, ProtobufError> {
    let mut found = None;
    each(bytes, wanted, |payload| {
        found = Some(payload);
        Ok(())
    })?;
    Ok(found)
}

/// Decodes a `metav1.Time`. Go encodes the zero time as an empty message, and the start of 1970 as zero seconds.
pub(super) fn time(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    Ok(meta::time(timestamp(name, number(name, last(bytes, 1)?)?, 0)?))
}

/// Decodes a `metav1.MicroTime`.
pub(super) fn micro_time(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let at = timestamp(name, number(name, last(bytes, 1)?)?, number(name, last(bytes, 2)?)?)?;
    Ok(at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into())
}

/// Writes a time as a `Timestamp`, with its fraction if it is a `metav1.MicroTime`. An unreadable time is empty.
pub(super) fn write_time(text: &str, micros: bool, out: &mut Vec<u8>) {
    let Ok(at) = text.parse::<Timestamp>() else { return };
    let nanos = if micros { at.subsec_nanosecond() / 1000 * 1000 } else { 0 };
    // The fraction of a time before 1970 is negative, and counts from the second before it in protobuf.
    let (seconds, nanos) =
        if nanos < 0 { (at.as_second() - 1, nanos + 1_000_000_000) } else { (at.as_second(), nanos) };
    encode::integer(1, seconds, out);
    encode::integer(2, nanos.into(), out);
}

/// Decodes an `intstr.IntOrString`.
pub(super) fn int_or_string(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    match number(name, last(bytes, 1)?)? {
        0 => Ok(number(name, last(bytes, 2)?)?.into()),
        1 => Ok(last(bytes, 3)?.map_or(Ok(""), |payload| payload.text(name))?.into()),
        _ => Err(ProtobufError::value(name, "impossible IntOrString.Type")),
    }
}

/// Returns a number, 0 if absent.
#[expect(clippy::cast_possible_wrap, reason = "two's complement is how numbers are written")]
fn number(name: &str, payload: Option<Payload<'_>>) -> Result<i64, ProtobufError> {
    payload.map_or(Ok(0), |payload| payload.varint(name).map(|number| number as i64))
}

fn timestamp(name: &str, seconds: i64, nanos: i64) -> Result<Timestamp, ProtobufError> {
    let nanos = i32::try_from(nanos).ok().filter(|nanos| (0..1_000_000_000).contains(nanos));
    let at = nanos.filter(|_| seconds >= FIRST_SECOND).and_then(|nanos| Timestamp::new(seconds, nanos).ok());
    at.ok_or_else(|| ProtobufError::value(name, "the time is out of range"))
}
