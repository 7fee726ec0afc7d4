//! Pods that can't be bound wait, with a condition that says why.

use k8s_openapi::api::{
    core::v1::{Event, Node, Pod, PodCondition},
    scheduling::v1::PriorityClass,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kubewright_cluster::{Cluster, Pods};
use serde_json::{Value, json};

use crate::{create, phase, pod, until};

const PREEMPTION: &str =
    "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

async fn node(cluster: &Cluster, patch: Value) {
    let nodes: Api<Node> = Api::all(cluster.client());
    nodes.patch("kubewright", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
}

/// Returns the message of a pod's condition if it isn't scheduled.
fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|one| one.type_ == "PodScheduled" && one.status == "False")?;
    assert_eq!(condition.reason.as_deref(), Some("Unschedulable"));
    condition.message.clone()
}

#[tokio::test]
async fn a_cordoned_node_takes_no_pods_until_it_is_uncordoned() {
    let cluster = Cluster::builder().pods(Pods::Run).start().await.expect("a cluster");
    node(&cluster, json!({"spec": {"unschedulable": true}})).await;
    create(&cluster, &pod("web", "sleep 1000", json!({}))).await;
    let waiting = until(&cluster, "web", |pod| unscheduled(pod).is_some()).await;
    let why = format!("0/1 nodes are available: 1 node(s) were unschedulable. {PREEMPTION}");
    assert_eq!((unscheduled(&waiting), phase(&waiting)), (Some(why.clone()), "Pending"));
    let told = |events: &[&Event]| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("FailedScheduling")
                && event.type_.as_deref() == Some("Warning")
                && event.message.as_deref() == Some(&why)
                && is_of_scheduler(event, "Scheduling")
        })
    };
    cluster.expect(told).await.expect("a warning");
    node(&cluster, json!({"spec": {"unschedulable": null}})).await;
    until(&cluster, "web", crate::is_running).await;
    let bound = |events: &[&Event]| {
        events.iter().any(|event| event.reason.as_deref() == Some("Scheduled") && is_of_scheduler(event, "Binding"))
    };
    cluster.expect(bound).await.expect("an event");
    cluster.shutdown().await;
}

/// Returns whether an event has the form of those of kube-scheduler, which come from the newer API.
fn is_of_scheduler(event: &Event, action: &str) -> bool {
    let source = event.source.clone().unwrap_or_default();
    event.reporting_component.as_deref() == Some("default-scheduler")
        && event.reporting_instance.as_deref() == Some("default-scheduler-kubewright")
        && event.action.as_deref() == Some(action)
        && event.involved_object.resource_version.is_some()
        && event.event_time.is_some()
        && (source.component, event.count, event.first_timestamp.as_ref()) == (None, None, None)
}

#[tokio::test]
async fn pods_are_bound_to_another_node_once_it_is_ready() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let nodes: Api<Node> = Api::all(cluster.client());
    let other = |ready: &str| {
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let conditions = json!([{"type": "Ready", "status": ready}]);
        json!({"metadata": {"name": "other", "labels": {"type": "other"}}, "status": {"allocatable": allocatable, "conditions": conditions}})
    };
    let created = serde_json::from_value(other("False")).expect("a node");
    nodes.create(&PostParams::default(), &created).await.expect("created");
    create(&cluster, &pod("web", "true", json!({"nodeSelector": {"type": "other"}}))).await;
    let waiting = until(&cluster, "web", |pod| unscheduled(pod).is_some()).await;
    let why = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s). \
               no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(unscheduled(&waiting).as_deref(), Some(why));
    let ready = Patch::Merge(other("True"));
    nodes.patch_status("other", &PatchParams::default(), &ready).await.expect("a status");
    let bound = until(&cluster, "web", |pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).await;
    assert_eq!(bound.spec.and_then(|spec| spec.node_name).as_deref(), Some("other"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn labels_and_taints_decide_which_pods_are_bound() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    create(&cluster, &pod("picky", "true", json!({"nodeSelector": {"disk": "ssd"}}))).await;
    let why = |obstacle: &str| format!("0/1 nodes are available: 1 {obstacle}. {PREEMPTION}");
    let found = until(&cluster, "picky", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&found), Some(why("node(s) didn't match Pod's node affinity/selector")));
    node(&cluster, json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    until(&cluster, "picky", |pod| phase(pod) == "Running").await;

    node(&cluster, json!({"spec": {"taints": [{"key": "for", "value": "cows", "effect": "NoSchedule"}]}})).await;
    create(&cluster, &pod("pig", "true", json!({}))).await;
    create(&cluster, &pod("cow", "true", json!({"tolerations": [{"key": "for", "value": "cows"}]}))).await;
    until(&cluster, "cow", |pod| phase(pod) == "Running").await;
    let repelled = why("node(s) had untolerated taint(s)");
    until(&cluster, "pig", |pod| unscheduled(pod).as_ref() == Some(&repelled)).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn pods_wait_for_what_they_request() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let nodes: Api<Node> = Api::all(cluster.client());
    let amounts = json!({"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}});
    nodes.patch_status("kubewright", &PatchParams::default(), &Patch::Merge(&amounts)).await.expect("patched");
    let large = |name: &str, cpu: &str, memory: &str| {
        let requests = json!({"requests": {"cpu": cpu, "memory": memory}});
        let container = json!({"name": "main", "image": "busybox", "resources": requests});
        pod(name, "", json!({"containers": [container]}))
    };
    create(&cluster, &large("first", "1500m", "3Gi")).await;
    until(&cluster, "first", |pod| phase(pod) == "Running").await;
    let no_victims = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    create(&cluster, &large("second", "1", "2Gi")).await;
    let why = format!("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. {no_victims}");
    let waiting = until(&cluster, "second", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&waiting), Some(why));
    create(&cluster, &large("huge", "3", "1Gi")).await;
    let huge = until(&cluster, "huge", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&huge), Some(format!("0/1 nodes are available: 1 Insufficient cpu. {PREEMPTION}")));
    create(&cluster, &large("small", "500m", "1Gi")).await;
    until(&cluster, "small", |pod| phase(pod) == "Running").await;

    crate::pods(&cluster).delete("first", &DeleteParams::default().grace_period(0)).await.expect("accepted");
    until(&cluster, "second", |pod| phase(pod) == "Running").await;
    assert_eq!(phase(&until(&cluster, "huge", |_| true).await), "Pending");
    cluster.shutdown().await;
}

#[tokio::test]
async fn pods_wait_for_their_host_ports() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let with_port = |name: &str, mut port: Value| {
        port["containerPort"] = json!(80);
        port["hostPort"] = json!(8080);
        pod(name, "", json!({"containers": [{"name": "main", "image": "busybox", "ports": [port]}]}))
    };
    create(&cluster, &with_port("first", json!({}))).await;
    until(&cluster, "first", |pod| phase(pod) == "Running").await;
    create(&cluster, &with_port("second", json!({"hostIP": "127.0.0.1"}))).await;
    let waiting = until(&cluster, "second", |pod| unscheduled(pod).is_some()).await;
    let conflict = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    let why = format!(
        "{conflict} no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    );
    assert_eq!((unscheduled(&waiting), phase(&waiting)), (Some(why), "Pending"));
    create(&cluster, &with_port("other", json!({"protocol": "UDP"}))).await;
    until(&cluster, "other", |pod| phase(pod) == "Running").await;
    assert_eq!(phase(&until(&cluster, "second", |_| true).await), "Pending");

    crate::pods(&cluster).delete("first", &DeleteParams::default().grace_period(0)).await.expect("accepted");
    until(&cluster, "second", |pod| phase(pod) == "Running").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn bound_pods_get_the_zone_of_their_node() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    node(&cluster, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}})).await;
    create(&cluster, &pod("web", "true", json!({}))).await;
    let bound = until(&cluster, "web", |pod| phase(pod) == "Running").await;
    let labels = bound.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("topology.kubernetes.io/zone").map(String::as_str), Some("a"));
    cluster.shutdown().await;
}

#[tokio::test]
async fn gated_pods_say_so_until_their_gates_are_removed() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let created =
        create(&cluster, &pod("gated", "true", json!({"schedulingGates": [{"name": "example.com/ready"}]}))).await;
    let conditions = created.status.and_then(|status| status.conditions).unwrap_or_default();
    let found: Vec<_> = conditions.iter().map(|one| (&*one.type_, &*one.status, one.reason.as_deref())).collect();
    assert_eq!(found, [("PodScheduled", "False", Some("SchedulingGated"))]);
    let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    crate::pods(&cluster).patch("gated", &PatchParams::default(), &open).await.expect("patched");
    let bound = until(&cluster, "gated", |pod| phase(pod) == "Running").await;
    let conditions = bound.status.and_then(|status| status.conditions).unwrap_or_default();
    let scheduled: Vec<_> =
        conditions.iter().filter(|one| one.type_ == "PodScheduled").map(|one| &*one.status).collect();
    assert_eq!(scheduled, ["True"]);
    cluster.shutdown().await;
}

/// A pod with labels.
fn labeled(mut pod: Pod, labels: Value) -> Pod {
    pod.metadata.labels = serde_json::from_value(labels).expect("labels");
    pod
}

/// The affinity of a kind to pods with these labels on the same host.
fn affinity(kind: &str, labels: Value) -> Value {
    let term = json!({"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

#[tokio::test]
async fn pods_wait_for_others_to_go_or_to_come() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let alone = || affinity("podAntiAffinity", json!({"app": "web"}));
    create(&cluster, &labeled(pod("first", "true", alone()), json!({"app": "web"}))).await;
    until(&cluster, "first", |pod| phase(pod) == "Running").await;
    create(&cluster, &labeled(pod("second", "true", alone()), json!({"app": "web"}))).await;
    create(&cluster, &labeled(pod("plain", "true", json!({})), json!({"app": "web"}))).await;
    create(&cluster, &pod("beside", "true", affinity("podAffinity", json!({"app": "db"})))).await;
    let no_victims = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    for (name, reason, preemption) in [
        ("second", "node(s) didn't match pod anti-affinity rules", no_victims),
        ("plain", "node(s) didn't satisfy existing pods anti-affinity rules", no_victims),
        ("beside", "node(s) didn't match pod affinity rules", PREEMPTION),
    ] {
        let why = format!("0/1 nodes are available: 1 {reason}. {preemption}");
        let waiting = until(&cluster, name, |pod| unscheduled(pod).is_some()).await;
        assert_eq!((unscheduled(&waiting), phase(&waiting)), (Some(why), "Pending"));
    }
    // Labels of a running pod matter, too.
    let free = Patch::Merge(json!({"metadata": {"labels": {"app": "db"}}}));
    crate::pods(&cluster).patch("first", &PatchParams::default(), &free).await.expect("patched");
    until(&cluster, "beside", |pod| phase(pod) == "Running").await;
    crate::pods(&cluster).delete("first", &DeleteParams::default().grace_period(0)).await.expect("accepted");
    until(&cluster, "second", |pod| phase(pod) == "Running").await;
    assert_eq!(phase(&until(&cluster, "plain", |_| true).await), "Pending");
    crate::pods(&cluster).delete("second", &DeleteParams::default().grace_period(0)).await.expect("accepted");
    until(&cluster, "plain", |pod| phase(pod) == "Running").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn pods_wait_for_the_domains_of_their_spread() {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await.expect("a cluster");
    let spread = |key: &str, domains: Value| {
        let constraint = json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "minDomains": domains,
            "labelSelector": {"matchLabels": {"app": "web"}},
        });
        json!({"topologySpreadConstraints": [constraint]})
    };
    let web = |name: &str, spec: Value| labeled(pod(name, "true", spec), json!({"app": "web"}));
    create(&cluster, &web("first", spread("kubernetes.io/hostname", json!(2)))).await;
    until(&cluster, "first", |pod| phase(pod) == "Running").await;
    create(&cluster, &web("second", spread("kubernetes.io/hostname", json!(2)))).await;
    create(&cluster, &web("placed", spread("example.com/rack", Value::Null))).await;
    let no_victims = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let skew = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints";
    let waiting = until(&cluster, "second", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&waiting), Some(format!("{skew}. {no_victims}")));
    let waiting = until(&cluster, "placed", |pod| unscheduled(pod).is_some()).await;
    assert_eq!(unscheduled(&waiting), Some(format!("{skew} (missing required label). {PREEMPTION}")));
    node(&cluster, json!({"metadata": {"labels": {"example.com/rack": "r1"}}})).await;
    until(&cluster, "placed", |pod| phase(pod) == "Running").await;
    let free = Patch::Merge(json!({"metadata": {"labels": {"app": null}}}));
    for name in ["first", "placed"] {
        crate::pods(&cluster).patch(name, &PatchParams::default(), &free).await.expect("patched");
    }
    until(&cluster, "second", |pod| phase(pod) == "Running").await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_pod_of_higher_priority_evicts_one_that_is_in_its_way() {
    let cluster = Cluster::builder().pods(Pods::Run).start().await.expect("a cluster");
    let classes: Api<PriorityClass> = Api::all(cluster.client());
    let class = json!({"metadata": {"name": "important"}, "value": 1000});
    let class = serde_json::from_value(class).expect("a class");
    classes.create(&PostParams::default(), &class).await.expect("created");
    let with_port = |name: &str, command: &str, spec: Value| {
        let mut pod = pod(name, command, spec);
        let containers = &mut pod.spec.as_mut().expect("a spec").containers;
        containers[0].ports = serde_json::from_value(json!([{"containerPort": 80, "hostPort": 8080}])).expect("ports");
        pod
    };
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    let old = with_port("old", stubborn, json!({"terminationGracePeriodSeconds": 3}));
    create(&cluster, &old).await;
    until(&cluster, "old", crate::is_running).await;
    create(&cluster, &with_port("new", "sleep 1000", json!({"priorityClassName": "important"}))).await;

    let victim = until(&cluster, "old", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!(victim.metadata.deletion_grace_period_seconds, Some(3));
    let conditions = victim.status.and_then(|status| status.conditions).unwrap_or_default();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").expect("a condition");
    let PodCondition { reason, message, status, .. } = target;
    assert_eq!((&**status, reason.as_deref()), ("True", Some("PreemptionByScheduler")));
    assert_eq!(message.as_deref(), Some("default-scheduler: preempting to accommodate a higher priority pod"));
    let nominated = |pod: &Pod| pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
    let waiting = until(&cluster, "new", |pod| nominated(pod).is_some()).await;
    assert_eq!(nominated(&waiting).as_deref(), Some("kubewright"));
    let conflict = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(unscheduled(&waiting).as_deref(), Some(conflict));

    let running = until(&cluster, "new", crate::is_running).await;
    assert_eq!(nominated(&running), None);
    crate::gone(&cluster, "old").await;
    let told = |events: &[&Event]| {
        let message =
            format!("Preempted by pod {} on node kubewright", running.metadata.uid.clone().unwrap_or_default());
        let of_victim = |event: &&&Event| event.involved_object.name.as_deref() == Some("old");
        events
            .iter()
            .filter(of_victim)
            .filter(|event| is_of_scheduler(event, "Preempting"))
            .filter(|event| event.related.as_ref().is_some_and(|related| related.uid == running.metadata.uid))
            .any(|event| event.reason.as_deref() == Some("Preempted") && event.message.as_deref() == Some(&message))
    };
    cluster.expect(told).await.expect("an event");
    cluster.shutdown().await;
}
