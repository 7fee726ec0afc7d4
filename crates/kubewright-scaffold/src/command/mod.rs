//! The commands: each checks its options, and adds its changes and the new `PROJECT` to a [plan](crate::plan::Plan).

mod api;
mod edit;
mod external_api;
mod header;
mod init;
mod kind_paths;
mod step;
mod templates;
mod webhook;

pub use self::{
    api::{ApiError, CreateApi},
    edit::{Edit, EditError},
    external_api::ExternalApi,
    header::License,
    init::{Init, InitError, unexpected},
    step::{Step, StepError},
    webhook::{CreateWebhook, WebhookError},
};
