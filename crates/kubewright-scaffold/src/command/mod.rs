//! The commands: each checks its options, and adds its changes and the new `PROJECT` to a [plan](crate::plan::Plan).

mod api;
mod edit;
mod foreign;
mod head;
mod init;
mod place;
mod step;
mod texts;
mod webhook;

pub use self::{
    api::{ApiError, CreateApi},
    edit::{Edit, EditError},
    foreign::External,
    head::License,
    init::{Init, InitError, unexpected},
    step::{Step, StepError},
    webhook::{CreateWebhook, WebhookError},
};
