//! The syntax of the `fieldPath` of validation rules, such as `.spec.labels['a.b']`.

use super::{Place, unsupported};

/// Returns whether a path refers to a field of the schema (`ValidFieldPath` in
/// `apiextensions-apiserver/pkg/apiserver/schema/cel`). It isn't checked if the schema isn't structural.
pub(super) fn is_valid(place: &Place<'_>, path: &str) -> bool {
    if unsupported::find(place).is_some() {
        return true;
    }
    let mut place = place.clone();
    let mut rest = path;
    while !rest.is_empty() {
        let Some((name, after)) = step(rest) else { return false };
        let Some(inner) = field(&place, &name) else { return false };
        (place, rest) = (inner, after);
    }
    true
}

/// Splits off the first step, which is a name after a dot or a quoted name in brackets.
fn step(path: &str) -> Option<(String, &str)> {
    if let Some(quoted) = path.strip_prefix("['") {
        let end = closing_quote(quoted)?;
        let rest = quoted.get(end + 1..)?.strip_prefix(']')?;
        return Some((unescape(&quoted[..end])?, rest));
    }
    let named = path.strip_prefix('.')?;
    let end = named.find(['.', '[', ']']).unwrap_or(named.len());
    (end > 0).then(|| (named[..end].to_owned(), &named[end..]))
}

/// Returns the place of the first quote that isn't escaped.
fn closing_quote(text: &str) -> Option<usize> {
    text.match_indices('\'').map(|(place, _)| place).find(|place| !text[..*place].ends_with('\\'))
}

/// Replaces the escapes of a quoted name.
fn unescape(text: &str) -> Option<String> {
    let mut name = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        name.push(match c {
            '\\' => match chars.next()? {
                escaped @ ('\'' | '\\') => escaped,
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                _ => return None,
            },
            c => c,
        });
    }
    Some(name)
}

/// Returns the schema of a field. A schema with properties has no others.
fn field<'a>(place: &Place<'a>, name: &str) -> Option<Place<'a>> {
    if place.names().is_empty() { place.child("additionalProperties") } else { place.property(name) }
}
