//! Runs the steps of a chore one after another. Each prints its name and its time; a step that fails doesn't keep the
//! later ones from running, and a summary of all of them comes last.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};

/// The most bytes of failed tests' output that the summary repeats.
const MAX_REPEATED: usize = 16 * 1024;

/// The result of a step.
#[derive(Debug, PartialEq)]
enum Outcome {
    Passed(Duration),
    Failed(Duration, String),
    Skipped(String),
}

/// The steps that have run so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    ended: Vec<(String, Outcome)>,
    /// The time after which no step begins.
    limit: Option<TimeLimit>,
}

#[derive(Clone, Copy, Debug)]
struct TimeLimit {
    minutes: u64,
    end: Duration,
}

impl Steps {
    /// Creates a list of steps none of which begins after so many minutes: the later ones are skipped.
    pub(crate) fn within(minutes: Option<u64>) -> Self {
        let limit = minutes.map(|minutes| TimeLimit {
            minutes,
            end: now().saturating_add(Duration::from_secs(minutes.saturating_mul(60))),
        });
        Self { limit, ..Self::default() }
    }

    /// Returns why no step can begin any more.
    fn out_of_time(&self) -> Option<String> {
        let limit = self.limit.filter(|limit| now() >= limit.end)?;
        Some(format!("{} minutes have passed (--time-limit)", limit.minutes))
    }

    /// Runs a command with our standard output and error. Returns whether it succeeded.
    pub(crate) fn run(&mut self, name: &str, mut command: Command) -> bool {
        self.check(name, || run(&mut command))
    }

    /// Runs `cargo test`. The summary repeats the output of failed tests.
    pub(crate) fn run_tests(&mut self, name: &str, command: Command) -> bool {
        self.check(name, || run_tests(command, &mut std::io::stdout()))
    }

    /// Runs a closure as a step, unless the time limit has passed. Returns whether it succeeded.
    pub(crate) fn check(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> bool {
        if let Some(why) = self.out_of_time() {
            self.skip(name, &why);
            return false;
        }
        eprintln!("==> {name}");
        let start = now();
        let result = step();
        let took = now().saturating_sub(start);
        let outcome = match result {
            Ok(()) => {
                eprintln!("==> {name}: passed in {}", seconds(took));
                Outcome::Passed(took)
            }
            Err(error) => {
                eprintln!("==> {name}: failed after {}: {error:#}", seconds(took));
                Outcome::Failed(took, format!("{error:#}"))
            }
        };
        let passed = matches!(outcome, Outcome::Passed(_));
        self.ended.push((name.to_owned(), outcome));
        passed
    }

    /// Records that a step is skipped, with the reason. A skipped step is no failure.
    pub(crate) fn skip(&mut self, name: &str, why: &str) {
        let why = &self.out_of_time().unwrap_or_else(|| why.to_owned());
        eprintln!("==> {name}: skipped: {why}");
        self.ended.push((name.to_owned(), Outcome::Skipped(why.clone())));
    }

    /// Returns whether no step has failed up to now.
    pub(crate) fn all_passed(&self) -> bool {
        !self.ended.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(..)))
    }

    /// Prints the result and the duration of each step.
    ///
    /// # Errors
    ///
    /// Names the steps that failed.
    pub(crate) fn finish(self) -> Result<()> {
        eprint!("{}", self.summary());
        let failed = self.ended.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Failed(..)));
        let failed = failed.map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        if !failed.is_empty() {
            bail!("{} of {} steps failed: {}", failed.len(), self.ended.len(), failed.join(", "));
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let (mut text, mut total) = (String::from("==> summary\n"), Duration::ZERO);
        for (name, outcome) in &self.ended {
            let (took, rest) = match outcome {
                Outcome::Passed(took) => (*took, String::new()),
                Outcome::Failed(took, error) => (*took, format!(": FAILED: {error}")),
                Outcome::Skipped(why) => (Duration::ZERO, format!(": skipped: {why}")),
            };
            total += took;
            text += &format!("{:>10}  {name}{rest}\n", seconds(took));
        }
        text + &format!("{:>10}  in total\n", seconds(total))
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Runs a command with our standard output and error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// Runs test programs, whose output is copied. The error contains the output of the tests that failed.
fn run_tests(mut command: Command, output: &mut impl Write) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("start {command:?}"))?;
    let mut failures = Failures::default();
    if let Some(mut stdout) = child.stdout.take() {
        let mut buffer = [0; 8192];
        loop {
            let read = stdout.read(&mut buffer).context("read the output of the tests")?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            output.write_all(bytes).and_then(|()| output.flush()).context("write the output of the tests")?;
            failures.read(bytes);
        }
    }
    let status = child.wait().with_context(|| format!("wait for {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}\n{}", failures.text.trim_end());
    }
    Ok(())
}

/// The parts of the output of test programs that describe failed tests.
#[derive(Debug, Default)]
struct Failures {
    text: String,
    line: Vec<u8>,
    is_inside: bool,
}

impl Failures {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.line.push(*byte);
            if *byte == b'\n' {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                self.read_line(&line);
            }
        }
    }

    /// A test program prints `failures:` before the outputs of failed tests and again before their names, and then the
    /// result.
    fn read_line(&mut self, line: &str) {
        self.is_inside = (self.is_inside || line == "failures:\n") && !line.starts_with("test result:");
        if self.is_inside && self.text.len() + line.len() <= MAX_REPEATED {
            self.text += line;
        }
    }
}

/// The machine's time since 1970. The chores depend on no crate of the project, so they have no `Clock`.
#[allow(clippy::disallowed_methods, reason = "the chores depend on no crate of the project")]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A cargo command with these arguments, by the cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    remove_package_variables(&mut command);
    command.args(arguments);
    command
}

/// Removes the variables that describe this package from the environment of a command. A build script that reads them,
/// as ring's does, would run again for each cargo with another environment, and all that depends on its crate would be
/// compiled again.
pub(crate) fn remove_package_variables(command: &mut Command) {
    let is_of_package =
        |name: &str| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_steps_run_after_a_failure_and_the_summary_names_it() {
        let mut steps = Steps::default();
        assert!(steps.check("first", || Ok(())));
        assert!(!steps.check("second", || bail!("no disk")));
        assert!(!steps.run("third", Command::new("false")));
        steps.skip("fourth", "second failed");
        assert!(steps.check("fifth", || Ok(())));
        let summary = steps.summary();
        let lines = summary.lines().collect::<Vec<_>>();
        assert_eq!(lines.len(), 7, "{summary}");
        assert!(lines[1].ends_with(" s  first"), "{summary}");
        assert!(lines[2].ends_with(" s  second: FAILED: no disk"), "{summary}");
        assert!(lines[3].contains("third: FAILED: \"false\" ended with "), "{summary}");
        assert!(lines[4].ends_with(" s  fourth: skipped: second failed"), "{summary}");
        assert!(lines[6].ends_with(" s  in total"), "{summary}");
        assert_eq!(steps.finish().unwrap_err().to_string(), "2 of 5 steps failed: second, third");
    }

    #[test]
    fn no_step_begins_after_the_time_limit() {
        let mut steps = Steps::within(Some(0));
        assert!(!steps.check("tests", || bail!("they have run")));
        steps.skip("clients", "the tests could not be built");
        let summary = steps.summary();
        for name in ["tests", "clients"] {
            let line = format!("{name}: skipped: 0 minutes have passed (--time-limit)");
            assert!(summary.contains(&line), "{summary}");
        }
        assert!(steps.finish().is_ok());
        assert!(Steps::within(Some(1)).check("tests", || Ok(())));
    }

    #[test]
    fn the_summary_repeats_what_failed_tests_have_printed() {
        let printed = "running 2 tests\n.F\nfailures:\n\n---- one stdout ----\nleft: 1\n\nfailures:\n    one\n\n\
                       test result: FAILED. 1 passed; 1 failed\nrunning 1 test\n";
        let mut tests = Command::new("sh");
        tests.args(["-c", "printf %s \"$0\"; exit 101", printed]);
        let mut output = Vec::new();
        let error = run_tests(tests, &mut output).unwrap_err().to_string();
        assert_eq!(String::from_utf8(output).unwrap(), printed);
        assert!(error.ends_with("failures:\n\n---- one stdout ----\nleft: 1\n\nfailures:\n    one"), "{error}");

        let mut failures = Failures::default();
        failures.read(b"failures:\n");
        for _ in 0..MAX_REPEATED {
            failures.read(b"a line\n");
        }
        assert!(failures.text.len() <= MAX_REPEATED);
        assert!(run_tests(Command::new("true"), &mut Vec::new()).is_ok());
    }

    #[test]
    fn steps_that_pass_or_are_skipped_are_no_failure() {
        let mut steps = Steps::default();
        steps.check("first", || Ok(()));
        steps.skip("second", "cargo-deny is not installed");
        assert!(steps.finish().is_ok());
    }

    /// A newcomer sees cargo's progress from the first second of `cargo demo` and `cargo xtask`.
    #[test]
    fn the_aliases_show_cargos_progress() {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cargo/config.toml");
        let config = std::fs::read_to_string(config).unwrap();
        for alias in ["demo", "xtask"] {
            let line = config.lines().find(|line| line.starts_with(&format!("{alias} = ")));
            let line = line.unwrap_or_else(|| panic!("there is an alias {alias}"));
            let mut arguments = line.split(['"', ' ']);
            assert!(!arguments.any(|argument| ["-q", "--quiet"].contains(&argument)), "{line}");
        }
    }
}
