//! What each command may do and plans: options in, a [plan](crate::plan::Plan) and what `PROJECT` says after it out.

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
