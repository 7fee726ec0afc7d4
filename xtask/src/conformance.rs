//! `cargo xtask conformance`: Kubernetes' own end-to-end tests against `kubewright cluster`.
//!
//! The tests, and the programs of their pods, of which `agnhost` is that of most, are built from the Go module in
//! [`FOLDER`]. `run.sh` there starts the cluster and the tests in namespaces of their own and on an overlay of the file
//! system, so that they don't conflict with other programs and leave no files. Failures are listed, and fail the chore.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    root,
    steps::{Steps, cargo, run},
};

/// The folder of the module and the scripts.
const FOLDER: &str = "crates/kubewright-cluster/tests/conformance";
/// The folder of everything that is built and written.
const BUILD: &str = "target/conformance";

/// The programs of pods, with their packages below those of Kubernetes' images.
const PROGRAMS: [(&str, &str); 3] = [
    ("agnhost", "agnhost"),
    ("resource-consumer", "resource-consumer"),
    ("consume-cpu", "resource-consumer/consume-cpu"),
];

/// The options of `unshare`. Tests of local volumes make them in the mount namespace of the first process, which has to
/// be one of ours.
const NAMESPACES: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Builds the tests and the cluster, and runs the tests whose names match a regular expression, without those that
/// match `skip`.
pub(crate) fn build_and_run(steps: &mut Steps, focus: &str, skip: &str) {
    if let Some(missing) = missing() {
        return steps.skip("conformance tests", missing);
    }
    let cluster = cargo(&["build", "--release", "-p", "kubewright-cli"]);
    let built = [
        steps.check("build of the end-to-end tests", build_tests),
        steps.check("build of the pods' programs", build_programs),
        steps.run("build of kubewright", cluster),
    ];
    if !built.contains(&false) {
        steps.check("conformance tests", || test(focus, skip));
    }
}

/// Returns what keeps the tests from running on this machine.
fn missing() -> Option<&'static str> {
    let works = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !works("go", &["version"]) {
        Some("Go isn't installed")
    } else if !works("unshare", &[&NAMESPACES[..], &["true"]].concat()) {
        Some("they need namespaces: run them as root on Linux")
    } else {
        None
    }
}

fn go(arguments: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(root().join(FOLDER));
    command
}

fn build_tests() -> Result<()> {
    fs::create_dir_all(BUILD).with_context(|| format!("create {BUILD}"))?;
    // Vetting the packages takes longer than compiling them.
    let mut command = go(&["test", "-c", "-vet=off", "-o"]);
    run(command.arg(root().join(BUILD).join("e2e.test")).arg("k8s.io/kubernetes/test/e2e"))
}

fn build_programs() -> Result<()> {
    PROGRAMS.iter().try_for_each(|(name, package)| {
        let mut command = go(&["build", "-o"]);
        command.arg(root().join(BUILD).join(name)).arg(format!("k8s.io/kubernetes/test/images/{package}"));
        run(command.env("CGO_ENABLED", "0"))
    })
}

fn test(focus: &str, skip: &str) -> Result<()> {
    let folder = root().join(BUILD);
    let mut command = Command::new("unshare");
    command.args(NAMESPACES).arg("sh").arg(root().join(FOLDER).join("run.sh")).arg(&folder);
    command.arg(root().join("target/release/kubewright")).args([focus, skip]);
    // A report of an earlier run must not be read if this one fails to start.
    let path = folder.join("reports/junit_01.xml");
    let _ = fs::remove_file(&path);
    // The command fails if a test fails. These are listed below.
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    let report = fs::read_to_string(&path).with_context(|| format!("read {}: {status}", path.display()))?;
    let [passed, failed] = ["passed", "failed"].map(|state| tests(&report, state));
    for name in &failed {
        println!("FAILED {name}");
    }
    println!("{} passed, {} failed; their logs are in {}", passed.len(), failed.len(), folder.display());
    if !failed.is_empty() || passed.is_empty() {
        bail!("{} of {} tests failed", failed.len(), passed.len() + failed.len());
    }
    Ok(())
}

/// Returns the names of the tests with a state in a report of JUnit.
fn tests<'a>(report: &'a str, state: &str) -> Vec<&'a str> {
    let state = format!("status=\"{state}\"");
    let cases = report
        .split("<testcase ")
        .skip(1)
        .filter(|case| case.split('>').next().is_some_and(|tag| tag.contains(&state)));
    cases.filter_map(|case| case.strip_prefix("name=\"")?.strip_prefix("[It] ")?.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn tests_are_found_by_their_state() {
        let report = "<testsuites><testsuite><testcase name=\"[It] [sig-apps] a &gt; b\" classname=\"c\" status=\"passed\" time=\"1\">\
            </testcase><testcase name=\"[It] d\" classname=\"c\" status=\"failed\" time=\"1\"><failure>status=\"passed\"</failure>\
            </testcase><testcase name=\"[ReportBeforeSuite]\" status=\"passed\"></testcase></testsuite></testsuites>";
        assert_eq!(super::tests(report, "passed"), ["[sig-apps] a &gt; b"]);
        assert_eq!(super::tests(report, "failed"), ["d"]);
    }
}
