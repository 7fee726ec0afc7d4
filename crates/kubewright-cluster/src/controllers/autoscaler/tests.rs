//! Decisions, as kube-controller-manager 1.36 makes them.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kubewright_apiserver::{ApiServer, Measurement, ResourceMetrics, ResourceUsage};
use serde_json::{Value, json};

use super::{
    calculator::{Metric, Sample, Samples, Target, Tolerances},
    limits::{History, Limited, limit},
    metric_api::{MetricApis, MetricServices},
    metrics::{Computed, Failed, Workload},
};
use crate::{controllers::reconcile::Answers, events::written};

const START: i64 = 1_700_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).expect("a time")
}

/// The state of a pod.
#[derive(Clone, Copy)]
enum State {
    Ready,
    /// It was ready, and isn't since some seconds.
    Unready,
    /// It has never been ready.
    Starting,
    Pending,
    Failed,
    Deleted,
}

/// A pod that has run for ten minutes, with one container that requests this CPU.
fn pod(name: &str, state: State, request: &str) -> Arc<Value> {
    let (phase, ready, since) = match state {
        State::Ready | State::Deleted => ("Running", "True", 1),
        State::Unready => ("Running", "False", 590),
        State::Starting => ("Running", "False", 1),
        State::Pending => ("Pending", "False", 1),
        State::Failed => ("Failed", "False", 1),
    };
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": request, "memory": "1Gi"}}}]},
        "status": {"phase": phase, "startTime": written(at(-600)), "conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": written(at(-600 + since))},
        ]},
    });
    if matches!(state, State::Deleted) {
        pod["metadata"]["deletionTimestamp"] = written(at(-1)).into();
    }
    Arc::new(pod)
}

const TEN_PERCENT: Tolerances = Tolerances { down: 0.1, up: 0.1 };

/// Returns the replicas that a metric of CPU asks for. Each pod requests a core; those without a use have no metrics.
fn replicas(target: Target, current: i64, pods: &[(State, Option<i64>)]) -> Result<i64, String> {
    let name = |index: usize| format!("pod-{index}");
    let objects: Vec<_> = pods.iter().enumerate().map(|(index, (state, _))| pod(&name(index), *state, "1")).collect();
    let sample = |value| Sample { at: at(0), window: Duration::from_secs(60), value };
    let used = pods.iter().enumerate().filter_map(|(index, (_, used))| Some((name(index), sample((*used)?))));
    let metric = Metric { resource: "cpu", container: "", target, tolerances: TEN_PERCENT };
    Ok(metric.propose(current, used.collect(), &objects, at(0))?.replicas)
}

#[test]
fn replicas_follow_the_ratio_of_use_and_target() {
    use State::{Deleted, Failed, Pending, Ready, Starting, Unready};
    let check = |percent, current, pods: &[(State, Option<i64>)], expect: i64, why: &str| {
        assert_eq!(replicas(Target::Utilization(percent), current, pods), Ok(expect), "{why}");
    };
    let ready = |used| (Ready, Some(used));
    check(30, 3, &[ready(300), ready(500), ready(700)], 5, "50 % instead of 30 %");
    check(50, 5, &[ready(100), ready(300), ready(500), ready(250), ready(250)], 3, "28 % instead of 50 %");
    check(100, 3, &[ready(1010), ready(1030), ready(1020)], 3, "within the tolerance");
    check(100, 3, &[ready(800), ready(1000), ready(960)], 3, "8 % below");
    check(100, 3, &[ready(1120), ready(1120), ready(1120)], 4, "12 % above");
    check(30, 3, &[(Starting, Some(300)), ready(500), ready(700)], 4, "an unready pod counts as using nothing");
    check(30, 3, &[(Starting, Some(400)), (Starting, Some(500)), ready(700)], 3, "two unready ones undo the scale up");
    check(30, 3, &[(Unready, Some(300)), ready(500), ready(700)], 5, "it has been ready before");
    check(
        50,
        5,
        &[ready(100), ready(300), ready(500), ready(250), (Starting, Some(250))],
        3,
        "ignored before a scale down",
    );
    check(30, 3, &[(Pending, None), ready(500), ready(700)], 4, "a pending pod counts as using nothing");
    check(30, 2, &[(Failed, None), ready(500), ready(700)], 4, "a failed pod doesn't count");
    check(30, 2, &[(Deleted, Some(1000)), ready(500), ready(700)], 4, "a deleted pod doesn't count");
    check(
        100,
        4,
        &[ready(900), ready(950), ready(800), (Ready, None)],
        4,
        "a missing pod uses all before a scale down",
    );
    check(50, 4, &[ready(100), ready(200), ready(150), (Ready, None)], 3, "a scale down in spite of a missing pod");
    check(50, 2, &[ready(1000), (Ready, None)], 2, "half, if a missing pod uses nothing");
    check(50, 2, &[ready(1500), (Ready, None)], 3, "a scale up in spite of a missing pod");
}

#[test]
fn average_amounts_need_no_requests() {
    let check = |average, current, used: &[i64], expect| {
        let pods: Vec<_> = used.iter().map(|used| (State::Ready, Some(*used))).collect();
        assert_eq!(replicas(Target::Average(average), current, &pods), Ok(expect));
    };
    check(400, 3, &[500, 700, 900], 6);
    check(400, 3, &[100, 100, 100], 1);
    check(400, 3, &[400, 420, 380], 3);
}

#[test]
fn what_prevents_a_proposal() {
    let check = |pods: &[(State, Option<i64>)], expect: &str| {
        assert_eq!(replicas(Target::Utilization(50), 1, pods), Err(expect.to_owned()));
    };
    check(&[], "no pods returned by selector while calculating replica count");
    let unready = "did not receive metrics for targeted pods (pods might be unready)";
    check(&[(State::Starting, Some(1))], unready);
    check(&[(State::Ready, None)], unready);

    let samples = || -> Samples {
        let sample = Sample { at: at(0), window: Duration::from_secs(60), value: 100 };
        [("a".to_owned(), sample)].into()
    };
    let propose = |resource: &str, container: &str, pod: &Value| {
        let metric = Metric { resource, container, target: Target::Utilization(50), tolerances: TEN_PERCENT };
        metric.propose(1, samples(), &[Arc::new(pod.clone())], at(0)).map(|proposal| proposal.utilization)
    };
    let mut one = (*pod("a", State::Ready, "200m")).clone();
    assert_eq!(propose("cpu", "main", &one), Ok(Some(50)));
    assert_eq!(propose("cpu", "side", &one), Err("container side not found in Pod a".into()));
    one["spec"]["containers"][0]["resources"]["requests"] = json!({"memory": "1Gi"});
    assert_eq!(propose("cpu", "", &one), Err("missing request for cpu in container main of Pod a".into()));
    one["spec"]["resources"] = json!({"requests": {"memory": "1Gi"}});
    assert_eq!(propose("cpu", "", &one), Err("missing pod-level request for cpu in Pod a".into()));
    one["spec"]["resources"] = json!({"requests": {"cpu": "400m"}});
    assert_eq!(propose("cpu", "", &one), Ok(Some(25)));
}

#[test]
fn cpu_of_the_start_does_not_count() {
    let started = |start: i64, ready: i64, holds: &str, measured: i64| {
        let mut pod = (*pod("a", State::Ready, "1")).clone();
        pod["status"]["startTime"] = written(at(start)).into();
        pod["status"]["conditions"][0] =
            json!({"type": "Ready", "status": holds, "lastTransitionTime": written(at(ready))});
        let sample = Sample { at: at(measured), window: Duration::from_secs(60), value: 1000 };
        let target = Target::Utilization(50);
        let metric = Metric { resource: "cpu", container: "", target, tolerances: TEN_PERCENT };
        metric.propose(1, [("a".to_owned(), sample)].into(), &[Arc::new(pod)], at(0)).is_ok()
    };
    assert!(started(-100, -90, "True", 0), "ready during the whole window");
    assert!(!started(-100, -30, "True", 0), "the window began before it was ready");
    assert!(!started(-100, -90, "False", 0), "not ready");
    assert!(started(-400, -10, "True", 0), "the initialization is over");
    assert!(started(-400, -300, "False", 0), "it has been ready");
    assert!(!started(-400, -390, "False", 0), "it has never been ready");
}

/// Runs decisions of `(second, current, desired)` with one history, and returns what the last one allows. Each takes
/// effect.
fn limited(spec: Value, decisions: &[(i64, i64, i64)]) -> Limited {
    let mut history = History::default();
    let mut last = None;
    for (second, current, desired) in decisions {
        history.begin(*current, at(*second));
        let limited = limit(&spec, &mut history, *current, *desired, at(*second));
        if limited.replicas != *current {
            history.scaled(&spec["behavior"], *current, limited.replicas, at(*second));
        }
        last = Some(limited);
    }
    last.expect("a decision")
}

#[test]
fn limits_without_behavior() {
    let spec = json!({"minReplicas": 2, "maxReplicas": 20});
    let check = |decisions: &[(i64, i64, i64)], replicas, stabilized: &str, is_limited, reason: &str| {
        let found = limited(spec.clone(), decisions);
        let reasons = (found.stabilized.0, found.limited.0, found.limited.1.0);
        assert_eq!((found.replicas, reasons), (replicas, (stabilized, is_limited, reason)), "{decisions:?}");
    };
    check(&[(0, 3, 4)], 4, "ReadyForNewScale", false, "DesiredWithinRange");
    check(&[(0, 3, 9)], 6, "ReadyForNewScale", true, "ScaleUpLimit");
    check(&[(0, 1, 9)], 4, "ReadyForNewScale", true, "ScaleUpLimit");
    check(&[(0, 15, 29)], 20, "ReadyForNewScale", true, "TooManyReplicas");
    check(&[(0, 5, 1)], 5, "ScaleDownStabilized", false, "DesiredWithinRange");
    check(&[(0, 5, 1), (300, 5, 1)], 5, "ScaleDownStabilized", false, "DesiredWithinRange");
    check(&[(0, 5, 1), (301, 5, 1)], 2, "ReadyForNewScale", true, "TooFewReplicas");
    check(&[(0, 5, 3), (200, 5, 4), (301, 5, 2)], 4, "ScaleDownStabilized", false, "DesiredWithinRange");
}

#[test]
fn limits_of_a_behavior() {
    let rules = |window: i64, select: &str, policies: &[(&str, i64, i64)]| {
        let policy =
            |(kind, value, period): &(&str, i64, i64)| json!({"type": kind, "value": value, "periodSeconds": period});
        let policies: Vec<_> = policies.iter().map(policy).collect();
        json!({"stabilizationWindowSeconds": window, "selectPolicy": select, "policies": policies})
    };
    let spec = |up: &Value, down: &Value| json!({"minReplicas": 1, "maxReplicas": 100, "behavior": {"scaleUp": up, "scaleDown": down}});
    let (free_up, free_down) = (rules(0, "Max", &[("Percent", 10_000, 15)]), rules(0, "Max", &[("Percent", 100, 15)]));
    let check = |up: &Value, down: &Value, decisions: &[(i64, i64, i64)], replicas, stabilized: &str, reason: &str| {
        let found = limited(spec(up, down), decisions);
        let reasons = (found.stabilized.0, found.limited.1.0);
        assert_eq!((found.replicas, reasons), (replicas, (stabilized, reason)), "{decisions:?}");
    };
    let (ready, within) = ("ReadyForNewScale", "DesiredWithinRange");
    let policies = [("Pods", 4, 60), ("Percent", 50, 60)];
    check(&rules(0, "Max", &policies), &free_down, &[(0, 10, 90)], 15, ready, "ScaleUpLimit");
    check(&rules(0, "Min", &policies), &free_down, &[(0, 10, 90)], 14, ready, "ScaleUpLimit");
    check(&rules(0, "Disabled", &policies), &free_down, &[(0, 10, 90)], 10, ready, "ScaleUpLimit");
    let slow = rules(0, "Max", &[("Pods", 4, 60)]);
    check(&slow, &free_down, &[(0, 10, 90), (30, 14, 90)], 14, ready, "ScaleUpLimit");
    check(&slow, &free_down, &[(0, 10, 90), (60, 14, 90)], 18, ready, "ScaleUpLimit");
    check(&rules(0, "Max", &[("Percent", 1, 60)]), &free_down, &[(0, 10, 90)], 11, ready, "ScaleUpLimit");
    check(&free_up, &free_down, &[(0, 10, 110)], 100, ready, "TooManyReplicas");
    check(&free_up, &rules(0, "Max", &policies), &[(0, 10, 0)], 5, ready, "ScaleDownLimit");
    check(&free_up, &rules(0, "Min", &policies), &[(0, 10, 0)], 6, ready, "ScaleDownLimit");
    check(&free_up, &rules(0, "Disabled", &policies), &[(0, 10, 0)], 10, ready, "ScaleDownLimit");
    check(&free_up, &free_down, &[(0, 10, 0)], 1, ready, "TooFewReplicas");
    check(&free_up, &free_down, &[(0, 10, 5)], 5, ready, within);
    let stable = rules(60, "Max", &[("Percent", 100, 15)]);
    check(&free_up, &stable, &[(0, 10, 5)], 10, "ScaleDownStabilized", within);
    check(&free_up, &stable, &[(0, 10, 5), (60, 10, 5)], 5, ready, within);
    check(&stable, &free_down, &[(0, 10, 15)], 10, "ScaleUpStabilized", within);
    check(&stable, &free_down, &[(0, 10, 15), (30, 10, 12), (61, 10, 15)], 12, "ScaleUpStabilized", within);
}

/// Measures nothing, or the same use of each pod.
#[derive(Debug)]
struct Fixed(Option<ResourceUsage>);

impl ResourceMetrics for Fixed {
    fn pod(&self, _: &Value) -> Option<Measurement<Vec<(String, ResourceUsage)>>> {
        let usage = vec![("main".to_owned(), self.0?)];
        Some(Measurement { timestamp: at(0), window: Duration::from_secs(15), usage })
    }

    fn node(&self, _: &Value) -> Option<Measurement<ResourceUsage>> {
        None
    }
}

/// Computes a metric of a workload with two ready pods.
fn compute(
    metric: &Value,
    source: Option<&dyn ResourceMetrics>,
    services: &MetricServices,
    answers: &Answers,
) -> Result<Computed, Failed> {
    let pods = [pod("a", State::Ready, "1"), pod("b", State::Ready, "1")];
    let api = ApiServer::builder().build();
    let apis = MetricApis { services, registry: api.registry(), answers };
    let (namespace, selector) = ("hpat", "app=web");
    let workload = Workload { namespace, replicas: 2, observed_replicas: 2, selector, pods: &pods, source, apis };
    assert_eq!(workload.unread(metric), None, "everything has been read");
    workload.compute(&json!({}), metric, at(0))
}

fn failure(metric: &Value, source: Option<&dyn ResourceMetrics>) -> Failed {
    compute(metric, source, &MetricServices::default(), &Answers::new()).expect_err("a failure")
}

/// The texts were recorded on kube-controller-manager 1.36.3 without metrics APIs.
#[test]
fn metrics_that_are_not_there() {
    let check = |metric: Value, reason: &str, message: &str, summary: &str| {
        let found = failure(&metric, None);
        assert_eq!((found.reason, &*found.message, &*found.summary), (reason, message, summary));
    };
    let cpu = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource \
               metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
    let half = json!({"type": "Utilization", "averageUtilization": 50});
    check(
        json!({"type": "Resource", "resource": {"name": "cpu", "target": half}}),
        "FailedGetResourceMetric",
        cpu,
        &format!("failed to get cpu resource metric value: {cpu}"),
    );
    check(
        json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": half}}),
        "FailedGetContainerResourceMetric",
        cpu,
        &format!("failed to get c container metric value: {cpu}"),
    );
    let custom =
        "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    let (average, value) =
        (json!({"type": "AverageValue", "averageValue": "10"}), json!({"type": "Value", "value": "10"}));
    check(
        json!({"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": average}}),
        "FailedGetPodsMetric",
        &format!("unable to get metric rps: {custom}"),
        &format!("failed to get pods metric value: unable to get metric rps: {custom}"),
    );
    let service = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    let object = |target| json!({"type": "Object", "object": {"metric": {"name": "rps"}, "describedObject": service, "target": target}});
    let message = format!("unable to get metric rps: Service on hpat s/{custom}");
    let (reason, summary) = ("FailedGetObjectMetric", "failed to get object metric value: ");
    check(object(&value), reason, &message, &format!("{summary}{message}"));
    check(object(&average), reason, &message, &format!("{summary}failed to get rps object metric: {message}"));
    let external =
        |metric: Value, target| json!({"type": "External", "external": {"metric": metric, "target": target}});
    let not_there = "unable to fetch metrics from external metrics API: the server could not find the requested resource \
                     (get q.external.metrics.k8s.io)";
    let labels = "&LabelSelector{MatchLabels:map[string]string{k: v,},MatchExpressions:[]LabelSelectorRequirement{},}";
    let message = format!("unable to get external metric hpat/q/{labels}: {not_there}");
    let selector = json!({"matchLabels": {"k": "v"}});
    check(
        external(json!({"name": "q", "selector": selector}), &value),
        "FailedGetExternalMetric",
        &message,
        &format!("failed to get q external metric value: failed to get external metric q: {message}"),
    );
    let message = format!("unable to get external metric hpat/q/nil: {not_there}");
    check(
        external(json!({"name": "q"}), &average),
        "FailedGetExternalMetric",
        &message,
        &format!("failed to get q external metric value: failed to get q external metric: {message}"),
    );
}

#[test]
fn the_status_of_a_resource_metric() {
    let source = Fixed(Some(ResourceUsage { cpu_nanocores: 900_000_000, memory_bytes: 96 << 20 }));
    let (services, answers) = (MetricServices::default(), Answers::new());
    let compute = |metric: Value| compute(&metric, Some(&source), &services, &answers).expect("a number");
    let half = json!({"type": "Utilization", "averageUtilization": 50});
    let found = compute(json!({"type": "Resource", "resource": {"name": "cpu", "target": half}}));
    assert_eq!((found.replicas, &*found.name), (4, "cpu resource utilization (percentage of request)"));
    let current = json!({"averageUtilization": 90, "averageValue": "900m"});
    assert_eq!(found.status, json!({"type": "Resource", "resource": {"name": "cpu", "current": current}}));

    let target = json!({"type": "AverageValue", "averageValue": "32Mi"});
    let metric = json!({"name": "memory", "container": "main", "target": target});
    let found = compute(json!({"type": "ContainerResource", "containerResource": metric}));
    assert_eq!((found.replicas, &*found.name), (6, "memory resource"));
    let current = json!({"name": "memory", "container": "main", "current": {"averageValue": "96Mi"}});
    assert_eq!(found.status, json!({"type": "ContainerResource", "containerResource": current}));

    let nothing =
        failure(&json!({"type": "Resource", "resource": {"name": "cpu", "target": half}}), Some(&Fixed(None)));
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource \
               metrics API";
    assert_eq!(nothing.message, why);
}

/// Returns the services of these group versions, which are available.
fn services(versions: &[(&str, &str)]) -> MetricServices {
    let mut services = MetricServices::default();
    for (group, version) in versions {
        let conditions = json!([{"type": "Available", "status": "True"}]);
        let spec = json!({"group": group, "version": version});
        services.take(&json!({"spec": spec, "status": {"conditions": conditions}}), false);
    }
    services
}

const BOTH: &[(&str, &str)] = &[("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1")];

fn value(object: &str, value: &str) -> Value {
    json!({"describedObject": {"kind": "Pod", "name": object}, "timestamp": "2023-11-14T22:13:20Z", "value": value})
}

/// Returns a metric `rps` of an object, such as `v1 Service s`.
fn object_metric(object: &str, target: &Value) -> Value {
    let parts: Vec<_> = object.split(' ').collect();
    let object = json!({"apiVersion": parts[0], "kind": parts[1], "name": parts[2]});
    json!({"type": "Object", "object": {"metric": {"name": "rps"}, "describedObject": object, "target": target}})
}

#[test]
fn values_come_from_the_apis_of_metrics() {
    let check = |metric: &Value, path: &str, items: Value, replicas: i64, name: &str, current: Value| {
        let answers = Answers::from([(path.to_owned(), Ok(json!({"items": items})))]);
        let found = compute(metric, None, &services(BOTH), &answers).expect("a number");
        assert_eq!((found.replicas, &*found.name), (replicas, name));
        let kind = metric["type"].as_str().expect("a type");
        let of = &found.status[kind.to_lowercase()];
        assert_eq!((&found.status["type"], &of["current"]), (&metric["type"], &current));
        assert_eq!(of["metric"], metric[kind.to_lowercase()]["metric"]);
    };
    let (average, whole) =
        (json!({"type": "AverageValue", "averageValue": "10"}), json!({"type": "Value", "value": "10"}));
    let custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/hpat";
    let selector = json!({"matchLabels": {"verb": "GET"}});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "rps", "selector": selector}, "target": average}});
    let path = format!("{custom}/pods/*/rps?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET");
    let items = json!([value("a", "20"), value("b", "25")]);
    check(&pods, &path, items, 5, "pods metric rps", json!({"averageValue": "22500m"}));

    let service = object_metric("v1 Service s", &whole);
    let path = format!("{custom}/services/s/rps");
    check(&service, &path, json!([value("s", "30")]), 6, "Service metric rps", json!({"value": "30"}));
    check(&service, &path, json!([value("s", "10500m")]), 2, "Service metric rps", json!({"value": "10500m"}));
    let ingress = object_metric("networking.k8s.io/v1 Ingress i", &average);
    let path = format!("{custom}/ingresses.networking.k8s.io/i/rps");
    let name = "external metric rps(nil)";
    check(&ingress, &path, json!([value("i", "35")]), 4, name, json!({"averageValue": "17500m"}));
    let namespace = object_metric("v1 Namespace other", &whole);
    let path = format!("{custom}/metrics/rps");
    check(&namespace, &path, json!([value("hpat", "5")]), 1, "Namespace metric rps", json!({"value": "5"}));

    let external =
        |target: &Value| json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}});
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/hpat/queue";
    let items = json!([{"value": "12"}, {"value": "13"}]);
    let name = "external metric queue(nil)";
    check(&external(&average), path, items.clone(), 3, name, json!({"averageValue": "12500m"}));
    check(&external(&whole), path, items, 5, name, json!({"value": "25"}));
}

#[test]
fn answers_without_a_value_are_reported() {
    let message = |metric: &Value, path: &str, answer: Result<Value, String>| {
        let answers = Answers::from([(path.to_owned(), answer)]);
        compute(metric, None, &services(BOTH), &answers).expect_err("a failure").message
    };
    let whole = json!({"type": "Value", "value": "10"});
    let service = object_metric("v1 Service s", &whole);
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/hpat/services/s/rps";
    let unable = "unable to fetch metrics from custom metrics API";
    let custom = format!("unable to get metric rps: Service on hpat s/{unable}");
    assert_eq!(message(&service, path, Err("gone".into())), format!("{custom}: gone"));
    let two = json!({"items": [value("s", "1"), value("t", "2")]});
    let why = "the custom metrics API server returned 2 results when we asked for exactly one";
    assert_eq!(message(&service, path, Ok(two)), format!("{custom}: {why}"));
    let external = json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": whole}});
    let path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/hpat/queue";
    let why = "unable to get external metric hpat/queue/nil: no metrics returned from external metrics API";
    assert_eq!(message(&external, path, Ok(json!({"items": []}))), why);
    let unknown = object_metric("example.com/v1 Cow c", &whole);
    let why = "unable to map kind Cow.example.com to resource: no matches for kind \"Cow\" in group \"example.com\"";
    let cow = format!("unable to get metric rps: Cow on hpat c/{unable}: {why}");
    assert_eq!(message(&unknown, "", Err(String::new())), cow);
}

#[test]
fn the_preferred_available_version_is_asked() {
    let api = ApiServer::builder().build();
    let metric = object_metric("v1 Service s", &json!({"type": "Value", "value": "10"}));
    let asked = |services: &MetricServices| {
        let answers = Answers::new();
        let apis = MetricApis { services, registry: api.registry(), answers: &answers };
        let workload = Workload {
            namespace: "hpat",
            replicas: 1,
            observed_replicas: 1,
            selector: "app=web",
            pods: &[],
            source: None,
            apis,
        };
        workload.unread(&metric).map(|path| path.split('/').nth(3).unwrap_or_default().to_owned())
    };
    let group = "custom.metrics.k8s.io";
    assert_eq!(asked(&services(&[(group, "v1beta1")])).as_deref(), Some("v1beta1"));
    let mut both = services(&[(group, "v1beta1"), (group, "v1beta2")]);
    assert_eq!(asked(&both).as_deref(), Some("v1beta2"));
    let preferred = json!({"spec": {"group": group, "version": "v1beta2"}});
    both.take(&preferred, false);
    assert_eq!(asked(&both).as_deref(), Some("v1beta1"), "the other one isn't available any more");
    assert_eq!(asked(&MetricServices::default()), None);
}
