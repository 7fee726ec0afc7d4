//! `kubewright alpha update`: a project that was scaffolded by an older version and edited since.
//!
//! There is only one version, so the older scaffold is derived from the present one: lines are changed to what they
//! might have been, in the files and in the record.

use std::{fs, process::Command};

use kubewright_scaffold::record::Record;

use crate::folder::Folder;

const RECORD: &str = ".kubewright/scaffold.yaml";
const UPDATE: &str = "alpha update";

/// Creates a project with a kind in a git repository.
fn project() -> Folder {
    let folder = Folder::with_captain();
    git(&folder, &["init", "--quiet"]);
    folder
}

#[track_caller]
fn git(folder: &Folder, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(folder.path()).args(["-c", "user.name=Jane", "-c", "user.email=jane@example.com"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn commit(folder: &Folder) {
    git(folder, &["add", "--all"]);
    git(folder, &["commit", "--quiet", "--message", "as it is"]);
}

/// Makes a file look as if an older version had scaffolded it with other content.
#[track_caller]
fn was(folder: &Folder, path: &str, now: &str, then: &str) {
    folder.edit(path, now, then);
    folder.edit(RECORD, now, then);
}

/// Asserts that a command fails with some texts.
#[track_caller]
fn fails(folder: &Folder, line: &str, says: &[&str]) {
    let output = folder.try_run(line);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "kubewright {line}: {stderr}");
    for words in says {
        assert!(stderr.contains(words), "kubewright {line}: {words:?} is not in {stderr}");
    }
}

#[test]
fn changes_of_the_scaffold_are_merged_into_edited_files() {
    let folder = project();
    let fresh = folder.all();
    // The scaffold of an older version.
    was(&folder, "Dockerfile", "USER 65532:65532", "USER 1000:1000");
    was(&folder, "src/lib.rs", "/// Adds the operator to a manager.", "/// Adds it.");
    let mut record = Record::read(&folder.read(RECORD)).unwrap();
    record.files.remove(".dockerignore").unwrap();
    record.files.insert("Makefile".into(), "all:\n".into());
    folder.write(RECORD, &record.write().unwrap());
    fs::remove_file(folder.path().join(".dockerignore")).unwrap();
    folder.write("Makefile", "all:\n");
    was(&folder, "src/main.rs", "#[tokio::main(flavor = \"current_thread\")]", "#[tokio::main]");
    was(&folder, "PROJECT", "cliVersion: \"0.1.0\"", "cliVersion: \"0.0.9\"");
    // The older version added a kind.
    folder.run("create api --group crew --version v1 --kind Cook");
    was(&folder, "src/controller/cook.rs", "The reconciler for `Cook`", "The controller of `Cook`");
    // The user's edits.
    folder.edit("src/lib.rs", "// +kubebuilder:scaffold:modules", "mod menu;\n// +kubebuilder:scaffold:modules");
    folder.edit("src/controller/captain.rs", "async fn reconcile", "// Mine.\n    async fn reconcile");
    folder.write("src/menu.rs", "//! Mine.\n");
    fs::remove_file(folder.path().join("src/main.rs")).unwrap();
    fs::remove_file(folder.path().join("config/prometheus/monitor.yaml")).unwrap();
    commit(&folder);

    let stderr = folder.run(UPDATE);
    for line in [
        "Replaced Dockerfile",
        "Merged src/lib.rs",
        "Skipped src/main.rs (deleted in the project",
        "Replaced src/controller/cook.rs",
        "Created .dockerignore",
        "Obsolete Makefile (no longer in the scaffold",
    ] {
        assert!(stderr.contains(line), "{line:?} is not in {stderr}");
    }
    assert!(!stderr.contains("captain.rs") && !stderr.contains("monitor.yaml"), "{stderr}");
    let whole = Folder::with_captain();
    whole.run("create api --group crew --version v1 --kind Cook");
    whole.edit("src/lib.rs", "// +kubebuilder:scaffold:modules", "mod menu;\n// +kubebuilder:scaffold:modules");
    whole.edit("src/controller/captain.rs", "async fn reconcile", "// Mine.\n    async fn reconcile");
    whole.write("src/menu.rs", "//! Mine.\n");
    whole.write("Makefile", "all:\n");
    fs::remove_file(whole.path().join("src/main.rs")).unwrap();
    fs::remove_file(whole.path().join("config/prometheus/monitor.yaml")).unwrap();
    let mut updated = folder.all();
    for (path, text) in whole.all() {
        assert_eq!(updated.remove(&path).as_ref(), Some(&text), "{path}");
    }
    assert!(updated.is_empty(), "{:?}", updated.keys());
    assert_eq!(folder.read("Dockerfile"), fresh["Dockerfile"]);

    commit(&folder);
    assert!(folder.run(UPDATE).contains("Unchanged the scaffold is up to date with kubewright"));
    assert_eq!(git(&folder, &["status", "--porcelain"]), "");
}

#[test]
fn conflicts_get_markers() {
    let folder = project();
    was(&folder, "Dockerfile", "USER 65532:65532", "USER 1000:1000");
    was(&folder, "src/lib.rs", "mod controller;", "mod reconciler;");
    folder.edit("Dockerfile", "USER 1000:1000", "USER 7:7");
    commit(&folder);
    fails(
        &folder,
        UPDATE,
        &["Conflict Dockerfile", "Replaced src/lib.rs", "\n  Dockerfile", "between <<<<<<< and >>>>>>>"],
    );
    let text = folder.read("Dockerfile");
    let marked =
        "<<<<<<< ours\nUSER 7:7\n||||||| original\nUSER 1000:1000\n=======\nUSER 65532:65532\n>>>>>>> theirs\n";
    assert!(text.contains(marked), "{text}");
    assert!(folder.read("src/lib.rs").contains("mod controller;"));
    // The next update succeeds only after the conflict is resolved and committed.
    fails(&folder, UPDATE, &["commit them first", "M Dockerfile"]);
    folder.edit("Dockerfile", marked, "USER 7:7\n");
    commit(&folder);
    assert!(folder.run(UPDATE).contains("Unchanged"));
}

#[test]
fn uncommitted_changes_are_an_error() {
    let folder = Folder::with_captain();
    was(&folder, "Dockerfile", "USER 65532:65532", "USER 1000:1000");
    let before = folder.all();
    fails(&folder, UPDATE, &["could not be undone by git", "--force"]);
    git(&folder, &["init", "--quiet"]);
    fails(&folder, UPDATE, &["commit them first, or use --force", "?? .dockerignore", "…"]);
    fs::remove_dir_all(folder.path().join(".git")).unwrap();
    assert!(folder.all() == before);
    assert!(folder.run("alpha update --force").contains("Replaced Dockerfile"));
}

#[test]
fn files_of_newer_versions_are_an_error() {
    let folder = project();
    commit(&folder);
    let record = folder.read(RECORD);
    let refused = |path: &str, text: &str, says: &[&str]| {
        let kept = folder.read(path);
        folder.write(path, text);
        commit(&folder);
        let before = folder.all();
        fails(&folder, UPDATE, says);
        assert!(folder.all() == before, "{says:?}");
        folder.write(path, &kept);
        commit(&folder);
    };
    let project = folder.read("PROJECT");
    refused("PROJECT", &project.replace("version: \"3\"", "version: \"4\""), &["use a newer kubewright"]);
    refused(
        "PROJECT",
        &project.replace("0.1.0", "9.0.0"),
        &["PROJECT was written by kubewright 9.0.0", "use version 9.0.0 or newer"],
    );
    let newer = record
        .replace("cliVersion: 0.1.0", "cliVersion: 9.0.0")
        .replace("cliVersion: \"0.1.0\"", "cliVersion: \"9.0.0\"");
    refused(RECORD, &newer, &["scaffold.yaml was written by kubewright 9.0.0"]);
    refused(RECORD, &format!("<<<<<<< mine\n{record}"), &["cannot read .kubewright/scaffold.yaml", "version control"]);
    refused(RECORD, &record.replace("kind: Captain", "kind: captain"), &["cannot read", "Captain"]);
    // Paths in the record are never written to: only the present scaffold is written.
    let escaping = record.replacen("\n  Dockerfile: ", "\n  ../escaped: ", 1);
    assert!(escaping != record);
    folder.write(RECORD, &escaping);
    commit(&folder);
    folder.run(UPDATE);
    assert_eq!(folder.read(RECORD), record);
    assert_eq!(fs::read_dir(folder.path().join("..")).unwrap().count(), 1);
    fs::remove_file(folder.path().join(RECORD)).unwrap();
    commit(&folder);
    fails(&folder, UPDATE, &[".kubewright/scaffold.yaml does not exist", "another directory"]);
    // Other commands work without the record.
    folder.run("create api --group crew --version v1 --kind Cook");
    assert!(!folder.path().join(RECORD).exists());
}
