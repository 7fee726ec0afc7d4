//! Tests of names that only certain modules may use.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Every Rust file of the workspace with its text, paths relative to the root.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut sources = Vec::new();
    let mut folders: Vec<_> = ["crates", "operators", "demo", "bench", "testdata/bugs", "testdata/migrations", "xtask"]
        .iter()
        .map(|name| root.join(name))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push((path.strip_prefix(root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(sources.len() > 50, "the sources are found");
    sources
}

/// The lines of code that contain one of `words`, except in `homes`, in tests, and in this crate, which names them.
fn uses(words: &[&str], homes: &[&str]) -> Vec<String> {
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
    // A peer of a benchmark is what others would write, on their own clock.
    let is_foreign = |path: &Path| path.starts_with("xtask") || path.starts_with("bench/peers");
    let elsewhere =
        |path: &Path| !is_foreign(path) && !is_test(path) && homes.iter().all(|home| path != Path::new(home));
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| elsewhere(path)) {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let is_code = |line: &str| !line.trim_start().starts_with("//");
        let lines =
            code.lines().enumerate().filter(|(_, line)| is_code(line) && words.iter().any(|word| line.contains(word)));
        found.extend(lines.map(|(number, line)| format!("{}:{}: {}", path.display(), number + 1, line.trim())));
    }
    found
}

#[test]
fn invariant_3_time_is_read_in_one_module() {
    let words = ["SystemTime::now", "Instant::now", "Timestamp::now", "Zoned::now"];
    assert_eq!(uses(&words, &["crates/kubewright-apimachinery/src/clock.rs"]), Vec::<String>::new());
}

#[test]
fn invariant_3_randomness_is_drawn_in_one_module() {
    let words =
        ["fastrand::", "use rand::", " rand::", "thread_rng", "make_rng", "RandomState", "getrandom", "SystemRandom"];
    // A secret comes from the operating system, whatever the seed: the key of tokens, and what signs with it, and
    // signatures of images. The requests that compare two servers follow from a seed of their own.
    let homes = [
        "kubewright-apimachinery/src/random.rs",
        "kubewright-corpus/src/random/mod.rs",
        "kubewright-apiserver/src/auth/token/mod.rs",
        "kubewright-apiserver/src/auth/token/key.rs",
        "kubewright-cli/src/oci/signature/key.rs",
    ];
    let homes = homes.map(|home| format!("crates/{home}"));
    assert_eq!(uses(&words, &homes.each_ref().map(String::as_str)), Vec::<String>::new());
}

/// Returns whether a simulation runs the code of a file.
fn is_simulated(path: &Path) -> bool {
    let crates = ["apimachinery", "apiserver", "cluster", "connect", "runtime", "simulation"];
    crates.iter().any(|name| path.starts_with(format!("crates/kubewright-{name}/src")))
}

/// Tokio's `watch` wakes its receivers in an order that tokio's own random source picks.
#[test]
fn invariant_3_receivers_wake_in_order() {
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| is_simulated(path)) {
        let code: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let imports = code.join("\n");
        let mut imports = imports.split("use tokio::").skip(1).filter_map(|rest| rest.split(';').next());
        let imported = imports.any(|import| {
            import.contains("sync")
                && import.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "watch")
        });
        if imported || code.iter().any(|line| line.contains("tokio::sync::watch")) {
            found.push(path);
        }
    }
    assert_eq!(found, Vec::<PathBuf>::new(), "use `kubewright_apimachinery::watch`");
}

/// Without `biased`, `select!` begins with a branch that tokio's own random source picks, so two simulations with the
/// same seed differ.
#[test]
fn invariant_3_select_is_biased() {
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| is_simulated(path)) {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let random = code.match_indices("select! {").filter(|(at, word)| {
            let rest = code[at + word.len()..].trim_start();
            !rest.starts_with("biased;") && !path.ends_with("tests.rs")
        });
        found.extend(random.map(|(at, _)| format!("{}:{}", path.display(), code[..at].lines().count())));
    }
    assert_eq!(
        found,
        Vec::<String>::new(),
        "begin with `biased;`, and put what is rare before what may always be ready"
    );
}

/// A crate's dependencies outside its tests, by name.
fn dependencies(manifest: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = fs::read_to_string(root.join(manifest)).unwrap();
    let section = text.split("[dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    section
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let check = |krate: &str, may: &[&str]| {
        let ours: Vec<_> = dependencies(&format!("{krate}/Cargo.toml"))
            .into_iter()
            .filter(|name| name.starts_with("kubewright") || name.ends_with("-operator"))
            .collect();
        assert!(
            ours.iter().all(|name| may.contains(&name.as_str())),
            "{krate} depends on {ours:?}, and may only on {may:?}"
        );
    };
    check("crates/kubewright-apimachinery", &[]);
    check("crates/kubewright-apiserver", &["kubewright-apimachinery"]);
    check("crates/kubewright-cluster", &["kubewright-apimachinery", "kubewright-apiserver"]);
    check("crates/kubewright-connect", &[]);
    check("crates/kubewright-packed", &[]);
    check("crates/kubewright-runtime", &["kubewright-apimachinery", "kubewright-connect", "kubewright-packed"]);
    check("crates/kubewright", &["kubewright-macros", "kubewright-runtime", "kubewright-simulation"]);
    check("crates/kubewright-macros", &[]);
    check("crates/kubewright-scaffold", &["kubewright-apimachinery"]);
    check("crates/kubewright-manifests", &["kubewright-apimachinery"]);
    check(
        "crates/kubewright-simulation",
        &[
            "kubewright-apimachinery",
            "kubewright-apiserver",
            "kubewright-cluster",
            "kubewright-manifests",
            "kubewright-runtime",
        ],
    );
    check("crates/kubewright-browser", &[]);
    check("crates/kubewright-corpus", &[]);
    check("operators/at", &["kubewright"]);
    check("operators/cronjob", &["kubewright"]);
    check("operators/guestbook", &["kubewright"]);
    check("operators/lolcow", &["kubewright"]);
    check("operators/deployed", &["kubewright-cluster"]);
    check("operators/podset", &["kubewright"]);
}

#[test]
fn invariant_6_the_pipeline_names_no_kind() {
    // Only the registry's entries depend on kinds. Tokens of service accounts are the exception: they can be bound to
    // Pods, Secrets and Nodes, as in Kubernetes.
    let homes = ["crates/kubewright-apiserver/src/auth/service_account.rs"];
    let kinds = [
        "\"Pod\"",
        "\"pods\"",
        "\"Deployment\"",
        "\"deployments\"",
        "\"Job\"",
        "\"jobs\"",
        "\"services\"",
        "\"Service\"",
        "\"secrets\"",
    ];
    let outside = |line: &String| {
        line.starts_with("crates/kubewright-apiserver/src/")
            && !line.starts_with("crates/kubewright-apiserver/src/registry/")
    };
    let found: Vec<_> = uses(&kinds, &homes).into_iter().filter(outside).collect();
    assert_eq!(found, Vec::<String>::new());
}

/// The tests that CONFORMANCE.md names, as file and function.
fn named_tests(text: &str) -> Vec<(String, String)> {
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/".contains(c))
    };
    text.split('`')
        .filter_map(|code| code.split_once("::"))
        .filter(|(file, test)| is_name(file) && is_name(test))
        .map(|(file, test)| (file.to_owned(), test.to_owned()))
        .collect()
}

#[test]
fn the_tests_of_the_conformance_page_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let named = named_tests(&fs::read_to_string(crates.join("kubewright-apiserver/CONFORMANCE.md")).unwrap());
    assert!(named.len() > 100, "the page names {} tests", named.len());
    let exists = |file: &str, test: &str| {
        let (krate, file) = match file.split_once('/') {
            Some((krate, file)) => (format!("kubewright-{krate}"), file),
            None => ("kubewright-apiserver".to_owned(), file),
        };
        let module = crates.join(krate).join("tests/it").join(file);
        let files = fs::read_dir(&module).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut texts = files.chain([module.with_extension("rs")]).filter_map(|file| fs::read_to_string(file).ok());
        texts.any(|text| text.contains(&format!("fn {test}(")))
    };
    let absent: Vec<_> = named.iter().filter(|(file, test)| !exists(file, test)).collect();
    assert!(absent.is_empty(), "CONFORMANCE.md names tests that don't exist: {absent:?}");
}

/// The tests that a page of `designs` names by their files and functions.
#[test]
fn the_tests_of_the_page_on_parity_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = fs::read_to_string(root.join("designs/parity.md")).unwrap();
    let named: Vec<_> = page.split('`').filter_map(|code| code.split_once(".rs::")).collect();
    assert!(named.len() > 50, "the page names {} tests", named.len());
    let exists = |file: &str, test: &str| {
        let text = fs::read_to_string(root.join(file).with_extension("rs")).unwrap_or_default();
        text.contains(&format!("fn {test}("))
    };
    let absent: Vec<_> = named.iter().filter(|(file, test)| !exists(file, test)).collect();
    assert!(absent.is_empty(), "designs/parity.md names tests that don't exist: {absent:?}");
}

/// A program that has to use a validated module of cryptography must not contain another one.
#[test]
fn an_operator_has_one_implementation_of_cryptography() {
    let tree = |features: &str| {
        let mut cargo = Command::new("cargo");
        cargo.args(["tree", "--package", "kubewright", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
        cargo.args(["--locked", "--no-default-features", "--features", features]);
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let crates = String::from_utf8(output.stdout).unwrap();
        ["ring", "aws-lc-rs", "aws-lc-fips-sys"]
            .map(|name| crates.lines().any(|line| line.starts_with(&format!("{name} "))))
    };
    assert_eq!(tree("ring"), [true, false, false]);
    assert_eq!(tree("aws-lc-rs"), [false, true, false]);
    assert_eq!(tree("fips"), [false, true, true]);
}

/// The number of columns of a line, as in `rustfmt.toml`, which doesn't apply to comments.
const COLUMNS: usize = 120;

#[test]
fn comments_fit_into_their_lines() {
    let is_long = |line: &str| {
        let comment = line.trim_start();
        // Code, tables, and a word that is longer than a line can't be divided.
        let text = comment.trim_start_matches(['/', '!']).trim_start_matches(' ');
        comment.starts_with("//")
            && line.chars().count() > COLUMNS
            && !text.starts_with('|')
            && text.split(' ').all(|word| word.len() < COLUMNS - 20)
    };
    let mut found = Vec::new();
    for (path, text) in sources() {
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            is_code ^= line.trim_start_matches([' ', '/', '!']).starts_with("```");
            if !is_code && is_long(line) {
                found.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert_eq!(found, [""; 0], "wrap them at {COLUMNS} columns");
}
