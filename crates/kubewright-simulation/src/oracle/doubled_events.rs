//! Equal events within a short time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kubewright_cluster::faults::{ApiRequest, Verb};
use serde_json::Value;

use super::{Answer, Oracle, Seen};
use crate::{
    history::{Request, path},
    world::World,
};

/// How much later an equal event counts as another occurrence.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// Finds events of type `Normal` that are recorded again within ten seconds, with the same object, reason and note, in
/// a run without faults. A process that dies after it has recorded an event may record it again, and what was done for
/// one spec may be done for the next.
#[derive(Default)]
pub(super) struct DoubledEvents {
    /// The events, by name.
    recorded: BTreeMap<String, Recorded>,
}

struct Recorded {
    at: Timestamp,
    about: String,
    /// The UID of the object that it is about, and its generation then.
    object: String,
    generation: Option<i64>,
}

impl Recorded {
    /// Returns whether an equal event at this time, about this generation, repeats this one.
    fn is_repeated_by(&self, at: Timestamp, generation: Option<i64>) -> bool {
        at.duration_since(self.at) <= AGAIN && self.generation == generation
    }
}

fn generation(uid: &str, world: &World) -> Option<i64> {
    world.all().find(|object| object["metadata"]["uid"] == uid)?["metadata"]["generation"].as_i64()
}

impl Oracle for DoubledEvents {
    fn name(&self) -> &'static str {
        "doubled-events"
    }

    fn request(&mut self, request: &Request, seen: &Seen<'_>) -> Vec<String> {
        let Some(body) = request.body.as_ref().filter(|_| request.resource == "events") else { return Vec::new() };
        let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let part = |field: &str| body[field].as_str().unwrap_or_default();
        if request.verb == "create" && part("type") == "Normal" {
            let Some(at) = time(&body["eventTime"]) else { return Vec::new() };
            let about = format!(
                "{} {}: {}: {}",
                body["regarding"]["kind"],
                body["regarding"]["name"],
                part("reason"),
                part("note")
            );
            let object = body["regarding"]["uid"].as_str().unwrap_or_default().to_owned();
            let generation = generation(&object, seen.world);
            let is_same = |earlier: &&Recorded| earlier.about == about && earlier.is_repeated_by(at, generation);
            let found = self.recorded.values().find(is_same).map(|_| message(&about));
            self.recorded.insert(request.object.clone(), Recorded { at, about, object, generation });
            return found.into_iter().collect();
        }
        // A repetition is added to the event that there is.
        match (self.recorded.get_mut(&request.object), time(&body["series"]["lastObservedTime"])) {
            (Some(earlier), Some(last)) => {
                let generation = generation(&earlier.object, seen.world);
                let found = earlier.is_repeated_by(last, generation).then(|| message(&earlier.about));
                (earlier.at, earlier.generation) = (last, generation);
                found.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Forgets an event that isn't recorded, since its name is taken: the operator sends it again under another one.
    fn executed(&mut self, request: &ApiRequest, answer: Answer, _: &Seen<'_>) -> Vec<String> {
        if request.verb == Verb::Create && request.resource == "events" && answer.code == 409 {
            self.recorded.remove(&path(request.namespace.as_deref(), request.name.as_deref()));
        }
        Vec::new()
    }
}

fn message(about: &str) -> String {
    format!("an event is recorded twice within ten seconds: {}", about.replace('"', ""))
}
