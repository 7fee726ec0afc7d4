//! Query parameters and other texts as Kubernetes reads them: flags, and the errors of Go's parsers.

/// Returns whether the value of a flag means true: everything but `false`, in any case, and `0`.
pub(crate) fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

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
