//! The Pod Security Standards that namespaces ask for by labels, or that a configuration asks for
//! (<https://kubernetes.io/docs/concepts/security/pod-security-admission/>).
//!
//! A pod that violates the level of `enforce` is forbidden. An object with a template of pods, and a pod that violates
//! the level of `warn` only, are stored with a warning. Violations of `audit` aren't recorded, since there is no audit
//! log.

mod checks;
mod config;
mod policy;
mod standards;

use std::collections::{BTreeMap, BTreeSet};

use kubewright_apimachinery::status::Cause;
use serde_json::Value;

pub use self::config::{PodSecurityConfig, PodSecurityConfigError};
use self::{checks::Pod, policy::LevelVersion, standards::Violation};
pub(crate) use self::{config::Exemption, policy::Policy};
use crate::fields::{list, text};

/// The greatest number of pods that are checked when the level of their namespace changes.
const MAX_PODS: usize = 3000;

/// The resource of the pods that are checked when the level of their namespace changes.
pub(crate) const PODS: &str = "/pods";

/// What is checked in the objects of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The labels of a namespace, and its pods.
    Namespace,
    /// A pod.
    Pod,
    /// The template of pods at this pointer.
    Template(&'static str),
}

impl Subject {
    /// Returns what is checked in the objects of a resource, or `None` if nothing is.
    pub(crate) fn of(group: &str, plural: &str) -> Option<Self> {
        Some(match (group, plural) {
            ("", "namespaces") => Self::Namespace,
            ("", "pods") => Self::Pod,
            ("", "podtemplates") => Self::Template("/template"),
            ("", "replicationcontrollers")
            | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
            | ("batch", "jobs") => Self::Template("/spec/template"),
            ("batch", "cronjobs") => Self::Template("/spec/jobTemplate/spec/template"),
            _ => return None,
        })
    }

    /// Returns the pod or the template of pods in an object.
    pub(crate) fn template(self, object: &Value) -> Option<&Value> {
        match self {
            Self::Namespace => None,
            Self::Pod => Some(object),
            Self::Template(pointer) => object.pointer(pointer),
        }
    }
}

/// Returns why a pod is forbidden under the policy of its namespace, or else the warning about it.
pub(crate) fn evaluate_pod(policy: &Policy, pod: &Value) -> Result<Option<String>, String> {
    if let Some(why) = describe(policy.enforce, pod) {
        return Err(format!("violates PodSecurity {why}"));
    }
    Ok(evaluate_template(policy, pod))
}

/// Returns the warning about a template of pods under the policy of its namespace.
pub(crate) fn evaluate_template(policy: &Policy, template: &Value) -> Option<String> {
    describe(policy.warn, template).map(|why| format!("would violate PodSecurity {why}"))
}

/// Returns what the audit log says about a pod, or about a template of pods, under the policy of its namespace.
pub(crate) fn audit(policy: &Policy, template: &Value) -> Option<String> {
    describe(policy.audit, template).map(|why| format!("would violate PodSecurity {why}"))
}

fn describe(level: LevelVersion, pod: &Value) -> Option<String> {
    let violations = standards::violations(level, &Pod::new(pod));
    let text = |violation: &Violation| match &*violation.detail {
        "" => violation.reason.to_owned(),
        detail => format!("{} ({detail})", violation.reason),
    };
    (!violations.is_empty()).then(|| format!("\"{level}\": {}", join(violations.iter().map(text))))
}

/// Returns whether an update of a pod has to be checked: if it changes the image of a container, or adds one.
pub(crate) fn is_significant_update(old: &Value, new: &Value) -> bool {
    let images = |pod, kind| list(pod, kind).iter().map(|container| text(container, "/image"));
    if ["/spec/containers", "/spec/initContainers"].iter().any(|kind| !images(old, kind).eq(images(new, kind))) {
        return true;
    }
    let ephemeral = "/spec/ephemeralContainers";
    list(new, ephemeral).iter().any(|container| {
        let before = list(old, ephemeral).iter().find(|before| before["name"] == container["name"]);
        before.is_none_or(|before| before["image"] != container["image"])
    })
}

/// Returns the errors about the labels of a namespace, unless `old` has the same ones.
pub(crate) fn label_errors(old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let errors_of = |namespace| Policy::read(namespace, &Policy::default()).1;
    let errors = errors_of(new);
    let are_old = old.is_some_and(|old| errors_of(old) == errors);
    if are_old { Vec::new() } else { errors }
}

/// Returns the level that an update of a namespace newly enforces, if its pods might violate it.
pub(crate) fn newly_enforced(old: &Value, new: &Value, defaults: &Policy) -> Option<LevelVersion> {
    let [before, after] = [old, new].map(|namespace| Policy::read(namespace, defaults).0.enforce);
    let is_weaker = before.version == after.version && after.level <= before.level;
    (!after.is_privileged() && !is_weaker).then_some(after)
}

/// Returns the warning that the labels of a namespace have no effect, because it is exempt.
pub(crate) fn ignored(namespace: &Value, defaults: &Policy) -> Option<String> {
    let (policy, _) = Policy::read(namespace, defaults);
    if policy.is_privileged() || policy == *defaults {
        return None;
    }
    let (name, shown) = (text(namespace, "/metadata/name"), policy.shown(namespace));
    Some(format!("namespace {name:?} is exempt from Pod Security, and the policy ({shown}) will be ignored"))
}

/// Returns the warnings about the existing pods of a namespace that violate a level.
pub(crate) fn evaluate_existing(namespace: &str, level: LevelVersion, pods: &[impl AsRef<Value>]) -> Vec<String> {
    // The pods of a controller are equal, mostly.
    let mut controllers = BTreeSet::new();
    let (mut first, mut repeated) = (Vec::new(), Vec::new());
    for pod in pods.iter().map(AsRef::as_ref) {
        let owner = list(pod, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
        let is_first = owner.is_none_or(|owner| controllers.insert(text(owner, "/uid")));
        if is_first { &mut first } else { &mut repeated }.push(pod);
    }
    first.append(&mut repeated);
    let mut violators: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in first.iter().take(MAX_PODS) {
        let violations = standards::violations(level, &Pod::new(pod));
        if !violations.is_empty() {
            let reasons = join(violations.into_iter().map(|violation| violation.reason.to_owned()));
            violators.entry(reasons).or_default().push(text(pod, "/metadata/name"));
        }
    }
    let mut warnings = Vec::new();
    if first.len() > MAX_PODS {
        let total = first.len();
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} of {total} existing pods"
        ));
    }
    if !violators.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
        ));
    }
    let mut found: Vec<_> = violators
        .into_iter()
        .map(|(reasons, names)| {
            let name = names.iter().min().copied().unwrap_or_default();
            match names.len() - 1 {
                0 => format!("{name}: {reasons}"),
                1 => format!("{name} (and 1 other pod): {reasons}"),
                others => format!("{name} (and {others} other pods): {reasons}"),
            }
        })
        .collect();
    found.sort();
    warnings.append(&mut found);
    warnings
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
