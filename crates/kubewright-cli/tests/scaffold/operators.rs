//! The operators in `operators` have the layout of scaffolded projects: files that their authors had no reason to
//! change are the output of the commands, and later commands work in them.
//!
//! `cargo xtask generate` regenerates these files.

use std::{collections::BTreeMap, fs, path::PathBuf};

use kubewright_scaffold::record;

use crate::{
    folder::{Folder, files},
    golden::is_generated,
};

/// The commands that created each operator. Where a project has two domains, the second one was edited into `PROJECT`.
const OPERATORS: [(&str, &[&str]); 5] = [
    ("at", &["init --domain d2iq.com", "create api --group cnat --version v1alpha1 --kind At"]),
    (
        "cronjob",
        &[
            "init --domain tutorial.kubebuilder.io",
            "create api --group batch --version v1 --kind CronJob",
            "create webhook --group batch --version v1 --kind CronJob --defaulting --programmatic-validation",
        ],
    ),
    ("guestbook", &["init --domain my.domain", "create api --group webapp --version v1 --kind Guestbook"]),
    ("lolcow", &["init --domain my.domain", "create api --version v1alpha1 --kind Lolcow"]),
    (
        "podset",
        &[
            "init --domain justin0u0.com --multigroup",
            "create api --group k8stest --version v1alpha1 --kind PodSet",
            "domain justin0u0.com example.com",
            "create api --group app --version v1alpha1 --kind PodSet",
            "domain example.com justin0u0.com",
        ],
    ),
];

/// The extent of edits in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Edits {
    /// No edits.
    None,
    /// Additional lines among the scaffolded ones.
    Additions,
    /// Everything except the markers.
    Any,
}

fn edits(path: &str) -> Edits {
    let parts: Vec<_> = path.split('/').collect();
    match parts[..] {
        // Dependencies, features and lints come from the workspace.
        ["Cargo.toml" | "README.md"] | ["src", "lib.rs"] => Edits::Any,
        // Not every kind has a condition Ready to wait for.
        [".github", "workflows", "test-e2e.yml"] => Edits::Any,
        // The image has a name, which deploy --image also sets.
        ["config", "manager", "kustomization.yaml"] => Edits::Any,
        ["config", "samples", sample] if sample != "kustomization.yaml" => Edits::Any,
        ["src", .., "mod.rs"] | ["tests", "it", "main.rs"] | ["config", "manager", "manager.yaml"] => Edits::Additions,
        ["src", _, .., _] => Edits::Any,
        // A scenario is about what the operator does.
        ["tests", "it", scenario] if scenario.ends_with("_simulation.rs") => Edits::Any,
        _ => Edits::None,
    }
}

fn root(operator: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../operators").join(operator)
}

/// Runs the commands in an empty directory.
fn typed(operator: &str, lines: &[&str]) -> BTreeMap<String, String> {
    let folder = Folder::new(&format!("{operator}-operator"));
    for line in lines {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["domain", before, after] => {
                let [before, after] = [before, after].map(|domain| format!("\ndomain: {domain}\n"));
                folder.edit("PROJECT", &before, &after);
            }
            _ => drop(folder.run(line)),
        }
    }
    // The records of the golden projects are tested to equal the files.
    let mut made = files(&folder.path(), false);
    made.remove(record::FILE);
    made
}

/// Removes the spaces, line breaks and commas of Rust code, which depend on the line width that rustfmt is given.
fn words(path: &str, text: &str) -> String {
    let is_layout = |letter: char| letter.is_whitespace() || letter == ',';
    if path.ends_with(".rs") { text.replace(is_layout, "") } else { text.to_owned() }
}

/// Returns the first line of one text that is not in the other, in order.
fn missing<'a>(path: &str, made: &'a str, kept: &str) -> Option<&'a str> {
    let mut kept = kept.lines();
    made.lines().find(|line| !kept.any(|other| words(path, other) == words(path, line)))
}

fn check(operator: &str, lines: &[&str]) {
    let (root, write) = (root(operator), std::env::var_os("KUBEWRIGHT_GENERATE").is_some());
    for (path, made) in typed(operator, lines).into_iter().filter(|(path, _)| !is_generated(path)) {
        let name = format!("operators/{operator}/{path}");
        let kept = fs::read_to_string(root.join(&path));
        match edits(&path) {
            Edits::None if write => {
                fs::create_dir_all(root.join(&path).parent().unwrap()).unwrap();
                fs::write(root.join(&path), made).unwrap();
            }
            Edits::None => {
                let kept = kept.unwrap_or_default();
                assert!(
                    words(&path, &kept) == words(&path, &made),
                    "{name} is not as the commands make it: run cargo xtask generate"
                );
            }
            Edits::Additions => {
                let kept = kept.unwrap_or_else(|error| panic!("{name}, which the commands make: {error}"));
                assert_eq!(missing(&path, &made, &kept), None, "{name} lacks a line that the commands make");
            }
            Edits::Any => assert!(kept.is_ok(), "{name} isn't there, and the commands make it"),
        }
    }
}

#[test]
fn golden_layout_of_the_operators() {
    for (operator, lines) in OPERATORS {
        check(operator, lines);
    }
}

/// The example of the book's page about simulation consists of the sources of a project.
#[test]
fn golden_sources_of_the_example_in_the_book() {
    let folder = Folder::new("migrations");
    folder.run("init --domain example.com");
    folder.run("create api --group data --version v1 --kind Migration");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/migrations");
    for path in ["src/main.rs", "src/api/mod.rs"] {
        let made = folder.read(path);
        if std::env::var_os("KUBEWRIGHT_GENERATE").is_some() {
            fs::write(root.join(path), made).unwrap();
        } else {
            let kept = fs::read_to_string(root.join(path)).unwrap();
            assert_eq!(kept, made, "testdata/migrations/{path}: run cargo xtask generate");
        }
    }
}

#[test]
fn later_commands_work_in_the_operators() {
    for (operator, _) in OPERATORS {
        let folder = Folder::new("copy");
        for (path, text) in files(&root(operator), false) {
            folder.write(&path, &text);
        }
        let group = match folder.read("PROJECT") {
            text if text.contains("group: cnat") => "--group cnat",
            text if text.contains("group: batch") => "--group batch",
            text if text.contains("group: webapp") => "--group webapp",
            text if text.contains("group: app") => "--group app",
            _ => "",
        };
        folder.run(&format!("create api {group} --version v9 --kind Bosun"));
        folder.run(&format!("create webhook {group} --version v9 --kind Bosun --defaulting --programmatic-validation"));
    }
}
