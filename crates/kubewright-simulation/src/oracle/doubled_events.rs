//! Events that tell the same twice.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Oracle, Seen};
use crate::history::Request;

/// How much later an equal event counts as another occurrence.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// Finds events of type `Normal` that are recorded again within ten seconds, with the same object, reason and note, in a run without faults. A
/// process that dies after it has recorded an event may record it again.
#[derive(Default)]
pub(super) struct DoubledEvents {
    /// The time of each event and what it is about, by the name of its object.
    recorded: BTreeMap<String, (Timestamp, String)>,
}

impl Oracle for DoubledEvents {
    fn name(&self) -> &'static str {
        "doubled-events"
    }

    fn request(&mut self, request: &Request, _: &Seen<'_>) -> Vec<String> {
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
            let is_same =
                |(earlier, other): &&(Timestamp, String)| *other == about && at.duration_since(*earlier) <= AGAIN;
            let found = self.recorded.values().find(is_same).map(|_| told(&about));
            self.recorded.insert(request.object.clone(), (at, about));
            return found.into_iter().collect();
        }
        // A repetition is added to the event that there is.
        match (self.recorded.get(&request.object), time(&body["series"]["lastObservedTime"])) {
            (Some((first, about)), Some(last)) if last.duration_since(*first) <= AGAIN => vec![told(about)],
            _ => Vec::new(),
        }
    }
}

fn told(about: &str) -> String {
    format!("an event is recorded twice within ten seconds: {}", about.replace('"', ""))
}
