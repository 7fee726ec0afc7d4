//! The building blocks of validation, in Kubernetes' wording and order.
//!
//! A validation is a function of a part of an object and its [`Path`], named like its counterpart in Kubernetes, which
//! adds its causes to [`Errors`]. It runs after defaulting, on objects whose fields have the right types.

mod condition;
mod errors;
mod meta;
mod path;
mod shown;
mod text;
mod value;

pub(super) use self::{
    condition::validate_conditions, errors::Errors, meta::*, path::Path, shown::Shown, text::*, value::*,
};
pub(super) use kubewright_apimachinery::quantity::Quantity;
