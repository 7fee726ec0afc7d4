//! Stock kubectl against the embedded cluster, without any operator.

use std::{fs, process::Stdio};

use crate::cluster::{TestCluster, line_until, lines_of, operator_file};

#[test]
fn kubectl_discovers_and_explains_resources() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    assert!(cluster.kubectl(&["version"]).contains("1.36"));
    let resources = cluster.kubectl(&["api-resources"]);
    for line in ["pods", "deployments", "customresourcedefinitions", "leases", "events"] {
        assert!(resources.lines().any(|found| found.split(' ').next() == Some(line)), "{line} in\n{resources}");
    }
    let namespaces = cluster.kubectl(&["get", "ns", "--no-headers", "-o", "custom-columns=NAME:.metadata.name"]);
    assert_eq!(namespaces, "default\nkube-node-lease\nkube-public\nkube-system\n");
    assert!(cluster.kubectl(&["get", "nodes"]).contains("Ready"));
    assert!(cluster.kubectl(&["explain", "pod.spec.restartPolicy"]).contains("restartPolicy"));
    assert!(cluster.kubectl(&["cluster-info"]).contains("https://127.0.0.1:"));
}

#[test]
fn a_pod_runs_and_is_logged_followed_and_deleted() {
    let cluster = TestCluster::start(&["--pods", "run"]);
    let script = "echo one; read line || echo no input; while [ ! -e go ]; do sleep 0.05; done; echo two";
    let folder = cluster.folder.path().to_str().unwrap().to_owned();
    let script = format!("cd {folder}; {script}");
    cluster.kubectl(&["run", "talker", "--image=busybox", "--restart=Never", "--", "sh", "-c", &script]);
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=30s", "pod/talker"]);

    let mut follower = cluster.kubectl_command(&["logs", "-f", "talker"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = lines_of(follower.stdout.take().unwrap());
    line_until(&lines, |line| line == "no input");
    fs::write(cluster.folder.path().join("go"), "").unwrap();
    line_until(&lines, |line| line == "two");
    assert!(follower.wait().unwrap().success(), "kubectl logs -f ends with its container");

    cluster.kubectl_until(&["get", "pod", "talker"], |table| table.contains("Completed"));
    assert_eq!(cluster.kubectl(&["logs", "talker", "--tail=1"]), "two\n");
    let description = cluster.kubectl(&["describe", "pod", "talker"]);
    for word in ["Exit Code:    0", "Scheduled", "Started"] {
        assert!(description.contains(word), "{word} in\n{description}");
    }
    cluster.kubectl(&["delete", "pod", "talker"]);
    assert!(cluster.kubectl_fails(&["get", "pod", "talker"]).contains("\"talker\" not found"));
}

#[test]
fn an_unknown_image_is_reported() {
    let cluster = TestCluster::start(&["--pods", "run"]);
    cluster.kubectl(&["run", "lost", "--image=example.com/nowhere:v1", "--restart=Never"]);
    cluster.kubectl_until(&["get", "pod", "lost"], |table| {
        table.contains("ErrImagePull") || table.contains("ImagePullBackOff")
    });
    assert!(cluster.kubectl(&["describe", "pod", "lost"]).contains("example.com/nowhere:v1"));
}

#[test]
fn objects_are_created_applied_patched_and_watched() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    cluster.kubectl(&["create", "namespace", "shop"]);
    cluster.kubectl(&["create", "configmap", "settings", "-n", "shop", "--from-literal=colour=red"]);

    let mut watch = cluster.kubectl_command(&[
        "get",
        "cm",
        "settings",
        "-n",
        "shop",
        "-w",
        "-o",
        "jsonpath={.data.colour}{\"\\n\"}",
    ]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = lines_of(watch.stdout.take().unwrap());
    line_until(&lines, |line| line == "red");
    cluster.kubectl(&["patch", "cm", "settings", "-n", "shop", "-p", r#"{"data":{"colour":"green"}}"#]);
    line_until(&lines, |line| line == "green");
    cluster.kubectl(&["patch", "cm", "settings", "-n", "shop", "--type=merge", "-p", r#"{"data":{"colour":"blue"}}"#]);
    line_until(&lines, |line| line == "blue");
    watch.kill().unwrap();
    watch.wait().unwrap();

    cluster.kubectl(&["label", "cm", "settings", "-n", "shop", "season=winter"]);
    cluster.kubectl(&["annotate", "cm", "settings", "-n", "shop", "note=mine"]);
    assert!(cluster.kubectl(&["get", "cm", "-n", "shop", "-l", "season=winter"]).contains("settings"));
    assert!(!cluster.kubectl(&["get", "cm", "-n", "shop", "-l", "season!=winter"]).contains("settings"));

    cluster.kubectl(&["delete", "namespace", "shop", "--timeout=30s"]);
    assert!(cluster.kubectl_fails(&["get", "namespace", "shop"]).contains("NotFound"));
}

#[test]
fn client_side_and_server_side_apply_agree() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    let manifest = cluster.folder.path().join("service.yaml");
    let write = |app: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: shop\nspec:\n  selector:\n    app: {app}\n  ports:\n  - port: 80\n"
        );
        fs::write(&manifest, text).unwrap();
    };
    let file = manifest.to_str().unwrap();
    let app =
        || cluster.kubectl(&["get", "service", "shop", "-o", "jsonpath={.spec.selector.app} {.spec.ports[*].port}"]);
    write("shop");
    assert!(cluster.kubectl(&["apply", "-f", file]).contains("created"));
    assert!(cluster.kubectl(&["apply", "-f", file]).contains("unchanged"));
    write("market");
    assert!(cluster.kubectl(&["apply", "-f", file]).contains("configured"));
    assert_eq!(app(), "market 80");
    write("stall");
    assert!(
        cluster.kubectl_fails(&["apply", "--server-side", "--field-manager=other", "-f", file]).contains("conflict")
    );
    assert_eq!(app(), "market 80");
    cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", file]);
    assert_eq!(app(), "stall 80");
    assert!(
        cluster.kubectl(&["apply", "--server-side", "--dry-run=server", "-f", file]).contains("serverside-applied")
    );
    cluster.kubectl(&["delete", "-f", file]);
}

#[test]
fn invalid_objects_are_rejected() {
    let cluster = TestCluster::start(&["--pods", "simulate"]);
    cluster.kubectl(&["apply", "-f", &operator_file("podset", "config/crd/bases")]);
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
    let manifest = cluster.folder.path().join("podset.yaml");
    let check = |spec: &str, expected: &str| {
        let text =
            format!("apiVersion: app.example.com/v1alpha1\nkind: PodSet\nmetadata:\n  name: wrong\nspec: {spec}\n");
        fs::write(&manifest, text).unwrap();
        let complaint = cluster.kubectl_fails(&["create", "-f", manifest.to_str().unwrap()]);
        assert!(complaint.contains(expected), "{spec}: {complaint}");
    };
    check("{ replicas: 11 }", "should be less than or equal to 10");
    check("{ replicas: 0 }", "should be greater than or equal to 1");
    check("{ replicas: lots }", "spec.replicas");
    check("{ replicas: 3, replica: 4 }", "unknown field");
    assert!(cluster.kubectl(&["get", "podset.app.example.com"]).is_empty());

    assert!(cluster.kubectl_fails(&["create", "configmap", "Upper_Case"]).contains("RFC 1123"));
    assert!(cluster.kubectl_fails(&["get", "unicorns"]).contains("doesn't have a resource type"));
    assert!(cluster.kubectl_fails(&["create", "cm", "x", "-n", "nowhere"]).contains("\"nowhere\" not found"));
}
