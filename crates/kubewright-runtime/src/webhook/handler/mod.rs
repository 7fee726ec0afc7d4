//! The handlers of reviews: the defaulters and the validators of a kind.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use super::{
    Defaulter, Denied, Operation, Request, ValidationErrors, Validator, patch, response::AdmissionResponse,
    review::Review,
};
use crate::object::{KindName, Object};

/// A handler of reviews, of any kind.
pub(super) trait Handler: Send + Sync {
    fn handle<'a>(&'a self, review: &'a Review) -> BoxFuture<'a, AdmissionResponse>;
}

/// A type-erased [`Defaulter`].
pub(super) trait AnyDefaulter<K>: Send + Sync {
    fn run<'a>(&'a self, object: &'a mut K, request: &'a Request) -> BoxFuture<'a, Result<(), Denied>>;
}

impl<K: Object, D: Defaulter<K>> AnyDefaulter<K> for D {
    fn run<'a>(&'a self, object: &'a mut K, request: &'a Request) -> BoxFuture<'a, Result<(), Denied>> {
        self.set_defaults(object, request).boxed()
    }
}

/// A type-erased [`Validator`].
pub(super) trait AnyValidator<K>: Send + Sync {
    fn run<'a>(
        &'a self,
        change: &'a Change<K>,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<ValidationErrors, Denied>>;
}

impl<K: Object, V: Validator<K>> AnyValidator<K> for V {
    fn run<'a>(
        &'a self,
        change: &'a Change<K>,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<ValidationErrors, Denied>> {
        match change {
            Change::Create(object) => self.validate_create(object, request).boxed(),
            Change::Update(old, new) => self.validate_update(old, new, request).boxed(),
            Change::Delete(object) => self.validate_delete(object, request).boxed(),
        }
    }
}

/// The object of a review, before and after the write.
pub(super) enum Change<K> {
    Create(Box<K>),
    Update(Box<K>, Box<K>),
    Delete(Box<K>),
}

/// The defaulters of a kind.
pub(super) struct Defaulting<K>(pub(super) Vec<Arc<dyn AnyDefaulter<K>>>);

impl<K> Default for Defaulting<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The validators of a kind.
pub(super) struct Validating<K>(pub(super) Vec<Arc<dyn AnyValidator<K>>>);

impl<K> Default for Validating<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Object> Handler for Defaulting<K> {
    fn handle<'a>(&'a self, review: &'a Review) -> BoxFuture<'a, AdmissionResponse> {
        async move {
            if let Some(refusal) = review.unexpected(&KindName::of::<K>()) {
                return AdmissionResponse::denied(refusal);
            }
            if !matches!(review.request.operation, Operation::Create | Operation::Update) {
                return AdmissionResponse::allowed();
            }
            self.defaulted(review).await.unwrap_or_else(|Denied(status)| AdmissionResponse::denied(*status))
        }
        .boxed()
    }
}

impl<K: Object> Defaulting<K> {
    async fn defaulted(&self, review: &Review) -> Result<AdmissionResponse, Denied> {
        let mut object: K = match decode(&review.object) {
            Ok(object) => object,
            // The schema, which the API server checks next, has a better error message.
            Err(status) => {
                return Ok(AdmissionResponse {
                    warnings: vec![format!("no defaults: {status}")],
                    ..AdmissionResponse::allowed()
                });
            }
        };
        let before = serde_json::to_value(&object)?;
        for defaulter in &self.0 {
            defaulter.run(&mut object, &review.request).await?;
        }
        let defaulted = patch::carry_over(&review.object, &before, &serde_json::to_value(&object)?);
        Ok(AdmissionResponse { patch: patch::operations(&review.object, &defaulted), ..AdmissionResponse::allowed() })
    }
}

impl<K: Object> Handler for Validating<K> {
    fn handle<'a>(&'a self, review: &'a Review) -> BoxFuture<'a, AdmissionResponse> {
        async move {
            if let Some(refusal) = review.unexpected(&KindName::of::<K>()) {
                return AdmissionResponse::denied(refusal);
            }
            self.validated(review).await.unwrap_or_else(|Denied(status)| AdmissionResponse::denied(*status))
        }
        .boxed()
    }
}

impl<K: Object> Validating<K> {
    async fn validated(&self, review: &Review) -> Result<AdmissionResponse, Denied> {
        let change = match review.request.operation {
            Operation::Create => Change::Create(decode(&review.object)?),
            Operation::Update => match decode(&review.old_object) {
                Ok(old) => Change::Update(old, decode(&review.object)?),
                // The stored object may be older than the type. It must be possible to correct it.
                Err(_) => Change::Create(decode(&review.object)?),
            },
            Operation::Delete => match decode(&review.old_object) {
                Ok(old) => Change::Delete(old),
                Err(_) => return Ok(AdmissionResponse::allowed()),
            },
            Operation::Connect => return Ok(AdmissionResponse::allowed()),
        };
        let mut errors = ValidationErrors::default();
        for validator in &self.0 {
            errors.merge(validator.run(&change, &review.request).await?);
        }
        let (refusal, warnings) = errors.judge::<K>(&review.request.name);
        Ok(AdmissionResponse { refusal, warnings, patch: None })
    }
}

fn decode<T: serde::de::DeserializeOwned>(object: &Value) -> Result<T, Status> {
    kubewright_packed::from_value(object)
        .map_err(|error| Status::bad_request(format!("the object can't be read: {error}")))
}

#[cfg(test)]
mod tests;
