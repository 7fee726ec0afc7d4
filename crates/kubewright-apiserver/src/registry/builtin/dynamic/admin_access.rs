//! Access of administrators to devices that others use
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#admin-access>).

use kubewright_apimachinery::status::Cause;
use serde_json::Value;

use crate::fields::{flag, list};

/// The label of namespaces whose claims may have such access.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Returns the field by which an object asks for such access: a new claim or template by its requests, a status by its
/// allocation, unless it has been granted by `old`.
pub(crate) fn admin_access(group: &str, plural: &str, old: Option<&Value>, new: &Value) -> Option<String> {
    let requests = match (group, plural) {
        ("resource.k8s.io", "resourceclaims") => "/spec/devices/requests",
        ("resource.k8s.io", "resourceclaimtemplates") => "/spec/spec/devices/requests",
        _ => return None,
    };
    let Some(old) = old else {
        let index = list(new, requests).iter().position(|request| flag(request, "/exactly/adminAccess"))?;
        return Some(format!("spec.devices.requests[{index}].adminAccess"));
    };
    let granted = |claim: &Value| {
        list(claim, "/status/allocation/devices/results").iter().position(|result| flag(result, "/adminAccess"))
    };
    let index = granted(new).filter(|_| granted(old).is_none())?;
    Some(format!("status.allocation.devices.results[{index}].adminAccess"))
}

/// Returns the error about such access in a namespace, unless its labels allow it.
pub(crate) fn forbidden_admin_access(field: String, namespace: &Value) -> Option<Cause> {
    let labels = &namespace["metadata"]["labels"];
    let why = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    (labels.get(LABEL).is_none_or(|value| value != "true")).then(|| Cause::forbidden(field, &why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn access_is_asked_for_by_requests_and_allocations() {
        let of = |plural: &str, old: Option<&Value>, new: &Value| admin_access("resource.k8s.io", plural, old, new);
        let requests =
            json!({"devices": {"requests": [{"name": "a"}, {"name": "b", "exactly": {"adminAccess": true}}]}});
        let field = Some("spec.devices.requests[1].adminAccess".to_owned());
        let claim = json!({"spec": requests});
        assert_eq!(of("resourceclaims", None, &claim), field);
        assert_eq!(of("resourceclaimtemplates", None, &json!({"spec": {"spec": requests}})), field);
        assert_eq!(of("deviceclasses", None, &claim), None);
        let allocated = json!({"status": {"allocation": {"devices": {"results": [{"adminAccess": true}]}}}});
        let field = Some("status.allocation.devices.results[0].adminAccess".to_owned());
        assert_eq!(of("resourceclaims", Some(&claim), &allocated), field);
        assert_eq!(of("resourceclaims", Some(&allocated), &allocated), None);
    }

    #[test]
    fn the_label_of_the_namespace_allows_it() {
        let of = |value: &str| forbidden_admin_access("a".into(), &json!({"metadata": {"labels": {LABEL: value}}}));
        assert_eq!(of("true"), None);
        assert!(of("yes").is_some() && forbidden_admin_access("a".into(), &json!({})).is_some());
    }
}
