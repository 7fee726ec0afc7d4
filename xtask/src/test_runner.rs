//! Runs the workspace's test programs, several at a time.
//!
//! Cargo runs them one after another, and the last long test of each then leaves the other processors idle. Here two workers run `cargo test`
//! side by side, with this program as Cargo's [runner](https://doc.rust-lang.org/cargo/reference/config.html#targettriplerunner): a test
//! program is run by the worker that creates its file in a common folder first, and passed over by the other. Cargo still sets its
//! environment and working directory. The longest ones are started first, so that the workers end at nearly the same time.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use crate::steps::{now, run_tests};

/// Packages with the longest tests, which are started first.
const LONGEST: [&str; 2] = ["kubewright-simulation", "bug-bank"];
/// The number of test programs that run at the same time. Each of them runs several tests at a time if there are more processors.
const WORKERS: usize = 2;

/// The arguments of the runner.
#[derive(Args, Debug)]
pub(crate) struct RunTest {
    /// The folder with a file for each test program that a worker has started
    claims: PathBuf,
    /// Pass over the packages whose tests don't take longest
    #[arg(long)]
    longest: bool,
    /// A test program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<OsString>,
}

impl RunTest {
    /// Runs the test program, unless another worker has started it. Its output is printed when it ends.
    ///
    /// # Errors
    ///
    /// If it fails or can't be started.
    pub(crate) fn run(self) -> Result<()> {
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
        let [program, arguments @ ..] = &self.program[..] else { bail!("the test program is missing") };
        let file = Path::new(program).file_name().context("the test program has no name")?;
        if self.longest && !LONGEST.contains(&&*package) || !claim(&self.claims, Path::new(file))? {
            return Ok(());
        }
        let name = format!("{package} {}", file.display());
        eprintln!("    {name}: started");
        let start = now();
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("start {}", program.display()))?;
        let took = now().saturating_sub(start).as_secs_f64();
        // One write each, so that the outputs of two programs are not mixed.
        let head = format!("    {name}: {} after {took:.1} s\n", output.status);
        io::stderr().write_all(&[head.as_bytes(), &output.stderr].concat()).context("write the errors of the tests")?;
        io::stdout().write_all(&output.stdout).context("write the output of the tests")?;
        if !output.status.success() {
            bail!("{name} ended with {}", output.status);
        }
        Ok(())
    }
}

/// Returns whether this call is the first for a program.
fn claim(claims: &Path, program: &Path) -> Result<bool> {
    let file = claims.join(program);
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| format!("create {}", file.display())),
    }
}

/// Runs all test programs, then the documentation's examples. `cargo_test` returns `cargo test` with these options and
/// those for the test programs, which come last.
///
/// # Errors
///
/// Names the tests that failed, with their output.
pub(crate) fn run(cargo_test: impl Fn(&[&str]) -> Command + Sync) -> Result<()> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let workers = WORKERS.min(processors);
    let claims = crate::root().join("target/running-tests");
    if claims.exists() {
        fs::remove_dir_all(&claims).with_context(|| format!("remove {}", claims.display()))?;
    }
    fs::create_dir_all(&claims).with_context(|| format!("create {}", claims.display()))?;
    // The tests' build may replace this program while it runs.
    let runner = claims.join("xtask");
    let own = std::env::current_exe().context("find this program")?;
    fs::copy(&own, &runner).with_context(|| format!("copy {} to {}", own.display(), runner.display()))?;

    let (runner, claims) = (runner.to_string_lossy(), claims.to_string_lossy());
    let programs = |longest: &[&str]| {
        let words = [&[&runner, "run-test"], longest, &[&claims]].concat();
        let config = format!("target.'cfg(all())'.runner = {words:?}");
        let mut command = cargo_test(&["--lib", "--bins", "--tests", "--examples", "--config", &config]);
        command.arg(format!("--test-threads={}", processors / workers));
        command
    };
    let passes = |worker: usize| {
        let mut passes = vec![programs(&["--longest"]), programs(&[])];
        // There are fewer of the longest than of the others: the second worker has nothing to wait for.
        if worker + 1 == workers {
            passes.push(cargo_test(&["--doc"]));
        }
        let errors = passes.into_iter().filter_map(|command| run_tests(command, &mut io::stdout()).err());
        errors.map(|error| format!("{error:#}")).collect::<Vec<_>>()
    };
    let errors = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|worker| scope.spawn(move || passes(worker))).collect();
        let errors = running.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a worker panicked")));
        errors.collect::<Result<Vec<_>>>()
    })?;
    let errors = errors.concat();
    if !errors.is_empty() {
        bail!("{}", errors.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_run_by_the_first_worker_only() {
        let claims = std::env::temp_dir().join(format!("kubewright-claims-{}", std::process::id()));
        fs::create_dir(&claims).unwrap();
        let run =
            |program: &str, longest| RunTest { claims: claims.clone(), longest, program: vec![program.into()] }.run();
        // This package isn't one of the longest.
        let passed_over = run("false", true);
        let (failed, started_elsewhere, other) = (run("false", false), run("false", false), run("true", false));
        fs::remove_dir_all(&claims).unwrap();
        assert_eq!(failed.unwrap_err().to_string(), "xtask false ended with exit status: 1");
        assert!(passed_over.is_ok() && started_elsewhere.is_ok() && other.is_ok());
    }

    #[test]
    fn the_packages_with_the_longest_tests_exist() {
        let members = ["crates/kubewright-simulation", "testdata/bugs"];
        for (package, folder) in LONGEST.iter().zip(members) {
            let manifest = fs::read_to_string(crate::root().join(folder).join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{package}\"")), "{package}");
        }
    }
}
