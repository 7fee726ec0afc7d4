//! The command line as such: what shells and others add to it.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::Value;

use crate::folder::Folder;

#[test]
fn shells_can_complete_it() {
    let folder = Folder::new("ship");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let output = folder.try_run(&format!("completion {shell}"));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("programmatic-validation"), "{shell}: {script}");
    }
    assert_eq!(folder.try_run("completion csh").status.code(), Some(2));
}

#[test]
fn its_version_is_told_in_both_ways() {
    let folder = Folder::new("ship");
    let told = |line: &str| String::from_utf8(folder.try_run(line).stdout).unwrap();
    assert_eq!(told("--version"), concat!("kubewright ", env!("CARGO_PKG_VERSION"), "\n"));
    let version = told("version");
    assert!(version.starts_with(&told("--version")) && version.contains("\nKubernetes v1.36.0 "), "{version}");
    let json: Value = serde_json::from_str(&told("version --output json")).unwrap();
    assert_eq!((&json["kubewright"], &json["kubernetes"]), (&env!("CARGO_PKG_VERSION").into(), &"v1.36.0".into()));
    assert!(version.contains(&format!("\nkube {} ", json["kube"].as_str().unwrap())), "{version}");
}

#[test]
fn programs_on_the_path_are_commands() {
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
    let told = String::from_utf8(output.stdout).unwrap();
    let (said, caller) = told.trim().split_once(" from ").unwrap();
    assert_eq!((output.status.code(), said), (Some(7), "--all the crew"));
    assert_eq!(fs::canonicalize(caller).unwrap(), fs::canonicalize(env!("CARGO_BIN_EXE_kubewright")).unwrap());
    for (line, says) in [("gret", "kubewright-gret on the path"), ("../kubewright-greet", "there is no command")] {
        let output = run(line);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && told.contains(says) && told.contains("--help"), "{told}");
    }
}
