//! Random input for the API server and its functions: `cargo xtask fuzz`.
//!
//! Each target has a corpus of valid input, from which [`mutate`] makes input of all degrees of validity. A target
//! fails if it panics, if one input takes too long, or if what it checks doesn't hold. The input is then written to
//! `target/fuzz`, and the run can be repeated with the seed that it prints. Unlike coverage-guided fuzzing, this needs
//! no instrumented build.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints its progress and its results")]

mod functions;
mod mutate;
mod server;

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use kubewright_apimachinery::{
    clock::{SharedClock, SystemClock},
    random::Random,
};

use mutate::Mutator;

/// Where failing input is written, relative to the root of the repository.
const FINDS: &str = "target/fuzz";
/// The time that one input may take. A busy machine is no failure, so it is much more than a good input takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of inputs between two looks at the clock.
const ROUND: usize = 16;

/// Random input for the API server and its functions.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  cargo xtask fuzz\n  cargo xtask fuzz cel routes --time 600\n  \
                        cargo xtask fuzz patches --seed 42")]
struct Arguments {
    /// The targets, by default all
    targets: Vec<String>,
    /// The number of seconds for each target
    #[arg(long, default_value_t = 60)]
    time: u64,
    /// The seed of the first input; printed by each run
    #[arg(long)]
    seed: Option<u64>,
    /// Run this input once, instead of random ones
    #[arg(long, value_name = "FILE")]
    input: Option<std::path::PathBuf>,
}

/// Something that takes any input.
pub(crate) trait Target {
    /// Returns valid inputs, and pieces that occur in them.
    fn corpus(&self) -> Vec<Vec<u8>>;

    /// Takes one input. Panics if something doesn't hold.
    fn take(&mut self, input: &[u8]);
}

type Make = fn() -> Result<Box<dyn Target>>;

/// The targets by name.
const TARGETS: [(&str, Make); 8] = [
    ("patches", || Ok(Box::new(functions::Patches::new()))),
    ("apply", || Ok(Box::new(functions::Apply::new()))),
    ("selectors", || Ok(Box::new(functions::Selectors))),
    ("cel", || Ok(Box::new(functions::Cel))),
    ("schemas", || Ok(Box::new(functions::Schemas))),
    ("protobuf", || Ok(Box::new(server::Protobuf::new()?))),
    ("routes", || Ok(Box::new(server::Routes::new()?))),
    ("stored-files", || Ok(Box::new(server::StoredFiles::new()?))),
];

fn main() -> ExitCode {
    match run(&Arguments::parse(), &SystemClock::shared()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments, clock: &SharedClock) -> Result<()> {
    if let Some(unknown) = arguments.targets.iter().find(|name| !TARGETS.iter().any(|(known, _)| known == name)) {
        let known = TARGETS.map(|(name, _)| name).join(", ");
        bail!("no target is called {unknown:?}: there are {known}");
    }
    let seed = arguments.seed.unwrap_or_else(|| Random::from_entropy().u64());
    println!("seed {seed}");
    let chosen = TARGETS
        .iter()
        .filter(|(name, _)| arguments.targets.is_empty() || arguments.targets.iter().any(|one| one == name));
    let mut failed = Vec::new();
    for (name, make) in chosen {
        let mut target = make().with_context(|| format!("prepare the target {name}"))?;
        if let Some(file) = &arguments.input {
            let input = fs::read(file).with_context(|| format!("read {}", file.display()))?;
            target.take(&input);
            println!("{name}: the input of {} passes", file.display());
        } else if !fuzz(name, &mut *target, Duration::from_secs(arguments.time), seed, clock, Path::new(FINDS))? {
            failed.push(*name);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Sends random input to a target. Returns whether it took all of it; what it didn't take is written below `finds`.
fn fuzz(
    name: &str,
    target: &mut dyn Target,
    time: Duration,
    seed: u64,
    clock: &SharedClock,
    finds: &Path,
) -> Result<bool> {
    let mut mutator = Mutator::new(target.corpus(), Random::seeded(seed));
    let end = clock.monotonic() + time;
    let (mut count, mut slowest) = (0u64, Duration::ZERO);
    while clock.monotonic() < end {
        for _ in 0..ROUND {
            let input = mutator.next();
            let before = clock.monotonic();
            let taken = panic::catch_unwind(AssertUnwindSafe(|| target.take(&input)));
            let spent = clock.monotonic() - before;
            slowest = slowest.max(spent);
            count += 1;
            if taken.is_err() || spent > PATIENCE {
                let file = keep(&finds.join(name), &input, seed)?;
                let why = if taken.is_err() { "panicked" } else { "took too long" };
                println!("{name}: {why} at input {count} of seed {seed}; it is in {file}");
                return Ok(false);
            }
        }
    }
    println!("{name}: {count} inputs in {} s, the slowest in {} ms", time.as_secs(), slowest.as_millis());
    Ok(true)
}

/// Writes a failing input to a file, and returns its path.
fn keep(folder: &Path, input: &[u8], seed: u64) -> Result<String> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let file = folder.join(format!("{seed:016x}"));
    fs::write(&file, input).with_context(|| format!("write {}", file.display()))?;
    Ok(file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each target takes its own corpus and some random inputs, so a change that breaks a target is found by the
    /// ordinary tests.
    #[test]
    fn targets_take_their_corpus_and_more() {
        for (name, make) in TARGETS {
            let mut target = make().unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let corpus = target.corpus();
            assert!(!corpus.is_empty(), "{name} has no corpus");
            for input in &corpus {
                target.take(input);
            }
            let mut mutator = Mutator::new(corpus, Random::seeded(7));
            for _ in 0..8 {
                target.take(&mutator.next());
            }
        }
    }

    #[test]
    fn a_panic_is_a_find() {
        struct Fussy;
        impl Target for Fussy {
            fn corpus(&self) -> Vec<Vec<u8>> {
                vec![b"good".to_vec()]
            }
            fn take(&mut self, input: &[u8]) {
                assert_eq!(input, b"good", "as this test wants");
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let clock = SystemClock::shared();
        let taken = fuzz("fussy", &mut Fussy, Duration::from_secs(60), 1, &clock, folder.path()).expect("it runs");
        assert!(!taken);
        let found = fs::read(folder.path().join("fussy").join(format!("{:016x}", 1))).expect("the input is kept");
        assert_ne!(found, b"good");
    }
}
