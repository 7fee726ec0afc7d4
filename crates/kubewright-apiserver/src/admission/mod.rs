//! Admission by webhooks
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>).
//!
//! Mutating webhooks are called one after the other and may change the object; validating ones are called all at once and
//! may only refuse the request. The strategies of the configurations keep the list of [`Webhooks`]; this module doesn't
//! know those objects. A request that matches no webhook costs one look at that list.
//!
//! Webhooks are called without any lock held. The caller makes sure that the object is unchanged afterwards.

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
