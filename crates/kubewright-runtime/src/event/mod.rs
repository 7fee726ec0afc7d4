//! Events about objects, as `kubectl describe` shows them.
//!
//! They are written to `events.k8s.io/v1`. Recording never waits and never fails: events are best effort by definition
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>), and nothing may depend on them.

mod correlator;
mod recorder;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::ObjectReference;

pub(crate) use self::recorder::LateQueue;
pub use self::recorder::{Broadcaster, Recorder};

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Information: something happened as expected.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// Returns the value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event about an object, for [`Context::record`](crate::context::Context::record),
/// [`Context::record_about`](crate::context::Context::record_about) or [`Recorder::record`].
///
/// ```
/// # use k8s_openapi::api::core::v1::{Node, Service};
/// # use kube::Resource;
/// # use kubewright_runtime::{context::Context, event::Event};
/// # fn example(ctx: &Context<Node>, service: &Service) {
/// ctx.record(Event::warning("PortTaken", "another service has port 31000").action("Create").related(service.object_ref(&())));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its type.
    pub type_: EventType,
    /// The reason: one CamelCase word of at most 128 bytes.
    pub reason: String,
    /// The action that the controller took or tried: one CamelCase word of at most 128 bytes.
    pub action: String,
    /// The message for users. It is cut after 1,024 bytes.
    pub note: String,
    /// Another object that is involved.
    pub related: Option<ObjectReference>,
}

impl Event {
    /// Creates a `Normal` event, whose action is its reason unless [`action`](Self::action) sets another.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(EventType::Normal, reason.into(), note.into())
    }

    /// Creates a `Warning` event, whose action is its reason unless [`action`](Self::action) sets another.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(EventType::Warning, reason.into(), note.into())
    }

    fn new(type_: EventType, reason: String, note: String) -> Self {
        Self { type_, action: reason.clone(), reason, note, related: None }
    }

    /// Sets the action that the controller took or tried.
    #[must_use]
    pub fn action(self, action: impl Into<String>) -> Self {
        Self { action: action.into(), ..self }
    }

    /// Sets another object that is involved.
    #[must_use]
    pub fn related(self, related: ObjectReference) -> Self {
        Self { related: Some(related), ..self }
    }
}
