//! Authentication and authorization of requests.
//!
//! An [`Authenticator`] maps the credentials of a request to a [`UserInfo`]. A user with the permission may act as
//! another user ([`impersonation`]). An [`Authorization`] decides by the roles bound to the user ([`crate::rbac`])
//! whether the request is allowed, and records it.

pub(crate) mod attributes;
pub(crate) mod authenticator;
pub(crate) mod authorization;
mod client_certificate;
pub(crate) mod impersonation;
pub(crate) mod requester;
mod secret_token;
pub(crate) mod service_account;
pub(crate) mod token;
pub(crate) mod user;

pub use self::{
    attributes::Attributes, authenticator::TokenReviewer, requester::Requester, token::DEFAULT_ISSUER, user::UserInfo,
};
pub(crate) use self::{
    authenticator::{Anonymous, Authenticator, Identified, InvalidCertificate},
    authorization::Authorization,
    client_certificate::ClientCertificates,
    impersonation::impersonate,
    secret_token::LAST_USED,
    service_account::SECRETS,
    token::Issuer,
    user::service_account_name,
};
