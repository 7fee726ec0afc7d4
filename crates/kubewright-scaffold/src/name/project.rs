//! Names of projects.

use std::str::FromStr;

use kubewright_apimachinery::name;

use super::{NameError, dns_like, rust, text};

/// What follows the name in the longest name that is made of it, which a Service has and which ends at 63.
const LONGEST: &str = "-controller-manager-metrics-service";
const LIMIT: usize = 63 - LONGEST.len();

/// The name of a project: of its package, and the beginning of the names of all its objects in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectName(String);

text!(ProjectName);

impl ProjectName {
    /// The name for a project in a folder of this name, when none is given.
    ///
    /// # Errors
    /// If none can be made of it: `--project-name` has to say one.
    pub fn of_folder(folder: &str) -> Result<Self, NameError> {
        let name = dns_like(folder).replace('.', "-");
        let name: Result<Self, _> = name.parse();
        name.map_err(|error| {
            let why = format!("can't be the name of a project, which {}: give one with --project-name", error.why);
            NameError::new("folder's name", folder, why)
        })
    }

    /// The library of its package: hyphens are underscores in Rust.
    pub fn library(&self) -> String {
        self.0.replace('-', "_")
    }
}

impl FromStr for ProjectName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |why: &str| NameError::new("project name", text, why);
        // A label of RFC 1035 and not of RFC 1123: names of Services begin with it.
        if !name::dns1035_label(text).is_empty() && text.len() <= 63 {
            let why =
                "must have lower case letters, digits and hyphens only, begin with a letter and not end with a hyphen";
            return Err(refuse(why).or::<Self>(dns_like(text).replace('.', "-")));
        }
        if text.len() > LIMIT {
            let why =
                format!("must be no more than {LIMIT} characters, since a Service will be called {text}{LONGEST}");
            return Err(refuse(&why));
        }
        if rust::is_crate(text) || rust::module(text) != text.replace('-', "_") {
            return Err(
                refuse("is a keyword, or a crate that operators depend on").or::<Self>(format!("{text}-operator"))
            );
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_begins_the_names_of_services() {
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
    fn a_folder_gives_a_name() {
        assert_eq!(ProjectName::of_folder("My Operator.git").unwrap().as_str(), "my-operator-git");
        let error = ProjectName::of_folder("42").unwrap_err().to_string();
        assert!(error.contains("\"42\"") && error.contains("--project-name"), "{error}");
    }
}
