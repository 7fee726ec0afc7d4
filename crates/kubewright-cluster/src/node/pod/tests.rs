//! Tests of the pod's state machine, driven step by step.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kubewright_apimachinery::random::Random;
use serde_json::{Value, json};

use super::{
    container::{Moment, RunEnd},
    machine::{Effect, Event, Machine, StartFailure},
    spec::field_path,
};

/// A pod under test, with a clock.
struct Bench {
    machine: Machine,
    seconds: u64,
}

fn pod(spec: &Value) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "generation": 1}, "spec": spec});
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

impl Bench {
    fn new(spec: Value) -> Self {
        let seconds = 0;
        Self { machine: Machine::new(pod(&spec), "127.1.0.1".into(), moment(seconds)), seconds }
    }

    /// Returns the effects other than events.
    fn step(&mut self) -> Vec<Effect> {
        let effects = self.machine.step(moment(self.seconds));
        effects.into_iter().filter(|effect| !matches!(effect, Effect::Event(_))).collect()
    }

    fn started(&mut self, index: usize) {
        self.machine.started(index, format!("id-{index}"), None, moment(self.seconds));
    }

    fn ended(&mut self, index: usize, code: i32) {
        self.machine.ended(index, RunEnd::exited(code), moment(self.seconds));
    }

    fn refused(&mut self, index: usize, why: StartFailure) {
        self.machine.refused(index, why, moment(self.seconds));
    }

    /// Advances the clock to the machine's next step.
    fn sleep(&mut self) -> u64 {
        let wake = self.machine.wake().expect("something to wait for").as_secs();
        let slept = wake - self.seconds;
        self.seconds = wake;
        slept
    }

    fn delete(&mut self, grace: i64) {
        let mut pod = (*self.machine.pod).clone();
        pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(moment(self.seconds).wall));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.machine.observe(Arc::new(pod), moment(self.seconds));
    }

    fn status(&self) -> Value {
        serde_json::to_value(self.machine.status(moment(self.seconds).wall)).expect("a status")
    }

    fn check(&self, pointer: &str, expect: Value) {
        assert_eq!(self.status().pointer(pointer).cloned().unwrap_or_default(), expect, "{pointer}");
    }

    fn condition(&self, kind: &str) -> String {
        let status = self.status();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default();
        format!("{} {}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
    }
}

fn moment(seconds: u64) -> Moment {
    let wall = Timestamp::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    Moment { wall, monotonic: Duration::from_secs(seconds) }
}

fn one(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "main", "image": "busybox"}]})
}

#[test]
fn a_pod_that_succeeds() {
    let mut bench = Bench::new(one("OnFailure"));
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.check("/phase", json!("Pending"));
    bench.check("/containerStatuses/0/state/waiting/reason", json!("ContainerCreating"));
    bench.started(0);
    assert_eq!(bench.step(), []);
    bench.check("/phase", json!("Running"));
    assert_eq!(bench.condition("Ready"), "True -");
    bench.ended(0, 0);
    assert_eq!(bench.step(), []);
    bench.check("/phase", json!("Succeeded"));
    bench.check("/containerStatuses/0/state/terminated/reason", json!("Completed"));
    assert_eq!(bench.condition("Ready"), "False PodCompleted");
    assert_eq!(bench.machine.wake(), None);
}

#[test]
fn statuses_are_in_the_order_of_names_but_for_those_of_init_containers() {
    let list = |names: [&str; 2]| names.map(|name| json!({"name": name, "image": "busybox"}));
    let bench = Bench::new(json!({"containers": list(["wait", "main"]), "initContainers": list(["second", "first"])}));
    let names = |list: &str| -> Vec<_> {
        let status = bench.status();
        status[list].as_array().expect("statuses").iter().map(|one| one["name"].clone()).collect()
    };
    assert_eq!(names("containerStatuses"), ["main", "wait"]);
    assert_eq!(names("initContainerStatuses"), ["second", "first"]);
}

#[test]
fn policies() {
    let check = |policy: &str, code, phase: &str, again: bool| {
        let mut bench = Bench::new(one(policy));
        bench.step();
        bench.started(0);
        bench.ended(0, code);
        assert_eq!(bench.step(), if again { vec![Effect::Start(0)] } else { vec![] }, "{policy} {code}");
        bench.check("/phase", json!(phase));
    };
    check("Always", 0, "Running", true);
    check("Always", 1, "Running", true);
    check("OnFailure", 0, "Succeeded", false);
    check("OnFailure", 1, "Running", true);
    check("Never", 0, "Succeeded", false);
    check("Never", 1, "Failed", false);
}

#[test]
fn crashes_back_off() {
    let mut bench = Bench::new(one("Always"));
    let mut waits = Vec::new();
    for _ in 0..4 {
        assert_eq!(bench.step(), [Effect::Start(0)]);
        bench.started(0);
        bench.ended(0, 1);
        waits.push(bench.sleep());
    }
    assert_eq!(waits, [0, 10, 20, 40]);
    bench.check("/containerStatuses/0/restartCount", json!(3));
    bench.check("/containerStatuses/0/lastState/terminated/exitCode", json!(1));
    bench.check("/containerStatuses/0/state/waiting/reason", json!("CrashLoopBackOff"));
    let message = "back-off 40s restarting failed container=main pod=web_shop(u-1)";
    bench.check("/containerStatuses/0/state/waiting/message", json!(message));
    assert_eq!(bench.condition("ContainersReady"), "False ContainersNotReady");
}

#[test]
fn init_containers_run_in_order_before_the_others() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}],
        "initContainers": [{"name": "a", "image": "busybox"}, {"name": "b", "image": "busybox"}]});
    let mut bench = Bench::new(spec.clone());
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.check("/initContainerStatuses/0/state/waiting/reason", json!("PodInitializing"));
    bench.started(0);
    assert_eq!(bench.step(), []);
    bench.check("/containerStatuses/0/state/waiting/reason", json!("PodInitializing"));
    assert_eq!(bench.condition("Initialized"), "False ContainersNotInitialized");
    bench.ended(0, 0);
    assert_eq!(bench.step(), [Effect::Start(1)]);
    bench.started(1);
    bench.ended(1, 0);
    assert_eq!(bench.step(), [Effect::Start(2)]);
    assert_eq!(bench.condition("Initialized"), "True -");

    let mut failing = Bench::new(spec);
    failing.step();
    failing.started(0);
    failing.ended(0, 3);
    assert_eq!(failing.step(), []);
    failing.check("/phase", json!("Failed"));
}

#[test]
fn sidecars_start_before_and_stop_after() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}],
        "initContainers": [{"name": "proxy", "image": "busybox", "restartPolicy": "Always"}]});
    let mut bench = Bench::new(spec);
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.started(0);
    assert_eq!(bench.step(), [Effect::Start(1)]);
    bench.started(1);
    bench.ended(1, 0);
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    bench.check("/phase", json!("Running"));
    bench.ended(0, 143);
    assert_eq!(bench.step(), []);
    bench.check("/phase", json!("Succeeded"));
}

#[test]
fn a_pod_is_as_ready_as_its_sidecars() {
    let probe = json!({"httpGet": {"port": 80}});
    let bench = |probed: bool| {
        let mut sidecar = json!({"name": "proxy", "image": "busybox", "restartPolicy": "Always"});
        if probed {
            sidecar["readinessProbe"] = probe.clone();
        }
        let mut bench =
            Bench::new(json!({"containers": [{"name": "main", "image": "busybox"}], "initContainers": [sidecar]}));
        for index in 0..2 {
            bench.step();
            bench.started(index);
        }
        bench.step();
        bench
    };
    assert_eq!(bench(false).condition("Ready"), "True -");
    let unready = bench(true);
    assert_eq!(unready.condition("Initialized"), "True -");
    assert_eq!(unready.condition("Ready"), "False ContainersNotReady");
    let message = "containers with unready status: [proxy]";
    assert!(unready.status()["conditions"].as_array().into_iter().flatten().any(|one| one["message"] == message));
}

#[test]
fn the_hook_of_a_sidecar_does_not_wait_for_its_turn() {
    let spec = json!({"containers": [{"name": "main", "image": "busybox"}],
        "initContainers": [{"name": "proxy", "image": "busybox", "restartPolicy": "Always"}]});
    let mut bench = Bench::new(spec);
    bench.step();
    bench.started(0);
    bench.step();
    bench.started(1);
    bench.step();
    bench.delete(5);
    assert_eq!(bench.step(), [Effect::PreStop(0), Effect::Terminate(1)]);
    assert_eq!(bench.step(), []);
    bench.ended(1, 143);
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    bench.ended(0, 143);
    assert_eq!(bench.step(), [Effect::Remove]);
}

#[test]
fn graceful_deletion_terminates_then_kills_then_removes() {
    let mut bench = Bench::new(one("Always"));
    bench.step();
    bench.started(0);
    bench.step();
    bench.delete(5);
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    assert_eq!(bench.sleep(), 5);
    assert_eq!(bench.step(), [Effect::Kill(0)]);
    bench.ended(0, 137);
    assert_eq!(bench.step(), [Effect::Remove]);
    bench.check("/phase", json!("Failed"));
    assert_eq!(bench.step(), []);
}

#[test]
fn a_second_deletion_can_only_shorten_the_grace() {
    let mut bench = Bench::new(one("Always"));
    bench.step();
    bench.started(0);
    bench.delete(100);
    bench.step();
    bench.delete(1);
    assert_eq!(bench.step(), []);
    assert_eq!(bench.sleep(), 1);
    bench.delete(50);
    assert_eq!(bench.step(), [Effect::Kill(0)]);
}

#[test]
fn deletion_while_starting_waits_for_the_process() {
    let mut bench = Bench::new(one("Always"));
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.delete(30);
    assert_eq!(bench.step(), []);
    bench.started(0);
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
}

#[test]
fn an_unknown_image_is_tried_again() {
    let mut bench = Bench::new(one("Never"));
    bench.step();
    bench.refused(0, StartFailure::NoImage("not found".into()));
    bench.check("/containerStatuses/0/state/waiting/reason", json!("ErrImagePull"));
    bench.check("/phase", json!("Pending"));
    assert_eq!(bench.sleep(), 2);
    assert_eq!(bench.step(), []);
    bench.check("/containerStatuses/0/state/waiting/reason", json!("ImagePullBackOff"));
    assert_eq!(bench.sleep(), 8);
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.refused(0, StartFailure::NoImage("not found".into()));
    bench.step();
    assert_eq!(
        bench.sleep() + {
            bench.step();
            bench.sleep()
        },
        20
    );
    bench.check("/containerStatuses/0/restartCount", json!(0));
}

#[test]
fn a_program_that_does_not_start_counts_as_a_run() {
    let mut bench = Bench::new(one("Never"));
    bench.step();
    bench.refused(0, StartFailure::Start("exec: \"x\": executable file not found in $PATH".into()));
    bench.check("/containerStatuses/0/state/terminated/exitCode", json!(128));
    bench.check("/containerStatuses/0/state/terminated/reason", json!("StartError"));
    bench.check("/phase", json!("Failed"));
}

#[test]
fn missing_configuration_is_waited_for() {
    let mut bench = Bench::new(one("Never"));
    bench.step();
    bench.refused(0, StartFailure::Config("configmap \"x\" not found".into()));
    assert_eq!(bench.step(), []);
    bench.check("/containerStatuses/0/state/waiting/reason", json!("CreateContainerConfigError"));
    bench.machine.configuration_changed(moment(0));
    assert_eq!(bench.step(), [Effect::Start(0)]);
    // The configuration may refer to an annotation.
    bench.refused(0, StartFailure::Config("missing value for ANNOTATION".into()));
    let mut changed = (*bench.machine.pod).clone();
    bench.machine.observe(Arc::new(changed.clone()), moment(0));
    assert_eq!(bench.step(), []);
    changed.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
    bench.machine.observe(Arc::new(changed), moment(0));
    assert_eq!(bench.step(), [Effect::Start(0)]);
}

#[test]
fn an_active_deadline_fails_the_pod() {
    let mut spec = one("Always");
    spec["activeDeadlineSeconds"] = json!(7);
    spec["terminationGracePeriodSeconds"] = json!(2);
    let mut bench = Bench::new(spec);
    bench.step();
    bench.started(0);
    bench.step();
    assert_eq!(bench.sleep(), 7);
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    bench.ended(0, 143);
    assert_eq!(bench.step(), []);
    bench.check("/phase", json!("Failed"));
    bench.check("/reason", json!("DeadlineExceeded"));
}

#[test]
fn an_active_deadline_counts_from_the_start_before_the_node_was_restarted() {
    let mut spec = one("Always");
    spec["activeDeadlineSeconds"] = json!(7);
    let mut pod = (*pod(&spec)).clone();
    let started = moment(0).wall;
    pod.status = serde_json::from_value(json!({"startTime": started})).expect("a status");
    let mut machine = Machine::new(Arc::new(pod), "127.0.0.1".into(), moment(4));
    assert_eq!(machine.started, started);
    machine.step(moment(4));
    machine.started(0, "id".into(), None, moment(4));
    machine.step(moment(6));
    assert!(machine.failure.is_none());
    machine.step(moment(7));
    assert_eq!(machine.failure.map(|failure| failure.reason), Some("DeadlineExceeded"));
}

#[test]
fn events_about_a_container_name_its_field() {
    let mut bench = Bench::new(one("Always"));
    bench.step();
    bench.started(0);
    let event = |reason, message: &str| {
        Effect::Event(Event { container: Some("main".into()), warning: false, reason, message: message.into() })
    };
    let image = bench.machine.containers[0].image.clone();
    let pulled = format!("Container image {image:?} already present on machine and can be accessed by the pod");
    let expect =
        [event("Pulled", &pulled), event("Created", "Container created"), event("Started", "Container started")];
    let effects = bench.machine.step(moment(0));
    assert!(effects.starts_with(&expect), "{effects:?}");

    let container = |name: &str| json!({"name": name, "image": "a"});
    let pod = pod(&json!({
        "containers": [container("a")], "initContainers": [container("b")], "ephemeralContainers": [container("c")],
    }));
    let check = |name: &str, expect: Option<&str>| assert_eq!(field_path(&pod, name).as_deref(), expect, "{name}");
    check("a", Some("spec.containers{a}"));
    check("b", Some("spec.initContainers{b}"));
    check("c", Some("spec.ephemeralContainers{c}"));
    check("d", None);
}

#[test]
fn an_evicted_pod_fails() {
    let mut bench = Bench::new(one("Always"));
    bench.step();
    bench.started(0);
    bench.step();
    bench.machine.evict("too much".into(), moment(0));
    let effects = bench.machine.step(moment(0));
    let event = |container: Option<&str>, warning, reason, message: &str| {
        Effect::Event(Event { container: container.map(String::from), warning, reason, message: message.into() })
    };
    let killing = event(Some("main"), false, "Killing", "Stopping container main");
    assert_eq!(effects, [event(None, true, "Evicted", "too much"), killing, Effect::Terminate(0)]);
    bench.check("/reason", Value::Null);
    assert_eq!(bench.sleep(), 1);
    assert_eq!(bench.step(), [Effect::Kill(0)]);
    bench.ended(0, 137);
    assert_eq!(bench.step(), [], "it isn't restarted");
    bench.check("/phase", json!("Failed"));
    bench.check("/reason", json!("Evicted"));
    bench.check("/message", json!("too much"));
    bench.machine.evict("again".into(), moment(2));
    bench.delete(0);
    assert_eq!(bench.step(), [Effect::Remove]);
    bench.check("/message", json!("too much"));
}

#[test]
fn another_image_means_another_run() {
    let mut bench = Bench::new(one("Never"));
    bench.step();
    bench.started(0);
    let mut changed = (*bench.machine.pod).clone();
    if let Some(spec) = &mut changed.spec {
        spec.containers[0].image = Some("busybox:2".into());
    }
    bench.machine.observe(Arc::new(changed), moment(0));
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    bench.ended(0, 143);
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.started(0);
    bench.check("/containerStatuses/0/image", json!("busybox:2"));
    bench.check("/containerStatuses/0/restartCount", json!(1));
}

#[test]
fn a_steady_pod_has_a_steady_status() {
    let mut bench = Bench::new(one("Always"));
    bench.step();
    bench.started(0);
    let status = bench.machine.status(moment(0).wall);
    let mut seen = (*bench.machine.pod).clone();
    seen.status = Some(status.clone());
    bench.seconds = 1000;
    bench.machine.observe(Arc::new(seen), moment(1000));
    assert_eq!(bench.machine.status(moment(1000).wall), status);
}

/// Generates random container events and deletion times: nothing runs twice, nothing starts after the end was
/// requested, and the object is removed once nothing runs.
#[test]
fn any_lifecycle_ends() {
    for seed in 0..2000 {
        let random = Random::seeded(seed);
        let below = |bound: u64| random.u64() % bound;
        let container = |name: &str| json!({"name": name, "image": "busybox"});
        let sidecar = json!({"name": "s", "image": "busybox", "restartPolicy": "Always"});
        let init = [vec![], vec![container("i")], vec![container("i"), sidecar.clone()], vec![sidecar]];
        let mut bench = Bench::new(json!({
            "restartPolicy": (["Always", "OnFailure", "Never"])[usize::try_from(below(3)).unwrap_or(0)],
            "initContainers": init[usize::try_from(below(4)).unwrap_or(0)],
            "containers": [container("a"), container("b")],
        }));
        let count = bench.machine.containers.len();
        // The real state of each container: 0 not running, 1 starting, 2 running.
        let mut truth = vec![0; count];
        let (mut stopping, mut killed) = (false, vec![false; count]);
        let delete_at = below(60);
        for turn in 0..400 {
            if turn == delete_at {
                bench.delete(5);
                stopping = true;
            }
            let mut removed = false;
            for effect in bench.step() {
                match effect {
                    Effect::Start(index) => {
                        assert_eq!(truth[index], 0, "seed {seed}: it runs already");
                        assert!(!stopping, "seed {seed}: started after the end was asked for");
                        (truth[index], killed[index]) = (1, false);
                    }
                    Effect::PreStop(index) | Effect::Terminate(index) => assert_eq!(truth[index], 2, "seed {seed}"),
                    Effect::Kill(index) => killed[index] = true,
                    Effect::Remove => removed = true,
                    Effect::Event(_) | Effect::Probe(..) => {}
                }
            }
            if removed {
                assert!(stopping && truth.iter().all(|state| *state == 0), "seed {seed}: removed too early");
                break;
            }
            assert!(turn < 399, "seed {seed}: it never goes");
            let index = usize::try_from(below(count as u64)).unwrap_or(0);
            match (truth[index], below(8)) {
                (1, 0) => {
                    bench.refused(index, StartFailure::Start("no".into()));
                    truth[index] = 0;
                }
                (1, 1) => {
                    bench.refused(index, StartFailure::NoImage("no".into()));
                    truth[index] = 0;
                }
                (1, _) => {
                    bench.started(index);
                    truth[index] = 2;
                }
                (2, roll) if killed[index] || roll < 2 => {
                    bench.ended(index, i32::from(roll == 0));
                    truth[index] = 0;
                }
                _ => bench.seconds += below(4),
            }
        }
    }
}

#[test]
fn an_ephemeral_container_runs_once_beside_the_others() {
    let debugger = |target: &str| json!({"name": "debugger", "image": "busybox", "targetContainerName": target});
    let mut bench = Bench::new(json!({
        "containers": [{"name": "main", "image": "busybox"}], "initContainers": [{"name": "init", "image": "busybox"}],
        "ephemeralContainers": [debugger("main"), {"name": "early", "image": "busybox"}],
    }));
    // It doesn't wait for init containers, but for its target.
    assert_eq!(bench.step(), [Effect::Start(0), Effect::Start(3)]);
    bench.started(0);
    bench.started(3);
    bench.ended(3, 1);
    bench.ended(0, 0);
    assert_eq!(bench.step(), [Effect::Start(1)]);
    bench.started(1);
    assert_eq!(bench.step(), [Effect::Start(2)]);
    bench.started(2);
    bench.check("/phase", json!("Running"));
    bench.check("/ephemeralContainerStatuses/1/state/terminated/exitCode", json!(1));
    assert_eq!(bench.condition("Ready"), "True -");
    // Its place in the spec doesn't matter.
    let mut pod = (*bench.machine.pod).clone();
    if let Some(list) = pod.spec.as_mut().and_then(|spec| spec.ephemeral_containers.as_mut()) {
        list.insert(0, serde_json::from_value(json!({"name": "third", "image": "busybox"})).expect("a container"));
    }
    bench.machine.observe(Arc::new(pod), moment(bench.seconds));
    assert_eq!(bench.step(), [Effect::Start(4)]);
    bench.started(4);
    bench.delete(5);
    assert_eq!(bench.step(), [Effect::Terminate(1), Effect::Terminate(2), Effect::Terminate(4)]);
}

#[test]
fn resources_change_at_once_or_with_a_restart() {
    let resources = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let spec = |cpu: &str, memory: &str| {
        json!({"containers": [{
            "name": "main", "image": "busybox", "resources": resources(cpu, memory),
            "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
        }]})
    };
    let mut bench = Bench::new(spec("100m", "1Mi"));
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.check("/containerStatuses/0/resources", Value::Null);
    bench.started(0);
    bench.check("/containerStatuses/0/resources", resources("100m", "1Mi"));
    bench.check("/containerStatuses/0/allocatedResources", json!({"cpu": "100m", "memory": "1Mi"}));
    bench.machine.observe(pod(&spec("200m", "1Mi")), moment(0));
    assert_eq!(bench.step(), []);
    bench.check("/containerStatuses/0/resources", resources("200m", "1Mi"));
    assert_eq!(bench.condition("PodResizeInProgress"), "- -");
    bench.machine.observe(pod(&spec("200m", "2Mi")), moment(0));
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    bench.check("/containerStatuses/0/resources", resources("200m", "1Mi"));
    bench.check("/containerStatuses/0/allocatedResources", json!({"cpu": "200m", "memory": "2Mi"}));
    assert_eq!(bench.condition("PodResizeInProgress"), "True -");
    bench.ended(0, 143);
    let effects = bench.machine.step(moment(0));
    assert!(effects.contains(&Effect::Start(0)), "{effects:?}");
    let completed = effects.iter().any(|effect| match effect {
        Effect::Event(event) => {
            let spec = r#"{"name":"main","resources":{"requests":{"cpu":"200m","memory":"2Mi"}}}"#;
            event.message == format!("Pod resize completed: {{\"containers\":[{spec}],\"generation\":1}}")
        }
        _ => false,
    });
    assert!(completed, "{effects:?}");
    bench.started(0);
    bench.check("/containerStatuses/0/resources", resources("200m", "2Mi"));
    assert_eq!(bench.condition("PodResizeInProgress"), "- -");
}

#[test]
fn a_pod_that_ran_before_the_node_started_continues_by_its_restart_policy() {
    let check = |policy: &str, state: Value, effects: &[Effect], phase: &str, restarts: i32| {
        let spec = json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "a"}]});
        let mut object = (*pod(&spec)).clone();
        let status = json!({"startTime": "2020-01-01T00:00:00Z", "containerStatuses": [{
            "name": "a", "image": "a", "imageID": "", "ready": true, "restartCount": 2, "state": state,
            "containerID": "kubewright://before",
        }]});
        object.status = Some(serde_json::from_value(status).expect("a status"));
        let mut machine = Machine::new(Arc::new(object), "127.1.0.1".into(), moment(0));
        machine.resume(moment(0).wall);
        let due: Vec<_> =
            machine.step(moment(0)).into_iter().filter(|effect| !matches!(effect, Effect::Event(_))).collect();
        assert_eq!(due, effects, "{policy} {state}");
        if !due.is_empty() {
            machine.started(0, "after".into(), None, moment(0));
        }
        let status = serde_json::to_value(machine.status(moment(0).wall)).expect("a status");
        assert_eq!((&status["phase"], &status["startTime"]), (&json!(phase), &json!("2020-01-01T00:00:00Z")));
        assert_eq!(status["containerStatuses"][0]["restartCount"], restarts, "{policy} {state}");
    };
    let running = json!({"running": {"startedAt": "2020-01-01T00:00:00Z"}});
    let ended = |code: i32| json!({"terminated": {"exitCode": code}});
    check("Always", running.clone(), &[Effect::Start(0)], "Running", 3);
    check("OnFailure", running.clone(), &[Effect::Start(0)], "Running", 3);
    check("Never", running, &[], "Failed", 2);
    check("Always", ended(0), &[Effect::Start(0)], "Running", 3);
    check("OnFailure", ended(0), &[], "Succeeded", 2);
    check("OnFailure", ended(1), &[Effect::Start(0)], "Running", 3);
    check("Never", json!({"waiting": {"reason": "ContainerCreating"}}), &[Effect::Start(0)], "Running", 2);
}

#[test]
fn containers_have_restart_policies_and_rules_of_their_own() {
    let runs_again = |pod_policy: &str, container: Value, role: &str, code: i32| {
        let mut container = container;
        (container["name"], container["image"]) = (json!("main"), json!("busybox"));
        let mut spec = json!({"restartPolicy": pod_policy, "containers": [{"name": "other", "image": "busybox"}]});
        match role {
            "init" => spec["initContainers"] = json!([container]),
            _ => spec["containers"] = json!([container]),
        }
        let mut bench = Bench::new(spec);
        assert_eq!(bench.step(), [Effect::Start(0)]);
        bench.started(0);
        bench.ended(0, code);
        bench.step();
        let list = if role == "init" { "initContainerStatuses" } else { "containerStatuses" };
        let status = bench.status();
        let state = &status[list][0]["state"];
        (
            state["waiting"]["reason"] == "CrashLoopBackOff" || status[list][0]["lastState"]["terminated"].is_object(),
            status["phase"].clone(),
        )
    };
    let rule = |operator: &str| {
        let codes = json!({"operator": operator, "values": [42, 43]});
        json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": codes}]})
    };
    let (again, failed, done) = ((true, json!("Running")), (false, json!("Failed")), (false, json!("Succeeded")));
    assert_eq!(runs_again("Never", json!({"restartPolicy": "Always"}), "main", 0), again);
    assert_eq!(runs_again("Always", json!({"restartPolicy": "Never"}), "main", 1), failed);
    assert_eq!(runs_again("Always", json!({"restartPolicy": "OnFailure"}), "main", 0), done);
    assert_eq!(runs_again("Never", json!({"restartPolicy": "OnFailure"}), "main", 1), again);
    assert_eq!(runs_again("Never", rule("In"), "main", 43), again);
    assert_eq!(runs_again("Always", rule("In"), "main", 1), failed);
    assert_eq!(runs_again("Never", rule("NotIn"), "main", 0), again);
    assert_eq!(runs_again("Always", rule("NotIn"), "main", 42), failed);
    let (again, done) = ((true, json!("Pending")), (false, json!("Pending")));
    assert_eq!(runs_again("Never", rule("In"), "init", 42), again);
    assert_eq!(runs_again("Always", rule("In"), "init", 1), failed);
    assert_eq!(runs_again("Always", rule("NotIn"), "init", 0), done);
}

/// A pod with an init container, a sidecar and two main containers, of which the first one restarts all when it ends
/// with 42.
fn one_that_restarts_all() -> Value {
    let rule = json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}});
    json!({"restartPolicy": "Never", "initContainers": [
        {"name": "init", "image": "busybox"}, {"name": "sidecar", "image": "busybox", "restartPolicy": "Always"},
    ], "containers": [
        {"name": "main", "image": "busybox", "restartPolicy": "Never", "restartPolicyRules": [rule]}, {"name": "other", "image": "busybox"},
    ]})
}

#[test]
fn all_containers_restart_by_a_rule_of_one() {
    let mut bench = Bench::new(one_that_restarts_all());
    let start = |bench: &mut Bench| {
        assert_eq!(bench.step(), [Effect::Start(0)]);
        bench.started(0);
        bench.ended(0, 0);
        assert_eq!(bench.step(), [Effect::Start(1)]);
        bench.started(1);
        assert_eq!(bench.step(), [Effect::Start(2), Effect::Start(3)]);
        bench.started(2);
        bench.started(3);
        assert_eq!(bench.step(), []);
    };
    start(&mut bench);
    assert_eq!(bench.condition("AllContainersRestarting"), "False -");
    bench.ended(2, 42);
    assert_eq!(bench.step(), [Effect::Kill(1), Effect::Kill(3)]);
    assert_eq!(bench.condition("AllContainersRestarting"), "True RestartAllContainersStarted");
    bench.check("/phase", json!("Running"));
    bench.ended(1, 137);
    assert_eq!(bench.step(), [], "another one still runs");
    bench.ended(3, 137);
    start(&mut bench);
    assert_eq!(bench.condition("AllContainersRestarting"), "False -");
    for status in
        ["/initContainerStatuses/0", "/initContainerStatuses/1", "/containerStatuses/0", "/containerStatuses/1"]
    {
        bench.check(&format!("{status}/restartCount"), json!(1));
    }
    bench.check("/containerStatuses/0/lastState/terminated/exitCode", json!(42));
    bench.ended(2, 42);
    bench.step();
    bench.ended(1, 137);
    bench.ended(3, 137);
    assert_eq!(bench.step(), [Effect::Start(0)]);
    bench.check("/containerStatuses/0/state/waiting/reason", json!("CrashLoopBackOff"));
    bench.delete(5);
    bench.started(0);
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    bench.ended(0, 143);
    assert_eq!(bench.step(), [Effect::Remove]);
}

#[test]
fn a_pod_that_is_deleted_while_all_containers_end_does_not_restart_them() {
    let mut bench = Bench::new(one_that_restarts_all());
    bench.step();
    bench.started(0);
    bench.ended(0, 0);
    bench.step();
    bench.started(1);
    bench.step();
    bench.started(2);
    bench.started(3);
    bench.ended(2, 42);
    bench.step();
    bench.delete(5);
    assert_eq!(bench.step(), []);
    bench.ended(1, 137);
    bench.ended(3, 137);
    assert_eq!(bench.step(), [Effect::Remove]);
}

#[test]
fn sidecars_end_in_the_reverse_order_of_their_start() {
    let sidecar = |name: &str| json!({"name": name, "image": "busybox", "restartPolicy": "Always"});
    let main = json!([{"name": "main", "image": "busybox"}]);
    let mut bench = Bench::new(json!({"initContainers": [sidecar("network"), sidecar("log")], "containers": main}));
    for index in 0..3 {
        assert_eq!(bench.step(), [Effect::Start(index)]);
        bench.started(index);
    }
    bench.delete(30);
    assert_eq!(bench.step(), [Effect::PreStop(0), Effect::PreStop(1), Effect::Terminate(2)]);
    bench.ended(2, 143);
    assert_eq!(bench.step(), [Effect::Terminate(1)]);
    bench.ended(1, 143);
    assert_eq!(bench.step(), [Effect::Terminate(0)]);
    bench.ended(0, 143);
    assert_eq!(bench.step(), [Effect::Remove]);
}
