//! `kubewright run`: the operator on this machine, with the cluster of the kubeconfig.

use std::{fs, process::Command};

use tempfile::TempDir;

use crate::cluster::{TestCluster, kubewright};

/// An operator without dependencies, which builds in a second: it describes itself, or prints how it was started.
const OPERATOR: &str = r##"
use std::env;

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    match env::var("KUBEWRIGHT_DESCRIBE") {
        Ok(file) => {
            let kind = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "cows.my.domain"},
                "spec": {"group": "my.domain", "scope": "Namespaced", "names": {"kind": "Cow", "plural": "cows"}, "versions":
                [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}"#;
            let port = r#"{"name": "webhook", "number": 9443}"#;
            std::fs::write(file, format!(r#"{{"version": 1, "kinds": [{{"versions": [{kind}]}}], "ports": [{port}]}}"#)).unwrap();
        }
        Err(_) => {
            let arguments: Vec<_> = env::args().skip(1).collect();
            println!("{arguments:?} webhooks={} kubeconfig={}", variable("ENABLE_WEBHOOKS"), variable("KUBECONFIG"));
            std::process::exit(7);
        }
    }
}
"##;

pub(crate) fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "[package]\nname = \"cow\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), OPERATOR).unwrap();
    folder
}

pub(crate) fn command(project: &TempDir, arguments: &[&str]) -> Command {
    let mut command = kubewright();
    command.current_dir(project.path()).args(arguments).env_remove("CARGO_TARGET_DIR").env_remove("ENABLE_WEBHOOKS");
    command
}

#[test]
fn the_operator_runs_against_the_cluster_of_the_kubeconfig() {
    let (project, cluster) = (project(), TestCluster::start(&["--pods", "simulate"]));
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let mut run = command(&project, &["run", "--kubeconfig", &kubeconfig, "--", "--leader-elect", "-v"]);
    let output = run.output().unwrap();
    let (printed, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(7), "{said}");
    let port = said.split_once("probes and traces at http://127.0.0.1:").unwrap().1.lines().next().unwrap();
    let probes = format!("\"--health-probe-bind-address=127.0.0.1:{port}\"");
    let expected = format!("[{probes}, \"--leader-elect\", \"-v\"] webhooks=false kubeconfig={kubeconfig}\n");
    assert_eq!(printed, expected);
    for word in
        ["warning: the manifests do not match the operator", "cows.my.domain; run kubewright install", "Running cow"]
    {
        assert!(said.contains(word), "{word} in\n{said}");
    }

    assert!(command(&project, &["manifests"]).status().unwrap().success());
    cluster.kubectl(&["apply", "-f", &project.path().join("config/crd/bases").display().to_string()]);
    let probes = "--health-probe-bind-address=0";
    let mut again = command(&project, &["run", "--context", "kubewright", "--quiet", "--", probes]);
    let output = again.env("KUBECONFIG", &kubeconfig).env("ENABLE_WEBHOOKS", "true").output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (begin, rest) = printed.split_once("--webhook-bind-address=127.0.0.1:").expect(&printed);
    let (port, _) = rest.split_once('"').unwrap();
    let url = format!("\"--webhook-url=https://127.0.0.1:{port}\"");
    assert_eq!(begin, "[\"--context\", \"kubewright\", \"");
    assert_eq!(rest, format!("{port}\", {url}, \"{probes}\"] webhooks=true kubeconfig={kubeconfig}\n"));
}

#[test]
fn a_missing_cluster_is_reported_before_the_operator_starts() {
    let project = project();
    let output = command(&project, &["run", "--kubeconfig", "nowhere"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("error: nowhere: ") && said.contains("choose another file with --kubeconfig"), "{said}");
    assert!(output.stdout.is_empty());
}

/// Cargo compiles a dependency once for each set of features, and tests often ask for more of them.
#[test]
fn commands_reuse_the_dependencies_that_cargo_test_compiled() {
    let project = project();
    let path = |file: &str| project.path().join(file);
    fs::create_dir_all(path("helper/src")).unwrap();
    fs::create_dir(path("tests")).unwrap();
    let package = |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    fs::write(path("helper/Cargo.toml"), package("helper") + "[features]\ntesting = []\n").unwrap();
    fs::write(path("helper/src/lib.rs"), "").unwrap();
    let dependencies = "[workspace]\n[dependencies]\nhelper = { path = \"helper\" }\n\
                        [dev-dependencies]\nhelper = { path = \"helper\", features = [\"testing\"] }\n";
    fs::write(path("Cargo.toml"), package("cow") + dependencies).unwrap();
    fs::write(path("tests/it.rs"), "#[test]\nfn it() {}\n").unwrap();
    let mut tests = Command::new(env!("CARGO"));
    let output = tests.current_dir(project.path()).args(["test", "--no-run"]).env_remove("CARGO_TARGET_DIR").output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("Compiling helper") && said.contains("Compiling cow"), "{said}");

    fs::write(path("src/main.rs"), format!("{OPERATOR}\n// changed\n")).unwrap();
    let output = command(&project, &["manifests"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("Compiling cow"), "{said}");
    assert!(!said.contains("Compiling helper"), "{said}");
}
