//! What a webhook knows of a request besides the object.

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::UserInfo;
use kubewright_apimachinery::clock::SharedClock;

use super::Operation;
use crate::object::KindName;

/// The request that a webhook is asked about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// What is to be done. Never `Connect`.
    pub operation: Operation,
    /// Who wants it.
    pub user: UserInfo,
    /// Whether nothing is stored in any case, so that nothing must be done outside of the object either.
    pub dry_run: bool,
    /// The object's namespace; none for a cluster-scoped one.
    pub namespace: Option<String>,
    /// The object's name; empty while the API server is still to make one up.
    pub name: String,
    /// The subresource, if it is one.
    pub subresource: Option<String>,
    /// The kind that was asked for, which the API server may have converted.
    pub requested: KindName,
    pub(crate) clock: SharedClock,
}

impl Request {
    /// The time. Always ask here, so that a simulation can set it.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The source of time itself, to hand on.
    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// A request as a user of the name `tester` would make it, not as a dry run: for tests of defaulters and validators.
    pub fn of_test(
        operation: Operation,
        kind: KindName,
        namespace: Option<&str>,
        name: &str,
        clock: SharedClock,
    ) -> Self {
        Self {
            operation,
            user: UserInfo { username: Some("tester".into()), ..UserInfo::default() },
            dry_run: false,
            namespace: namespace.map(Into::into),
            name: name.into(),
            subresource: None,
            requested: kind,
            clock,
        }
    }
}
