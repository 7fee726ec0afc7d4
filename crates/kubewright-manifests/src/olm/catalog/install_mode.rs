//! The namespaces in which an operator works.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde_json::Value;
use thiserror::Error;

use super::CatalogBundle;
use crate::olm::items;

/// The namespaces in which an operator works, as of `--install-mode`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallMode {
    /// All.
    AllNamespaces,
    /// The operator's own.
    OwnNamespace,
    /// Another one.
    SingleNamespace(String),
    /// Several.
    MultiNamespace(BTreeSet<String>),
}

/// An install mode that can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallModeError {
    /// The text isn't an install mode.
    #[error("use AllNamespaces, OwnNamespace, SingleNamespace=NAMESPACE or MultiNamespace=NAMESPACE,NAMESPACE")]
    Syntax,
    /// The operator doesn't support it.
    #[error("{name} doesn't support the install mode {mode}: it supports {supported}")]
    Unsupported {
        /// The name of the ClusterServiceVersion.
        name: String,
        /// The mode.
        mode: String,
        /// The supported modes.
        supported: String,
    },
    /// The single namespace is the operator's own.
    #[error("{0} is the namespace of the operator itself: use --install-mode OwnNamespace")]
    Own(String),
    /// There is no default.
    #[error(
        "{name} supports {supported} only: say which namespaces with --install-mode, such as SingleNamespace=NAMESPACE"
    )]
    NoDefault {
        /// The name of the ClusterServiceVersion.
        name: String,
        /// The supported modes.
        supported: String,
    },
}

impl InstallMode {
    /// Chooses the mode for a bundle: the given one if the operator supports it, or else all namespaces or its own,
    /// whichever it supports.
    ///
    /// # Errors
    /// If the operator doesn't support the mode, or none that needs no further namespaces.
    pub fn choose(given: Option<&Self>, bundle: &CatalogBundle, namespace: &str) -> Result<Self, InstallModeError> {
        let supported = bundle.install_modes();
        let name = bundle.name().to_owned();
        match given {
            Some(Self::SingleNamespace(single)) if single == namespace => Err(InstallModeError::Own(single.clone())),
            Some(mode) => match unsupported(&mode.targets(namespace), namespace, &supported) {
                None => Ok(mode.clone()),
                Some(mode) => {
                    Err(InstallModeError::Unsupported { name, mode: mode.into(), supported: supported.join(", ") })
                }
            },
            None => [Self::AllNamespaces, Self::OwnNamespace]
                .into_iter()
                .find(|mode| supported.contains(&mode.kind()))
                .ok_or_else(|| InstallModeError::NoDefault { name, supported: supported.join(", ") }),
        }
    }

    /// Returns the target namespaces of its OperatorGroup; none for all namespaces.
    pub fn targets(&self, namespace: &str) -> BTreeSet<String> {
        match self {
            Self::AllNamespaces => BTreeSet::new(),
            Self::OwnNamespace => BTreeSet::from([namespace.to_owned()]),
            Self::SingleNamespace(single) => BTreeSet::from([single.clone()]),
            Self::MultiNamespace(all) => all.clone(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::AllNamespaces => "AllNamespaces",
            Self::OwnNamespace => "OwnNamespace",
            Self::SingleNamespace(_) => "SingleNamespace",
            Self::MultiNamespace(_) => "MultiNamespace",
        }
    }
}

impl FromStr for InstallMode {
    type Err = InstallModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, namespaces) = text.split_once('=').unwrap_or((text, ""));
        let all: BTreeSet<_> = namespaces.split(',').map(|name| name.trim().to_owned()).collect();
        let is_named = all.iter().all(|name| !name.is_empty());
        match (kind, is_named, all.len()) {
            ("AllNamespaces", false, 1) => Ok(Self::AllNamespaces),
            ("OwnNamespace", false, 1) => Ok(Self::OwnNamespace),
            ("SingleNamespace", true, 1) => Ok(Self::SingleNamespace(namespaces.trim().to_owned())),
            ("MultiNamespace", true, _) => Ok(Self::MultiNamespace(all)),
            _ => Err(InstallModeError::Syntax),
        }
    }
}

impl fmt::Display for InstallMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::SingleNamespace(single) => write!(f, "={single}"),
            Self::MultiNamespace(all) => write!(f, "={}", all.iter().cloned().collect::<Vec<_>>().join(",")),
            _ => Ok(()),
        }
    }
}

/// Returns the target namespaces of an existing OperatorGroup; none for all namespaces. Those of a selector are in its
/// status.
pub fn targets_of(group: &Value) -> BTreeSet<String> {
    let named = |pointer: &str| {
        let names = items(group, pointer).iter().filter_map(Value::as_str);
        names.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect::<BTreeSet<_>>()
    };
    let targets = named("/spec/targetNamespaces");
    if targets.is_empty() { named("/status/namespaces") } else { targets }
}

/// Returns the first install mode that the target namespaces of an OperatorGroup require and an operator doesn't
/// support.
pub fn unsupported(targets: &BTreeSet<String>, namespace: &str, supported: &[&str]) -> Option<&'static str> {
    let is_own = targets.contains(namespace);
    let required = [
        ("AllNamespaces", targets.is_empty()),
        ("OwnNamespace", is_own),
        ("SingleNamespace", targets.len() == 1 && !is_own),
        ("MultiNamespace", targets.len() > 1),
    ];
    required.into_iter().filter(|(_, required)| *required).map(|(mode, _)| mode).find(|mode| !supported.contains(mode))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::olm::catalog::bundle::tests::files;

    fn bundle(modes: &str) -> CatalogBundle {
        let mut files = files();
        let csv = files.get_mut("manifests/cow.clusterserviceversion.yaml").unwrap();
        let all: String = modes.split(' ').map(|mode| format!("  - {{type: {mode}, supported: true}}\n")).collect();
        *csv = csv.replace("  - {type: OwnNamespace, supported: true}\n", &all);
        CatalogBundle::read(&files, "example.com/cow:v1").unwrap()
    }

    #[test]
    fn modes_are_parsed_and_printed() {
        for text in ["AllNamespaces", "OwnNamespace", "SingleNamespace=barn", "MultiNamespace=barn,field"] {
            assert_eq!(text.parse::<InstallMode>().unwrap().to_string(), text);
        }
        for text in ["", "All", "AllNamespaces=barn", "SingleNamespace", "SingleNamespace=a,b", "MultiNamespace=a,"] {
            assert_eq!(text.parse::<InstallMode>(), Err(InstallModeError::Syntax), "{text}");
        }
    }

    #[test]
    fn a_mode_is_chosen_by_what_the_operator_supports() {
        let choose = |given: &str, modes: &str| {
            let given = (!given.is_empty()).then(|| given.parse().unwrap());
            InstallMode::choose(given.as_ref(), &bundle(modes), "barn")
                .map(|mode| mode.to_string())
                .map_err(|error| error.to_string())
        };
        for (given, modes, expected) in [
            ("", "OwnNamespace AllNamespaces", "AllNamespaces"),
            ("", "OwnNamespace SingleNamespace", "OwnNamespace"),
            ("OwnNamespace", "OwnNamespace AllNamespaces", "OwnNamespace"),
            ("SingleNamespace=field", "SingleNamespace", "SingleNamespace=field"),
            ("MultiNamespace=field,wood", "MultiNamespace", "MultiNamespace=field,wood"),
        ] {
            assert_eq!(choose(given, modes).as_deref(), Ok(expected), "{given} {modes}");
        }
        for (given, modes, says) in [
            ("", "SingleNamespace", "supports SingleNamespace only: say which namespaces with --install-mode"),
            ("AllNamespaces", "OwnNamespace", "cow.v0.2.0 doesn't support the install mode AllNamespaces"),
            ("MultiNamespace=barn,field", "MultiNamespace", "doesn't support the install mode OwnNamespace"),
            ("SingleNamespace=barn", "SingleNamespace", "use --install-mode OwnNamespace"),
        ] {
            let error = choose(given, modes).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn targets_of_a_group_are_named_or_selected() {
        let names = |group: Value| targets_of(&group).into_iter().collect::<Vec<_>>();
        assert_eq!(
            names(json!({"spec": {"targetNamespaces": ["b", "a"]}, "status": {"namespaces": ["c"]}})),
            ["a", "b"]
        );
        assert_eq!(names(json!({"spec": {"selector": {}}, "status": {"namespaces": ["c"]}})), ["c"]);
        assert!(names(json!({"spec": {}, "status": {"namespaces": [""]}})).is_empty());
    }
}
