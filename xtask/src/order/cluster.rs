//! The functions of `kubewright cluster`, in a script for the linker.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{
    Build, FOLDER, STARTS,
    observed::{Observed, remove},
    sections::{file_pattern, section_pattern},
};
use crate::root;

/// The command line as it is released.
pub(super) const BUILD: Build =
    Build { package: "kubewright-cli", program: "kubewright", profile: "release", is_static: false };
/// The script. The build script of the command line passes it to the linker.
const SCRIPT: &str = "crates/kubewright-cli/order.ld";
/// The time at rest after a start. Under valgrind, the program is some fifty times slower.
const REST: Duration = Duration::from_secs(40);
/// The maximum time of a start.
const LONGEST_START: Duration = Duration::from_secs(300);

/// The sections of functions that run, by file, both as patterns.
type Used = BTreeMap<String, BTreeSet<String>>;

/// Observes the program, and rewrites the script.
pub(super) fn record() -> Result<()> {
    let sections = BUILD.sections()?;
    let mut used = Used::new();
    for start in 1..=STARTS {
        let executed = observe().with_context(|| format!("start {start} of {STARTS}"))?;
        for section in executed.iter().filter_map(|address| sections.containing(*address)) {
            if let Some(file) = file_pattern(&section.file) {
                used.entry(file).or_default().insert(section_pattern(&section.name));
            }
        }
        let count = used.values().map(BTreeSet::len).sum::<usize>();
        eprintln!("    start {start} of {STARTS}: {} instructions, {count} functions so far", executed.len());
    }
    fs::write(SCRIPT, script(&used)).with_context(|| format!("write {SCRIPT}"))
}

fn observe() -> Result<BTreeSet<u64>> {
    let folder = root().join(FOLDER);
    let kubeconfig = folder.join("kubeconfig");
    remove(&kubeconfig)?;
    let path = kubeconfig.display().to_string();
    let arguments = ["cluster", "--listen", "127.0.0.1:0", "--kubeconfig", &path];
    let mut cluster = Observed::start(&BUILD.path(), &arguments, &folder)?;
    // The file is written once requests are answered.
    let is_ready = cluster.wait(LONGEST_START, || kubeconfig.is_file())?;
    if is_ready {
        thread::sleep(REST);
    }
    let executed = cluster.end()?;
    if !is_ready {
        bail!("the cluster wasn't ready after {} seconds", LONGEST_START.as_secs());
    }
    Ok(executed)
}

/// Returns a script that places the sections before the others.
fn script(used: &Used) -> String {
    let mut text = String::from(
        "/* The functions that `kubewright cluster` calls at its start and at rest, which are placed together: few pages of the program are\n   \
         then resident. Written by `cargo xtask order`. */\nSECTIONS {\n  .text : {\n",
    );
    for (file, sections) in used {
        text += &format!("    {file}(\n");
        for section in sections {
            text += &format!("      {section}\n");
        }
        text += "    )\n";
    }
    text + "    *(.text .text.*)\n  }\n} INSERT AFTER .eh_frame;\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_names_functions_of_the_cluster() {
        let script = fs::read_to_string(root().join(SCRIPT)).unwrap();
        for file in ["kubewright_apiserver", "kubewright_cluster", "tokio", "std"] {
            assert!(script.contains(&format!("\n    */lib{file}-*.rlib:(\n")), "{file}");
        }
        assert!(script.starts_with("/* ") && script.ends_with("INSERT AFTER .eh_frame;\n"));
        assert!(!script.contains("/root/") && !script.contains("/home/"));
    }
}
