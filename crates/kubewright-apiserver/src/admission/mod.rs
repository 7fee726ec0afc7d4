//! Admission by webhooks (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>)
//! and by policies (<https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>).
//!
//! Mutating webhooks are called one after the other and may change the object. Validating webhooks are called
//! concurrently and may only deny the request. In either phase, policies precede webhooks. The strategies of the
//! configurations and policies maintain the lists of [`Webhooks`] and [`Policies`], in which expressions are compiled;
//! this module doesn't know those objects. A request that matches none costs one lookup in each list.
//!
//! No lock is held while webhooks are called. The caller ensures that the object is unchanged afterwards.

mod attributes;
mod chain;
mod criteria;
mod mutation;
mod params;
mod policies;
mod policy;
mod policy_review;
mod response;
mod review;
mod rule;
mod validation;
mod webhook;
mod webhook_audit;
mod webhooks;

pub(crate) use self::{
    attributes::{Attributes, NAMESPACES, Operation, Warnings},
    chain::Admission,
    policies::Policies,
    policy::{Policy, PolicyBinding},
    review::Review,
    webhook::Webhook,
    webhooks::{Phase, Webhooks},
};
