//! API versions.

use std::str::FromStr;

use super::{NameError, text};

/// An API version: `v1`, `v2alpha1`, `v1beta3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(String);

text!(Version);

impl FromStr for Version {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_version(text) {
            return Ok(Self(text.to_owned()));
        }
        let why = "must be v1, v2, …, or such with alpha or beta and a number behind it, as v1beta1";
        let digits = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        let instead = if digits(text) { format!("v{text}") } else { text.to_lowercase() };
        // `1.0` looks like a release version.
        let instead = instead.split('.').next().unwrap_or_default().to_owned();
        Err(NameError::new("version", text, why).or::<Self>(instead))
    }
}

fn is_version(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(rest) = text.strip_prefix('v') else { return false };
    let stage = ["alpha", "beta"].into_iter().find_map(|stage| rest.split_once(stage));
    match stage {
        Some((major, minor)) => number(major) && number(minor),
        None => number(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_follow_kubernetes() {
        for good in ["v1", "v10", "v1alpha1", "v2beta12"] {
            assert_eq!(good.parse::<Version>().unwrap().as_str(), good);
        }
        for bad in ["", "v", "1", "v1alpha", "valpha1", "v1rc1", "v1alpha1beta1", "v-1", "v1 ", "vⅠ", "V1"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_suggest_a_valid_name() {
        let instead = |text: &str| text.parse::<Version>().unwrap_err().instead;
        assert_eq!(instead("1").as_deref(), Some("v1"));
        assert_eq!(instead("V1Beta1").as_deref(), Some("v1beta1"));
        assert_eq!(instead("v1.0").as_deref(), Some("v1"));
        assert_eq!(instead("latest"), None);
    }
}
