//! Events: what `kubectl describe` shows about an object, beside its status.
//!
//! They are written to `events.k8s.io/v1`. Recording never waits and never fails: events are best effort by definition
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/>), and nothing may depend on them.

mod correlator;
mod recorder;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::ObjectReference;

pub use self::recorder::{Broadcaster, Recorder};

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Something happened as it should.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something to tell about an object, by [`Context::record`](crate::context::Context::record) or [`Recorder::record`].
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
    /// Whether it is good news.
    pub type_: EventType,
    /// Why: one CamelCase word, at most 128 bytes.
    pub reason: String,
    /// What the controller did or tried: one CamelCase word, at most 128 bytes.
    pub action: String,
    /// The sentence for people. Beyond 1,024 bytes it is cut.
    pub note: String,
    /// Another object that has a part in it.
    pub related: Option<ObjectReference>,
}

impl Event {
    /// A `Normal` event, whose action is its reason until [`action`](Self::action) says otherwise.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(EventType::Normal, reason.into(), note.into())
    }

    /// A `Warning` event, whose action is its reason until [`action`](Self::action) says otherwise.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(EventType::Warning, reason.into(), note.into())
    }

    fn new(type_: EventType, reason: String, note: String) -> Self {
        Self { type_, action: reason.clone(), reason, note, related: None }
    }

    /// What the controller did or tried.
    #[must_use]
    pub fn action(self, action: impl Into<String>) -> Self {
        Self { action: action.into(), ..self }
    }

    /// Names another object that has a part in it.
    #[must_use]
    pub fn related(self, related: ObjectReference) -> Self {
        Self { related: Some(related), ..self }
    }
}
