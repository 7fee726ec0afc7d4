//! The request about which a webhook is called.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::UserInfo;
use kubewright_apimachinery::clock::SharedClock;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Operation;
use crate::object::KindName;

/// The request about which a webhook is called.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The operation. Never `Connect`.
    pub operation: Operation,
    /// The user who made it.
    pub user: UserInfo,
    /// Whether it is a dry run, so that the webhook must not have side effects.
    pub dry_run: bool,
    /// The object's namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The object's name; empty if the API server has yet to generate it.
    pub name: String,
    /// The subresource, if the request is about one.
    pub subresource: Option<String>,
    /// The kind of the request, which the API server may have converted.
    pub requested: KindName,
    /// The options of the write, such as a `CreateOptions` with its `fieldManager`, or the `propagationPolicy` of a `DeleteOptions`;
    /// null without options.
    pub options: Value,
    pub(crate) old: Arc<Value>,
    pub(crate) clock: SharedClock,
}

impl Request {
    /// Returns the time. Use it instead of the system's, so that simulations can set it.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the object before the write. `None` for a creation, and if `K` can't represent the stored object, which may be
    /// older than the type.
    pub fn old_object<K: DeserializeOwned>(&self) -> Option<K> {
        K::deserialize(self.old.as_ref()).ok()
    }

    /// Returns the clock, to pass it on.
    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// Creates a request of the user `tester` that isn't a dry run, for tests of defaulters and validators.
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
