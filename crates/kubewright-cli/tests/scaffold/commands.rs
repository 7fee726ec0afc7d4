//! Completions, versions, plugins, and the documents of a new project.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::Value;

use crate::folder::Folder;

#[test]
fn completion_scripts_are_printed() {
    let folder = Folder::new("ship");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = folder.try_run(&format!("completion {shell}"));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("programmatic-validation"), "{shell}: {script}");
    }
    assert_eq!(folder.try_run("completion csh").status.code(), Some(2));
}

#[test]
fn versions_are_printed_as_text_and_as_json() {
    let folder = Folder::new("ship");
    let stdout = |line: &str| String::from_utf8(folder.try_run(line).stdout).unwrap();
    assert_eq!(stdout("--version"), concat!("kubewright ", env!("CARGO_PKG_VERSION"), "\n"));
    let version = stdout("version");
    assert!(version.starts_with(&stdout("--version")) && version.contains("\nKubernetes v1.36.3 "), "{version}");
    let json: Value = serde_json::from_str(&stdout("version --output json")).unwrap();
    assert_eq!((&json["kubewright"], &json["kubernetes"]), (&env!("CARGO_PKG_VERSION").into(), &"v1.36.3".into()));
    assert!(version.contains(&format!("\nkube {} ", json["kube"].as_str().unwrap())), "{version}");
}

#[test]
fn programs_in_path_are_commands() {
    let folder = Folder::new("ship");
    folder.write("kubewright-greet", "#!/bin/sh\necho \"$@\" from \"$KUBEWRIGHT\"\nexit 7\n");
    let program = folder.path().join("kubewright-greet");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |line: &str| {
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubewright"));
        command.args(line.split_whitespace()).env("PATH", path).output().unwrap()
    };
    let output = run("greet --all the crew");
    let text = String::from_utf8(output.stdout).unwrap();
    let (arguments, caller) = text.trim().split_once(" from ").unwrap();
    assert_eq!((output.status.code(), arguments), (Some(7), "--all the crew"));
    assert_eq!(fs::canonicalize(caller).unwrap(), fs::canonicalize(env!("CARGO_BIN_EXE_kubewright")).unwrap());
    for (line, says) in [("gret", "no plugin kubewright-gret in PATH"), ("../kubewright-greet", "unknown command")] {
        let output = run(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && stderr.contains(says) && stderr.contains("--help"), "{stderr}");
    }
}

#[test]
fn links_of_a_new_project_lead_to_its_files_or_to_kubernetes_pages() {
    let folder = Folder::new("ship");
    folder.run("init");
    let mut links = 0;
    for (path, text) in folder.all().into_iter().filter(|(path, _)| path.ends_with(".md")) {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let leads = link.starts_with("https://kubernetes.io/docs/") || folder.path().join(link).exists();
            assert!(leads, "{path}: {link}");
            links += 1;
        }
        assert!(!text.contains("kubewright.dev"), "{path}");
    }
    assert!(links > 0);
}
