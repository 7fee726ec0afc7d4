//! The conditions of namespaces and custom kinds that are being deleted.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::contents::RemainingContent;

/// A condition's type, status, reason and message.
type DesiredCondition = (&'static str, bool, &'static str, String);

/// Returns the conditions of a namespace that is being deleted, in the form of Kubernetes' namespace controller, which
/// counts what remains only when the pods are gone.
pub(super) fn namespace(present: &Value, remains: &RemainingContent, failures: &[String], now: Timestamp) -> Value {
    let yes_or = |holds: bool, reason, message: String, otherwise: (&'static str, &str)| {
        if holds { (reason, message) } else { (otherwise.0, otherwise.1.to_owned()) }
    };
    let failed = !failures.is_empty();
    let (deletion_reason, deletion_message) = yes_or(
        failed,
        "ContentDeletionFailed",
        format!("Failed to delete all resource types, {} remaining: {}", failures.len(), failures.join(", ")),
        ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    );
    let counts = !remains.waits_for_pods;
    let instances: Vec<_> = remains
        .resources
        .iter()
        .filter(|_| counts)
        .map(|(resource, count)| format!("{} has {count} resource instances", with_group(resource)))
        .collect();
    let (remaining_reason, remaining_message) = yes_or(
        !instances.is_empty(),
        "SomeResourcesRemain",
        format!("Some resources are remaining: {}", instances.join(", ")),
        ("ContentRemoved", "All content successfully removed"),
    );
    let held: Vec<_> = remains
        .finalizers
        .iter()
        .filter(|_| counts)
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let (finalizers_reason, finalizers_message) = yes_or(
        !held.is_empty(),
        "SomeFinalizersRemain",
        format!("Some content in the namespace has finalizers remaining: {}", held.join(", ")),
        ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    );
    let wanted: [DesiredCondition; 5] = [
        (
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".into(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".into(),
        ),
        ("NamespaceDeletionContentFailure", failed, deletion_reason, deletion_message),
        ("NamespaceContentRemaining", !instances.is_empty(), remaining_reason, remaining_message),
        ("NamespaceFinalizersRemaining", !held.is_empty(), finalizers_reason, finalizers_message),
    ];
    merged(present, &wanted, now)
}

/// Returns the conditions of a custom resource definition that is being deleted.
pub(super) fn custom_kind(present: &Value, failures: &[String], now: Timestamp) -> Value {
    let (reason, message) = if failures.is_empty() {
        ("InstanceDeletionInProgress", "CustomResource deletion is in progress".to_owned())
    } else {
        ("InstanceDeletionFailed", format!("could not issue all deletes: {}", failures.join(", ")))
    };
    merged(present, &[("Terminating", true, reason, message)], now)
}

/// Returns the name of a resource with its group, which is empty for those of the core group.
fn with_group(resource: &str) -> String {
    if resource.contains('.') { resource.to_owned() } else { format!("{resource}.") }
}

/// Merges the wanted conditions into the present ones. A condition whose status is unchanged keeps its transition time.
fn merged(present: &Value, wanted: &[DesiredCondition], now: Timestamp) -> Value {
    let mut conditions = present.as_array().cloned().unwrap_or_default();
    for (kind, holds, reason, message) in wanted {
        let status = if *holds { "True" } else { "False" };
        let index = conditions.iter().position(|condition| condition["type"] == *kind);
        let kept = index.map(|index| conditions[index].clone()).filter(|condition| condition["status"] == status);
        let time = kept.map_or_else(|| json!(format!("{now:.0}")), |condition| condition["lastTransitionTime"].clone());
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time,
        });
        match index {
            Some(index) => conditions[index] = condition,
            None => conditions.push(condition),
        }
    }
    conditions.into()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::*;

    fn remains() -> RemainingContent {
        RemainingContent {
            resources: BTreeMap::from([("secrets".to_owned(), 2)]),
            finalizers: BTreeMap::from([("example.com/mine".to_owned(), 1)]),
            to_delete: Vec::new(),
            waits_for_pods: false,
        }
    }

    fn find<'a>(conditions: &'a Value, kind: &str) -> &'a Value {
        conditions.as_array().and_then(|list| list.iter().find(|one| one["type"] == kind)).expect("the condition")
    }

    #[test]
    fn stuck_content_is_named() {
        let conditions = namespace(&Value::Null, &remains(), &[], Timestamp::UNIX_EPOCH);
        let remaining = find(&conditions, "NamespaceContentRemaining");
        assert_eq!(remaining["status"], "True");
        assert_eq!(remaining["message"], "Some resources are remaining: secrets. has 2 resource instances");
        assert_eq!(find(&conditions, "NamespaceFinalizersRemaining")["reason"], "SomeFinalizersRemain");
        assert_eq!(find(&conditions, "NamespaceDeletionContentFailure")["status"], "False");
        let first = RemainingContent { waits_for_pods: true, ..remains() };
        let conditions = namespace(&Value::Null, &first, &[], Timestamp::UNIX_EPOCH);
        assert_eq!(find(&conditions, "NamespaceContentRemaining")["status"], "False");
        assert_eq!(find(&conditions, "NamespaceFinalizersRemaining")["status"], "False");
    }

    #[test]
    fn an_unchanged_condition_keeps_its_transition_time() {
        let first = namespace(&Value::Null, &remains(), &[], Timestamp::UNIX_EPOCH);
        let later = Timestamp::UNIX_EPOCH + Duration::from_secs(60);
        assert_eq!(namespace(&first, &remains(), &[], later), first);
        let second = namespace(&first, &RemainingContent::default(), &[], later);
        assert_eq!(find(&second, "NamespaceContentRemaining")["lastTransitionTime"], "1970-01-01T00:01:00Z");
    }
}
