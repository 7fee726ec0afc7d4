//! Domains and groups, which together form an API group.

use std::str::FromStr;

use kubewright_apimachinery::name;

use super::{NameError, dns_like, rust, text};

/// The domain of the API groups of a project, such as `tutorial.kubebuilder.io`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(String);

text!(Domain);

impl FromStr for Domain {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split('/').next().unwrap_or_default();
            return Err(NameError::new("domain", text, "must be a domain name, not a URL").or::<Self>(host.to_owned()));
        }
        match check("domain", text) {
            Ok(()) => Ok(Self(text.to_owned())),
            Err(error) => Err(error.or::<Self>(dns_like(text))),
        }
    }
}

/// A group without the domain, such as `batch`. It may contain dots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(String);

text!(Group);

impl Group {
    /// Returns the module of the group in the multigroup layout: `foo_policy` for `foo.policy`.
    pub fn module(&self) -> String {
        rust::module(&self.0)
    }
}

impl FromStr for Group {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match check("group", text) {
            Ok(()) => Ok(Self(text.to_owned())),
            Err(error) => Err(error.or::<Self>(dns_like(text))),
        }
    }
}

fn check(what: &'static str, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::new(what, text, "must not be empty"));
    }
    if text.len() > 253 {
        return Err(NameError::new(what, text, "must be no more than 253 bytes"));
    }
    if let Some(odd) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-' | '.')) {
        let why = format!("must consist of lower-case letters, digits, hyphens and dots, and contains {odd:?}");
        return Err(NameError::new(what, text, why));
    }
    if !name::dns1123_subdomain(text).is_empty() || text.split('.').any(|label| label.len() > 63) {
        let why = "must be DNS labels with dots between: each begins and ends with a letter or digit and has up to 63 characters";
        return Err(NameError::new(what, text, why));
    }
    Ok(())
}

/// Returns the full API group, such as `batch.tutorial.kubebuilder.io`. One of the parts may be missing.
///
/// # Errors
/// Returns an error if both are missing, or if the result is too long.
pub fn qualified_group(group: Option<&Group>, domain: Option<&Domain>) -> Result<String, NameError> {
    let qualified = match (group, domain) {
        (Some(group), Some(domain)) => format!("{group}.{domain}"),
        (Some(Group(one)), None) | (None, Some(Domain(one))) => one.clone(),
        (None, None) => return Err(NameError::new("group", "", "is missing, and so is the domain: give --group")),
    };
    check("group", &qualified)?;
    Ok(qualified)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: FromStr<Err = NameError> + std::fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err().to_string()
    }

    #[test]
    fn domains_and_groups_are_dns_names() {
        for good in ["my.domain", "tutorial.kubebuilder.io", "a", "4g.example", "x-y.z"] {
            assert_eq!(good.parse::<Domain>().unwrap().as_str(), good);
            assert_eq!(good.parse::<Group>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "a..b", "-a", "a-", "a.", &"a".repeat(64), &["a"; 128].join("."), "ä.de", "a b", "a/b"] {
            assert!(bad.parse::<Domain>().is_err() && bad.parse::<Group>().is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_suggest_a_valid_name() {
        let odd = "must consist of lower-case letters, digits, hyphens and dots, and contains";
        assert_eq!(refused::<Domain>("My.Domain"), format!("the domain \"My.Domain\" {odd} 'M': try \"my.domain\""));
        assert_eq!(refused::<Group>("web_app"), format!("the group \"web_app\" {odd} '_': try \"web-app\""));
        assert_eq!(
            refused::<Domain>("https://example.com/x"),
            "the domain \"https://example.com/x\" must be a domain name, not a URL: try \"example.com\""
        );
        assert_eq!(refused::<Group>(""), "the group \"\" must not be empty");
    }

    #[test]
    fn a_group_is_a_module() {
        let module = |text: &str| text.parse::<Group>().unwrap().module();
        assert_eq!(module("sea-creatures"), "sea_creatures");
        assert_eq!(module("foo.policy"), "foo_policy");
        assert_eq!(module("type"), "type_");
        assert_eq!(module("4g"), "_4g");
    }

    #[test]
    fn group_and_domain_are_combined() {
        let (group, domain) = ("batch".parse().unwrap(), "example.com".parse().unwrap());
        assert_eq!(qualified_group(Some(&group), Some(&domain)).unwrap(), "batch.example.com");
        assert_eq!(qualified_group(Some(&group), None).unwrap(), "batch");
        assert_eq!(qualified_group(None, Some(&domain)).unwrap(), "example.com");
        assert!(qualified_group(None, None).unwrap_err().to_string().contains("--group"));
        let long = ["a"; 126].join(".").parse().unwrap();
        assert!(qualified_group(Some(&long), Some(&domain)).is_err());
    }
}
