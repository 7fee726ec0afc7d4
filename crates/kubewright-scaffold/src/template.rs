//! Rendering of templates.
//!
//! A template is a file with placeholders of the form `@name@`, and has neither conditions nor loops. Optional code is
//! inserted later, at a [marker](crate::marker).

use thiserror::Error;

/// The error for a placeholder that has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the template uses @{0}@, which has no value")]
pub struct TemplateError(pub String);

/// Replaces each `@name@` in `text` with its value. Other uses of `@`, as in `actions/checkout@v4`, are left unchanged.
///
/// ```
/// use kubewright_scaffold::template::render;
///
/// let values = [("kind", "CronJob"), ("group", "batch")];
/// assert_eq!(render("kind: @kind@ # @you", &values)?, "kind: CronJob # @you");
/// # Ok::<(), kubewright_scaffold::template::TemplateError>(())
/// ```
///
/// # Errors
/// Returns an error if a name has no value.
pub fn render(text: &str, values: &[(&str, &str)]) -> Result<String, TemplateError> {
    let mut rendered = String::with_capacity(text.len() + text.len() / 4);
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        rendered.push_str(before);
        match placeholder(after) {
            Some(name) => {
                let value =
                    values.iter().find(|(known, _)| *known == name).ok_or_else(|| TemplateError(name.into()))?;
                rendered.push_str(value.1);
                rest = &after[name.len() + 1..];
            }
            None => {
                rendered.push('@');
                rest = after;
            }
        }
    }
    rendered.push_str(rest);
    Ok(rendered)
}

/// Returns the name at the start of `text`, if it ends with an `@`.
fn placeholder(text: &str) -> Option<&str> {
    let (name, _) = text.split_once('@')?;
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_replaced() {
        let values = [("kind", "Foo"), ("lower_kind", "foo"), ("empty", "")];
        let check = |text: &str, expected: &str| assert_eq!(render(text, &values).unwrap(), expected);
        check("", "");
        check("@kind@@lower_kind@@empty@", "Foofoo");
        check("a@b.c @ @kind @Kind@ @1@ ${{ x }}", "a@b.c @ @kind @Kind@ @1@ ${{ x }}");
        check("x @ Some(_) => @kind@", "x @ Some(_) => Foo");
        check("jane@example.com @kind@ ü@", "jane@example.com Foo ü@");
        check("@@kind@", "@Foo");
    }

    #[test]
    fn values_are_not_expanded_again() {
        assert_eq!(render("@a@", &[("a", "@b@"), ("b", "c")]).unwrap(), "@b@");
    }

    #[test]
    fn a_name_without_a_value_is_an_error() {
        assert_eq!(render("@kin@", &[("kind", "Foo")]), Err(TemplateError("kin".into())));
    }
}
