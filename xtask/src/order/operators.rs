//! The functions of operators, in a list that the command line passes to the linker of projects.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{
    Build, FOLDER, STARTS, cluster,
    observed::{Observed, remove},
    sections::{Section, section_pattern},
};
use crate::{root, steps::run};

/// The five operators as they are shipped.
pub(super) const BUILD: Build =
    Build { package: "five-operators", program: "five-operators", profile: "dist", is_static: true };
/// The list. `kubewright build` and `kubewright image` read it.
const LIST: &str = "crates/kubewright-cli/src/operator/functions.txt";
/// The times of each start with its rest. Under valgrind, the program is some fifty times slower. Watches end after
/// five to ten minutes.
const RESTS: [Duration; STARTS] = [Duration::from_mins(11), Duration::from_secs(90), Duration::from_secs(90)];
/// The maximum time of the cluster's start.
const LONGEST_START: Duration = Duration::from_secs(30);
/// The prefix of lines that name members of the C library, whose sections contain several functions.
const LIBRARY: &str = "libc.a:";
/// The length to which names are cut: what follows are mostly the types in names of the standard library's functions.
const LENGTH: usize = 80;

/// Observes the program, and rewrites the list.
pub(super) fn record() -> Result<()> {
    let sections = BUILD.sections()?;
    let mut names = BTreeSet::new();
    for (start, rest) in (1..).zip(RESTS) {
        let executed = observe(rest).with_context(|| format!("start {start} of {STARTS}"))?;
        names.extend(executed.iter().filter_map(|address| sections.containing(*address)).filter_map(name));
        eprintln!("    start {start} of {STARTS}: {} instructions, {} functions so far", executed.len(), names.len());
    }
    fs::write(LIST, list(&names)).with_context(|| format!("write {LIST}"))
}

fn observe(rest: Duration) -> Result<BTreeSet<u64>> {
    let folder = root().join(FOLDER);
    let kubeconfig = folder.join("kubeconfig");
    let mut cluster = Cluster::start(&kubeconfig)?;
    let path = kubeconfig.display().to_string();
    let arguments = ["--kubeconfig", &path, "--health-probe-bind-address", "127.0.0.1:0", "--enable-webhooks=false"];
    let mut operators = Observed::start(&BUILD.path(), &arguments, &folder)?;
    let has_ended = operators.wait(rest, || !cluster.runs())?;
    let executed = operators.end()?;
    if has_ended {
        bail!("the cluster has ended");
    }
    Ok(executed)
}

/// A cluster with the kinds of the operators, until it is dropped.
struct Cluster(Child);

impl Cluster {
    fn start(kubeconfig: &Path) -> Result<Self> {
        remove(kubeconfig)?;
        let mut command = Command::new(cluster::BUILD.path());
        command.args(["cluster", "--pods", "simulate", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut cluster = Self(command.spawn().with_context(|| format!("start {command:?}"))?);
        let mut waited = Duration::ZERO;
        while !kubeconfig.is_file() {
            if waited >= LONGEST_START || !cluster.runs() {
                bail!("the cluster isn't ready: try {command:?}");
            }
            thread::sleep(Duration::from_millis(100));
            waited += Duration::from_millis(100);
        }
        for operator in ["at", "cronjob", "guestbook", "lolcow", "podset"] {
            let crds = root().join("operators").join(operator).join("config/crd/bases");
            let mut create = Command::new("kubectl");
            create.arg("--kubeconfig").arg(kubeconfig).args(["create", "--filename"]).arg(crds).stdout(Stdio::null());
            run(&mut create)?;
        }
        Ok(cluster)
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_none())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the beginning of a function's name, or the member of the C library; `None` for a function of the operators
/// themselves, or without a section of its own.
fn name(section: &Section) -> Option<String> {
    if let Some(member) =
        section.file.strip_suffix(')').and_then(|file| file.split_once("/libc.a(")).map(|(_, member)| member)
    {
        return Some(format!("{LIBRARY}{member}"));
    }
    let pattern = section_pattern(section.name.strip_prefix(".text.")?);
    // Functions that link-time optimization has made local have a number at the end.
    let name = pattern.trim_end_matches('*').trim_end_matches(|digit: char| digit.is_ascii_digit());
    let name = name.strip_suffix('.').unwrap_or(pattern.trim_end_matches('*'));
    let is_own = name.contains("_operator") || name.contains("five_operators");
    (!is_own).then(|| name.chars().take(LENGTH).collect())
}

/// Returns the list without the names that begin with another one.
fn list(names: &BTreeSet<String>) -> String {
    let mut text = String::from(
        "# The functions that an operator calls at its start and at rest, by the beginnings of their names. Written by `cargo xtask order`.\n",
    );
    let mut last: Option<&str> = None;
    for name in names {
        if last.is_none_or(|last| !name.starts_with(last)) {
            text += name;
            text.push('\n');
            last = Some(name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_listed_once() {
        let in_file = |file: &str, name: &str| super::name(&Section::new(file, name));
        let name = |name: &str| in_file("/a/deps/five.rcgu.o", name);
        let long = format!("{}17h0123456789abcdefE", "_ZN5tokio7runtime".repeat(6));
        assert_eq!(name(&format!(".text.{long}")).map(|name| name.len()), Some(LENGTH));
        assert_eq!(name(".text._ZN4core3ptr17h0123456789abcdefE").as_deref(), Some("_ZN4core3ptr17h"));
        assert_eq!(name(".text._RNvCsa1B_4core4main").as_deref(), Some("_RNvCs*_4core4main"));
        assert_eq!(name(".text._RNvCsa1B_4core5main2.1207").as_deref(), Some("_RNvCs*_4core5main2"));
        assert_eq!([name(".text"), name(".text._ZN11at_operator8register17h0123456789abcdefE")], [None, None]);
        assert_eq!(in_file("/usr/lib/libc.a(malloc.o)", ".text").as_deref(), Some("libc.a:malloc.o"));
        let names = ["a", "ab", "b"].map(str::to_owned).into();
        assert_eq!(list(&names).lines().skip(1).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn the_list_has_functions_of_the_runtime() {
        let list = fs::read_to_string(root().join(LIST)).unwrap();
        for name in ["_ZN18kubewright_runtime", "_ZN5tokio7runtime", "_ZN6rustls"] {
            assert!(list.lines().any(|line| line.starts_with(name)), "{name}");
        }
        assert!(list.contains("\nlibc.a:malloc.o\n"), "the C library");
        assert!(list.starts_with("# ") && !list.contains('/'));
    }
}
