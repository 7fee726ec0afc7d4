//! What OLM reports about an installation. Pure.

use serde_json::Value;

use crate::remote::text;

/// The state of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress<T> {
    /// It is done.
    Done(T),
    /// It isn't done yet, and why.
    Pending(String),
    /// It failed, and why.
    Failed(String),
}

fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the InstallPlan that a Subscription refers to.
pub(super) fn plan_name(subscription: &Value) -> &str {
    text(subscription, "/status/installPlanRef/name")
}

/// Returns the name of the InstallPlan of a Subscription that is not the one before.
pub(super) fn planned(subscription: &Value, source: Option<&Value>, before: &str) -> Progress<String> {
    let conditions = items(subscription, "/status/conditions").iter();
    let active: Vec<_> = conditions.filter(|condition| condition["status"] == "True").collect();
    let message = |kind: &str| {
        let condition = active.iter().find(|condition| condition["type"] == kind)?;
        Some(format!("{kind}: {}", reason(condition)))
    };
    if let Some(why) = message("BundleUnpackFailed") {
        return Progress::Failed(why);
    }
    match plan_name(subscription) {
        "" => {}
        name if name == before => {}
        name => return Progress::Done(name.to_owned()),
    }
    let unhealthy = ["ResolutionFailed", "BundleUnpacking", "CatalogSourcesUnhealthy"];
    let why = unhealthy.into_iter().find_map(message).unwrap_or_else(|| state_of_source(source));
    Progress::Pending(why)
}

/// Describes the state of a CatalogSource.
fn state_of_source(source: Option<&Value>) -> String {
    let Some(source) = source else { return "the catalogsource doesn't exist".into() };
    let name = text(source, "/metadata/name");
    match (text(source, "/status/message"), text(source, "/status/connectionState/lastObservedState")) {
        ("", "") => format!("OLM has not connected to catalogsource {name}"),
        ("", state) => format!("the connection to catalogsource {name} is {state}"),
        (message, _) => format!("catalogsource {name}: {message}"),
    }
}

/// Returns the names in an InstallPlan if the ClusterServiceVersion is among them.
pub(super) fn contents(plan: &Value, name: &str) -> Option<Vec<String>> {
    let names = items(plan, "/spec/clusterServiceVersionNames").iter().filter_map(Value::as_str);
    let names: Vec<_> = names.map(ToOwned::to_owned).collect();
    names.iter().any(|other| other == name).then_some(names)
}

/// Returns whether a ClusterServiceVersion is installed.
pub(super) fn installed(plan: Option<&Value>, csv: Option<&Value>) -> Progress<()> {
    if let Some(csv) = csv {
        match text(csv, "/status/phase") {
            "Succeeded" => return Progress::Done(()),
            "Failed" => return Progress::Failed(reason(&csv["status"])),
            _ => {}
        }
    }
    if let Some(plan) = plan.filter(|plan| text(plan, "/status/phase") == "Failed") {
        let name = text(plan, "/metadata/name");
        let failed = items(plan, "/status/conditions").iter().find(|condition| condition["status"] == "False");
        let why = failed.map_or_else(|| text(plan, "/status/message").to_owned(), reason);
        return Progress::Failed(format!("installplan {name} failed: {why}"));
    }
    Progress::Pending(match (csv, plan) {
        (Some(csv), _) if !text(csv, "/status/phase").is_empty() => {
            format!("the phase is {}: {}", text(csv, "/status/phase"), reason(&csv["status"]))
        }
        (_, Some(plan)) => format!("installplan {} is {}", text(plan, "/metadata/name"), text(plan, "/status/phase")),
        _ => "it does not exist".into(),
    })
}

/// Returns the requirements of a ClusterServiceVersion that are not met, each after a line break.
pub(super) fn unmet(csv: &Value) -> String {
    let is_unmet = |found: &&Value| !matches!(text(found, "/status"), "Present" | "Satisfied" | "");
    let line = |found: &Value| {
        let (kind, name) = (text(found, "/kind").to_lowercase(), text(found, "/name"));
        format!("\n  {kind} {name} is {}: {}", text(found, "/status"), text(found, "/message"))
    };
    items(csv, "/status/requirementStatus").iter().filter(is_unmet).map(line).collect()
}

/// Joins the reason and the message of a status.
fn reason(status: &Value) -> String {
    match (text(status, "/reason"), text(status, "/message")) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_new_plan_is_found_or_why_there_is_none() {
        let pending = |why: &str| Progress::Pending(why.to_owned());
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Why", "message": "because"});
        let of = |status: Value, source: Option<Value>| planned(&json!({"status": status}), source.as_ref(), "old");
        let source = |status: Value| Some(json!({"metadata": {"name": "cow-catalog"}, "status": status}));
        let plan = |name: &str| json!({"installPlanRef": {"name": name}});
        assert_eq!(of(plan("new"), None), Progress::Done("new".into()));
        assert_eq!(of(plan("old"), source(json!({}))), pending("OLM has not connected to catalogsource cow-catalog"));
        let connecting = json!({"connectionState": {"lastObservedState": "CONNECTING"}});
        assert_eq!(
            of(json!({}), source(connecting)),
            pending("the connection to catalogsource cow-catalog is CONNECTING")
        );
        let broken = json!({"message": "no address", "reason": "SpecInvalidError"});
        assert_eq!(of(json!({}), source(broken)), pending("catalogsource cow-catalog: no address"));
        assert_eq!(of(json!({}), None), pending("the catalogsource doesn't exist"));
        let conditions =
            |kinds: &[&str]| json!({"conditions": kinds.iter().map(|kind| condition(kind)).collect::<Vec<_>>()});
        assert_eq!(
            of(conditions(&["CatalogSourcesUnhealthy", "ResolutionFailed"]), None),
            pending("ResolutionFailed: Why: because")
        );
        let failed = Progress::Failed("BundleUnpackFailed: Why: because".into());
        assert_eq!(of(conditions(&["BundleUnpackFailed"]), None), failed);
        let past = json!({"conditions": [{"type": "ResolutionFailed", "status": "False"}]});
        assert_eq!(of(past, None), pending("the catalogsource doesn't exist"));
    }

    #[test]
    fn only_a_plan_with_the_version_is_approved() {
        let plan = json!({"spec": {"clusterServiceVersionNames": ["hay.v1", "cow.v2"]}});
        assert_eq!(contents(&plan, "cow.v2").unwrap(), ["hay.v1", "cow.v2"]);
        assert_eq!(contents(&plan, "cow.v1"), None);
    }

    #[test]
    fn a_version_is_installed_or_why_not() {
        let csv = |phase: &str| json!({"status": {"phase": phase, "reason": "Some", "message": "more"}});
        let plan = |phase: &str| {
            let condition = json!({"type": "Installed", "status": "False", "message": "no right"});
            json!({"metadata": {"name": "p"}, "status": {"phase": phase, "conditions": [condition]}})
        };
        let of = |plan: Option<Value>, csv: Option<Value>| installed(plan.as_ref(), csv.as_ref());
        let pending = |why: &str| Progress::Pending(why.to_owned());
        assert_eq!(of(None, Some(csv("Succeeded"))), Progress::Done(()));
        assert_eq!(of(None, Some(csv("Failed"))), Progress::Failed("Some: more".into()));
        assert_eq!(of(Some(plan("Failed")), None), Progress::Failed("installplan p failed: no right".into()));
        assert_eq!(of(Some(plan("Complete")), Some(csv("Installing"))), pending("the phase is Installing: Some: more"));
        assert_eq!(of(Some(plan("Installing")), None), pending("installplan p is Installing"));
        assert_eq!(of(None, None), pending("it does not exist"));
    }

    #[test]
    fn unmet_requirements_are_listed() {
        let found =
            |status: &str| json!({"kind": "ServiceAccount", "name": "cow", "status": status, "message": "no rule"});
        let csv = json!({"status": {"requirementStatus": [found("Present"), found("PresentNotSatisfied")]}});
        assert_eq!(unmet(&csv), "\n  serviceaccount cow is PresentNotSatisfied: no rule");
    }
}
