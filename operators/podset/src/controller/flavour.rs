//! The differences between the flavours of the kind `PodSet`: labels, names, and the fields of the status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt, core::object::HasStatus};
use kubewright::{name::shorten, random::Random};
use serde::{Serialize, de::DeserializeOwned};

use super::plan::Labels;
use crate::api::{Template, app, k8stest};

/// A flavour of the kind `PodSet`.
pub(crate) trait Flavour:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + HasStatus<Status: Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Returns the desired number of pods.
    fn desired(&self) -> usize;

    /// Returns the template of the pods.
    fn template(&self) -> Option<&Template>;

    /// Returns the labels of the pods.
    fn pod_labels(&self) -> Labels;

    /// Returns a name for a new pod, and its `generateName` if the flavour has one.
    ///
    /// The name is generated here instead of by the API server, so that a request that is repeated after a lost
    /// response finds the pod that the first one created.
    fn pod_name(&self, random: &Random) -> (String, Option<String>);

    /// Returns the flavour's status.
    fn status_of(observed: Observed) -> Self::Status;

    /// Returns the names of the pods in the stored status.
    fn reported(&self) -> &[String];

    /// Returns the conditions of the stored status.
    fn conditions(&self) -> &[Condition];
}

/// The observed state, for the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    /// The names of the active pods, sorted.
    pub(crate) names: Vec<String>,
    /// The label selector of the pods.
    pub(crate) selector: String,
    /// The generation of the observed spec.
    pub(crate) generation: Option<i64>,
    /// All conditions.
    pub(crate) conditions: Vec<Condition>,
}

impl Observed {
    fn count(&self) -> i32 {
        i32::try_from(self.names.len()).unwrap_or(i32::MAX)
    }
}

impl Flavour for k8stest::v1alpha1::PodSet {
    fn desired(&self) -> usize {
        usize::try_from(self.spec.replicas).unwrap_or(0)
    }

    fn template(&self) -> Option<&Template> {
        self.spec.template.as_ref()
    }

    fn pod_labels(&self) -> Labels {
        BTreeMap::from([("app".into(), "podset".into()), ("podset_cr".into(), label_value(&self.name_any()))])
    }

    fn pod_name(&self, random: &Random) -> (String, Option<String>) {
        let suffix = base36(random.u64());
        (format!("{}-{suffix}", shorten(&self.name_any(), MAX_NAME - 1 - suffix.len())), None)
    }

    fn status_of(observed: Observed) -> Self::Status {
        k8stest::v1alpha1::PodSetStatus {
            replicas: observed.count(),
            pod_names: observed.names,
            selector: Some(observed.selector),
            observed_generation: observed.generation,
            conditions: observed.conditions,
        }
    }

    fn reported(&self) -> &[String] {
        self.status.as_ref().map_or(&[], |status| &status.pod_names)
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}

impl Flavour for app::v1alpha1::PodSet {
    fn desired(&self) -> usize {
        usize::try_from(self.spec.replicas).unwrap_or(0)
    }

    fn template(&self) -> Option<&Template> {
        self.spec.template.as_ref()
    }

    fn pod_labels(&self) -> Labels {
        BTreeMap::from([("app".into(), label_value(&self.name_any())), ("version".into(), "v0.1".into())])
    }

    fn pod_name(&self, random: &Random) -> (String, Option<String>) {
        let generate_name = format!("{}-pod", shorten(&self.name_any(), MAX_NAME - "-pod".len()));
        // The API server's rule: five characters after at most 58 characters of the given name.
        let base: String = generate_name.chars().take(58).collect();
        (format!("{base}{}", random.suffix(5)), Some(generate_name))
    }

    fn status_of(observed: Observed) -> Self::Status {
        app::v1alpha1::PodSetStatus {
            available_replicas: observed.count(),
            pod_names: observed.names,
            selector: Some(observed.selector),
            observed_generation: observed.generation,
            conditions: observed.conditions,
        }
    }

    fn reported(&self) -> &[String] {
        self.status.as_ref().map_or(&[], |status| &status.pod_names)
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }
}

/// The maximum length of a pod's name in bytes.
const MAX_NAME: usize = 253;

/// Shortens a name to a label value, which has at most 63 bytes.
fn label_value(name: &str) -> String {
    shorten(name, 63)
}

/// Returns twelve digits in base 36, the format of the time in nanoseconds in the first tutorial.
fn base36(number: u64) -> String {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |place: u32| DIGITS[usize::try_from(number / 36u64.pow(place) % 36).unwrap_or(0)];
    (0..12).rev().map(|place| char::from(digit(place))).collect()
}

/// Formats labels as a selector: `key=value,key=value`.
pub(crate) fn selector(labels: &Labels) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(name: &str) -> k8stest::v1alpha1::PodSet {
        k8stest::v1alpha1::PodSet::new(name, k8stest::v1alpha1::PodSetSpec { replicas: 2, template: None })
    }

    fn second(name: &str) -> app::v1alpha1::PodSet {
        app::v1alpha1::PodSet::new(name, app::v1alpha1::PodSetSpec { replicas: 2, template: None })
    }

    #[test]
    fn labels_have_the_documented_values() {
        assert_eq!(selector(&first("web").pod_labels()), "app=podset,podset_cr=web");
        assert_eq!(selector(&second("web").pod_labels()), "app=web,version=v0.1");
    }

    #[test]
    fn names_have_the_documented_form() {
        let (name, generate_name) = first("web").pod_name(&Random::seeded(1));
        let suffix = name.strip_prefix("web-").unwrap();
        assert!(suffix.len() == 12 && suffix.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase()), "{name}");
        assert_eq!(generate_name, None);

        let (name, generate_name) = second("web").pod_name(&Random::seeded(1));
        assert_eq!(generate_name.as_deref(), Some("web-pod"));
        assert_eq!(name.strip_prefix("web-pod").map(str::len), Some(5), "{name}");
    }

    #[test]
    fn long_names_make_valid_labels_and_pods() {
        let long = format!("{}.{}", "a".repeat(57), "b".repeat(195));
        let check = |labels: Labels, (name, generate_name): (String, Option<String>)| {
            assert!(labels.values().all(|value| value.len() <= 63), "{labels:?}");
            for name in [Some(name), generate_name].into_iter().flatten() {
                assert!(name.len() <= MAX_NAME && !name.contains(".-") && !name.contains(".."), "{name}");
            }
        };
        check(first(&long).pod_labels(), first(&long).pod_name(&Random::seeded(1)));
        check(second(&long).pod_labels(), second(&long).pod_name(&Random::seeded(1)));
    }

    #[test]
    fn base_36_has_twelve_digits() {
        assert_eq!(base36(0), "000000000000");
        assert_eq!(base36(35), "00000000000z");
        assert_eq!(base36(u64::MAX).len(), 12);
    }

    #[test]
    fn statuses_have_the_sources_fields() {
        let observed = || Observed { names: vec!["a".into(), "b".into()], ..Observed::default() };
        let status = serde_json::to_value(k8stest::v1alpha1::PodSet::status_of(observed())).unwrap();
        assert_eq!((&status["replicas"], &status["pod_names"]), (&2.into(), &vec!["a", "b"].into()));
        let status = serde_json::to_value(app::v1alpha1::PodSet::status_of(observed())).unwrap();
        assert_eq!((&status["availableReplicas"], &status["podNames"]), (&2.into(), &vec!["a", "b"].into()));
    }
}
