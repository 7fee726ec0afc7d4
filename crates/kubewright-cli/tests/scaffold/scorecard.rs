//! `kubewright bundle scorecard`, on the bundle of a golden project.

use std::{fs, os::unix::fs::PermissionsExt, process::Output};

use serde_json::{Value, json};

use crate::{
    bundle::{golden, read},
    folder::Folder,
};

const CSV: &str = "bundle/manifests/project.clusterserviceversion.yaml";
const CONFIG: &str = "bundle/tests/scorecard/config.yaml";

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Writes an executable file.
fn program(folder: &Folder, name: &str, script: &str) {
    folder.write(name, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the description of an operator whose controllers own Deployments.
fn description() -> Value {
    let resource = |group: &str, kind: &str, plural: &str| json!({"group": group, "version": "v1", "kind": kind, "plural": plural, "namespaced": true});
    let controllers =
        [("Captain", "captains"), ("FirstMate", "firstmates"), ("Admiral", "admirales")].map(|(kind, plural)| {
            let own = json!({"resource": resource("crew.testproject.org", kind, plural), "relation": "For"});
            let owned = json!({"resource": resource("apps", "Deployment", "deployments"), "relation": "Owns"});
            json!({"name": plural, "uses": [own, owned]})
        });
    json!({"version": 1, "controllers": controllers})
}

/// Returns a golden project with a bundle. `with_resources` says whether the operator describes what it owns.
fn bundle(with_resources: bool) -> Folder {
    let folder = golden("project");
    if with_resources {
        program(&folder, "operator", &format!("cat > \"$KUBEWRIGHT_DESCRIBE\" <<END\n{}\nEND", description()));
        folder.run("generate kustomize manifests --program ./operator");
    } else {
        folder.run("generate kustomize manifests --no-build");
    }
    folder.run("generate bundle --version 0.1.0");
    folder
}

/// Runs the tests, which must have an exit code, and returns the results by the names of the tests.
#[track_caller]
fn results(folder: &Folder, line: &str, code: i32) -> Vec<(String, Value)> {
    let output = folder.try_run(&format!("bundle scorecard --output json {line}"));
    assert_eq!(output.status.code(), Some(code), "{line}: {}{}", stdout(&output), stderr(&output));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("TestList"), &json!("scorecard.operatorframework.io/v1alpha3"))
    );
    let name = |test: &Value| test["spec"]["entrypoint"][1].as_str().unwrap_or_default().to_owned();
    list["items"].as_array().unwrap().iter().map(|test| (name(test), test["status"]["results"][0].clone())).collect()
}

/// Replaces the tests of the configuration.
fn configure(folder: &Folder, tests: &Value) {
    let stages = json!([{"parallel": true, "tests": tests}]);
    let configuration =
        json!({"apiVersion": "scorecard.operatorframework.io/v1alpha3", "kind": "Configuration", "stages": stages});
    folder.write(CONFIG, &configuration.to_string());
}

#[test]
fn a_bundle_passes_its_scorecard() {
    let folder = bundle(true);
    let owned = read(&folder, CSV)["spec"]["customresourcedefinitions"]["owned"].clone();
    assert_eq!(owned[0]["resources"], json!([{"kind": "Deployment", "version": "v1", "name": ""}]));

    let all = results(&folder, "", 0);
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "basic-check-spec",
        "olm-bundle-validation",
        "olm-crds-have-validation",
        "olm-crds-have-resources",
        "olm-spec-descriptors",
        "olm-status-descriptors",
    ];
    assert_eq!(names, expected);
    for (name, result) in &all {
        assert_eq!((&result["name"], &result["state"]), (&json!(name), &json!("pass")), "{result}");
    }
    assert!(
        all[0].1["log"].as_str().unwrap().contains("Created Captain captain-sample on an embedded cluster"),
        "{}",
        all[0].1
    );

    let output = folder.try_run("bundle scorecard ./bundle --selector suite=basic");
    let text = stdout(&output);
    for part in [
        "Image:      quay.io/operator-framework/scorecard-test:v1.42.0\n",
        "Entrypoint: [scorecard-test basic-check-spec]\n",
        "\t\"suite\":\"basic\"\n",
        "\tName: basic-check-spec\n\tState: pass\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("olm-") && stderr(&output).contains("1 of 1 tests passed"), "{text}{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));

    let listed = stdout(&folder.try_run("bundle scorecard --list -l test=olm-spec-descriptors-test"));
    assert!(listed.contains("olm-spec-descriptors") && !listed.contains("Results"), "{listed}");
    assert_eq!(stdout(&folder.try_run("bundle scorecard --selector suite=none")), "0 tests selected\n");
}

#[test]
fn what_a_bundle_lacks_fails_its_scorecard() {
    let folder = bundle(false);
    folder.edit(CSV, "\"foo\": \"bar\"", "\"foo\": 3, \"bar\": 1");
    let all = results(&folder, "", 1);
    let state = |name: &str| all.iter().find(|(other, _)| other == name).unwrap().1.clone();
    let has = |result: &Value, part: &str, says: &str| {
        result[part].as_array().into_iter().flatten().any(|line| line.as_str().is_some_and(|line| line.contains(says)))
    };
    let basic = state("basic-check-spec");
    assert_eq!(basic["state"], "fail");
    assert!(has(&basic, "errors", "(Captain captain-sample): ") && has(&basic, "errors", "spec.foo"), "{basic}");
    assert!(has(&basic, "errors", "unknown field \"spec.bar\""), "{basic}");
    let resources = state("olm-crds-have-resources");
    assert!(has(&resources, "errors", "owned kind Captain in version v1: resources: is empty"), "{resources}");
    let validation = state("olm-crds-have-validation");
    assert!(has(&validation, "errors", "Captain/v1: spec.bar: is not in the schema"), "{validation}");
    let descriptors = state("olm-spec-descriptors");
    assert!(has(&descriptors, "suggestions", "Add a descriptor with the path bar"), "{descriptors}");
    assert_eq!(state("olm-status-descriptors")["state"], "pass");

    let output = folder.try_run("bundle scorecard -l test=olm-crds-have-resources-test");
    let said = stderr(&output);
    assert!(said.contains("error: 1 of 1 tests did not pass: olm-crds-have-resources-test"), "{said}");
}

#[test]
fn each_version_of_a_kind_has_an_example() {
    let folder = golden("project-conversion");
    folder.run("generate kustomize manifests --no-build");
    folder.run("generate bundle --version 0.1.0");
    let all = results(&folder, "--selector suite=basic", 0);
    let log = all[0].1["log"].as_str().unwrap();
    assert_eq!(log.matches("Created Captain captain-sample").count(), 3, "{log}");
}

#[test]
fn tests_of_images_run_as_pods() {
    let folder = bundle(true);
    let script = r#"
bundle=/bundle; test -d $bundle/manifests || bundle=$KUBEWRIGHT_ROOT/bundle
files=/files; test -d $files || files=$KUBEWRIGHT_ROOT/files
echo written > $files/report
name=$(ls $bundle/manifests | grep -c captains)
echo "{\"results\": [{\"name\": \"$1\", \"state\": \"$2\", \"log\": \"$name in $SCORECARD_NAMESPACE\", \"suggestions\": null}]}""#;
    program(&folder, "tests", script);
    let test = |entrypoint: Value| json!({"image": "example.com/tests:v1", "entrypoint": entrypoint});
    let mut stored = test(json!(["my-tests", "one", "pass"]));
    stored["labels"] = json!({"suite": "mine", "test": "stored"});
    stored["storage"] = json!({"spec": {"mountPath": {"path": "/files"}}});
    let basic = json!({"image": "quay.io/operator-framework/scorecard-test:v1.42.0", "entrypoint": ["scorecard-test", "basic-check-spec"]});
    configure(&folder, &json!([stored, basic]));
    let all = results(&folder, "--namespace crew --image example.com/tests=./tests --wait-time 1m", 0);
    assert_eq!(all[0].1, json!({"name": "one", "state": "pass", "log": "1 in crew"}));
    assert_eq!(all[1].1["state"], "pass");
    assert_eq!(folder.read("test-output/mine/stored/report"), "written\n");

    let output = results(&folder, "", 1);
    assert_eq!((&output[0].1["state"], &output[1].1["state"]), (&json!("error"), &json!("pass")));
    let said = output[0].1["errors"][0].as_str().unwrap();
    assert!(
        said.starts_with("no program for the image example.com/tests:v1")
            && said.contains("--image example.com/tests=PROGRAM"),
        "{said}"
    );
}

#[test]
fn tests_that_print_no_results_are_errors() {
    let folder = bundle(true);
    let shell = |name: &str, script: &str| json!({"image": "busybox", "entrypoint": ["sh", "-c", script], "labels": {"test": name}});
    configure(
        &folder,
        &json!([
            shell("broken", "echo hello; exit 3"),
            shell("failing", r#"echo '{"results": [{"name": "a", "state": "fail", "errors": ["no"]}]}'; exit 1"#),
            shell("endless", "echo started; sleep 100"),
            {"image": "busybox", "entrypoint": ["/no/such/program"], "labels": {"test": "missing"}},
        ]),
    );
    let all = results(&folder, "--wait-time 5s", 1);
    let error = |index: usize| all[index].1["errors"][0].as_str().unwrap().to_owned();
    let states: Vec<_> = all.iter().map(|(_, result)| result["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["error", "fail", "error", "error"], "{all:?}");
    assert!(
        error(0).contains("is not a TestStatus in JSON") && error(0).ends_with("(it ended with exit code 3)"),
        "{}",
        error(0)
    );
    assert_eq!((&all[0].1["log"], error(1).as_str()), (&json!("hello\n"), "no"));
    assert!(error(2).starts_with("did not end within 5s") && all[2].1["log"] == "started\n", "{:?}", all[2]);
    assert!(error(3).contains("the container did not start") && error(3).contains("/no/such/program"), "{}", error(3));
}

#[test]
fn a_scorecard_that_cant_be_used_says_where() {
    let folder = bundle(true);
    let said = |line: &str, code: i32| {
        let output = folder.try_run(&format!("bundle scorecard {line}"));
        assert_eq!(output.status.code(), Some(code), "{line}");
        stderr(&output)
    };
    assert!(said("src", 1).contains("src has no directory manifests"));
    assert!(
        said("--config other.yaml", 1)
            .contains("read the configuration of the tests, other.yaml: kubewright generate bundle")
    );
    assert!(said("--selector a==b==c", 2).contains("use a label selector such as suite=olm"));
    configure(&folder, &json!([{"entrypoint": ["a"]}]));
    assert!(said("", 1).contains("bundle/tests/scorecard/config.yaml: stages[0].tests[0].image: is missing"));
    // The other tests are run, and say what is wrong with the bundle.
    folder.edit(CSV, "kind: ClusterServiceVersion", "kind: Other");
    configure(&folder, &json!([{"image": "a", "entrypoint": ["scorecard-test", "olm-spec-descriptors"]}]));
    let all = results(&folder, "", 1);
    assert_eq!(
        all[0].1["errors"][0],
        "manifests: has 0 objects of the kind ClusterServiceVersion, and needs exactly one"
    );
}
