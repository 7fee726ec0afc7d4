//! Workloads with stock kubectl.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::cluster::{TestCluster, kubewright};

#[test]
fn kubectl_rolls_out_and_back() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    cluster.kubectl(&["create", "deployment", "web", "--image=busybox:1", "--replicas=3"]);
    let status = || cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=30s"]);
    assert!(status().contains("successfully rolled out"));
    let images = || cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"]);
    let settled = |expected: &str| {
        cluster.kubectl_until(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"], |images| {
            images == expected
        });
    };
    settled("busybox:1 busybox:1 busybox:1");

    cluster.kubectl(&["set", "image", "deployment/web", "busybox=busybox:2"]);
    status();
    settled("busybox:2 busybox:2 busybox:2");
    let history = cluster.kubectl(&["rollout", "history", "deployment/web"]);
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");

    cluster.kubectl(&["rollout", "undo", "deployment/web"]);
    status();
    settled("busybox:1 busybox:1 busybox:1");
    let history = cluster.kubectl(&["rollout", "history", "deployment/web"]);
    assert!(!history.contains("\n1 ") && history.contains("\n3 "), "{history}");

    cluster.kubectl(&["rollout", "pause", "deployment/web"]);
    cluster.kubectl(&["set", "image", "deployment/web", "busybox=busybox:3"]);
    cluster.kubectl(&["scale", "deployment/web", "--replicas=2"]);
    settled("busybox:1 busybox:1");
    cluster.kubectl(&["rollout", "resume", "deployment/web"]);
    status();
    settled("busybox:3 busybox:3");

    let names = || cluster.kubectl(&["get", "pods", "-o", "name"]);
    let before = names();
    cluster.kubectl(&["rollout", "restart", "deployment/web"]);
    status();
    cluster.kubectl_until(&["get", "pods", "-o", "name"], |now| {
        now.lines().count() == 2 && now.lines().all(|name| !before.contains(name))
    });
    assert_eq!(images(), "busybox:3 busybox:3");
    let description = cluster.kubectl(&["describe", "deployment", "web"]);
    for word in ["NewReplicaSetAvailable", "MinimumReplicasAvailable", "ScalingReplicaSet", "NewReplicaSet:   web-"] {
        assert!(description.contains(word), "{word} in\n{description}");
    }

    cluster.kubectl(&["delete", "deployment", "web"]);
    cluster.kubectl_until(&["get", "pods,replicasets", "-o", "name"], str::is_empty);
}

const STATEFUL_SET: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: 'busybox:1'}]}
";

#[test]
fn kubectl_rolls_out_and_scales_a_stateful_set() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    cluster.kubectl(&["apply", "-f", &cluster.file("set.yaml", STATEFUL_SET)]);
    let status = || cluster.kubectl(&["rollout", "status", "statefulset/db", "--timeout=30s"]);
    let done = status();
    assert!(done.contains("statefulset rolling update complete") || done.contains("roll out complete"), "{done}");
    cluster.kubectl(&["scale", "statefulset/db", "--replicas=3"]);
    status();
    let names = cluster.kubectl(&["get", "pods", "-o", "name"]);
    assert_eq!(names, "pod/db-0\npod/db-1\npod/db-2\n");
    let images = || cluster.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}"]);
    cluster.kubectl(&["set", "image", "statefulset/db", "main=busybox:2"]);
    status();
    assert_eq!(images(), "busybox:2 busybox:2 busybox:2");
    cluster.kubectl(&["rollout", "undo", "statefulset/db"]);
    status();
    assert_eq!(images(), "busybox:1 busybox:1 busybox:1");
    let history = cluster.kubectl(&["rollout", "history", "statefulset/db"]);
    assert!(!history.contains("\n1 ") && history.contains("\n3 "), "{history}");
    let description = cluster.kubectl(&["describe", "statefulset", "db"]);
    for word in ["3 desired | 3 total", "SuccessfulCreate", "Create Pod db-2 in StatefulSet db successful"] {
        assert!(description.contains(word), "{word} in\n{description}");
    }
    cluster.kubectl(&["delete", "statefulset", "db"]);
    cluster.kubectl_until(&["get", "pods,controllerrevisions", "-o", "name"], str::is_empty);
}

#[test]
fn kubectl_waits_for_jobs_and_reads_their_logs() {
    let cluster = TestCluster::start(&["--pods", "run"]);
    cluster.kubectl(&["create", "job", "sum", "--image=busybox", "--", "sh", "-c", "echo $((40 + 2))"]);
    cluster.kubectl(&["wait", "--for=condition=complete", "--timeout=30s", "job/sum"]);
    assert_eq!(cluster.kubectl(&["logs", "job/sum"]), "42\n");
    assert!(cluster.kubectl(&["get", "job", "sum"]).contains("1/1"));
    let description = cluster.kubectl(&["describe", "job", "sum"]);
    for word in ["1 Succeeded", "SuccessfulCreate", "Completed"] {
        assert!(description.contains(word), "{word} in\n{description}");
    }
    let count = "for i in 1 2 3; do echo $i; sleep 0.3; done";
    cluster.kubectl(&["create", "job", "count", "--image=busybox", "--", "sh", "-c", count]);
    cluster
        .kubectl_until(&["get", "pods", "-l", "job-name=count", "-o", "jsonpath={.items[*].status.phase}"], |phase| {
            ["Running", "Succeeded"].contains(&phase)
        });
    assert_eq!(cluster.kubectl(&["logs", "-f", "job/count"]), "1\n2\n3\n", "followed to its end");
    cluster.kubectl(&["delete", "job", "sum", "count"]);
    cluster.kubectl_until(&["get", "pods", "-o", "name"], str::is_empty);
}

#[test]
fn a_program_runs_in_place_of_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tool");
    fs::write(&program, "#!/bin/sh\necho \"ran with $*\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let list = folder.path().join("images");
    fs::write(&list, "# the programs of this test\nexample.com/other=tool\n").unwrap();
    let image = format!("example.com/tool={}", program.display());
    let cluster = TestCluster::start(&["--image", &image, "--image-file", list.to_str().unwrap()]);
    for name in ["tool", "other"] {
        let image = format!("--image=example.com/{name}:v1");
        cluster.kubectl(&["run", name, &image, "--restart=Never", "--command", "--", "/manager", "--leader-elect"]);
        let pod = format!("pod/{name}");
        cluster.kubectl(&["wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s", &pod]);
        assert_eq!(cluster.kubectl(&["logs", name]), "ran with --leader-elect\n");
    }
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let output = kubewright().args(["cluster", "--image", "example.com/tool=/nowhere/tool"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("use a program in place of the image example.com/tool"),
        "{text}"
    );
    let output = kubewright().args(["cluster", "--image", "example.com/tool"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A shell starts commands in the background with SIGINT and SIGQUIT ignored.
#[test]
fn programs_have_the_default_actions_of_signals() {
    let script = "kubectl run signals --image=busybox --restart=Never -- grep SigIgn /proc/self/status \
                  && kubectl wait --for=jsonpath={.status.phase}=Succeeded --timeout=30s pod/signals && kubectl logs signals";
    let program = kubewright().get_program().to_owned();
    let mut cluster = Command::new("env");
    cluster.arg("--ignore-signal=INT,QUIT").arg(program).args(["cluster", "--wait", "--", "sh", "-c", script]);
    let output = cluster.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(u64::from_str_radix(mask.trim(), 16).unwrap() & 0b110, 0, "{mask}");
}

#[test]
fn kubectl_prints_what_pods_and_nodes_use() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    cluster.kubectl(&["create", "deployment", "web", "--image=busybox:1"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=30s"]);
    let of_pods = cluster.kubectl(&["top", "pods", "--no-headers"]);
    let words: Vec<_> = of_pods.split_whitespace().skip(1).collect();
    assert_eq!(words, ["0m", "0Mi"], "{of_pods}");
    let of_containers = cluster.kubectl(&["top", "pods", "--containers", "--all-namespaces"]);
    assert!(of_containers.contains("busybox"), "{of_containers}");
    let of_nodes = cluster.kubectl(&["top", "nodes"]);
    assert!(of_nodes.lines().any(|line| line.starts_with("kubewright ") && line.contains("0%")), "{of_nodes}");
    let service = cluster.kubectl(&["get", "apiservice", "v1beta1.metrics.k8s.io"]);
    assert!(service.contains("True"), "{service}");
    // Pods are those of the core group.
    assert!(cluster.kubectl(&["get", "pods"]).contains("1/1"));
    assert!(cluster.kubectl(&["get", "pods.metrics.k8s.io"]).contains("15s"));
    let view = ["get", "clusterrole", "view", "-o", "jsonpath={.rules[*].apiGroups}"];
    cluster.kubectl_until(&view, |groups| groups.contains("metrics.k8s.io"));
}
