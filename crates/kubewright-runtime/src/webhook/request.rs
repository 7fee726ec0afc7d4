//! What a webhook knows of a request besides the object.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::UserInfo;
use kubewright_apimachinery::clock::SharedClock;
use serde::de::DeserializeOwned;
use serde_json::Value;

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
    /// The options of the write, such as a `CreateOptions` with its `fieldManager`, or the `propagationPolicy` of a `DeleteOptions`;
    /// null if none were sent.
    pub options: Value,
    pub(crate) old: Arc<Value>,
    pub(crate) clock: SharedClock,
}

impl Request {
    /// The time. Always ask here, so that a simulation can set it.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The object's state before the write: for a defaulter, or to read it as another type. None for a creation, and if `K` can't
    /// read it, as what is stored may be older than the type.
    pub fn old_object<K: DeserializeOwned>(&self) -> Option<K> {
        K::deserialize(self.old.as_ref()).ok()
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
            options: Value::Null,
            old: Arc::default(),
            clock,
        }
    }
}
