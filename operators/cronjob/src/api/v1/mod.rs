//! `batch.tutorial.kubebuilder.io/v1`.

mod cronjob;
mod template;

pub use self::{
    cronjob::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus},
    template::JobTemplate,
};
