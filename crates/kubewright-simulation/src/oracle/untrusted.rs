//! Certificates of webhooks that aren't trusted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::{Change, ChangeKind, ServerTrust};
use kubewright_cluster::faults::ApiRequest;
use serde_json::Value;

use super::{Answer, Oracle, Seen};
use crate::{
    certificates::{Certificates, Served},
    history::Request,
    world::text,
};

/// The kinds whose objects have client configurations.
const KINDS: [&str; 3] = ["CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
/// How often a certificate is verified again if nothing has changed, in seconds of the clock.
const AGAIN: i64 = 3600;

/// A client configuration, by the kind and name of its object and its position there.
type Place = (String, String, usize);

/// Finds a process whose certificate a client configuration doesn't trust, though it has trusted one before: from then
/// on, calls must succeed, whichever process is called. It looks at each change and each request of the operator, since
/// no call may happen in the moment in which one would fail.
///
/// A certificate that isn't valid yet doesn't count, since only a clock that goes back makes it so. What happens until
/// there is a trusted certificate again doesn't count either.
pub(super) struct Untrusted {
    served: Served,
    clock: SharedClock,
    configured: BTreeMap<Place, ServerTrust>,
    trusting: BTreeSet<Place>,
    /// What was verified last, and when.
    verified: (Certificates, Timestamp),
}

impl Untrusted {
    pub(super) fn new(served: Served, clock: SharedClock) -> Self {
        let (configured, trusting) = (BTreeMap::new(), BTreeSet::new());
        Self { served, clock, configured, trusting, verified: (Vec::new(), Timestamp::UNIX_EPOCH) }
    }

    /// Verifies the certificates if there are others, or if time has passed.
    fn look(&mut self) -> Vec<String> {
        let (served, now) = ((self.served)(), self.clock.now());
        if served == self.verified.0 && (now.as_second() - self.verified.1.as_second()).abs() < AGAIN {
            return Vec::new();
        }
        self.verified = (served, now);
        self.verify()
    }

    fn verify(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        for (place, trust) in &self.configured {
            let verified = self.verified.0.iter().map(|(process, chain)| (process, trust.verify(chain)));
            let (trusted, refused): (Vec<_>, Vec<_>) = verified.partition(|(_, verified)| verified.is_ok());
            if !trusted.is_empty() {
                self.trusting.insert(place.clone());
            }
            for (process, why) in refused.into_iter().filter_map(|(process, why)| Some((process, why.err()?))) {
                // In the words of Go's client.
                if why.contains("not yet valid: current time") && why.contains(" is before ") {
                    self.trusting.remove(place);
                } else if self.trusting.contains(place) {
                    let (kind, name, _) = place;
                    found.push(format!("the certificate of process {process} isn't trusted by {kind} {name}: {why}"));
                }
            }
        }
        found
    }
}

impl Oracle for Untrusted {
    fn name(&self) -> &'static str {
        "untrusted"
    }

    fn request(&mut self, _: &Request, _: &Seen<'_>) -> Vec<String> {
        self.look()
    }

    fn executed(&mut self, _: &ApiRequest, _: Answer, _: &Seen<'_>) -> Vec<String> {
        self.look()
    }

    fn change(&mut self, change: &Change, _: &Seen<'_>) -> Vec<String> {
        let kind = &*change.resource.kind;
        if !KINDS.contains(&kind) {
            return Vec::new();
        }
        // What was served until now was to be trusted by the configuration before.
        let mut found = self.look();
        let name = text(change.object(), "name");
        self.configured.retain(|place, _| (place.0.as_str(), place.1.as_str()) != (kind, name));
        if change.kind != ChangeKind::Deleted {
            for (nth, client) in clients(change.object()).enumerate() {
                let place = (kind.to_owned(), name.to_owned(), nth);
                self.configured.insert(place, ServerTrust::of(client, &self.clock));
            }
        }
        found.extend(self.verify());
        found
    }

    fn at_rest(&mut self, _: &Seen<'_>) -> Vec<String> {
        self.look()
    }
}

/// Returns the client configurations of an object.
fn clients(object: &Value) -> impl Iterator<Item = &Value> {
    let webhooks = object["webhooks"].as_array().into_iter().flatten().map(|webhook| &webhook["clientConfig"]);
    let conversion = &object["spec"]["conversion"]["webhook"]["clientConfig"];
    webhooks.chain(conversion.is_object().then_some(conversion))
}
