//! The causes that a validation finds.

use super::{path::Path, shown::Shown};
use kubewright_apimachinery::{cel::Refusal, status::Cause};

/// The total size of messages after which further causes are not recorded. An object with thousands of errors, each
/// of which contains a large value, must not fill the memory.
const LIMIT: usize = 4 << 20;

/// The causes that a validation finds, in order. Messages have the wording of Kubernetes' field errors.
#[derive(Debug, Default)]
pub(in crate::registry::builtin) struct Errors {
    causes: Vec<Cause>,
    size: usize,
}

impl Errors {
    /// Runs a validation and returns its causes.
    pub(in crate::registry::builtin) fn collect(validate: impl FnOnce(&mut Self)) -> Vec<Cause> {
        let mut errors = Self::default();
        validate(&mut errors);
        errors.causes
    }

    /// Runs a validation and returns whether it found errors.
    pub(in crate::registry::builtin) fn any(&mut self, validate: impl FnOnce(&mut Self)) -> bool {
        let before = self.causes.len();
        validate(self);
        self.causes.len() > before
    }

    fn add(&mut self, cause: Cause) {
        self.size += cause.message.len() + cause.field.len();
        if self.causes.is_empty() || self.size <= LIMIT {
            self.causes.push(cause);
        }
    }

    fn valued(&mut self, kind: &str, title: &str, path: &Path<'_>, value: &Shown, why: &str) {
        let detail = if why.is_empty() { String::new() } else { format!(": {why}") };
        self.add(Cause::new(kind, path.to_string(), format!("{title}: {}{detail}", value.as_str())));
    }

    /// Adds `Required value`.
    pub(in crate::registry::builtin) fn required(&mut self, path: &Path<'_>, why: &str) {
        self.add(Cause::required(path.to_string(), why));
    }

    /// Adds `Invalid value`.
    pub(in crate::registry::builtin) fn invalid(&mut self, path: &Path<'_>, value: impl Into<Shown>, why: &str) {
        self.valued("FieldValueInvalid", "Invalid value", path, &value.into(), why);
    }

    /// Adds the reason why an expression is refused.
    pub(in crate::registry::builtin) fn refused(&mut self, path: &Path<'_>, expression: &str, why: Refusal) {
        match why {
            Refusal::Expression(why) => self.invalid(path, expression, &why),
            Refusal::Program(why) => self.internal(path, &why),
        }
    }

    /// Adds `Internal error`.
    pub(in crate::registry::builtin) fn internal(&mut self, path: &Path<'_>, why: &str) {
        self.add(Cause::internal(path.to_string(), why));
    }

    /// Adds `Invalid value` without showing the value.
    pub(in crate::registry::builtin) fn invalid_without_value(&mut self, path: &Path<'_>, why: &str) {
        self.add(Cause::new("FieldValueInvalid", path.to_string(), format!("Invalid value: {why}")));
    }

    /// Adds `Invalid value` for each message about a text.
    pub(in crate::registry::builtin) fn invalid_text(&mut self, path: &Path<'_>, text: &str, why: &[String]) {
        for why in why {
            self.invalid(path, text, why);
        }
    }

    /// Adds `Duplicate value`.
    pub(in crate::registry::builtin) fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Shown>) {
        self.duplicate_because(path, value, "");
    }

    /// Adds `Duplicate value` with a reason.
    pub(in crate::registry::builtin) fn duplicate_because(
        &mut self,
        path: &Path<'_>,
        value: impl Into<Shown>,
        why: &str,
    ) {
        self.valued("FieldValueDuplicate", "Duplicate value", path, &value.into(), why);
    }

    /// Adds `Not found`.
    pub(in crate::registry::builtin) fn not_found(&mut self, path: &Path<'_>, value: impl Into<Shown>, why: &str) {
        self.valued("FieldValueNotFound", "Not found", path, &value.into(), why);
    }

    /// Adds `Forbidden`.
    pub(in crate::registry::builtin) fn forbidden(&mut self, path: &Path<'_>, why: &str) {
        let message = if why.is_empty() { "Forbidden".into() } else { format!("Forbidden: {why}") };
        self.add(Cause::new("FieldValueForbidden", path.to_string(), message));
    }

    /// Adds `Unsupported value`, with the supported ones.
    pub(in crate::registry::builtin) fn not_supported(
        &mut self,
        path: &Path<'_>,
        value: impl Into<Shown>,
        supported: &[&str],
    ) {
        let list = supported.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ");
        let why = if list.is_empty() { list } else { format!("supported values: {list}") };
        self.valued("FieldValueNotSupported", "Unsupported value", path, &value.into(), &why);
    }

    /// Adds `Too long`, with the limit in bytes.
    pub(in crate::registry::builtin) fn too_long(&mut self, path: &Path<'_>, limit: usize) {
        let message = format!("Too long: may not be more than {limit} bytes");
        self.add(Cause::new("FieldValueTooLong", path.to_string(), message));
    }

    /// Adds `Too many`, with the number and the limit of items.
    pub(in crate::registry::builtin) fn too_many(&mut self, path: &Path<'_>, number: usize, limit: usize) {
        let items = if limit == 1 { "item" } else { "items" };
        let why = format!("must have at most {limit} {items}");
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.valued("FieldValueTooMany", "Too many", path, &number.into(), &why);
    }

    /// Adds causes of a validation that isn't based on this type.
    pub(in crate::registry::builtin) fn extend(&mut self, causes: impl IntoIterator<Item = Cause>) {
        causes.into_iter().for_each(|cause| self.add(cause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_wording_of_field_errors() {
        let path = Path::new("a");
        let causes = Errors::collect(|errors| {
            errors.required(&path, "");
            errors.invalid(&path, "x", "must be y");
            errors.not_supported(&path, 1_i64, &["b", "c"]);
            errors.too_many(&path, 3, 1);
            errors.not_found(&path, "x", "");
        });
        let texts: Vec<_> = causes.iter().map(ToString::to_string).collect();
        let expected = [
            "a: Required value",
            "a: Invalid value: \"x\": must be y",
            "a: Unsupported value: 1: supported values: \"b\", \"c\"",
            "a: Too many: 3: must have at most 1 item",
            "a: Not found: \"x\"",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn the_memory_for_causes_is_bounded() {
        let large = "x".repeat(LIMIT / 4);
        let causes = Errors::collect(|errors| (0..100).for_each(|_| errors.invalid(&Path::new("a"), &*large, "")));
        assert_eq!(causes.len(), 3);
    }
}
