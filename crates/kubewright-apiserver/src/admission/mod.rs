//! Admission: what webhooks say about a request before it is done
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>).
//!
//! Mutating webhooks are asked one after the other and may change the object; validating ones are asked all at once and
//! may only refuse. Which webhooks there are, the registry's entries tell the [`Admission`] list; here nothing is known
//! of the objects they come from. A request that no webhook wants costs one look at that list.
//!
//! Webhooks are asked without any lock held. Whoever asks must see to it that the object is still the same afterwards.

mod answer;
mod dispatch;
mod rule;
mod webhook;

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{auth::UserInfo, registry::Resource, server::Inner};

pub(crate) use self::{dispatch::Review, webhook::Webhook};

/// When a webhook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before an object is checked: it may be changed.
    Mutating,
    /// After all changes and checks.
    Validating,
}

/// What is to be done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A request, as webhooks are told of it.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) operation: Operation,
    pub(crate) resource: Arc<Resource>,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// The `(group, version, kind)` of what a subresource exchanges; `None` when it is the object itself.
    pub(crate) exchanges: Option<(String, String, String)>,
    /// Empty for objects without a namespace.
    pub(crate) namespace: String,
    /// Empty if it is yet to be generated.
    pub(crate) name: String,
    /// The options of the request, as an object.
    pub(crate) options: Value,
    pub(crate) dry_run: bool,
    pub(crate) user: UserInfo,
    /// Where warnings go that come with a refusal.
    pub(crate) warnings: Warnings,
}

/// Warnings that are told in more than one place.
pub(crate) type Warnings = Arc<Mutex<Vec<String>>>;

/// Where objects are put that are namespaces: their own labels count for namespace selectors.
pub(crate) const NAMESPACES: &str = "/namespaces";

/// The webhooks of one configuration, in their order.
#[derive(Clone, Debug)]
struct Group {
    phase: Phase,
    configuration: Arc<str>,
    webhooks: Arc<[Arc<Webhook>]>,
}

/// All webhooks, ready to be asked, in the order of their configurations' names.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    groups: ArcSwap<Vec<Group>>,
}

impl Admission {
    /// Puts these webhooks in the place of all that the configuration of this name had; none remove it.
    pub(crate) fn replace(&self, phase: Phase, configuration: &str, webhooks: Vec<Webhook>) {
        let webhooks: Arc<[_]> = webhooks.into_iter().map(Arc::new).collect();
        self.groups.rcu(|present| {
            let others = present.iter().filter(|group| group.phase != phase || &*group.configuration != configuration);
            let mut next: Vec<_> = others.cloned().collect();
            if !webhooks.is_empty() {
                next.push(Group { phase, configuration: configuration.into(), webhooks: webhooks.clone() });
                next.sort_by(|one, other| one.configuration.cmp(&other.configuration));
            }
            next
        });
    }

    /// Whether any webhook could want a request about this resource: false is the answer of a cluster without webhooks.
    pub(crate) fn concerns(&self, resource: &Resource) -> bool {
        !self.groups.load().is_empty() && resource.strategy.is_admitted()
    }

    /// Those whose rules want a request; `None` if there are none.
    pub(crate) fn review(&self, server: &Arc<Inner>, attributes: Attributes) -> Option<Review> {
        let groups = self.groups.load();
        let faces: Vec<_> = server.registry.all().iter().cloned().collect();
        let wanted = |phase| {
            let webhooks = groups.iter().filter(move |group| group.phase == phase).flat_map(|group| &*group.webhooks);
            let wanted = webhooks.filter_map(|webhook| rule::matches(webhook, &attributes, &faces));
            wanted.collect::<Vec<_>>()
        };
        let (mutating, validating) = (wanted(Phase::Mutating), wanted(Phase::Validating));
        if mutating.is_empty() && validating.is_empty() {
            return None;
        }
        Some(Review::new(server.clone(), attributes, mutating, validating))
    }
}
