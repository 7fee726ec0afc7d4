//! Scorecards: running the tests of a bundle.
//!
//! The tests of operator-sdk's image `scorecard-test` are functions of `kubewright_manifests`; [`examples`] adds what
//! an embedded API server says about a bundle's objects. Other images run as [`pods`] of an embedded cluster.

mod examples;
mod pods;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use futures::future::join_all;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::ImageTable;
use kubewright_manifests::olm::scorecard::{Bundle, Check, Stage, Test, TestConfiguration, TestStatus, Trial};
use parking_lot::Mutex;

use self::pods::TestPods;
use crate::{cluster::Signals, shell::Shell};

/// The program of the image with the built-in tests.
const BUILT_IN: &str = "scorecard-test";
/// The time after which progress is shown.
const QUIET: Duration = Duration::from_secs(1);
/// The interval at which the progress is shown.
const TICK: Duration = Duration::from_millis(250);

/// How tests are run.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The directory of the bundle.
    pub(crate) bundle: PathBuf,
    /// The programs that run in place of images.
    pub(crate) images: ImageTable,
    /// The namespace of pods.
    pub(crate) namespace: String,
    /// Their service account.
    pub(crate) service_account: String,
    /// The directory for the files that tests write.
    pub(crate) output: PathBuf,
    /// The maximum time of all tests together.
    pub(crate) wait_time: Duration,
}

/// The tests of a bundle.
pub(crate) struct Scorecard {
    settings: Settings,
    /// The bundle, or why it can't be read.
    bundle: Result<Bundle, String>,
    clock: SharedClock,
    /// The names of the tests that are running.
    running: Mutex<Vec<String>>,
}

/// What runs a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Runner {
    /// This program.
    BuiltIn(Check),
    /// A pod.
    Pod,
    /// Nothing, and why.
    None(String),
}

/// Chooses what runs a test.
fn runner(test: &TestConfiguration, images: &ImageTable) -> Runner {
    let TestConfiguration { image, entrypoint, .. } = test;
    if images.program(image).is_some() {
        return Runner::Pod;
    }
    let is_built_in = entrypoint.first().is_some_and(|word| word.rsplit('/').next() == Some(BUILT_IN));
    if !is_built_in {
        return Runner::None(format!(
            "no program for the image {image}: images are not pulled, so name a program of this machine that runs in its place with --image {}=PROGRAM",
            repository(image)
        ));
    }
    let name = entrypoint.get(1).map(String::as_str).unwrap_or_default();
    match Check::find(name) {
        Some(check) => Runner::BuiltIn(check),
        None => {
            let known: Vec<_> = Check::ALL.iter().map(|check| check.name()).collect();
            Runner::None(format!("{BUILT_IN} has no test {name:?}: it has {}", known.join(", ")))
        }
    }
}

/// Returns an image without its tag and digest.
fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

impl Scorecard {
    /// Reads the files of a bundle, by path in its directory.
    pub(crate) fn new(settings: Settings, files: &BTreeMap<String, String>, clock: SharedClock) -> Self {
        Self { settings, bundle: Bundle::read(files), clock, running: Mutex::default() }
    }

    /// Runs the tests of stages, and returns them with their results in the order of the configuration. Clusters end
    /// with it.
    ///
    /// # Errors
    /// If a cluster can't be started, or if a signal arrives.
    pub(crate) async fn run(&self, stages: Vec<Stage>, shell: &Shell) -> Result<Vec<Test>> {
        let mut signals = Signals::listen()?;
        let start = self.clock.monotonic();
        let tests = self.run_stages(stages, shell);
        tokio::pin!(tests);
        loop {
            tokio::select! {
                biased;
                tests = &mut tests => return tests,
                () = signals.recv() => bail!("interrupted: {} did not end", self.running.lock().join(", ")),
                () = tokio::time::sleep(TICK) => {
                    let passed = self.clock.monotonic().saturating_sub(start);
                    if passed > QUIET {
                        shell.progress("Running", &self.running.lock().join(", "), "", passed);
                    }
                }
            }
        }
    }

    async fn run_stages(&self, stages: Vec<Stage>, shell: &Shell) -> Result<Vec<Test>> {
        let needs_pods = |test: &TestConfiguration| runner(test, &self.settings.images) == Runner::Pod;
        let pods = if stages.iter().flat_map(|stage| &stage.tests).any(needs_pods) {
            let definitions = self.bundle.as_ref().map(|bundle| bundle.definitions.as_slice()).unwrap_or_default();
            Some(TestPods::start(&self.settings, definitions, &self.clock, shell).await?)
        } else {
            None
        };
        let end = self.clock.monotonic() + self.settings.wait_time;
        let mut results = Vec::new();
        for stage in stages {
            let parallel = stage.parallel;
            let first = results.len();
            let tests = stage.tests.into_iter().enumerate();
            let runs = tests.map(|(index, test)| self.run_test(first + index, test, pods.as_ref(), end));
            if parallel {
                results.extend(join_all(runs).await);
            } else {
                for run in runs {
                    results.push(run.await);
                }
            }
        }
        if let Some(pods) = pods {
            pods.shutdown().await;
        }
        Ok(results)
    }

    /// Runs a test. `number` tells its pod from others, and `end` is the time at which it has to end.
    async fn run_test(&self, number: usize, test: TestConfiguration, pods: Option<&TestPods>, end: Duration) -> Test {
        let name = test.name();
        self.running.lock().push(name.clone());
        let left = end.saturating_sub(self.clock.monotonic());
        let status = match (runner(&test, &self.settings.images), pods) {
            (Runner::BuiltIn(check), _) => match tokio::time::timeout(left, self.check(check)).await {
                Ok(status) => status,
                Err(_) => TestStatus::error(check.name(), late(self.settings.wait_time), ""),
            },
            (Runner::Pod, Some(pods)) => pods.run(number, &test, &self.settings, left).await,
            (Runner::Pod, None) => TestStatus::error(&name, "there is no cluster for the pod of the test", ""),
            (Runner::None(why), _) => TestStatus::error(&name, why, ""),
        };
        let mut running = self.running.lock();
        if let Some(index) = running.iter().position(|other| *other == name) {
            running.remove(index);
        }
        Test::new(test, status)
    }

    /// Runs a built-in test.
    async fn check(&self, check: Check) -> TestStatus {
        let bundle = match &self.bundle {
            Ok(bundle) => bundle,
            Err(error) => return TestStatus::error(check.name(), error, ""),
        };
        let trial = match check {
            Check::BasicCheckSpec => examples::create(bundle, &self.clock).await,
            Check::BundleValidation => examples::definitions(bundle),
            _ => Trial::default(),
        };
        check.run(bundle, &trial)
    }
}

/// Returns the error of a test that takes too long.
fn late(wait_time: Duration) -> String {
    format!("did not end within {wait_time:?}: give all tests together more time with --wait-time")
}

#[cfg(test)]
mod tests {
    use kubewright_cluster::Program;
    use serde_json::json;

    use super::*;

    fn test(image: &str, entrypoint: &[&str]) -> TestConfiguration {
        serde_json::from_value(json!({"image": image, "entrypoint": entrypoint})).unwrap()
    }

    #[test]
    fn built_in_tests_are_known_by_their_entrypoint() {
        let images = ImageTable::default().with("example.com/own", Program::single("/bin/true"));
        let of = |image: &str, entrypoint: &[&str]| runner(&test(image, entrypoint), &images);
        let image = "quay.io/operator-framework/scorecard-test:v1.42.0";
        for check in Check::ALL {
            assert_eq!(of(image, &[BUILT_IN, check.name()]), Runner::BuiltIn(check));
        }
        assert_eq!(
            of("mirror:5000/a@sha256:1", &["/bin/scorecard-test", "basic-check-spec"]),
            Runner::BuiltIn(Check::BasicCheckSpec)
        );
        assert_eq!(of("example.com/own:v1", &["anything"]), Runner::Pod);
        assert_eq!(of("busybox", &["sh", "-c", "true"]), Runner::Pod);
    }

    #[test]
    fn tests_that_nothing_runs_say_why() {
        let of = |image: &str, entrypoint: &[&str]| match runner(&test(image, entrypoint), &ImageTable::default()) {
            Runner::None(why) => why,
            other => panic!("{other:?}"),
        };
        let said = of("mirror:5000/tests:v1@sha256:1", &["a"]);
        assert!(
            said.starts_with("no program for the image mirror:5000/tests:v1@sha256:1: images are not pulled"),
            "{said}"
        );
        assert!(said.ends_with("with --image mirror:5000/tests=PROGRAM"), "{said}");
        assert!(of("mirror:5000/tests", &[]).ends_with("--image mirror:5000/tests=PROGRAM"));
        let said = of("a", &[BUILT_IN, "olm-other"]);
        assert!(
            said.starts_with("scorecard-test has no test \"olm-other\": it has basic-check-spec, olm-bundle"),
            "{said}"
        );
        assert!(of("a", &[BUILT_IN]).starts_with("scorecard-test has no test \"\""));
    }
}
