//! Tests of the commands in the book. Each page runs as one shell session, in a directory outside of the repository
//! that contains only `operators`.
//!
//! Commands are the lines that begin with `$ ` in blocks of the language `console`. A comment on the line before a
//! block changes how it runs:
//!
//! * `<!-- runs on -->`: the last command of the block runs in a shell of its own, and must still be running at the
//!   end.
//! * `<!-- not tried: why -->`: the block isn't run. It is counted.
//!
//! `<!-- also: command -->` is a command that readers don't see, run at this point: mostly a check of the previous
//! commands' results.
//!
//! `<!-- begins with a cluster -->` anywhere in the page provides a running cluster, as the page's readers have one. A
//! `…` after `KUBECONFIG=` stands for the last value printed after that word. A command that fails is retried for a
//! while, as a reader would.
//!
//! `kubewright`, `cargo run -p` and `cargo demo` run the programs that the tests have built; everything else runs as
//! written. In a project that the page has created, with `$SDK` as the path of this repository, cargo is the real
//! cargo. It runs offline and shares the tests' build directory, so that of the crates that both use only those with
//! different features are compiled again. Pages add crates with a requirement (`cargo add jiff@0.2`), which the copied
//! lock file satisfies. Without one, cargo takes the newest version that the machine has, whether or not the crates
//! that it needs are there too.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::{PAGES, pages};
use crate::steps::remove_package_variables;

/// A command of a page.
#[derive(Debug, PartialEq)]
enum Step {
    /// A command that must succeed.
    Try(String),
    /// A command that must keep running until the end of the page.
    Start(String),
}

/// The commands of a page.
#[derive(Debug, Default, PartialEq)]
struct Session {
    steps: Vec<Step>,
    /// The number of commands that aren't run.
    untried: usize,
}

/// A comment about the block that follows.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    None,
    RunsOn,
    NotTried,
}

const CLUSTER: [&str; 2] =
    ["cargo run -p kubewright-cli -- cluster --kubeconfig ./kubeconfig", "export KUBECONFIG=$PWD/kubeconfig"];

impl Session {
    /// Parses a page. An unknown comment, or one without a following block, is an error.
    fn of(page: &str) -> Result<Self> {
        let (mut session, mut mark) = (Self::default(), Mark::None);
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            let comment = line.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")).map(str::trim);
            match comment {
                _ if line.trim() == "```console" => {
                    let commands = commands(&mut lines);
                    session.add(commands, std::mem::replace(&mut mark, Mark::None))?;
                }
                _ if mark != Mark::None => bail!("a mark stands before {line:?}, and not before a block of commands"),
                Some("begins with a cluster") => session.begin_with_a_cluster(),
                Some("runs on") => mark = Mark::RunsOn,
                Some(also) if also.starts_with("also: ") => {
                    session.steps.push(Step::Try(also["also: ".len()..].into()))
                }
                Some(why) if why.strip_prefix("not tried: ").is_some_and(|why| !why.is_empty()) => {
                    mark = Mark::NotTried
                }
                Some(other) => bail!("the book knows no mark {other:?}"),
                None => {}
            }
        }
        Ok(session)
    }

    fn begin_with_a_cluster(&mut self) {
        let [cluster, kubeconfig] = CLUSTER.map(str::to_owned);
        self.steps.splice(0..0, [Step::Start(cluster), Step::Try(kubeconfig)]);
    }

    fn add(&mut self, mut commands: Vec<String>, mark: Mark) -> Result<()> {
        if mark == Mark::NotTried {
            self.untried += commands.len();
            return Ok(());
        }
        let last = if mark == Mark::RunsOn { commands.pop() } else { None };
        if last.is_none() && commands.is_empty() {
            bail!("a block of commands has none: they begin with `$ `");
        }
        self.steps.extend(commands.into_iter().map(Step::Try).chain(last.map(Step::Start)));
        Ok(())
    }

    /// Returns the session as a bash script for a checkout.
    fn script(&self, root: &Path) -> String {
        let mut script = format!("export SDK={}\n{PRELUDE}", quoted(&root.to_string_lossy()));
        for step in &self.steps {
            script += &match step {
                Step::Try(command) => format!("try {}\n", quoted(command)),
                Step::Start(command) => format!("start {}\n", quoted(command)),
            };
        }
        script + "still_there\n"
    }
}

/// Returns the commands of a block whose first line has been read, and consumes the rest of the block.
fn commands<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for line in lines.take_while(|line| line.trim() != "```") {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push(command.into()),
            (None, Some(begun)) if begun.ends_with('\\') => *begun += &format!("\n{line}"),
            // Output of a command.
            (None, _) => {}
        }
    }
    commands
}

/// Returns a text quoted as a word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The beginning of every session.
const PRELUDE: &str = r#"
set -uo pipefail
# Each command in the background is a group of processes, so that it can be ended whole.
set -m
binaries=$SDK/target/debug
session=$PWD
patience=90
running=()
end_all() {
    for group in "${running[@]}"; do kill -TERM -- "-$group" 2>/dev/null; done
    for group in "${running[@]}"; do
        for _ in $(seq 100); do kill -0 -- "-$group" 2>/dev/null || continue 2; sleep 0.1; done
        kill -KILL -- "-$group"
    done
}
trap 'exec 2>/dev/null; end_all' EXIT
fail() {
    echo "$1" >&2
    tail -n 20 "$session"/said "$session"/started.* >&2 2>/dev/null
    exit 1
}
kubewright() { "$binaries/kubewright" "$@"; }
cargo() {
    if [ -e Cargo.toml ]; then command cargo "$@"; return; fi
    if [ "$1" = demo ]; then set -- run -p kubewright-demo -- "${@:2}"; fi
    [ "$1" = run ] || { echo "only cargo run is tried, not cargo $1" >&2; return 2; }
    local program=
    shift
    while [ $# -gt 0 ]; do
        case "$1" in
            -p) program="$2"; shift 2 ;;
            --release) shift ;;
            --) shift; break ;;
            *) echo "cargo run $1 isn't known here" >&2; return 2 ;;
        esac
    done
    if [ "$program" = kubewright-cli ]; then program=kubewright; fi
    "$binaries/$program" "$@"
}
# Prints a port of this machine at which nothing listens.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}
# An answer that says no is no success.
curl() { command curl --fail --silent --show-error "$@"; }
printed() {
    # shellcheck disable=SC2016
    case "$1" in
        *'KUBECONFIG=…'*)
            local file
            file=$(grep -hoE 'KUBECONFIG=[^ ]+' "$session"/started.* 2>/dev/null | tail -n 1)
            [ -n "$file" ] || return 1
            command_line="${1/KUBECONFIG=…/$file}" ;;
        *) command_line="$1" ;;
    esac
}
try() {
    echo "    \$ $1" >&2
    local end=$((SECONDS + patience))
    until printed "$1" && eval "$command_line" >"$session/said" 2>&1; do
        [ $SECONDS -lt $end ] || fail "this has not succeeded for $patience s: $1"
        sleep 0.5
    done
}
start() {
    echo "    \$ $1   # runs on" >&2
    eval "$1" >"$session/started.${#running[@]}" 2>&1 </dev/null &
    running+=($!)
}
still_there() {
    for group in "${running[@]}"; do
        kill -0 -- "-$group" 2>/dev/null || fail "what was to run on has ended"
    done
}
"#;

/// Runs the commands of the pages whose path contains `part`, and prints their number.
pub(crate) fn try_pages(part: &str) -> Result<()> {
    let (mut tried, mut untried) = (0, 0);
    let is_wanted = |(page, _): &(PathBuf, String)| page.to_string_lossy().contains(part);
    for (page, text) in pages(Path::new(PAGES))?.into_iter().filter(is_wanted) {
        let session = Session::of(&text).with_context(|| page.display().to_string())?;
        untried += session.untried;
        if !session.steps.is_empty() {
            eprintln!("    {}", page.display());
            run(&session).with_context(|| page.display().to_string())?;
            tried += session.steps.len();
        }
    }
    if tried == 0 {
        bail!("no page with commands has {part:?} in its path");
    }
    eprintln!("    {tried} commands tried, {untried} are marked as not to be tried");
    Ok(())
}

/// Runs a session.
fn run(session: &Session) -> Result<()> {
    let root = std::env::current_dir().context("where is this?")?;
    let folder = &folder(&root);
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("clear {}", folder.display()));
        }
        _ => {}
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    symlink(root.join("operators"), folder.join("operators")).context("link the operators")?;
    fs::write(folder.join("session"), session.script(&root)).context("write the session")?;
    let mut bash = Command::new("bash");
    remove_package_variables(&mut bash);
    // Only the toolchain of the user's home directory is visible.
    bash.arg("session").current_dir(folder).env("HOME", folder).env_remove("KUBECONFIG");
    for (variable, place) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        if let (None, Some(home)) = (std::env::var_os(variable), std::env::home_dir()) {
            bash.env(variable, home.join(place));
        }
    }
    bash.envs([("CARGO_NET_OFFLINE", "true"), ("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")]);
    // The session shares the tests' intermediate artifacts. Its programs go elsewhere, since those have the same names.
    bash.env("CARGO_BUILD_BUILD_DIR", root.join("target")).env("CARGO_TARGET_DIR", root.join("target/typed"));
    let status = bash.stdin(Stdio::null()).stdout(Stdio::null()).status().context("start bash")?;
    if !status.success() {
        bail!("its commands don't do what the page says ({status}); {} shows how far they came", folder.display());
    }
    fs::remove_dir_all(folder).with_context(|| format!("clear {}", folder.display()))
}

/// Returns the directory of a session. It is outside of the repository, so that a project in it doesn't belong to the
/// repository's workspace, and the same each time, since cargo identifies a package by its path.
fn folder(root: &Path) -> PathBuf {
    let name = root.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    std::env::temp_dir().join(format!("kubewright-typed{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_its_readers_type_it() {
        let page = "
<!-- begins with a cluster -->
```console
$ one
what it prints
$ two \\
    more
```
<!-- runs on -->
```console
$ three
$ four
```
<!-- also: four and a half -->
<!-- not tried: it takes a cloud -->
```console
$ five
```
```rust
$ six
```
";
        let session = Session::of(page).unwrap();
        let tried = |command: &str| Step::Try(command.into());
        let started = |command: &str| Step::Start(command.into());
        let expected =
            [tried("one"), tried("two \\\n    more"), tried("three"), started("four"), tried("four and a half")];
        assert_eq!(session.steps[..2], [started(CLUSTER[0]), tried(CLUSTER[1])]);
        assert_eq!((&session.steps[2..], session.untried), (&expected[..], 1));
        let script = session.script(Path::new("/it's"));
        assert!(script.starts_with("export SDK='/it'\\''s'\n") && script.contains("\ntry 'one'\n"), "{script}");
    }

    #[test]
    fn a_mark_that_means_nothing_is_an_error() {
        for (page, why) in [
            ("<!-- runs off -->\n```console\n$ one\n```", "knows no mark"),
            ("<!-- not tried: -->\n```console\n$ one\n```", "knows no mark"),
            ("<!-- runs on -->\n\n```console\n$ one\n```", "not before a block"),
            ("```console\none\n```", "has none"),
        ] {
            let error = Session::of(page).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn every_page_can_be_read_and_most_of_its_commands_are_tried() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let (mut tried, mut untried) = (0, 0);
        for (page, text) in pages(&root.join(PAGES)).unwrap() {
            let session = Session::of(&text).unwrap_or_else(|error| panic!("{}: {error:#}", page.display()));
            tried += session.steps.len();
            untried += session.untried;
        }
        assert!(tried > 2 * untried && tried > 10, "{tried} tried, {untried} not");
    }

    /// Background commands end with the session, and a command that fails ends it.
    #[test]
    fn a_session_fails_with_its_commands_and_leaves_nothing_behind() {
        let folder = tempfile();
        let run = |steps: Vec<Step>| {
            let script =
                Session { steps, untried: 0 }.script(Path::new("/nowhere")).replace("patience=90", "patience=1");
            let output = Command::new("bash").arg("-c").arg(script).current_dir(&folder).output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let tried = |command: &str| Step::Try(command.into());
        let begun = Step::Start("sh -c 'echo $$ >pid; echo KUBECONFIG=here; exec sleep 4327'".into());
        let (is_well, said) = run(vec![begun, tried("test -s pid"), tried("test KUBECONFIG=… = KUBECONFIG=here")]);
        assert!(is_well, "what was printed is used: {said}");
        let process = fs::read_to_string(folder.join("pid")).unwrap();
        assert!(!Path::new("/proc").join(process.trim()).exists(), "it has ended");
        assert!(!run(vec![tried("false")]).0 && !run(vec![tried("cargo test")]).0);
        let (is_well, said) = run(vec![Step::Start("true".into()), tried("sleep 0.2")]);
        assert!(!is_well && said.contains("what was to run on has ended"), "{said}");
        fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("kubewright-book-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}
