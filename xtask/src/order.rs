//! `cargo xtask order`: the functions that `kubewright cluster` calls at its start and at rest, in a script for the linker.
//!
//! The system maps 64 KiB of a program around each address that it runs (`fault_around_bytes` of Linux). Where the functions that run are
//! spread over the program, nearly all of it becomes resident. The script has them placed together. It names the sections of object files,
//! of which each holds one function, by crate, and without the hash at the end of a name, which other versions of the compiler and of
//! dependencies change. A name that no longer exists has no effect. A function that is missing in the script costs memory only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    root,
    steps::{Steps, cargo, run},
    tools::VALGRIND,
};

/// The script. The build script of the command line passes it to the linker.
const SCRIPT: &str = "crates/kubewright-cli/order.ld";
/// The folder of everything that is written in between.
const FOLDER: &str = "target/order";
/// The program as it was linked with the map.
const PROGRAM: &str = "target/release/kubewright";
/// The number of observed starts. Each of them takes other branches: locks that are held or not, timers that expire earlier or later.
const STARTS: usize = 3;
/// The time at rest after a start. Below valgrind, the program is some fifty times slower.
const REST: Duration = Duration::from_secs(40);
/// The maximum time of a start.
const LONGEST_START: Duration = Duration::from_secs(300);

/// The sections of functions that run, by file, both as patterns.
type Sections = BTreeMap<String, BTreeSet<String>>;

/// A section in the linker's map.
#[derive(Debug, PartialEq)]
struct Section {
    size: u64,
    file: String,
    name: String,
}

/// Builds the program, observes it, and rewrites the script.
pub(crate) fn record(steps: &mut Steps) {
    if !cfg!(target_os = "linux") {
        return steps.skip("order of functions", "it is recorded on Linux only");
    }
    let map = root().join(FOLDER).join("map");
    let mut build = cargo(&["rustc", "--release", "-p", "kubewright-cli", "--bin", "kubewright", "--"]);
    build.arg(format!("-Clink-arg=-Wl,-Map={}", map.display()));
    // Of functions with the same code, the linker would keep one of its choice, and another one once they are placed otherwise.
    build.arg("-Clink-arg=-Wl,--icf=none");
    let ready = steps.check("valgrind", || VALGRIND.ensure())
        && steps.check("folder", || fs::create_dir_all(FOLDER).with_context(|| format!("create {FOLDER}")))
        && steps.run("release build", build);
    if ready {
        steps.check("order of functions", || {
            let text = fs::read_to_string(&map).with_context(|| format!("read {}", map.display()))?;
            let placed = sections(&text);
            if placed.is_empty() {
                bail!("{} has no sections of functions: the linker isn't lld", map.display());
            }
            // The profile names it so.
            let program = fs::canonicalize(PROGRAM).with_context(|| format!("find {PROGRAM}"))?;
            let mut used = Sections::new();
            for start in 1..=STARTS {
                let executed =
                    observe(&program, &root().join(FOLDER)).with_context(|| format!("start {start} of {STARTS}"))?;
                for section in executed.iter().filter_map(|address| containing(&placed, *address)) {
                    if let Some(file) = file_pattern(&section.file) {
                        used.entry(file).or_default().insert(section_pattern(&section.name));
                    }
                }
                let count = used.values().map(BTreeSet::len).sum::<usize>();
                eprintln!("    start {start} of {STARTS}: {} instructions, {count} functions so far", executed.len());
            }
            fs::write(SCRIPT, script(&used)).with_context(|| format!("write {SCRIPT}"))
        });
    }
}

/// Runs the program below valgrind, and returns the addresses of the instructions that it executed.
fn observe(program: &Path, folder: &Path) -> Result<BTreeSet<u64>> {
    let [profile, kubeconfig, log] = ["profile", "kubeconfig", "log"].map(|name| folder.join(name));
    for file in [&profile, &kubeconfig] {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", file.display()));
            }
            _ => {}
        }
    }
    let output = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"]);
    command.arg(format!("--callgrind-out-file={}", profile.display()));
    command.arg(program).args(["cluster", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&kubeconfig);
    command.stdin(Stdio::null()).stdout(output.try_clone().context("share the log")?).stderr(output);
    let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
    let mut waited = Duration::ZERO;
    // The file is written once requests are answered.
    while !kubeconfig.is_file() && waited < LONGEST_START && child.try_wait().context("look at valgrind")?.is_none() {
        thread::sleep(Duration::from_secs(1));
        waited += Duration::from_secs(1);
    }
    let ready = kubeconfig.is_file();
    if ready {
        thread::sleep(REST);
    }
    let stopped = run(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let status = child.wait().context("wait for valgrind")?;
    if !ready || stopped.is_err() || !status.success() {
        bail!("the cluster ended with {status}; see {}", log.display());
    }
    let text = fs::read_to_string(&profile).with_context(|| format!("read {}", profile.display()))?;
    let executed = executed(&text, &program.display().to_string());
    if executed.is_empty() {
        bail!("{} has no instruction of {}", profile.display(), program.display());
    }
    Ok(executed)
}

/// Returns the addresses of executed instructions of a program in a profile of callgrind.
fn executed(profile: &str, program: &str) -> BTreeSet<u64> {
    let mut addresses = BTreeSet::new();
    let mut is_program = false;
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_program = object == program;
        } else if is_program && let Some((address, _)) = line.strip_prefix("0x").and_then(|rest| rest.split_once(' ')) {
            addresses.extend(u64::from_str_radix(address, 16).ok());
        }
    }
    addresses
}

/// Reads the sections of functions from a map of lld by their addresses: `address address size align file:(section)`, hexadecimal.
fn sections(map: &str) -> BTreeMap<u64, Section> {
    let section = |line: &str| {
        let (input, name) = line.strip_suffix(')')?.rsplit_once(":(")?;
        let mut columns = input.split_whitespace();
        let [address, _, size, _] = [columns.next()?, columns.next()?, columns.next()?, columns.next()?];
        let file = columns.next()?.to_owned();
        let [address, size] = [address, size].map(|number| u64::from_str_radix(number, 16).ok());
        name.starts_with(".text").then_some((address?, Section { size: size?, file, name: name.to_owned() }))
    };
    map.lines().filter_map(section).collect()
}

/// Returns the section that contains an address.
fn containing(sections: &BTreeMap<u64, Section>, address: u64) -> Option<&Section> {
    let (begin, section) = sections.range(..=address).next_back()?;
    (address - begin < section.size).then_some(section)
}

/// Returns a pattern for an object file without the hashes of crates: `DIRECTORY/libNAME-HASH.rlib(MEMBER)`, or `deps/NAME-HASH….rcgu.o`
/// of the program itself. The files of the C library have none.
fn file_pattern(file: &str) -> Option<String> {
    let (file, is_archive) = file.split_once('(').map_or((file, false), |(archive, _)| (archive, true));
    let (name, _) = file.rsplit('/').next()?.split_once('-')?;
    if is_archive {
        name.starts_with("lib").then(|| format!("*/{name}-*.rlib:"))
    } else {
        file.ends_with(".rcgu.o").then(|| format!("*/deps/{name}-*.rcgu.o"))
    }
}

/// Returns a pattern for a section's name without the parts that other versions of the compiler or of dependencies change: `17h…E` at the
/// end of a name in Rust's first mangling scheme, and the crates' disambiguators `Cs…_` in the second.
fn section_pattern(section: &str) -> String {
    const HASH: usize = 16;
    let is_hash = |text: &str| text.len() == HASH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some((name, rest)) = section.rsplit_once("17h")
        && let Some((hash, rest)) = rest.split_at_checked(HASH)
        && is_hash(hash)
        && rest.starts_with('E')
    {
        return format!("{name}17h*");
    }
    let mut parts = section.split("Cs");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('_') {
            Some((disambiguator, rest)) if disambiguator.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                text += "Cs*_";
                text += rest;
            }
            _ => {
                text += "Cs";
                text += part;
            }
        }
    }
    text
}

/// Returns a script that places the sections before the others.
fn script(used: &Sections) -> String {
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

    const MAP: &str = "             VMA              LMA     Size Align Out     In      Symbol
          80cf00           80cf00       50    16 .text
          80cf00           80cf00       20    16         /a/deps/kubewright-00ff.kubewright.11-cgu.0.rcgu.o:(.text._ZN10kubewright4main17h0123456789abcdefE)
          80cf00           80cf00       20     1                 kubewright::main
          80cf20           80cf20       10    16         /a/deps/libh2-22.rlib(h2-22.h2.33-cgu.0.rcgu.o):(.text.unlikely._RNvCsa1B_2h24cold)
          80cf30           80cf30        8    16         /usr/lib/crti.o:(.text)
          90cf30           90cf30        8    16         /a/deps/libh2-22.rlib(h2-22.h2.33-cgu.0.rcgu.o):(.rodata.x)
";

    #[test]
    fn executed_addresses_lead_to_sections() {
        let sections = sections(MAP);
        assert_eq!(sections.keys().collect::<Vec<_>>(), [&0x80_cf00, &0x80_cf20, &0x80_cf30]);
        let name = |address| containing(&sections, address).map(|section| section.name.as_str());
        assert_eq!(name(0x80_cf1f), Some(".text._ZN10kubewright4main17h0123456789abcdefE"));
        assert_eq!(name(0x80_cf20), Some(".text.unlikely._RNvCsa1B_2h24cold"));
        assert_eq!([name(0x80_cf38), name(0)], [None, None]);

        let profile = "positions: instr line\nob=/a/kubewright\nfn=f\n0x80cf00 1 5\ncalls=1 0x80cf20 2\n0x80cf04 1 9\n\n\
            ob=/lib/libc.so.6\n0x10 1 1\n";
        assert_eq!(executed(profile, "/a/kubewright"), BTreeSet::from([0x80_cf00, 0x80_cf04]));
    }

    #[test]
    fn patterns_have_no_hashes() {
        let file = |address| file_pattern(&sections(MAP)[&address].file);
        assert_eq!(file(0x80_cf00).as_deref(), Some("*/deps/kubewright-*.rcgu.o"));
        assert_eq!(file(0x80_cf20).as_deref(), Some("*/libh2-*.rlib:"));
        assert_eq!(file(0x80_cf30), None);
        assert_eq!(section_pattern(".text._ZN10kubewright4main17h0123456789abcdefE"), ".text._ZN10kubewright4main17h*");
        assert_eq!(section_pattern(".text._RNvNtCsa1B_2h23f17hot"), ".text._RNvNtCs*_2h23f17hot");
        assert_eq!(section_pattern(".text.17h"), ".text.17h");
    }

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
