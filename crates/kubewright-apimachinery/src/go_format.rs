//! The notations of values in Go: `%v`, `%#v`, `%T` and `%q`, which some messages of kube-apiserver contain, and those
//! of booleans.

use serde_json::Value;

/// Returns a value as Go prints it: `map[a:1 b:[x y]]`.
///
/// ```
/// use kubewright_apimachinery::go_format::plain;
///
/// assert_eq!(plain(&serde_json::json!({"b": ["x", null], "a": 1.5})), "map[a:1.5 b:[x <nil>]]");
/// ```
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// Returns the value of a boolean as Go's `strconv.ParseBool` reads it, or `None` for other texts.
///
/// ```
/// use kubewright_apimachinery::go_format::parse_bool;
///
/// assert_eq!((parse_bool("T"), parse_bool("0"), parse_bool("yes")), (Some(true), Some(false), None));
/// ```
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Returns a text in quotes, as Go's `%q` does: with escapes for quotes, backslashes and what isn't printable.
///
/// ```
/// use kubewright_apimachinery::go_format::quoted;
///
/// assert_eq!(quoted("a\"é\n\u{1}\u{200b}"), r#""a\"é\n\x01\u200b""#);
/// ```
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted += "\\n",
            '\r' => quoted += "\\r",
            '\t' => quoted += "\\t",
            '\u{7}' => quoted += "\\a",
            '\u{8}' => quoted += "\\b",
            '\u{b}' => quoted += "\\v",
            '\u{c}' => quoted += "\\f",
            c if is_printable(c) => quoted.push(c),
            c => {
                quoted += &match u32::from(c) {
                    code @ ..0x80 => format!("\\x{code:02x}"),
                    code @ ..0x1_0000 => format!("\\u{code:04x}"),
                    code => format!("\\U{code:08x}"),
                }
            }
        }
    }
    quoted.push('"');
    quoted
}

fn is_printable(c: char) -> bool {
    // After another character, combining ones are printable too.
    c.is_ascii_graphic()
        || c == ' '
        || !c.is_ascii() && !['a', c].iter().collect::<String>().escape_debug().any(|c| c == '\\')
}

/// Returns the type of a decoded value in Go: `string`, `map[string]interface {}`.
#[must_use]
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns a list of strings in the syntax of Go: `[]string{"a", "b"}`, and `[]string(nil)` if it is empty.
pub fn strings<S: AsRef<str>>(strings: impl IntoIterator<Item = S>) -> String {
    let strings: Vec<_> = strings.into_iter().map(|one| format!("{:?}", one.as_ref())).collect();
    if strings.is_empty() { "[]string(nil)".into() } else { format!("[]string{{{}}}", strings.join(", ")) }
}

/// Returns a value in the syntax of Go: `map[string]interface {}{"a":1}`.
///
/// ```
/// use kubewright_apimachinery::go_format::syntax;
///
/// let value = serde_json::json!({"a": ["x", 1]});
/// assert_eq!(syntax(&value), r#"map[string]interface {}{"a":[]interface {}{"x", 1}}"#);
/// ```
#[must_use]
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(syntax).collect();
            format!("{}{{{}}}", type_name(value), items.join(", "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<_> =
                fields.into_iter().map(|(name, value)| format!("{name:?}:{}", syntax(value))).collect();
            format!("{}{{{}}}", type_name(value), fields.join(", "))
        }
        scalar => scalar.to_string(),
    }
}
