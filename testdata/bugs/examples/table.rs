//! Searches for each bug, and runs its fixed operator. Prints the table of README.md, or writes it there.
//!
//! `cargo run --release -p bug-bank --example table -- [--write] [RUNS [PARTS OF NAMES]]`: each fixed operator makes
//! this many runs, by default ten thousand; with 0, none. `--write` replaces the rows in README.md, each when it has
//! been measured.

#![allow(clippy::print_stdout, reason = "it is for a terminal")]

use std::{error::Error, fs};

use bug_bank::{BUGS, Bug};
use kubewright::simulation::Budget;

/// The number of runs after which a search for a bug gives up.
const MOST: usize = 1000;
/// The first lines of the table.
const HEAD: &str = "| bug | pattern | found as | faults after shrinking | runs | seconds | false alarms | described |";
const RULE: &str = "|---|---|---|---|--:|--:|--:|---|";

fn main() -> Result<(), Box<dyn Error>> {
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|it| it == "--write");
    let mut arguments = arguments.into_iter();
    let fixed = arguments.next().map_or(Ok(10_000), |runs| runs.parse())?;
    let parts: Vec<_> = arguments.collect();
    println!("{HEAD}\n{RULE}");
    let is_wanted = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    for bug in BUGS.iter().filter(|bug| is_wanted(bug.name())) {
        let row = row(bug, fixed)?;
        println!("{row}");
        if !flags.is_empty() {
            write(&row)?;
        }
    }
    Ok(())
}

/// Returns the bug that a row of a table is about.
fn subject(row: &str) -> &str {
    row.split('|').nth(1).unwrap_or_default().trim()
}

/// Writes a row into the table in README.md, in place of that of the same bug.
fn write(row: &str) -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let text = fs::read_to_string(path)?;
    let begin = text.find("\n| bug |").ok_or("README.md has no table")? + 1;
    let mut rows: Vec<_> = text[begin..].lines().skip(2).filter(|it| subject(it) != subject(row)).collect();
    rows.push(row);
    rows.sort_by_key(|row| subject(row));
    fs::write(path, format!("{}{HEAD}\n{RULE}\n{}\n", &text[..begin], rows.join("\n")))?;
    Ok(())
}

/// Returns the row of a bug.
fn row(bug: &Bug, fixed: usize) -> Result<String, Box<dyn Error>> {
    let before = seconds();
    let search = bug.simulation(false).search(&Budget::default().runs(MOST))?;
    let seconds = seconds() - before;
    let alarms = if fixed > 0 {
        let blamed = bug.simulation(true).search(&Budget::default().runs(fixed).combinations().failures(fixed))?;
        for failure in &blamed.failures {
            println!("<!-- {}: {:?} with {} -->", bug.name(), failure.outcome.findings, failure.schedule);
        }
        format!("{} of {}", blamed.failures.len(), blamed.runs)
    } else {
        String::new()
    };
    let (what, faults) = match search.failures.first() {
        Some(failure) => {
            let faults: Vec<_> = failure.schedule.injections.iter().map(ToString::to_string).collect();
            let finding = failure.outcome.findings.first().map(ToString::to_string).unwrap_or_default();
            (finding, faults)
        }
        None => ("not found".to_owned(), Vec::new()),
    };
    let faults = if faults.is_empty() { "none".into() } else { format!("{}: {}", faults.len(), faults.join("; ")) };
    let sources: Vec<_> = bug.sources.iter().enumerate().map(|(at, url)| format!("[{}]({url})", at + 1)).collect();
    let (name, pattern, runs, sources) = (bug.name(), bug.pattern, search.runs, sources.join(" "));
    Ok(format!("| `{name}` | {pattern} | {what} | {faults} | {runs} | {seconds:.1} | {alarms} | {sources} |"))
}

/// Returns the seconds that the processor has worked for this thread, which makes all runs. A machine that does other
/// things too doesn't change them.
fn seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}
