//! The commands: each checks its options, and adds its changes and the new `PROJECT` to a [plan](crate::plan::Plan).

mod api;
mod edit;
mod external_api;
mod grafana;
mod header;
mod init;
mod kind_paths;
mod step;
mod templates;
mod webhook;

pub(crate) use self::{api::DEPLOY_IMAGE, grafana::KEY as GRAFANA};
pub use self::{
    api::{ApiError, CreateApi, DeployImage},
    edit::{Edit, EditError},
    external_api::ExternalApi,
    grafana::GrafanaError,
    header::License,
    init::{Init, InitError, unexpected},
    step::{Step, StepError},
    webhook::{CreateWebhook, WebhookError},
};
