//! `kubewright simulate`: the scenarios of a project, which are its tests of a certain name.

use std::{fs, process::Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{command, project};

/// Tests as the attribute `scenario` makes them, without the simulator, so that they build in a second: one writes what
/// it was told, one fails with an account, and one fails before it can write any.
const TESTS: &str = r##"
use std::{env, fs};

fn setting(name: &str) -> String {
    let settings = env::var("KUBEWRIGHT_SIMULATION").unwrap();
    let (_, rest) = settings.split_once(&format!("\"{name}\":\"")).unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

fn report(file: &str, text: &str) {
    fs::write(format!("{}/{file}", setting("report")), text).unwrap();
}

mod passes {
    #[test]
    fn simulation() {
        super::report("passes.settings", &std::env::var("KUBEWRIGHT_SIMULATION").unwrap());
        super::report("passes.summary.json", r#"{"runs": 7, "writes": 2, "events": 3, "requests": 5, "steps": 1, "isComplete": true, "failures": 0,
            "states": 9, "lastNew": 3, "singles": {"tried": 5, "of": 5}, "atWrites": {"tried": 4, "of": 4}}"#);
    }
}

mod finds {
    #[test]
    fn simulation() {
        super::report("finds.txt", "two pods are there");
        super::report("finds.json", r#"{"findings": ["always: two pods"], "injections": [], "replay": "again", "records": []}"#);
        let progress = r#"{"phase": "singles", "runs": 3, "writes": 2, "events": 3, "requests": 5, "isComplete": false, "failures": 0}"#;
        super::fs::write(super::setting("progress"), format!("{progress}\n")).unwrap();
        panic!();
    }
}

mod breaks {
    #[test]
    fn simulation() {
        panic!("no cluster");
    }
}
"##;

fn scenarios() -> TempDir {
    let project = project();
    fs::create_dir(project.path().join("tests")).unwrap();
    fs::write(project.path().join("tests/it.rs"), TESTS).unwrap();
    project
}

/// Returns the exit code, the standard output and the standard error.
fn simulate(project: &TempDir, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut simulate = command(project, &["simulate"]);
    let Output { status, stdout, stderr } = simulate.args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_scenario_gets_the_settings_and_says_what_it_covered() {
    let project = scenarios();
    let path = |file: &str| project.path().join(file).display().to_string();
    let settings = || -> Value { serde_json::from_slice(&fs::read(path("found/passes.settings")).unwrap()).unwrap() };

    fs::create_dir(path("found")).unwrap();
    let (code, printed, said) = simulate(&project, &["passes", "--time", "2m", "--seed", "5", "--report", "found"]);
    assert_eq!((code, printed.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains(": 7 runs, with each single fault\n"), "{said}");
    assert!(
        said.contains("5 of 5 single faults (4 of 4 at writes), at 2 writes, 5 requests, 3 events and 1 steps"),
        "{said}"
    );
    assert!(said.contains("9 states, nothing new in the last 4 of 7 runs"), "{said}");
    let mut given = settings();
    assert!(given["progress"].take().is_string());
    assert_eq!(given, json!({"progress": null, "report": path("found"), "seconds": 120, "runs": null, "seed": 5}));

    let schedule = json!({"seed": 9, "injections": []});
    fs::write(path("schedule.json"), schedule.to_string()).unwrap();
    let (code, ..) = simulate(&project, &["passes", "--replay", "schedule.json", "--report", "found"]);
    assert_eq!(code, Some(0));
    assert_eq!(settings()["replay"], schedule);
}

#[test]
fn what_a_scenario_finds_is_printed_and_is_an_error() {
    let project = scenarios();
    let (code, printed, said) = simulate(&project, &["finds"]);
    assert_eq!((code, printed.as_str()), (Some(3), "two pods are there\n"), "{said}");
    assert!(said.contains("error: 1 of 1 scenarios found something: finds"), "{said}");

    // As lines of JSON.
    let (code, printed, said) = simulate(&project, &["finds", "--output", "json"]);
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, lines.len()), (Some(3), 2), "{printed}{said}");
    let parts = |line: &Value| ["type", "scenario", "phase", "found", "findings"].map(|field| line[field].clone());
    let none = Value::Null;
    assert_eq!(parts(&lines[0]), [json!("progress"), json!("finds"), json!("singles"), none.clone(), none.clone()]);
    assert_eq!(parts(&lines[1]), [json!("result"), json!("finds"), none, json!(true), json!(["always: two pods"])]);

    // Without an account, the scenario itself has failed.
    let (code, printed, said) = simulate(&project, &["breaks"]);
    assert_eq!((code, printed.as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("the scenario breaks can't run") && said.contains("no cluster"), "{said}");

    let (code, _, said) = simulate(&project, &["other"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("has no scenario \"other\"; it has"), "{said}");
}
