//! Authentication and authorization of requests.
//!
//! An [`Authenticator`] turns the credentials of a request into a [`UserInfo`], which may act as another user where its
//! rights allow it ([`impersonation`]). An [`Authorization`] decides by the roles bound to the user
//! ([`crate::rbac`]) whether the request is allowed, and records it.

pub(crate) mod attributes;
pub(crate) mod authenticator;
pub(crate) mod authorization;
pub(crate) mod impersonation;
pub(crate) mod requester;
pub(crate) mod service_account;
pub(crate) mod token;
pub(crate) mod user;

pub use self::{attributes::Attributes, requester::Requester, user::UserInfo};
pub(crate) use self::{
    authenticator::Authenticator, authorization::Authorization, impersonation::impersonate, user::service_account_name,
};
