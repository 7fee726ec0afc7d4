//! The account of a run that failed: as text, as JSON, and as a page.

mod page;

pub use self::page::{html, json, write, write_summary};
use crate::{error::VARIABLE, history::Entry, search::Failure};

/// The number of records before the first finding that are described.
const LINES: usize = 60;

/// Returns the findings of a run, what happened before the first of them, and the command that repeats it.
pub fn text(scenario: &str, failure: &Failure) -> String {
    let mut text = format!("the simulation {scenario:?} has found:\n");
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for finding in &failure.outcome.findings {
        line(format!("  {finding}"));
    }
    match failure.schedule.injections.as_slice() {
        [] => line("\nwithout a fault".into()),
        injections => {
            line("\nwith these faults:".into());
            for injection in injections {
                let is_unreached = failure.outcome.unreached.contains(injection);
                let remark = if is_unreached { " (the run ends before it)" } else { "" };
                line(format!("  {injection}{remark}"));
            }
        }
    }
    if !failure.schedule.skipped.is_empty() {
        let steps: Vec<_> = failure.schedule.skipped.iter().map(ToString::to_string).collect();
        line(format!("\nwithout these steps of the user, which it doesn't need: {}", steps.join(", ")));
    }
    let records = failure.outcome.history.records();
    let end = records.iter().position(|it| matches!(it.entry, Entry::Finding(_))).map_or(records.len(), |at| at + 1);
    let begin = end.saturating_sub(LINES);
    line("\nwhat happened:".into());
    if begin > 0 {
        line(format!("  ({begin} records before)"));
    }
    records[begin..end].iter().for_each(|record| line(format!("  {record}")));
    line(format!("\nrepeat it with\n  {}", command(scenario, failure)));
    text
}

/// Returns the command that repeats a run.
fn command(scenario: &str, failure: &Failure) -> String {
    let settings = serde_json::json!({"replay": failure.schedule});
    format!("{VARIABLE}='{settings}' cargo test {scenario}")
}
