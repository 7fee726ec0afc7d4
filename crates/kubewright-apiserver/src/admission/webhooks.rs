//! The webhooks of all configurations.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{attributes::Attributes, webhook::Webhook};
use crate::registry::Resource;

/// The phase of admission in which a webhook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before validation: webhooks may change the object.
    Mutating,
    /// After all changes and the server's own validation.
    Validating,
}

/// A webhook whose rules match a request.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub(super) webhook: Arc<Webhook>,
    /// The name of its configuration.
    pub(super) configuration: Arc<str>,
    /// Its position among all webhooks of its phase.
    pub(super) index: usize,
    /// The version of the resource that the rules name, and in which the object is sent.
    pub(super) resource: Arc<Resource>,
}

/// The webhooks of one configuration, in their order.
#[derive(Clone, Debug)]
struct Configuration {
    phase: Phase,
    name: Arc<str>,
    webhooks: Arc<[Arc<Webhook>]>,
}

/// The webhooks of all configurations, ordered by configuration name.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    configurations: RwLock<Arc<Vec<Configuration>>>,
}

impl Webhooks {
    /// Replaces the webhooks of a configuration. An empty list removes it.
    pub(crate) fn replace(&self, phase: Phase, name: &str, webhooks: Vec<Webhook>) {
        let mut present = self.configurations.write();
        let all = Arc::make_mut(&mut present);
        all.retain(|other| other.phase != phase || &*other.name != name);
        if !webhooks.is_empty() {
            let webhooks = webhooks.into_iter().map(Arc::new).collect();
            all.push(Configuration { phase, name: name.into(), webhooks });
            all.sort_by(|one, other| one.name.cmp(&other.name));
        }
    }

    /// Returns whether any webhook may match a request for this resource. Without webhooks this is a single load.
    pub(super) fn may_match(&self, resource: &Resource) -> bool {
        !self.configurations.read().is_empty() && resource.strategy.is_admitted()
    }

    /// Returns the webhooks of a phase whose rules match a request. `all` contains all served resources.
    pub(super) fn matching(&self, phase: Phase, attributes: &Attributes, all: &[Arc<Resource>]) -> Vec<Match> {
        let configurations = self.configurations.read().clone();
        let of_phase = configurations.iter().filter(|configuration| configuration.phase == phase);
        let webhooks = of_phase
            .flat_map(|configuration| configuration.webhooks.iter().map(|webhook| (&configuration.name, webhook)));
        let matching = |(index, (configuration, webhook)): (usize, (&Arc<str>, &Arc<Webhook>))| {
            let resource = webhook.criteria.find(attributes, all)?;
            Some(Match { webhook: webhook.clone(), configuration: configuration.clone(), index, resource })
        };
        webhooks.enumerate().filter_map(matching).collect()
    }
}
