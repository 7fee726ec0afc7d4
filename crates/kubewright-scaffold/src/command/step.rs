//! Commands as values, which can be recorded and repeated.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{ApiError, CreateApi, CreateWebhook, Edit, EditError, Init, InitError, WebhookError};
use crate::{
    plan::Plan,
    project::{LAYOUT, Project},
};

/// A scaffolding command with its arguments.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Step {
    /// `kubewright init`.
    Init(Init),
    /// `kubewright create api`.
    CreateApi(Box<CreateApi>),
    /// `kubewright create webhook`.
    CreateWebhook(Box<CreateWebhook>),
    /// `kubewright edit`.
    Edit(Edit),
}

/// A failure to run a command.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StepError {
    /// `kubewright init` failed.
    #[error(transparent)]
    Init(#[from] InitError),
    /// `kubewright create api` failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// `kubewright create webhook` failed.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// `kubewright edit` failed.
    #[error(transparent)]
    Edit(#[from] EditError),
}

impl Step {
    /// Plans the changes of files, including `PROJECT`; [`record::plan`](crate::record::plan) also records the command.
    ///
    /// # Errors
    /// Returns an error if the command is invalid for the project.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), StepError> {
        match self {
            Self::Init(init) => init.plan(plan)?,
            Self::CreateApi(api) => api.plan(project, plan)?,
            Self::CreateWebhook(webhook) => webhook.plan(project, plan)?,
            Self::Edit(edit) => edit.plan(project, plan)?,
        }
        Ok(())
    }

    /// Returns whether this creates a project for other plugins only.
    pub(crate) fn is_for_others(&self) -> bool {
        matches!(self, Self::Init(init) if !init.layout.iter().any(|layout| layout == LAYOUT))
    }

    /// Returns the command as typed, without flags.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Init(_) => "init",
            Self::CreateApi(_) => "create api",
            Self::CreateWebhook(_) => "create webhook",
            Self::Edit(_) => "edit",
        }
    }
}
