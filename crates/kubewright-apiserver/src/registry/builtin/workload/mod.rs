//! Deployments, replica sets, replication controllers, stateful sets, daemon sets, controller revisions and pod
//! templates.

mod status;
mod template;
mod validate;

use kubewright_apimachinery::{name, status::Cause};
use serde_json::{Value, json};

pub(super) use self::{
    template::{PodTemplateStrategy, pod_template_columns},
    validate::{validate_not_more_than_whole, validate_positive_int_or_percent},
};
use super::{
    columns::{age, integer, labels, of_template, ratio, string},
    pod::{default_spec, name_warning, template_warnings},
    storage::{claim_warnings, default_claim},
    validation::{Errors, Path},
};
use crate::{
    fields::{each, fill, fill_zero, has, int, list, present, remove, set, text, within},
    registry::{Column, Strategy},
};

/// The path of the pod template, in warnings.
const TEMPLATE: Path<'static> = Path::new("spec.template");

/// The strategy of deployments.
#[derive(Debug)]
pub(super) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            default_template(spec);
            fill(spec, "replicas", 1);
            fill(spec, "revisionHistoryLimit", 10);
            fill(spec, "progressDeadlineSeconds", 600);
            rolling_update(spec, "strategy", json!({"maxUnavailable": "25%", "maxSurge": "25%"}));
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_deployment(old, new, errors))
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| status::validate_status(old, new, &status::DEPLOYMENT, errors))
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut warnings = name_warning(old, new);
        warnings.extend(warnings_if_changed(old, new, &new["spec"]["template"], &TEMPLATE));
        warnings
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    /// Annotations count, too, since a Deployment's replica sets inherit them.
    fn increments_generation(&self, old: &Value, new: &Value, changed: bool) -> bool {
        changed || old["metadata"]["annotations"] != new["metadata"]["annotations"]
    }
}

/// The strategy of replica sets.
#[derive(Debug)]
pub(super) struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            default_template(spec);
            fill(spec, "replicas", 1);
        });
    }

    fn prepare_create(&self, object: &mut Value) {
        within(object, "status", |status| fill(status, "replicas", 0));
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_replica_set(old, new, errors))
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| status::validate_status(old, new, &status::REPLICA_SET, errors))
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut warnings = name_warning(old, new);
        warnings.extend(warnings_if_changed(old, new, &new["spec"]["template"], &TEMPLATE));
        warnings
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

/// The strategy of replication controllers.
#[derive(Debug)]
pub(super) struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    /// Defaults labels and selector to the labels of the template.
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            present(spec, "template", default_pod_template);
            fill(spec, "replicas", 1);
        });
        let labels = object.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
        if !has_entries(&labels) {
            return;
        }
        within(object, "spec", |spec| {
            if !has_entries(&spec["selector"]) {
                set(spec, "selector", labels.clone());
            }
        });
        within(object, "metadata", |metadata| {
            if !has_entries(&metadata["labels"]) {
                set(metadata, "labels", labels.clone());
            }
        });
    }

    fn prepare_create(&self, object: &mut Value) {
        ReplicaSetStrategy.prepare_create(object);
    }

    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_replication_controller(new, errors))
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| status::validate_status(old, new, &status::REPLICA_SET, errors))
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        // As in Kubernetes, updates of this kind have no warnings.
        if old.is_some() {
            return Vec::new();
        }
        let mut warnings = name_warning(old, new);
        warnings.extend(template_warnings(&new["spec"]["template"], &TEMPLATE));
        warnings
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

fn has_entries(map: &Value) -> bool {
    map.as_object().is_some_and(|map| !map.is_empty())
}

/// The strategy of stateful sets.
#[derive(Debug)]
pub(super) struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| {
            default_template(spec);
            fill(spec, "replicas", 1);
            fill(spec, "revisionHistoryLimit", 10);
            fill_zero(spec, "podManagementPolicy", "OrderedReady");
            within(spec, "updateStrategy", |strategy| {
                // Unlike for other kinds, an explicit type has no default parameters.
                if text(strategy, "/type").is_empty() {
                    fill_zero(strategy, "type", "RollingUpdate");
                    within(strategy, "rollingUpdate", |_| {});
                }
                if text(strategy, "/type") == "RollingUpdate" {
                    present(strategy, "rollingUpdate", |numbers| fill(numbers, "partition", 0));
                }
            });
            for claim in each(spec, "volumeClaimTemplates") {
                set(claim, "apiVersion", "v1");
                set(claim, "kind", "PersistentVolumeClaim");
                default_claim(claim);
            }
            within(spec, "persistentVolumeClaimRetentionPolicy", |policy| {
                fill(policy, "whenDeleted", "Retain");
                fill(policy, "whenScaled", "Retain");
            });
        });
    }

    fn prepare_create(&self, object: &mut Value) {
        drop_max_unavailable(None, object);
    }

    fn prepare_update(&self, old: &Value, new: &mut Value) {
        drop_max_unavailable(Some(old), new);
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_stateful_set(old, new, errors))
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| status::validate_status(old, new, &status::STATEFUL_SET, errors))
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        let mut warnings = warnings_if_changed(old, new, &new["spec"]["template"], &TEMPLATE);
        let path = Path::new("spec.volumeClaimTemplates");
        for (index, claim) in list(new, "/spec/volumeClaimTemplates").iter().enumerate() {
            let path = path.index(index);
            // As in Kubernetes, the path differs on update.
            let path = if old.is_some() { path.child("Spec") } else { path };
            claim_warnings(&claim["spec"], &path, &mut warnings);
        }
        if int(new, "/spec/revisionHistoryLimit") < 0 {
            let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
            warnings.push(format!("spec.revisionHistoryLimit: {why}"));
        }
        warnings
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        name::dns1123_label
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

/// Removes the number of pods of a stateful set that an update stops at once, unless the old object has it. Kubernetes'
/// feature MaxUnavailableStatefulSet is off by default.
fn drop_max_unavailable(old: Option<&Value>, new: &mut Value) {
    const AT: &str = "/spec/updateStrategy/rollingUpdate";
    if old.is_some_and(|old| has(old, &format!("{AT}/maxUnavailable"))) {
        return;
    }
    if let Some(update) = new.pointer_mut(AT) {
        remove(update, "maxUnavailable");
    }
}

/// The strategy of daemon sets.
#[derive(Debug)]
pub(super) struct DaemonSetStrategy;

/// The annotation that counts the changes of a daemon set's template. It was a field of an older version.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Returns the number of changes of a daemon set's template, 0 for a new one.
fn template_generation(object: &Value) -> i64 {
    object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    within(object, "metadata", |metadata| {
        within(metadata, "annotations", |annotations| {
            set(annotations, TEMPLATE_GENERATION, generation.to_string());
        });
    });
}

impl Strategy for DaemonSetStrategy {
    fn prepare_create(&self, object: &mut Value) {
        set_template_generation(object, template_generation(object).max(1));
    }

    fn prepare_update(&self, old: &Value, new: &mut Value) {
        let changed = old["spec"]["template"] != new["spec"]["template"];
        set_template_generation(new, template_generation(old) + i64::from(changed));
    }

    fn default(&self, object: &mut Value) {
        set_template_generation(object, template_generation(object));
        within(object, "spec", |spec| {
            default_template(spec);
            fill(spec, "revisionHistoryLimit", 10);
            rolling_update(spec, "updateStrategy", json!({"maxUnavailable": 1, "maxSurge": 0}));
            // The numbers that another strategy doesn't use.
            present(spec, "updateStrategy", |strategy| {
                present(strategy, "rollingUpdate", |numbers| {
                    ["maxUnavailable", "maxSurge"].iter().for_each(|name| fill(numbers, name, 0));
                });
            });
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_daemon_set(old, new, errors))
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| status::validate_status(old, new, &status::DAEMON_SET, errors))
    }

    fn warnings(&self, old: Option<&Value>, new: &Value) -> Vec<String> {
        warnings_if_changed(old, new, &new["spec"]["template"], &TEMPLATE)
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

/// The strategy of controller revisions.
#[derive(Debug)]
pub(super) struct ControllerRevisionStrategy;

impl Strategy for ControllerRevisionStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_controller_revision(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// Sets the defaults of the pod template in `spec.template`.
pub(super) fn default_template(spec: &mut Value) {
    within(spec, "template", default_pod_template);
}

fn default_pod_template(template: &mut Value) {
    within(template, "metadata", |_| {});
    within(template, "spec", default_spec);
}

/// Returns the warnings about the pod template at `path`, unless an update leaves the spec as it is.
pub(super) fn warnings_if_changed(old: Option<&Value>, new: &Value, template: &Value, path: &Path<'_>) -> Vec<String> {
    let unchanged = old.is_some_and(|old| old["spec"] == new["spec"]);
    if unchanged { Vec::new() } else { template_warnings(template, path) }
}

/// Sets the default update strategy: `RollingUpdate` with these parameters.
fn rolling_update(spec: &mut Value, field: &str, defaults: Value) {
    within(spec, field, |strategy| {
        fill(strategy, "type", "RollingUpdate");
        if text(strategy, "/type") != "RollingUpdate" {
            return;
        }
        within(strategy, "rollingUpdate", |numbers| {
            for (name, number) in defaults.as_object().into_iter().flatten() {
                fill(numbers, name, number.clone());
            }
        });
    });
}

pub(super) fn deployment_columns() -> Vec<Column> {
    let mut columns = vec![
        string("Ready", |object, _| ratio(object, "/status/readyReplicas", "/spec/replicas")),
        string("Up-to-date", |object, _| int(object, "/status/updatedReplicas").into()),
        string("Available", |object, _| int(object, "/status/availableReplicas").into()),
        age(),
    ];
    columns.extend(of_template());
    columns
}

pub(super) fn replica_set_columns() -> Vec<Column> {
    let mut columns = vec![
        integer("Desired", |object, _| int(object, "/spec/replicas").into()),
        integer("Current", |object, _| int(object, "/status/replicas").into()),
        integer("Ready", |object, _| int(object, "/status/readyReplicas").into()),
        age(),
    ];
    columns.extend(of_template());
    columns
}

/// Returns the columns of `Scale` objects, which all kinds with a scale share.
pub(crate) fn scale_columns() -> Vec<Column> {
    vec![
        string("Name", |scale, _| text(scale, "/metadata/name").into()),
        integer("Desired", |scale, _| int(scale, "/spec/replicas").into()),
        integer("Available", |scale, _| int(scale, "/status/replicas").into()),
        age(),
    ]
}

pub(super) fn replication_controller_columns() -> Vec<Column> {
    let mut columns = replica_set_columns();
    columns.pop();
    columns.push(string("Selector", |object, _| labels(object, "/spec/selector")).wide());
    columns
}

pub(super) fn stateful_set_columns() -> Vec<Column> {
    let mut columns =
        vec![string("Ready", |object, _| ratio(object, "/status/readyReplicas", "/spec/replicas")), age()];
    // Adds all columns of the template except the selector.
    columns.extend(of_template().into_iter().take(2));
    columns
}

pub(super) fn daemon_set_columns() -> Vec<Column> {
    let mut columns = vec![
        integer("Desired", |object, _| int(object, "/status/desiredNumberScheduled").into()),
        integer("Current", |object, _| int(object, "/status/currentNumberScheduled").into()),
        integer("Ready", |object, _| int(object, "/status/numberReady").into()),
        integer("Up-to-date", |object, _| int(object, "/status/updatedNumberScheduled").into()),
        integer("Available", |object, _| int(object, "/status/numberAvailable").into()),
        string("Node Selector", |object, _| labels(object, "/spec/template/spec/nodeSelector")),
        age(),
    ];
    columns.extend(of_template());
    columns
}

pub(super) fn controller_revision_columns() -> Vec<Column> {
    vec![
        string("Controller", |object, _| {
            let owner = object["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|owner| owner["controller"] == true);
            match owner {
                Some(owner) => {
                    let api = text(owner, "/apiVersion");
                    let group = api.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
                    format!("{}{group}/{}", text(owner, "/kind").to_lowercase(), text(owner, "/name")).into()
                }
                None => super::columns::NONE.into(),
            }
        }),
        string("Revision", |object, _| int(object, "/revision").into()),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "d"}, "spec": spec});
        DeploymentStrategy.default(&mut object);
        object
    }

    fn sound() -> Value {
        deployment(json!({
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        }))
    }

    fn check(object: &Value, old: Option<&Value>, expect: &[&str]) {
        let found: Vec<_> = DeploymentStrategy.validate(old, object).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn a_stateful_set_updates_one_pod_at_a_time() {
        let set =
            |update: Value| json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": update}}});
        let (with, without) = (json!({"partition": 0, "maxUnavailable": 0}), json!({"partition": 0}));
        let mut new = set(with.clone());
        StatefulSetStrategy.prepare_create(&mut new);
        assert_eq!(new, set(without.clone()));
        let mut new = set(with.clone());
        StatefulSetStrategy.prepare_update(&set(without.clone()), &mut new);
        assert_eq!(new, set(without));
        let mut new = set(with.clone());
        StatefulSetStrategy.prepare_update(&set(with.clone()), &mut new);
        assert_eq!(new, set(with), "an object keeps what it has");
    }

    #[test]
    fn a_deployment_gets_its_published_defaults() {
        let object = sound();
        check(&object, None, &[]);
        let spec = &object["spec"];
        assert_eq!(spec["replicas"], 1);
        assert_eq!(spec["strategy"]["rollingUpdate"], json!({"maxUnavailable": "25%", "maxSurge": "25%"}));
        assert_eq!(spec["template"]["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(spec["template"]["spec"].get("enableServiceLinks"), None);
        let recreated = deployment(json!({"strategy": {"type": "Recreate"}}));
        assert_eq!(recreated["spec"]["strategy"], json!({"type": "Recreate"}));
    }

    #[test]
    fn selectors_are_required_immutable_and_match_the_template() {
        let mut object = sound();
        object["spec"]["selector"] = Value::Null;
        let unmatched = "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`";
        check(&object, None, &["spec.selector: Required value", unmatched]);
        object["spec"]["selector"] = json!({});
        check(&object, None, &["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]);
        object["spec"]["selector"] = json!({"matchLabels": {"app": "y"}});
        let mismatch = "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`";
        check(&object, None, &[mismatch]);
        object["spec"]["template"]["metadata"]["labels"] = json!({"app": "y"});
        let changed = "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"y\"}}: field is immutable";
        check(&object, Some(&sound()), &[changed]);
    }

    #[test]
    fn a_replication_controller_defaults_to_the_labels_of_its_template() {
        let template =
            json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let check = |spec: Value, expect: &[&str]| {
            let mut object = json!({"metadata": {"name": "r"}, "spec": spec});
            ReplicationControllerStrategy.default(&mut object);
            let found: Vec<_> =
                ReplicationControllerStrategy.validate(None, &object).iter().map(ToString::to_string).collect();
            assert_eq!(found, expect);
            object
        };
        let object = check(json!({"template": template}), &[]);
        assert_eq!((&object["spec"]["replicas"], &object["metadata"]["labels"]), (&json!(1), &json!({"app": "x"})));
        assert_eq!(object["spec"]["selector"], json!({"app": "x"}));
        let mismatch = "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`";
        check(json!({"template": template, "selector": {"app": "y"}}), &[mismatch]);
        let mut bare = template.clone();
        bare["metadata"] = json!({});
        check(json!({"template": bare}), &["spec.selector: Required value"]);
    }

    #[test]
    fn numbers_and_policies_are_validated() {
        let mut object = sound();
        object["spec"]["replicas"] = (-1).into();
        object["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
        object["spec"]["strategy"]["rollingUpdate"] = json!({"maxUnavailable": 0, "maxSurge": 0});
        check(
            &object,
            None,
            &[
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
            ],
        );
    }

    #[test]
    fn names_from_which_those_of_pods_are_derived_have_no_dots() {
        let object = json!({"metadata": {"name": "a.b"}, "spec": {"template": {}}});
        let expected = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; \
                        a DNS label is recommended: [must not contain dots]";
        let kinds: [&dyn Strategy; 3] = [&DeploymentStrategy, &ReplicaSetStrategy, &ReplicationControllerStrategy];
        for kind in kinds {
            assert_eq!(kind.warnings(None, &object), [expected]);
            assert_eq!(kind.warnings(Some(&object), &object), [""; 0]);
        }
        assert_eq!(DaemonSetStrategy.warnings(None, &object), [""; 0]);
    }
}
