//! What each command may do and plans: options in, a [plan](crate::plan::Plan) and what `PROJECT` says after it out.

mod api;
mod edit;
mod head;
mod init;
mod place;
mod texts;
mod webhook;

pub use self::{
    api::{ApiError, CreateApi, External},
    edit::{Edit, EditError},
    head::License,
    init::{Init, InitError, unexpected},
    webhook::{CreateWebhook, WebhookError},
};
