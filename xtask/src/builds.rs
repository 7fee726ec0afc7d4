//! `cargo xtask builds`: the times of first builds on this machine, with nothing but cargo's downloads, each by the
//! command that a newcomer types. The table is a section of `bench/RESULTS.md`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    root,
    steps::{self, cargo, now},
};

/// The file of the table, and its heading. `kubewright-bench`, which rewrites the rest of the file, keeps everything
/// after the heading.
const RESULTS: &str = "bench/RESULTS.md";
const HEADING: &str = "## Builds from nothing";

/// One line of the table.
struct Row {
    name: &'static str,
    commands: &'static str,
    took: Duration,
    wanted: Duration,
    more: String,
}

impl Row {
    fn text(&self) -> String {
        let (took, wanted) = (minutes(self.took), minutes(self.wanted));
        format!("| {} | `{}` | {took} | ≤ {wanted} | {} |\n", self.name, self.commands, self.more)
    }
}

fn minutes(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// Measures the builds that `filter` selects by name. A run without a filter rewrites the table.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("kubewright-builds-{}", std::process::id()));
    let result = measure(&folder, filter);
    fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    let rows = result?;
    let text = table(&rows);
    println!("{text}");
    if filter.is_none() {
        let path = root().join(RESULTS);
        let kept = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let above = kept.split(HEADING).next().unwrap_or_default();
        fs::write(&path, format!("{above}{text}")).with_context(|| format!("write {}", path.display()))?;
    }
    let slow = rows.iter().filter(|row| row.took > row.wanted).map(|row| row.name).collect::<Vec<_>>();
    if !slow.is_empty() {
        bail!("slower than wanted: {}", slow.join(", "));
    }
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{HEADING}\n\nMeasured by `cargo xtask builds` in a clean clone, each with an empty target folder and the crates' sources \
         downloaded, with nothing else running.\n\n| build | command | took | wanted | more |\n|---|---|---|---|---|\n"
    );
    text.extend(rows.iter().map(Row::text));
    text
}

fn measure(folder: &Path, filter: Option<&str>) -> Result<Vec<Row>> {
    let clone = folder.join("kubewright");
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    steps::run(Command::new("git").args(["clone", "--quiet", "--local"]).arg(root()).arg(&clone))?;
    // Downloads aren't measured.
    steps::run(cargo(&["fetch", "--locked"]).current_dir(&clone))?;
    let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter));
    let mut rows = Vec::new();
    if wanted("demo") {
        let took = fresh(&clone, cargo(&["demo", "--once"]).current_dir(&clone))?;
        let (commands, more) = ("cargo demo --once", "the demo's run included".into());
        rows.push(Row { name: "demo", commands, took, wanted: Duration::from_secs(150), more });
    }
    let tools = folder.join("tools");
    if wanted("command line") || wanted("project") {
        let mut install = cargo(&["install", "--locked", "--path", "crates/kubewright-cli", "--root"]);
        let took = fresh(&clone, install.arg(&tools).current_dir(&clone))?;
        let size = fs::metadata(tools.join("bin/kubewright")).context("look at the installed command")?.len();
        let (commands, more) = ("cargo install --path crates/kubewright-cli", megabytes(size));
        rows.push(Row { name: "command line", commands, took, wanted: Duration::from_secs(180), more });
    }
    if wanted("project") {
        rows.push(project(folder, &clone, &tools)?);
    }
    for (name, commands, limit) in [
        ("checks", "cargo xtask test", Duration::from_secs(12 * 60)),
        ("all checks", "cargo xtask test --all", Duration::from_secs(45 * 60)),
    ] {
        if wanted(name) {
            let arguments = commands.split(' ').skip(1).collect::<Vec<_>>();
            let took = fresh(&clone, cargo(&arguments).current_dir(&clone))?;
            rows.push(Row { name, commands, took, wanted: limit, more: String::new() });
        }
    }
    Ok(rows)
}

/// A project of one kind, with a webhook, as the README makes one.
fn project(folder: &Path, clone: &Path, tools: &Path) -> Result<Row> {
    let project: PathBuf = folder.join("shop");
    fs::create_dir_all(&project).with_context(|| format!("create {}", project.display()))?;
    let kubewright = |line: &str, more: &[&Path]| {
        let mut command = Command::new(tools.join("bin/kubewright"));
        steps::run(command.args(line.split(' ')).args(more).current_dir(&project))
    };
    kubewright("init --domain example.com --sdk", &[clone])?;
    kubewright("create api --group shop --version v1 --kind Order", &[])?;
    steps::run(cargo(&["fetch"]).current_dir(&project))?;
    let took = fresh(&project, cargo(&["test"]).current_dir(&project))?;
    let again = timed(cargo(&["test"]).current_dir(&project))?;
    let lock = fs::read_to_string(project.join("Cargo.lock")).context("read the project's Cargo.lock")?;
    let more = format!(
        "{} units, {} packages locked; again {:.1} s",
        units(&project)?,
        lock.matches("[[package]]").count(),
        again.as_secs_f64()
    );
    let commands = "kubewright init, create api; cargo test";
    Ok(Row { name: "fresh project", commands, took, wanted: Duration::from_secs(105), more })
}

/// Counts the calls of rustc, rustdoc and build scripts for the project's tests.
fn units(project: &Path) -> Result<usize> {
    let mut graph = cargo(&["test", "-Zunstable-options", "--unit-graph"]);
    let output = graph.current_dir(project).env("RUSTC_BOOTSTRAP", "1").stderr(Stdio::inherit()).output();
    let output = output.context("ask cargo for its units")?;
    Ok(String::from_utf8_lossy(&output.stdout).matches("\"mode\":").count())
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

/// Runs a command in a folder without `target`.
fn fresh(folder: &Path, command: &mut Command) -> Result<Duration> {
    let target = folder.join("target");
    if target.exists() {
        fs::remove_dir_all(&target).with_context(|| format!("remove {}", target.display()))?;
    }
    timed(command.env_remove("CARGO_TARGET_DIR"))
}

fn timed(command: &mut Command) -> Result<Duration> {
    let start = now();
    steps::run(command)?;
    Ok(now().saturating_sub(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_build() {
        let (took, wanted) = (Duration::from_secs(151), Duration::from_secs(150));
        let row = Row { name: "demo", commands: "cargo demo --once", took, wanted, more: megabytes(19_960_000) };
        let text = table(&[row]);
        let line = "| demo | `cargo demo --once` | 2 min 31 s | ≤ 2 min 30 s | 19.9 MB |\n";
        assert!(text.starts_with(HEADING) && text.ends_with(line), "{text}");
    }
}
