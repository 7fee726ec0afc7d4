//! Project names.

use std::str::FromStr;

use kubewright_apimachinery::name;

use super::{NameError, dns_like, rust, text};

/// The suffix of the longest name derived from a project name: that of a Service, which is limited to 63 characters.
const LONGEST: &str = "-controller-manager-metrics-service";
const LIMIT: usize = 63 - LONGEST.len();

/// The name of a project and its package, and the prefix of its objects in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectName(String);

text!(ProjectName);

impl ProjectName {
    /// Derives the name of a project from the name of its directory.
    ///
    /// # Errors
    /// Returns an error if no valid name can be derived; `--project-name` is then required.
    pub fn of_folder(folder: &str) -> Result<Self, NameError> {
        let name = dns_like(folder).replace('.', "-");
        let name: Result<Self, _> = name.parse();
        name.map_err(|error| {
            let why = format!("is not a valid project name, which {}: choose one with --project-name", error.why);
            NameError::new("folder's name", folder, why)
        })
    }

    /// Returns the name of the library crate, in which hyphens become underscores.
    pub fn library(&self) -> String {
        self.0.replace('-', "_")
    }
}

impl FromStr for ProjectName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |why: &str| NameError::new("project name", text, why);
        // RFC 1035 instead of RFC 1123, since the names of Services start with it.
        if !name::dns1035_label(text).is_empty() && text.len() <= 63 {
            let why =
                "must consist of lower-case letters, digits and hyphens, start with a letter and not end with a hyphen";
            return Err(refuse(why).or::<Self>(dns_like(text).replace('.', "-")));
        }
        if text.len() > LIMIT {
            let why = format!("must have at most {LIMIT} characters, since a Service is named {text}{LONGEST}");
            return Err(refuse(&why));
        }
        if rust::is_crate(text) || rust::module(text) != text.replace('-', "_") {
            return Err(refuse("is a keyword or the name of a dependency").or::<Self>(format!("{text}-operator")));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_names_are_prefixes_of_service_names() {
        for good in ["cronjob", "my-operator", "a1", &"a".repeat(28)] {
            assert_eq!(good.parse::<ProjectName>().unwrap().as_str(), good);
        }
        for bad in ["", "1st", "My", "a.b", "a-", "ü", &"a".repeat(29), &"a".repeat(64), "kube", "type", "core"] {
            assert!(bad.parse::<ProjectName>().is_err(), "{bad}");
        }
        let instead = |text: &str| text.parse::<ProjectName>().unwrap_err().instead;
        assert_eq!(instead("My_Project").as_deref(), Some("my-project"));
        assert_eq!(instead("kube").as_deref(), Some("kube-operator"));
        assert_eq!("a-b".parse::<ProjectName>().unwrap().library(), "a_b");
    }

    #[test]
    fn names_are_derived_from_directories() {
        assert_eq!(ProjectName::of_folder("My Operator.git").unwrap().as_str(), "my-operator-git");
        let error = ProjectName::of_folder("42").unwrap_err().to_string();
        assert!(error.contains("\"42\"") && error.contains("--project-name"), "{error}");
    }
}
