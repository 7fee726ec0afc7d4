//! Admission by webhooks
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>).
//!
//! Mutating webhooks are called one after the other and may change the object. Validating webhooks are called
//! concurrently and may only deny the request. The strategies of the webhook configurations maintain the list of
//! [`Webhooks`]; this module doesn't know those objects. A request that matches no webhook costs one lookup in that
//! list.
//!
//! No lock is held while webhooks are called. The caller ensures that the object is unchanged afterwards.

mod attributes;
mod matching;
mod response;
mod review;
mod rule;
mod webhook;
mod webhooks;

pub(crate) use self::{
    attributes::{Attributes, NAMESPACES, Operation, Warnings},
    review::Review,
    webhook::Webhook,
    webhooks::{Phase, Webhooks},
};
