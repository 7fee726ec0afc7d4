//! Dynamic resource allocation: device classes, resource claims and their templates, and resource slices
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/>).
//!
//! They are stored and checked. Nothing allocates devices. The checks cover what users, drivers and the scheduler
//! write.

mod admin_access;
mod attributes;
mod claim_status;
mod counters;
mod request_policy;
mod uuid;
mod validate;

use jiff::Timestamp;
use kubewright_apimachinery::status::Cause;
use serde_json::Value;

pub(crate) use self::admin_access::{admin_access, forbidden_admin_access};
use super::{
    columns::{age, string},
    validation::Errors,
};
use crate::{
    fields::{each, fill, fill_zero, has, list, present, text, within},
    meta,
    registry::{Column, Strategy},
};

/// The strategy of device classes.
#[derive(Debug)]
pub(super) struct DeviceClassStrategy;

impl Strategy for DeviceClassStrategy {
    fn validate(&self, _old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_class(new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

/// The strategy of resource claims.
#[derive(Debug)]
pub(super) struct ResourceClaimStrategy;

impl Strategy for ResourceClaimStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", default_claim);
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_claim(old, new, errors))
    }

    fn validate_status(&self, old: &Value, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| claim_status::validate_claim_status(old, new, errors))
    }

    fn prepare_status(&self, _subresource: &str, old: &Value, new: &mut Value, _now: &Value) {
        claim_status::drop_deallocated(old, new);
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// The strategy of templates for resource claims.
#[derive(Debug)]
pub(super) struct ResourceClaimTemplateStrategy;

impl Strategy for ResourceClaimTemplateStrategy {
    fn default(&self, object: &mut Value) {
        within(object, "spec", |spec| within(spec, "spec", default_claim));
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_template(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// The strategy of resource slices.
#[derive(Debug)]
pub(super) struct ResourceSliceStrategy;

impl Strategy for ResourceSliceStrategy {
    fn unsupported_field(&self, label: &str) -> String {
        format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
    }

    fn default_times(&self, object: &mut Value, now: Timestamp) {
        within_devices(object, |device| {
            each(device, "taints").for_each(|taint| fill(taint, "timeAdded", meta::time(now)));
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| validate::validate_slice(old, new, errors))
    }

    fn has_own_validation(&self) -> bool {
        true
    }
}

fn within_devices(slice: &mut Value, change: impl FnMut(&mut Value)) {
    present(slice, "spec", |spec| each(spec, "devices").for_each(change));
}

/// Sets the number of devices of each request: 1, unless all that fit are requested.
fn default_claim(spec: &mut Value) {
    fn count(request: &mut Value) {
        fill_zero(request, "allocationMode", "ExactCount");
        if text(request, "/allocationMode") == "ExactCount" {
            fill_zero(request, "count", 1);
        }
    }
    present(spec, "devices", |devices| {
        for request in each(devices, "requests") {
            present(request, "exactly", count);
            each(request, "firstAvailable").for_each(count);
        }
    });
    fill(spec, "devices", serde_json::Map::new());
}

pub(super) fn named_columns() -> Vec<Column> {
    vec![age()]
}

pub(super) fn claim_columns() -> Vec<Column> {
    vec![
        string("State", |object, _| {
            let deleting = has(object, "/metadata/deletionTimestamp");
            let allocated = has(object, "/status/allocation");
            let reserved = allocated && !list(object, "/status/reservedFor").is_empty();
            let states = [
                ("deleted", deleting),
                ("pending", !allocated && !deleting),
                ("allocated", allocated),
                ("reserved", reserved),
            ];
            states.iter().filter(|(_, holds)| *holds).map(|(state, _)| *state).collect::<Vec<_>>().join(",").into()
        }),
        age(),
    ]
}

pub(super) fn slice_columns() -> Vec<Column> {
    vec![
        string("Node", |object, _| text(object, "/spec/nodeName").into()),
        string("Driver", |object, _| text(object, "/spec/driver").into()),
        string("Pool", |object, _| text(object, "/spec/pool/name").into()),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn taints_of_devices_have_a_time() {
        let taints = json!([{"key": "a"}, {"key": "b", "timeAdded": "2020-01-01T00:00:00Z"}]);
        let mut slice = json!({"spec": {"devices": [{"name": "d", "taints": taints}]}});
        ResourceSliceStrategy.default_times(&mut slice, Timestamp::UNIX_EPOCH);
        let taints = json!([
            {"key": "a", "timeAdded": "1970-01-01T00:00:00Z"}, {"key": "b", "timeAdded": "2020-01-01T00:00:00Z"},
        ]);
        assert_eq!(slice, json!({"spec": {"devices": [{"name": "d", "taints": taints}]}}));
    }

    #[test]
    fn a_request_is_for_one_device() {
        let mut claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "c"}}, {"name": "b", "exactly": {"allocationMode": "All"}},
        ]}}});
        ResourceClaimStrategy.default(&mut claim);
        let request = |index: usize| &claim["spec"]["devices"]["requests"][index]["exactly"];
        assert_eq!(*request(0), json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}));
        assert_eq!(*request(1), json!({"allocationMode": "All"}));
    }
}
