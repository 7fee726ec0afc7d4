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
    /// The operation. `Connect` only in an [`AdmissionHandler`](super::AdmissionHandler).
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
    /// The kind of the object, which for a subresource is that of its body, such as `PodExecOptions`. `plural` is the
    /// resource.
    pub kind: KindName,
    /// The kind of the request, which the API server may have converted.
    pub requested: KindName,
    /// The options of the write, such as a `CreateOptions` with its `fieldManager`, or the `propagationPolicy` of a
    /// `DeleteOptions`; null without options.
    pub options: Value,
    pub(crate) object: Arc<Value>,
    pub(crate) old: Arc<Value>,
    pub(crate) clock: SharedClock,
}

impl Request {
    /// Returns the time. Use it instead of the system's, so that simulations can set it.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the object of the write, or the body of a subresource. `None` for a deletion, and if `K` can't represent
    /// it. A defaulter or validator gets the object itself.
    pub fn object<K: DeserializeOwned>(&self) -> Option<K> {
        K::deserialize(self.object.as_ref()).ok()
    }

    /// Returns the object before the write. `None` for a creation, and if `K` can't represent the stored object, which
    /// may be older than the type.
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
            kind: kind.clone(),
            requested: kind,
            object: Arc::default(),
            options: Value::Null,
            old: Arc::default(),
            clock,
        }
    }
}
