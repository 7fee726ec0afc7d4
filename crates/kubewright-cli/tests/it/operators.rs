//! At, CronJob and PodSet on the embedded cluster, with the kubectl commands of their source documents.

use std::{fs, os::unix::fs::PermissionsExt, process::Stdio};

use crate::cluster::{TestCluster, line_until, lines_of, operator_file};

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

#[test]
fn at_runs_its_command_once() {
    let cluster = TestCluster::with_operators();
    assert!(cluster.kubectl(&["explain", "at.spec"]).contains("schedule"));
    let resources = cluster.kubectl(&["api-resources", "--api-group=cnat.d2iq.com"]);
    assert!(resources.lines().any(|line| first_word(line) == "ats" && line.contains("At")), "{resources}");

    cluster.kubectl(&["apply", "-f", &operator_file("at", "config/samples/cnat_v1alpha1_at.yaml")]);
    let name = cluster.kubectl(&["get", "at", "-o", "jsonpath={.items[0].metadata.name}"]);
    let table = cluster.kubectl_until(&["get", "at"], |table| table.contains("DONE"));
    let headings: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(headings, ["NAME", "SCHEDULE", "PHASE", "AGE"]);
    assert!(table.contains("2020-01-30T10:02:00Z"), "{table}");

    assert_eq!(cluster.kubectl(&["logs", &format!("{name}-pod")]), "YAY\n");
    let description = cluster.kubectl_until(&["describe", "at", &name], |text| {
        text.lines().filter(|line| line.contains("PhaseChange")).count() == 3
    });
    let told: Vec<_> = description
        .lines()
        .filter(|line| line.contains("PhaseChange"))
        .map(|line| line.split_whitespace().last().unwrap())
        .collect();
    assert_eq!(told, ["PENDING", "RUNNING", "DONE"], "{description}");
    assert!(description.contains("at-controller"), "{description}");

    cluster.kubectl(&["delete", "at", &name]);
    cluster.kubectl_until(&["get", "pods", "-o", "name"], str::is_empty);
}

#[test]
fn podset_is_watched_scaled_patched_edited_and_deleted() {
    let cluster = TestCluster::with_operators();
    let sample = operator_file("podset", "config/samples/app_v1alpha1_podset.yaml");
    let podset = "podset.app.example.com/podset-sample";
    let pods = ["get", "pods", "-l", "app=podset-sample", "-o", "name", "--field-selector=status.phase=Running"];
    let running = |count: usize| cluster.kubectl_until(&pods, |names| names.lines().count() == count);

    cluster.kubectl(&["apply", "-f", &sample]);
    running(3);
    let mut watch = cluster.kubectl_command(&["get", podset, "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = lines_of(watch.stdout.take().unwrap());
    let seen = line_until(&lines, |line| first_word(line) == "podset-sample");
    assert_eq!(seen[0].split_whitespace().collect::<Vec<_>>(), ["NAME", "DESIRED", "AVAILABLE", "AGE"]);

    cluster.kubectl(&["patch", podset, "--type=json", "-p", r#"[{"op":"replace","path":"/spec/replicas","value":5}]"#]);
    line_until(&lines, |line| line.split_whitespace().skip(1).take(2).eq(["5", "5"]));
    watch.kill().unwrap();
    watch.wait().unwrap();
    running(5);

    cluster.kubectl(&["scale", podset, "--replicas=2"]);
    running(2);
    edit(&cluster, podset, "s/replicas: 2/replicas: 4/");
    let four = running(4);

    let victim = four.lines().next().unwrap().to_owned();
    cluster.kubectl(&["delete", &victim, "--now"]);
    cluster.kubectl_until(&pods, |names| names.lines().count() == 4 && !names.contains(&victim));
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=30s", podset]);

    cluster.kubectl(&["delete", podset]);
    cluster.kubectl_until(&["get", "pods", "-l", "app=podset-sample", "-o", "name"], str::is_empty);
}

/// Runs `kubectl edit` with sed as the editor.
fn edit(cluster: &TestCluster, object: &str, expression: &str) {
    let editor = cluster.folder.path().join("editor");
    fs::write(&editor, format!("#!/bin/sh\nexec sed -i -e '{expression}' \"$1\"\n")).unwrap();
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
    let output = cluster.kubectl_command(&["edit", object]).env("KUBE_EDITOR", &editor).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_first_flavour_keeps_its_names_and_labels() {
    let cluster = TestCluster::with_operators();
    cluster.kubectl(&["apply", "-f", &operator_file("podset", "config/samples/k8stest_v1alpha1_podset.yaml")]);
    let of_podset = ["get", "pods", "-l", "app=podset,podset_cr=podset-sample", "-o", "name"];
    let names = cluster.kubectl_until(&of_podset, |names| names.lines().count() == 2);
    assert!(names.lines().all(|name| name.starts_with("pod/podset-sample-")), "{names}");
    let podset = "podset.k8stest.justin0u0.com/podset-sample";
    cluster.kubectl_until(&["get", podset, "-o", "jsonpath={.status.replicas} {.status.pod_names}"], |status| {
        status.starts_with("2 ") && names.lines().all(|name| status.contains(name.trim_start_matches("pod/")))
    });
    cluster.kubectl(&["delete", podset]);
    cluster.kubectl_until(&of_podset, str::is_empty);
}

#[test]
fn cronjobs_are_watched_logged_described_and_rejected() {
    let cluster = TestCluster::with_operators();
    let kind = "cronjob.batch.tutorial.kubebuilder.io";
    let sample = fs::read_to_string(operator_file("cronjob", "config/samples/batch_v1_cronjob.yaml")).unwrap();
    let with_schedule = |file: &str, schedule: &str, name: &str| {
        let text = sample.replace("\"*/1 * * * *\"", &format!("{schedule:?}")).replace("name: cronjob-sample", name);
        let path = cluster.folder.path().join(file);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // The webhooks work as soon as the manager runs.
    cluster.kubectl_until(&["get", "validatingwebhookconfigurations", "-o", "name"], |names| !names.is_empty());

    let bad = with_schedule("bad.yaml", "* * * * tomorrow", &format!("name: {}", "x".repeat(53)));
    let refusal = cluster.kubectl_fails(&["create", "-f", &bad]);
    for word in ["spec.schedule", "metadata.name", "must be no more than 52 characters"] {
        assert!(refusal.contains(word), "{word} in\n{refusal}");
    }
    assert_eq!(cluster.kubectl(&["get", "tcj", "-o", "name"]), "");

    let often = with_schedule("often.yaml", "@every 1s", "name: cronjob-sample");
    cluster.kubectl(&["apply", "-f", &often]);
    let mut watch = cluster.kubectl_command(&["get", kind, "-w"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = lines_of(watch.stdout.take().unwrap());
    let seen = line_until(&lines, |line| line.contains("cronjob-sample-1") || line.contains("cronjob-sample-2"));
    let headings: Vec<_> = seen[0].split_whitespace().collect();
    assert_eq!(headings[..4], ["NAME", "SCHEDULE", "SUSPEND", "ACTIVE"]);
    watch.kill().unwrap();
    watch.wait().unwrap();
    cluster.kubectl(&["patch", "tcj", "cronjob-sample", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]);

    // The history's limit, three by default, deletes the earlier ones. A Job whose pod is still starting has no logs.
    let jobs = r#"jsonpath={range .items[*]}{.metadata.name} {.status.completionTime}{"\n"}{end}"#;
    let jobs = cluster.kubectl_until(&["get", "jobs", "-o", jobs], |jobs| {
        (1..=3).contains(&jobs.lines().count()) && jobs.lines().all(|job| job.split_whitespace().count() == 2)
    });
    let logs = cluster.kubectl(&["logs", "-f", &format!("job/{}", first_word(&jobs))]);
    assert!(logs.ends_with("Hello from the Kubernetes cluster\n"), "{logs}");
    let description = cluster.kubectl_until(&["describe", "tcj", "cronjob-sample"], |text| text.contains("Started"));
    for word in ["cronjob-controller", "Concurrency Policy:", "Last Schedule Time:", "created job"] {
        assert!(description.contains(word), "{word} in\n{description}");
    }
    cluster.kubectl(&["delete", "tcj", "cronjob-sample"]);
    cluster.kubectl_until(&["get", "jobs,pods", "-o", "name"], str::is_empty);
}
