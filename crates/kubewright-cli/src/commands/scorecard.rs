//! `kubewright bundle scorecard`: runs the tests of a bundle.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use jiff::SignedDuration;
use kubewright_apimachinery::{clock::SharedClock, selector::LabelSelector};
use kubewright_manifests::olm::scorecard::{Configuration, Stage, Test, TestList, TestStatus, configuration_path};

use super::bundle::files;
use crate::{
    images::ImageOptions,
    scorecard::{Scorecard, Settings},
    shell::Shell,
};

/// The metadata of a bundle, which name the directory of the configuration.
const METADATA: &str = "metadata/annotations.yaml";

/// Arguments of `kubewright bundle scorecard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Run the tests of the bundle of the project
  kubewright bundle scorecard

  # Run some of them, and print the results as JSON
  kubewright bundle scorecard ./bundle --selector suite=olm --output json

  # List the tests, and run none
  kubewright bundle scorecard --list

  # Run a test of an image by a program of this machine
  kubewright bundle scorecard --image quay.io/me/my-scorecard-tests=target/debug/my-tests

The tests are those of tests/scorecard/config.yaml in the bundle. Those whose entrypoint is scorecard-test are part of kubewright:
basic-check-spec, olm-bundle-validation, olm-crds-have-validation, olm-crds-have-resources, olm-spec-descriptors and
olm-status-descriptors. basic-check-spec also creates the examples of the bundle on an embedded cluster with its kinds.

Other tests run as pods of an embedded cluster that has the kinds of the bundle, but not its operator: there are no webhooks, and nothing
reconciles. Their service account may do everything. A pod finds the bundle in /bundle ($KUBEWRIGHT_ROOT/bundle if this machine has no mount
namespaces) and its namespace in SCORECARD_NAMESPACE, and prints a TestStatus as JSON. Images are not pulled: --image names the program of each,
as with kubewright cluster.

The exit code is 1 if a test fails or can't be run. Bundles are directories, and results are text or JSON.")]
pub(crate) struct Arguments {
    /// Directory of the bundle
    #[arg(value_name = "DIR", default_value = "bundle")]
    bundle: PathBuf,

    /// Configuration of the tests [default: tests/scorecard/config.yaml in the bundle]
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Run only the tests with these labels, such as suite=olm
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = selector)]
    selector: Option<LabelSelector>,

    /// List the tests, and run none
    #[arg(long, short = 'L')]
    list: bool,

    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// Maximum time of all tests together
    #[arg(long, short, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    wait_time: Duration,

    /// Namespace of the tests' pods; it is created if necessary
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,

    /// Service account of the tests' pods; it is created if necessary [default: that of the configuration, or default]
    #[arg(long, short, value_name = "NAME")]
    service_account: Option<String>,

    /// Directory for the files that tests write to their storage, by suite and test
    #[arg(long, short, value_name = "DIR", default_value = "test-output")]
    test_output: PathBuf,

    #[command(flatten)]
    images: ImageOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A paragraph for each test
    Text,
    /// A TestList of scorecard.operatorframework.io/v1alpha3
    Json,
}

fn selector(text: &str) -> Result<LabelSelector, String> {
    LabelSelector::parse(text).map_err(|error| format!("{error}: use a label selector such as suite=olm"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Option<SignedDuration> = text.parse().ok();
    let positive = parsed.and_then(|time| Duration::try_from(time).ok()).filter(|time| !time.is_zero());
    positive.ok_or_else(|| "use a duration such as 30s or 2m".into())
}

/// Runs the selected tests, and prints their results.
pub(crate) async fn run(arguments: Arguments, clock: SharedClock, shell: &Shell) -> Result<()> {
    let files = files(&arguments.bundle)?;
    let configuration = configuration(&arguments, &files)?;
    let stages = selected(configuration.stages, arguments.selector.as_ref());
    if arguments.list {
        let tests = stages.into_iter().flat_map(|stage| stage.tests);
        let list = TestList::new(tests.map(|test| Test::new(test, TestStatus::default())).collect());
        return print(&list, arguments.output, shell);
    }
    let account = arguments.service_account.or(configuration.service_account);
    let settings = Settings {
        bundle: arguments.bundle,
        images: arguments.images.table()?,
        namespace: arguments.namespace,
        service_account: account.unwrap_or_else(|| "default".into()),
        output: arguments.test_output,
        wait_time: arguments.wait_time,
    };
    let list = TestList::new(Scorecard::new(settings, &files, clock).run(stages, shell).await?);
    print(&list, arguments.output, shell)?;
    conclude(&list, shell)
}

fn print(list: &TestList, format: Format, shell: &Shell) -> Result<()> {
    match format {
        Format::Text => shell.result(list.to_string().trim_end()),
        Format::Json => shell.result(&serde_json::to_string_pretty(list).context("write the results as JSON")?),
    }
    Ok(())
}

/// Fails if a test has not passed.
fn conclude(list: &TestList, shell: &Shell) -> Result<()> {
    let failed: Vec<_> = list.items.iter().filter(|test| !test.status.passes()).map(|test| test.spec.name()).collect();
    let all = list.items.len();
    if !failed.is_empty() {
        bail!("{} of {all} tests did not pass: {}", failed.len(), failed.join(", "));
    }
    if all > 0 {
        shell.status("Finished", format!("{all} of {all} tests passed"));
    }
    Ok(())
}

/// Reads the configuration of the tests.
fn configuration(arguments: &Arguments, files: &BTreeMap<String, String>) -> Result<Configuration> {
    let inside = || arguments.bundle.join(configuration_path(files.get(METADATA).map(String::as_str)));
    let path = arguments.config.clone().unwrap_or_else(inside);
    let text = fs::read_to_string(&path).with_context(|| hint(&path))?;
    Configuration::read(&text).with_context(|| format!("read {}", path.display()))
}

fn hint(path: &Path) -> String {
    format!(
        "read the configuration of the tests, {}: kubewright generate bundle writes one, and --config names another",
        path.display()
    )
}

/// Returns the stages with the tests that a selector matches, without those that have none.
fn selected(mut stages: Vec<Stage>, selector: Option<&LabelSelector>) -> Vec<Stage> {
    for stage in &mut stages {
        stage.tests.retain(|test| selector.is_none_or(|selector| selector.matches(|key| test.labels.get(key))));
    }
    stages.retain(|stage| !stage.tests.is_empty());
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_selected_by_labels() {
        let text = "\
apiVersion: scorecard.operatorframework.io/v1alpha3
kind: Configuration
stages:
- tests: [{image: a, labels: {suite: basic}}]
- tests: [{image: b, labels: {suite: olm, test: one}}, {image: c, labels: {suite: olm, test: two}}, {image: d}]
";
        let names = |text_of: &str| {
            let stages = Configuration::read(text).unwrap().stages;
            let selector = (!text_of.is_empty()).then(|| selector(text_of).unwrap());
            let stages = selected(stages, selector.as_ref());
            stages
                .into_iter()
                .map(|stage| stage.tests.into_iter().map(|test| test.image).collect::<Vec<_>>().concat())
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (selector, expected) in [
            ("", "a bcd"),
            ("suite=basic", "a"),
            ("suite=olm,test!=one", "c"),
            ("test in (one,two)", "bc"),
            ("!suite", "d"),
        ] {
            assert_eq!(names(selector), expected, "{selector}");
        }
        assert!(selector("a==b==c").unwrap_err().ends_with("use a label selector such as suite=olm"));
    }

    #[test]
    fn the_time_is_positive() {
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "0s", "-1s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
