//! Label selectors and field selectors.
//!
//! Errors have kube-apiserver's wording, so that a 400 response can contain them unchanged. The caller checks that a
//! kind supports the fields of a selector; see [`FieldSelector::requirements`].

mod field;
mod label;

pub use field::{FieldRequirement, FieldSelector};
pub use label::{LabelSelector, Operator, Requirement};

/// The error that a selector is malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_printed_selector_selects_the_same(text in "[ab=!<>(), \\\\1.-]{0,16}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
            }
            if let Ok(selector) = FieldSelector::parse(&text) {
                prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
            }
        }
    }
}
