//! The steps of the workflow `test-e2e.yml` of a scaffolded project. The cluster is embedded, with an image table, so
//! neither kind nor the command line is installed.

use std::{fs, path::Path};

use kubewright_cluster::ImageTable;
use kubewright_manifests::yaml;
use operator_deployed::Deployed;

use crate::installer::golden;

/// Steps that are skipped here.
const ELSEWHERE: [&str; 4] = ["cargo install ", "kind create ", "kubewright image ", "kind load "];

#[tokio::test]
async fn the_end_to_end_workflow_of_a_project_runs() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/project");
    let workflow = fs::read_to_string(project.join(".github/workflows/test-e2e.yml")).unwrap();
    let workflow = yaml::read(&workflow).unwrap().remove(0);
    let steps = workflow["jobs"]["test-e2e"]["steps"].as_array().unwrap();
    let (elsewhere, here): (Vec<_>, Vec<_>) = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .partition(|run| ELSEWHERE.iter().any(|begin| run.starts_with(begin)));
    assert_eq!((elsewhere.len(), here.len()), (ELSEWHERE.len(), 3), "{steps:?}");

    let deployed = Deployed::nothing("project", ImageTable::default().with("project", golden("project"))).await;
    let programs = Path::new(env!("CARGO_BIN_EXE_kubewright")).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    for run in here {
        // The shell options of GitHub.
        let mut shell = tokio::process::Command::new("bash");
        shell.args(["-e", "-c", run]).current_dir(&project).env("PATH", &path).env("KUBECONFIG", deployed.kubeconfig());
        let output = shell.env("HOME", programs.as_str()).env_remove("IMG").kill_on_drop(true).output().await.unwrap();
        let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{run}:\n{said}{complained}");
        if run.contains("wait") {
            assert_eq!(said.matches("condition met").count(), 3, "{said}");
        }
    }
    assert_eq!(deployed.kubectl(&["get", "crd", "-o", "name"]).await, "");
    deployed.stop().await;
}
