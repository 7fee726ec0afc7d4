//! `batch.tutorial.kubebuilder.io/v1`.

mod cronjob;

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use kubewright::schema::AsWritten;

pub use self::cronjob::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus};

/// A `batch/v1` JobTemplateSpec as it was written. What is none is told in a condition, and what makes no valid Job with
/// the API server's own words.
pub type JobTemplate = AsWritten<JobTemplateSpec>;
