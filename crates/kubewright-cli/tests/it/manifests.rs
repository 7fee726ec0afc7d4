//! `kubewright manifests`: generated files, drift and errors.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A project, and the program that describes its operator.
struct Project {
    folder: TempDir,
    program: PathBuf,
}

impl Project {
    fn of(program: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        Self { folder, program }
    }

    /// Creates a project whose operator registers a kind.
    fn with(definition: Value) -> Self {
        let description = json!({"version": 1, "kinds": [{"versions": [definition]}]});
        let project = Self::of(PathBuf::new());
        let program = project.folder.path().join("operator");
        fs::write(&program, format!("#!/bin/sh\ncat > \"$KUBEWRIGHT_DESCRIBE\" <<END\n{description}\nEND\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, ..project }
    }

    fn manifests(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.current_dir(self.folder.path()).arg("manifests").arg("--program").arg(&self.program).args(arguments);
        command.output().unwrap()
    }

    fn writes(&self, arguments: &[&str]) -> String {
        let output = self.manifests(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }

    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.manifests(arguments);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }
}

/// Returns an example binary, which cargo builds with all tests, but not with `--test it` alone.
pub(crate) fn example(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_kubewright")).with_file_name("examples").join(name);
    assert!(program.exists(), "cargo build -p kubewright-cli --examples");
    program
}

fn committed(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../operators").join(file)).unwrap()
}

fn definition(spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cows.my.domain"},
        "spec": {
            "group": "my.domain", "scope": "Namespaced", "names": {"kind": "Cow", "plural": "cows"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

const COWS: &str = "config/crd/bases/my.domain_cows.yaml";

#[test]
fn manifests_are_written_and_drift_is_reported() {
    let project = Project::of(example("operators"));
    let missing = project.refuses(&["--check"]);
    assert!(
        missing.contains("run kubewright manifests") && missing.contains("cnat.d2iq.com_ats.yaml is missing"),
        "{missing}"
    );
    assert!(!project.path("config").exists(), "a comparison writes nothing");

    let said = project.writes(&[]);
    let bases = [
        "at/cnat.d2iq.com_ats",
        "podset/app.example.com_podsets",
        "podset/k8stest.justin0u0.com_podsets",
        "cronjob/batch.tutorial.kubebuilder.io_cronjobs",
    ];
    for base in bases {
        let (operator, name) = base.split_once('/').unwrap();
        let file = format!("config/crd/bases/{name}.yaml");
        assert!(said.contains(&format!("Wrote {file}")), "{said}");
        assert_eq!(project.read(&file), committed(&format!("{operator}/{file}")));
    }
    assert_eq!(project.read("config/webhook/manifests.yaml"), committed("cronjob/config/webhook/manifests.yaml"));
    project.writes(&["--check"]);
    assert!(!project.writes(&[]).contains("Wrote"), "the second time there is nothing to do");

    let file = "config/crd/bases/cnat.d2iq.com_ats.yaml";
    fs::write(project.path(file), project.read(file) + "# mine\n").unwrap();
    let differs = project.refuses(&["--check"]);
    assert!(
        differs.ends_with(&format!("run kubewright manifests to update these files:\n  {file} differs\n")),
        "{differs}"
    );
    assert!(project.read(file).ends_with("# mine\n"));
}

#[test]
fn stale_manifests_are_reported_and_kept() {
    let project = Project::with(definition(json!({"type": "object"})));
    project.writes(&[]);
    let pigs = "config/crd/bases/my.domain_pigs.yaml";
    fs::write(project.path(pigs), project.read(COWS).replace("cow", "pig").replace("Cow", "Pig")).unwrap();
    // Files that weren't generated are left unchanged.
    fs::write(project.path("config/crd/bases/others.yaml"), project.read(COWS)).unwrap();
    let refused = project.refuses(&["--check"]);
    let told = format!("\n  {pigs}: the operator no longer has this kind");
    assert!(refused.contains(&told) && !refused.contains("others"), "{refused}");
    let warned = project.writes(&[]);
    assert!(warned.contains(&format!("warning: {pigs} is stale: ")) && !warned.contains("others"), "{warned}");
    assert!(project.path(pigs).exists(), "no definition is deleted");
    fs::remove_file(project.path(pigs)).unwrap();
    project.writes(&["--check"]);
    fs::create_dir_all(project.path("config/webhook")).unwrap();
    fs::write(project.path("config/webhook/manifests.yaml"), "kind: ValidatingWebhookConfiguration\n").unwrap();
    assert!(project.refuses(&["--check"]).contains("the operator no longer has webhooks"));
}

#[test]
fn an_invalid_definition_is_an_error_and_nothing_is_written() {
    for (field, wrong) in [
        (json!({"type": "integer", "default": "many"}), "properties[size].default"),
        (json!({"type": "string", "pattern": "("}), "properties[size].pattern"),
    ] {
        let project = Project::with(definition(json!({"type": "object", "properties": {"size": field}})));
        let refused = project.refuses(&[]);
        let place = format!("cows.my.domain: spec.validation.openAPIV3Schema.properties[spec].{wrong}: Invalid value");
        assert!(refused.contains("nothing was written") && refused.contains(&place), "{refused}");
        assert!(!project.path("config").exists());
    }
}

#[test]
fn a_definition_too_large_for_kubectl_apply_is_a_warning_with_a_hint() {
    let text = "Much to say. ".repeat(25_000);
    let project = Project::with(definition(json!({"type": "object", "properties": {
        "cow": {"type": "string", "description": text}, "name": {"type": "string", "description": "Its name."},
    }})));
    let warned = project.writes(&[]);
    assert!(warned.contains("warning: config/crd/bases/my.domain_cows.yaml has 325"), "{warned}");
    assert!(warned.contains(": v1 spec.cow has 325") && warned.contains("--max-description 0"), "{warned}");
    let quiet = project.writes(&["--max-description", "9"]);
    assert!(!quiet.contains("warning"), "{quiet}");
    assert!(project.read(COWS).contains("description: Its name.\n"), "it has nine bytes");
    project.writes(&["--max-description", "0"]);
    assert!(!project.read(COWS).contains("description"));
}
