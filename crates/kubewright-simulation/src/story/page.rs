//! The account of a run as JSON, and as a page that shows it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::command;
use crate::{
    history::Record,
    search::{Failure, Search},
};

/// The page, which contains everything that it needs.
const VIEWER: &str = include_str!("viewer.html");
/// The place of the data in the page.
const DATA: &str = "{{data}}";

/// The account of a run that failed, for programs.
#[derive(Debug, Serialize)]
struct Story<'a> {
    scenario: &'a str,
    findings: Vec<String>,
    injections: Vec<String>,
    /// The command that repeats the run.
    replay: String,
    records: &'a [Record],
}

/// Returns the findings, the faults, the command that repeats the run, and all [records](Record), as one object of
/// JSON.
pub fn json(scenario: &str, failure: &Failure) -> String {
    let story = Story {
        scenario,
        findings: failure.outcome.findings.iter().map(ToString::to_string).collect(),
        injections: failure.schedule.injections.iter().map(ToString::to_string).collect(),
        replay: command(scenario, failure),
        records: failure.outcome.history.records(),
    };
    // Texts, numbers and JSON values have a form in JSON.
    serde_json::to_string(&story).unwrap_or_default()
}

/// Returns a page that shows what user, operator, caches and API server did, and for each moment how the caches
/// differed from what was there. It needs no network, and no other file.
pub fn html(scenario: &str, failure: &Failure) -> String {
    // Within a script element, `<` could end the element.
    VIEWER.replacen(DATA, &json(scenario, failure).replace('<', "\\u003c"), 1)
}

/// Writes the account of a run into a directory, which is created if it doesn't exist: `SCENARIO.txt`, `SCENARIO.json`,
/// `SCENARIO.html`, and `SCENARIO.schedule.json`, which repeats the run. Existing files are replaced. Returns their
/// paths.
///
/// # Errors
/// If a file can't be written.
pub fn write(directory: &Path, scenario: &str, failure: &Failure) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(directory)?;
    let stem = stem(scenario);
    let forms = [
        ("txt", super::text(scenario, failure)),
        ("json", json(scenario, failure)),
        ("html", html(scenario, failure)),
        ("schedule.json", failure.schedule.to_string()),
    ];
    let mut written = Vec::new();
    for (extension, text) in forms {
        let path = directory.join(format!("{stem}.{extension}"));
        fs::write(&path, text)?;
        written.push(path);
    }
    Ok(written)
}

/// Writes what a search covered into a directory, which is created if it doesn't exist: `SCENARIO.summary.json`, the
/// [`Search`] as JSON.
///
/// # Errors
/// If the file can't be written.
pub fn write_summary(directory: &Path, scenario: &str, search: &Search) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join(format!("{}.summary.json", stem(scenario))), serde_json::to_string(search)?)
}

/// Returns the name of a scenario's files, without extension.
fn stem(scenario: &str) -> String {
    scenario.chars().map(|it| if it.is_alphanumeric() { it } else { '_' }).collect()
}
