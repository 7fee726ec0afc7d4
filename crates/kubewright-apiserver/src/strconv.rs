//! Errors of Go's number parser, which Kubernetes passes on to clients.

/// Returns the error of parsing a text that isn't an unsigned integer of 64 bits.
pub(crate) fn parse_uint(text: &str) -> String {
    error("ParseUint", text, text)
}

/// Returns the error of parsing a text that isn't an integer of 64 bits.
pub(crate) fn parse_int(text: &str) -> String {
    error("ParseInt", text, text.strip_prefix(['-', '+']).unwrap_or(text))
}

fn error(function: &str, text: &str, digits: &str) -> String {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {text:?}: {why}")
}
