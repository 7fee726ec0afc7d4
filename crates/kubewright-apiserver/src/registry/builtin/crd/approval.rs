//! The approval required for CRDs in Kubernetes' API groups
//! (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/2337-k8s.io-group-protection>).

use crate::fields::text;
use http::Uri;
use kubewright_apimachinery::status::Cause;
use serde_json::Value;

const ANNOTATION: &str = "api-approved.kubernetes.io";

/// The state of the approval annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    /// A URL: the pull request that approved the CRD.
    Approved,
    /// A reason that begins with `unapproved`.
    Unapproved,
}

/// Returns whether the CRD's group belongs to the Kubernetes project.
fn is_protected(definition: &Value) -> bool {
    let group = format!(".{}", text(definition, "/spec/group"));
    [".k8s.io", ".kubernetes.io"].iter().any(|suffix| group.ends_with(suffix))
}

fn annotation(definition: &Value) -> &str {
    definition["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default()
}

fn approval(definition: &Value) -> Approval {
    let annotation = annotation(definition);
    let is_url = || annotation.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some());
    match annotation {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") => Approval::Unapproved,
        _ if is_url() => Approval::Approved,
        _ => Approval::Invalid,
    }
}

fn message(definition: &Value) -> String {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let needed = format!("protected groups must have approval annotation {ANNOTATION:?}");
    match approval(definition) {
        Approval::Missing => format!("{needed}, {SEE}"),
        Approval::Invalid => format!("{needed} with either a URL or a reason starting with \"unapproved\", {SEE}"),
        Approval::Approved => format!("approved in {}", annotation(definition)),
        Approval::Unapproved => format!("not approved: {:?}", annotation(definition)),
    }
}

/// Rejects a CRD in a protected group without approval, unless its approval was the same before the update.
pub(super) fn check(old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    let state = approval(new);
    if !is_protected(new) || old.is_some_and(|old| approval(old) == state) {
        return;
    }
    let field = format!("metadata.annotations[{ANNOTATION}]");
    match state {
        Approval::Missing => causes.push(Cause::required(field, &message(new))),
        Approval::Invalid => causes.push(Cause::invalid(field, &annotation(new).into(), &message(new))),
        Approval::Approved | Approval::Unapproved => {}
    }
}

/// Returns the condition `KubernetesAPIApprovalPolicyConformant` of a CRD in a protected group: its status, reason and
/// message.
pub(super) fn condition(definition: &Value) -> Option<(bool, &'static str, String)> {
    let (holds, reason) = match approval(definition) {
        _ if !is_protected(definition) => return None,
        Approval::Missing => (false, "MissingAnnotation"),
        Approval::Invalid => (false, "InvalidAnnotation"),
        Approval::Approved => (true, "ApprovedAnnotation"),
        Approval::Unapproved => (false, "UnapprovedAnnotation"),
    };
    Some((holds, reason, message(definition)))
}
