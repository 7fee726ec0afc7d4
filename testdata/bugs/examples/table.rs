//! Searches for each bug, and runs its mended operator with the same faults. Prints the table of README.md.
//!
//! `cargo run -p bug-bank --example table [--found] [PARTS OF NAMES]`: with `--found` the mended operators aren't run.

#![allow(clippy::print_stdout, reason = "it is for a terminal")]

use std::error::Error;

use bug_bank::BUGS;
use kubewright::clock::SystemClock;

fn main() -> Result<(), Box<dyn Error>> {
    let (options, parts): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument == "--found");
    // The clock counts by tokio's time.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let clock = runtime.block_on(async { SystemClock::shared() });
    println!("| bug | pattern | found as | with | runs | seconds | false alarms of the mended one | described |");
    println!("|---|---|---|---|--:|--:|--:|---|");
    let is_wanted = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    for bug in BUGS.iter().filter(|bug| is_wanted(bug.name())) {
        let since = clock.monotonic();
        let found = bug.search(false)?;
        let seconds = (clock.monotonic() - since).as_secs_f64();
        let alarms = if options.is_empty() {
            let mended = bug.search(true)?;
            format!("{} of {}", usize::from(!mended.findings.is_empty()), mended.runs)
        } else {
            String::new()
        };
        let what = found.findings.first().map_or("not found", String::as_str);
        let fault = found.fault.map_or("no fault".into(), |fault| format!("`{fault:?}`"));
        let (name, pattern, runs) = (bug.name(), bug.pattern, found.runs);
        let sources: Vec<_> = bug.sources.iter().enumerate().map(|(at, url)| format!("[{}]({url})", at + 1)).collect();
        let sources = sources.join(" ");
        println!("| `{name}` | {pattern} | {what} | {fault} | {runs} | {seconds:.1} | {alarms} | {sources} |");
    }
    Ok(())
}
