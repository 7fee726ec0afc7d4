//! A command as a value: what was typed, to be carried out again.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{ApiError, CreateApi, CreateWebhook, Edit, EditError, Init, InitError, WebhookError};
use crate::{
    plan::Plan,
    project::{LAYOUT, Project},
    record::{self, RecordError},
};

/// A command that scaffolds, with all that was said to it.
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

/// Why a command isn't carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StepError {
    /// A project isn't begun.
    #[error(transparent)]
    Init(#[from] InitError),
    /// A kind isn't made.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Webhooks aren't made.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// A project stays as it is.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// What was scaffolded before isn't known any more.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Step {
    /// Plans its files, `PROJECT` being one, and its part of the [record].
    ///
    /// # Errors
    /// If it may not be carried out.
    pub fn carry_out(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), StepError> {
        self.plan(project, plan)?;
        record::note(self, project, plan)?;
        Ok(())
    }

    /// Plans its files, `PROJECT` being one.
    ///
    /// # Errors
    /// If it may not be carried out.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), StepError> {
        match self {
            Self::Init(init) => init.plan(plan)?,
            Self::CreateApi(api) => api.plan(project, plan)?,
            Self::CreateWebhook(webhook) => webhook.plan(project, plan)?,
            Self::Edit(edit) => edit.plan(project, plan)?,
        }
        Ok(())
    }

    /// Whether it begins a project that others scaffold.
    pub(crate) fn is_for_others(&self) -> bool {
        matches!(self, Self::Init(init) if !init.layout.iter().any(|layout| layout == LAYOUT))
    }

    /// As it is typed, without flags.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Init(_) => "init",
            Self::CreateApi(_) => "create api",
            Self::CreateWebhook(_) => "create webhook",
            Self::Edit(_) => "edit",
        }
    }
}
