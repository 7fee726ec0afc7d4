//! Claims of devices: their allocation by the scheduler, and the end of it.

use k8s_openapi::api::{
    core::v1::{Event, Pod},
    resource::v1::{AllocationResult, ResourceClaim},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::json;

use crate::{create, gone, is_default, pod, replicaset::simulated, until};

const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// A class of devices, and two devices of the node.
const DEVICES: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: kubewright-gpus}
spec:
  driver: gpu.example.com
  nodeName: kubewright
  pool: {name: kubewright, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: small, attributes: {memory: {int: 8}}}
  - {name: large, attributes: {memory: {int: 80}}}
"#;

fn claim(name: &str, selector: &str) -> String {
    format!(
        "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: {name}}}, spec: {{devices: {{requests: [\
         {{name: r, exactly: {{deviceClassName: gpu, selectors: [{{cel: {{expression: \"{selector}\"}}}}]}}}}]}}}}}}"
    )
}

/// A cluster with two devices.
async fn with_devices() -> Cluster {
    let cluster = Cluster::builder().pods(Pods::Run).start().await.expect("a cluster");
    cluster.apply_yaml(DEVICES).await.expect("applied");
    cluster
}

fn using(name: &str, claim: &str) -> Pod {
    pod(name, "sleep 1000", json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}))
}

/// Waits until a claim meets a condition.
async fn claimed(cluster: &Cluster, name: &str, mut condition: impl FnMut(&ResourceClaim) -> bool) -> ResourceClaim {
    let mut met = |claims: &[&ResourceClaim]| claims.iter().any(|claim| is_default(*claim, name) && condition(claim));
    let found = cluster.expect::<ResourceClaim>(&mut met).await.unwrap_or_else(|unmet| panic!("{name}: {unmet}"));
    found.into_iter().find(|claim| is_default(claim, name)).expect("the claim")
}

fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

fn devices(claim: &ResourceClaim) -> Vec<&str> {
    let devices = allocation(claim).and_then(|allocation| allocation.devices.as_ref());
    let results = devices.and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    results.map(|result| &*result.device).collect()
}

fn users(claim: &ResourceClaim) -> Vec<&str> {
    let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref()).into_iter().flatten();
    users.map(|user| &*user.name).collect()
}

async fn delete(cluster: &Cluster, pod: &str) {
    crate::pods(cluster).delete(pod, &DeleteParams::default().grace_period(0)).await.expect("deleted");
    gone(cluster, pod).await;
}

fn reason(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == "PodScheduled")?.message.as_deref()
}

#[tokio::test]
async fn a_claim_has_devices_as_long_as_pods_use_it() {
    let cluster = with_devices().await;
    // Nothing is said about a pod whose claim isn't there.
    create(&cluster, &using("first", "big")).await;
    create(&cluster, &pod("other", "sleep 1000", json!({}))).await;
    until(&cluster, "other", crate::is_running).await;
    let waiting = until(&cluster, "first", |_| true).await;
    assert_eq!((waiting.spec.as_ref().and_then(|spec| spec.node_name.as_ref()), reason(&waiting)), (None, None));
    cluster.apply_yaml(&claim("big", "device.attributes['gpu.example.com'].memory > 40")).await.expect("applied");
    until(&cluster, "first", crate::is_running).await;
    create(&cluster, &using("second", "big")).await;
    until(&cluster, "second", crate::is_running).await;
    let big = claimed(&cluster, "big", |claim| users(claim).len() == 2).await;
    assert_eq!((devices(&big), users(&big)), (vec!["large"], vec!["first", "second"]));
    assert_eq!(big.finalizers(), [FINALIZER]);
    let selector = serde_json::to_value(&allocation(&big).expect("an allocation").node_selector).expect("JSON");
    let here = json!({"key": "metadata.name", "operator": "In", "values": ["kubewright"]});
    assert_eq!(selector, json!({"nodeSelectorTerms": [{"matchFields": [here]}]}));
    assert!(allocation(&big).is_some_and(|allocation| allocation.allocation_timestamp.is_some()));

    // Its device isn't for others until no pod uses it.
    cluster.apply_yaml(&claim("bigger", "device.attributes['gpu.example.com'].memory > 40")).await.expect("applied");
    create(&cluster, &using("third", "bigger")).await;
    let waiting = until(&cluster, "third", |pod| reason(pod).is_some()).await;
    let why = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are \
               available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(reason(&waiting), Some(why));
    let told = |events: &[&Event]| events.iter().any(|event| event.message.as_deref() == Some(why));
    cluster.expect(told).await.expect("an event");
    delete(&cluster, "first").await;
    let big = claimed(&cluster, "big", |claim| users(claim) == ["second"]).await;
    assert_eq!(devices(&big), ["large"]);
    delete(&cluster, "second").await;
    until(&cluster, "third", crate::is_running).await;
    let free = claimed(&cluster, "big", |claim| claim.finalizers().is_empty()).await;
    assert_eq!((allocation(&free), users(&free)), (None, vec![]));
    cluster.shutdown().await;
}

#[tokio::test]
async fn claims_of_templates_get_devices_and_go_with_their_pods() {
    let cluster = with_devices().await;
    let template = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: both}, spec: {spec: {devices: \
                    {requests: [{name: all, exactly: {deviceClassName: gpu, allocationMode: All}}]}}}}";
    cluster.apply_yaml(template).await.expect("applied");
    let made = |name: &str| {
        pod(name, "sleep 1000", json!({"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "both"}]}))
    };
    create(&cluster, &made("first")).await;
    until(&cluster, "first", crate::is_running).await;
    create(&cluster, &made("second")).await;
    until(&cluster, "second", |pod| reason(pod).is_some()).await;
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client(), "default");
    let claims = claims.list(&Default::default()).await.expect("claims").items;
    let mut allocated: Vec<_> = claims.iter().map(|claim| (users(claim), devices(claim))).collect();
    allocated.sort();
    assert_eq!(allocated, [(vec![], vec![]), (vec!["first"], vec!["small", "large"])]);
    delete(&cluster, "first").await;
    until(&cluster, "second", crate::is_running).await;
    let one = |claims: &[&ResourceClaim]| claims.len() == 1 && devices(claims[0]).len() == 2;
    cluster.expect::<ResourceClaim>(one).await.expect("the other claim is gone");
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_tainted_device_evicts_pods_that_do_not_tolerate_it() {
    let cluster = with_devices().await;
    let tough = claim("tough", "true").replace(
        "deviceClassName: gpu,",
        "deviceClassName: gpu, tolerations: [{operator: Exists, effect: NoExecute}],",
    );
    let weak = claim("weak", "device.attributes['gpu.example.com'].memory < 40");
    cluster.apply_yaml(&weak).await.expect("applied");
    create(&cluster, &using("first", "weak")).await;
    until(&cluster, "first", crate::is_running).await;
    cluster.apply_yaml(&tough).await.expect("applied");
    create(&cluster, &using("second", "tough")).await;
    until(&cluster, "second", crate::is_running).await;
    let taint = "taints: [{key: broken, effect: NoExecute}], attributes";
    cluster.apply_yaml(&DEVICES.replace("attributes", taint)).await.expect("applied");
    let told = |events: &[&Event]| {
        let is_it = |event: &&Event| event.reason.as_deref() == Some("DeviceTaintManagerEviction");
        let event = events.iter().copied().find(is_it);
        event.is_some_and(|event| {
            let source = event.reporting_component.as_deref() == Some("device-taint-eviction-controller");
            source && event.message.as_deref() == Some("Marking for deletion")
        })
    };
    cluster.expect(told).await.expect("an event");
    gone(&cluster, "first").await;
    let free = claimed(&cluster, "weak", |claim| claim.finalizers().is_empty()).await;
    assert_eq!((allocation(&free), users(&free)), (None, vec![]));
    create(&cluster, &using("third", "weak")).await;
    until(&cluster, "third", |pod| reason(pod).is_some()).await;
    let second = until(&cluster, "second", |_| true).await;
    assert!(crate::is_running(&second) && second.metadata.deletion_timestamp.is_none());
    cluster.shutdown().await;
}

/// Returns whether a pod has a node, or can't have one.
fn is_decided(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) || reason(pod).is_some()
}

/// A device of which several pods have a part, and the parts of another one.
const PARTS: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec:
  selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: counters}
spec:
  driver: gpu.example.com
  allNodes: true
  pool: {name: gpus, generation: 1, resourceSliceCount: 2}
  sharedCounters: [{name: memory, counters: {bytes: {value: 8Gi}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: parts}
spec:
  driver: gpu.example.com
  allNodes: true
  pool: {name: gpus, generation: 1, resourceSliceCount: 2}
  devices:
  - {name: half, consumesCounters: [{counterSet: memory, counters: {bytes: {value: 4Gi}}}]}
  - {name: whole, consumesCounters: [{counterSet: memory, counters: {bytes: {value: 8Gi}}}]}
  - name: shared
    allowMultipleAllocations: true
    capacity:
      bytes: {value: 8Gi, requestPolicy: {default: 2Gi, validRange: {min: 1Gi, step: 1Gi}}}
"#;

#[tokio::test(start_paused = true)]
async fn pods_have_parts_of_devices() {
    let cluster = simulated().await;
    cluster.apply_yaml(PARTS).await.expect("applied");
    let selected = |name: &str, selector: &str| {
        claim(name, selector)
            .replace("deviceClassName: gpu,", "deviceClassName: gpu, capacity: {requests: {bytes: 2500Mi}},")
    };
    for name in ["first", "second", "third"] {
        cluster.apply_yaml(&selected(name, "device.allowMultipleAllocations")).await.expect("applied");
        create(&cluster, &using(name, name)).await;
        until(&cluster, name, is_decided).await;
    }
    let mut shares = Vec::new();
    for name in ["first", "second"] {
        let claim = claimed(&cluster, name, |claim| allocation(claim).is_some()).await;
        let devices = allocation(&claim).and_then(|allocation| allocation.devices.clone()).expect("devices");
        let result = devices.results.expect("results").remove(0);
        let consumed = result.consumed_capacity.expect("a capacity");
        assert_eq!((&*result.device, &*consumed["bytes"].0), ("shared", "3Gi"));
        shares.extend(result.share_id);
    }
    shares.dedup();
    assert!(shares.len() == 2 && shares.iter().all(|share| share.len() == 36), "{shares:?}");
    let third = claimed(&cluster, "third", |_| true).await;
    assert_eq!(allocation(&third), None);
    // Nothing is left for the whole device when its half is in use.
    for (name, device) in [("half", Some("half")), ("whole", None)] {
        cluster.apply_yaml(&claim(name, "!device.allowMultipleAllocations")).await.expect("applied");
        create(&cluster, &using(name, name)).await;
        until(&cluster, name, is_decided).await;
        let claim = claimed(&cluster, name, |_| true).await;
        assert_eq!(devices(&claim), device.into_iter().collect::<Vec<_>>());
    }
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_pod_is_bound_when_its_devices_meet_their_conditions() {
    let cluster = Cluster::builder().pods(Pods::Run).start().await.expect("a cluster");
    let conditions = "bindingConditions: [attached], bindingFailureConditions: [broken], attributes";
    cluster.apply_yaml(&DEVICES.replace("attributes", conditions)).await.expect("applied");
    cluster.apply_yaml(&claim("slow", "device.attributes['gpu.example.com'].memory < 40")).await.expect("applied");
    create(&cluster, &using("user", "slow")).await;
    let told = |events: &[&Event]| {
        let mut messages = events.iter().filter(|event| event.reason.as_deref() == Some("BindingConditionsPending"));
        let message = messages.next().and_then(|event| event.message.as_deref());
        message == Some("waiting for binding conditions for device on node kubewright")
    };
    cluster.expect(told).await.expect("an event");
    let slow = claimed(&cluster, "slow", |claim| users(claim) == ["user"]).await;
    assert_eq!(devices(&slow), ["small"]);
    let waiting = until(&cluster, "user", |_| true).await;
    assert_eq!(waiting.spec.and_then(|spec| spec.node_name), None);
    let claims: Api<ResourceClaim> = Api::namespaced(cluster.client(), "default");
    let report = |kind: &str| {
        let condition = json!({
            "type": kind, "status": "True", "reason": "Known", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let device = json!({
            "driver": "gpu.example.com", "pool": "kubewright", "device": "small", "conditions": [condition],
        });
        Patch::Merge(json!({"status": {"devices": [device]}}))
    };
    // A device that fails is given back, and allocated again.
    claims.patch_status("slow", &Default::default(), &report("broken")).await.expect("reported");
    let failed = |events: &[&Event]| {
        let why = "running PreBind plugin \"DynamicResources\": device binding failed: claim=slow, reason=Known, \
                   message=\"\"";
        events.iter().any(|event| event.message.as_deref() == Some(why))
    };
    cluster.expect(failed).await.expect("an event");
    let is_new = |claim: &ResourceClaim| {
        let devices = claim.status.as_ref().and_then(|status| status.devices.as_ref());
        allocation(claim).is_some() && devices.is_none_or(Vec::is_empty)
    };
    claimed(&cluster, "slow", is_new).await;
    claims.patch_status("slow", &Default::default(), &report("attached")).await.expect("reported");
    until(&cluster, "user", crate::is_running).await;
    cluster.shutdown().await;
}
