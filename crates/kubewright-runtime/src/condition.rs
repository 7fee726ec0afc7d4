//! Status conditions: the observations of a controller in the standard form that `kubectl wait` reads.
//!
//! See
//! <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties>.
//! `lastTransitionTime` changes only with `status`, so setting the same observation twice changes nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The maximum length of a reason in the API, in bytes.
const MAX_REASON: usize = 1024;
/// The maximum length of a message in the API. Longer messages are truncated.
const MAX_MESSAGE: usize = 32768;

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition doesn't hold.
    False,
    /// The controller can't determine whether the condition holds.
    Unknown,
}

impl ConditionStatus {
    /// The value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets conditions of a status, all observed at the same time and generation of the spec.
///
/// ```
/// # use kubewright_runtime::condition::{self, Conditions};
/// # let (mut status_conditions, generation, now) = (Vec::new(), Some(3), "2020-01-30T10:02:00Z".parse().unwrap());
/// let mut conditions = Conditions::new(&mut status_conditions, generation, now);
/// conditions.set("Ready", false, "PodsStarting", "2 of 3 pods are ready");
/// assert!(!condition::is_true(&status_conditions, "Ready"));
/// ```
#[derive(Debug)]
pub struct Conditions<'a> {
    conditions: &'a mut Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl<'a> Conditions<'a> {
    /// Changes these conditions of a status that is about to be written. They must start as a copy of the stored ones.
    /// `generation` is the `metadata.generation` of the object that was reconciled.
    pub fn new(conditions: &'a mut Vec<Condition>, generation: Option<i64>, now: Timestamp) -> Self {
        // The API keeps whole seconds. A finer time would differ from the stored one and cause a write in each
        // reconcile.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Self { conditions, generation, now }
    }

    /// Sets a condition. Returns whether its status changed, for example to record an event then.
    ///
    /// Conditions are sorted: `Ready` first, the others by type. `reason` is one CamelCase word for programs, `message`
    /// a sentence for people. Neither may contain values that change without the state, such as the current time: each
    /// change is a write.
    pub fn set(&mut self, type_: &str, status: impl Into<ConditionStatus>, reason: &str, message: &str) -> bool {
        debug_assert!(is_type(type_), "{type_:?} is not a condition type");
        debug_assert!(is_reason(reason), "{reason:?} is not a condition reason");
        let status = status.into().as_str();
        let before = self.conditions.iter().position(|condition| condition.type_ == type_);
        let before = before.map(|position| self.conditions.remove(position));
        let changed = before.as_ref().is_none_or(|before| before.status != status);
        self.conditions.push(Condition {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.chars().take(MAX_MESSAGE).collect(),
            observed_generation: self.generation,
            last_transition_time: before.filter(|_| !changed).map_or(Time(self.now), |it| it.last_transition_time),
        });
        self.conditions.sort_by(|a, b| rank(a).cmp(&rank(b)));
        changed
    }

    /// Removes a condition. Returns whether it existed.
    pub fn remove(&mut self, type_: &str) -> bool {
        let before = self.conditions.len();
        self.conditions.retain(|condition| condition.type_ != type_);
        self.conditions.len() != before
    }
}

/// Returns the condition of this type.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns whether the condition of this type exists and has the status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|condition| condition.status == "True")
}

fn rank(condition: &Condition) -> (bool, &str) {
    (condition.type_ != "Ready", &condition.type_)
}

/// Returns whether a type is a qualified name: letters, digits, `-`, `_`, `.`, optionally after a DNS prefix and `/`.
fn is_type(type_: &str) -> bool {
    let name = type_.rsplit_once('/').map_or(type_, |(_, name)| name);
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(name.chars().next())
        && edge(name.chars().last())
        && type_.len() <= 316
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Returns whether a reason is a CamelCase word, which may contain `_`, `,` and `:`.
fn is_reason(reason: &str) -> bool {
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && reason.len() <= MAX_REASON
        && reason.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_same_observation_later_changes_nothing() {
        let mut stored = Vec::new();
        assert!(Conditions::new(&mut stored, Some(1), at(10)).set("Ready", true, "Up", "all up"));
        let before = stored.clone();
        assert!(!Conditions::new(&mut stored, Some(1), at(99)).set("Ready", true, "Up", "all up"));
        assert_eq!(stored, before);
    }

    #[test]
    fn transition_time_follows_status_alone() {
        let mut stored = Vec::new();
        Conditions::new(&mut stored, Some(1), at(10)).set("Ready", false, "Starting", "0 of 1");
        assert!(!Conditions::new(&mut stored, Some(2), at(20)).set("Ready", false, "Broken", "no image"));
        assert_eq!(stored[0].last_transition_time, Time(at(10)));
        assert_eq!((stored[0].reason.as_str(), stored[0].observed_generation), ("Broken", Some(2)));
        assert!(Conditions::new(&mut stored, Some(2), at(30)).set("Ready", ConditionStatus::Unknown, "Lost", ""));
        assert_eq!(stored[0].last_transition_time, Time(at(30)));
    }

    #[test]
    fn times_have_whole_seconds() {
        let mut stored = Vec::new();
        let now = "2020-01-30T10:02:00.987654321Z".parse().unwrap();
        Conditions::new(&mut stored, None, now).set("Ready", true, "Up", "");
        let wire = serde_json::to_value(&stored[0]).unwrap();
        assert_eq!(serde_json::from_value::<Condition>(wire).unwrap(), stored[0]);
    }

    #[test]
    fn conditions_are_sorted() {
        let mut stored = Vec::new();
        let mut conditions = Conditions::new(&mut stored, None, at(1));
        for type_ in ["Scheduled", "Complete", "Ready", "Failed"] {
            conditions.set(type_, true, "Because", "");
        }
        assert!(conditions.remove("Failed"));
        assert!(!conditions.remove("Failed"));
        let types: Vec<_> = stored.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(types, ["Ready", "Complete", "Scheduled"]);
        assert!(is_true(&stored, "Complete") && !is_true(&stored, "Failed"));
    }

    #[test]
    fn a_long_message_is_truncated_at_a_character() {
        let mut stored = Vec::new();
        Conditions::new(&mut stored, None, at(1)).set("Ready", false, "Refused", &"ß".repeat(40_000));
        assert_eq!(stored[0].message.chars().count(), MAX_MESSAGE);
    }

    #[test]
    fn types_and_reasons_are_checked() {
        for (reason, valid) in
            [("PodRunning", true), ("A", true), ("Exit_1", true), ("", false), ("two words", false), ("1st", false)]
        {
            assert_eq!(is_reason(reason), valid, "{reason:?}");
        }
        for (type_, valid) in
            [("Ready", true), ("example.com/Ready", true), ("", false), ("Not ready", false), ("x/", false)]
        {
            assert_eq!(is_type(type_), valid, "{type_:?}");
        }
    }
}
