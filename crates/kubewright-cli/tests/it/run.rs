//! `kubewright run`: the operator on this machine, against the cluster of the kubeconfig.

use std::{fs, process::Command};

use tempfile::TempDir;

use crate::cluster::{TestCluster, kubewright};

/// An operator without dependencies, which is built in a second: it describes itself, or tells how it was started.
const OPERATOR: &str = r##"
use std::env;

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    match env::var("KUBEWRIGHT_DESCRIBE") {
        Ok(file) => {
            let kind = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "cows.my.domain"},
                "spec": {"group": "my.domain", "scope": "Namespaced", "names": {"kind": "Cow", "plural": "cows"}, "versions":
                [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}"#;
            std::fs::write(file, format!(r#"{{"version": 1, "kinds": [{{"versions": [{kind}]}}]}}"#)).unwrap();
        }
        Err(_) => {
            let arguments: Vec<_> = env::args().skip(1).collect();
            println!("{arguments:?} webhooks={} kubeconfig={}", variable("ENABLE_WEBHOOKS"), variable("KUBECONFIG"));
            std::process::exit(7);
        }
    }
}
"##;

fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "[package]\nname = \"cow\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), OPERATOR).unwrap();
    folder
}

fn command(project: &TempDir, arguments: &[&str]) -> Command {
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
    assert_eq!(printed, format!("[\"--leader-elect\", \"-v\"] webhooks=false kubeconfig={kubeconfig}\n"));
    for word in [
        "warning: the manifests are not what the operator describes",
        "cows.my.domain: run kubewright install",
        "Running cow",
    ] {
        assert!(said.contains(word), "{word} in\n{said}");
    }

    assert!(command(&project, &["manifests"]).status().unwrap().success());
    cluster.kubectl(&["apply", "-f", &project.path().join("config/crd/bases").display().to_string()]);
    let mut again = command(&project, &["run", "--context", "kubewright", "--quiet"]);
    let output = again.env("KUBECONFIG", &kubeconfig).env("ENABLE_WEBHOOKS", "true").output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let expected = format!("[\"--context\", \"kubewright\"] webhooks=true kubeconfig={kubeconfig}\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn no_cluster_is_told_of_before_the_operator_starts() {
    let project = project();
    let output = command(&project, &["run", "--kubeconfig", "nowhere"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("error: nowhere: ") && said.contains("name another file with --kubeconfig"), "{said}");
    assert!(output.stdout.is_empty());
}
