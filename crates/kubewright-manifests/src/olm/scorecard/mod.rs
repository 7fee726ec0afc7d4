//! Scorecards of bundles: the format of operator-sdk's configurations and results, and its built-in tests.
//!
//! * [`Configuration`] lists the tests of a bundle, in stages;
//! * [`Check`] is a built-in test, a function of the bundle's files;
//! * [`TestList`] is the result, as text and as JSON.
//!
//! Nothing is run here: a program has to create examples on an API server, and to run the images of other tests. The
//! format is that of
//! <https://sdk.operatorframework.io/docs/testing-operators/scorecard>.

mod check;
mod configuration;
mod descriptors;
mod result;

pub use self::{
    check::{Bundle, Check, Trial},
    configuration::{Configuration, ConfigurationError, Stage, Storage, TestConfiguration, configuration_path},
    result::{State, Test, TestList, TestResult, TestStatus},
};

/// The API version of configurations and results.
const VERSION: &str = "scorecard.operatorframework.io/v1alpha3";
