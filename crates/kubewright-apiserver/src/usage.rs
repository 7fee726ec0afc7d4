//! Records the allowed and denied requests of each user, for tests of the permissions that a user needs.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::auth::{attributes::Attributes, user::UserInfo};

/// The maximum number of users in the record.
const MAX_USERS: usize = 1_000;
/// The maximum number of distinct requests per user, separately for allowed and denied ones.
const MAX_REQUESTS: usize = 1_000;
/// The maximum number of distinct requests of all users together.
const MAX_ENTRIES: usize = 20_000;
/// The maximum length of names. Longer ones can't belong to anything that exists, and are truncated.
const MAX_NAME: usize = 253;

/// The requests of a user, with the number of occurrences of each.
///
/// Object names are omitted, as are all but the first segment of non-resource paths: `/openapi/*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests that were allowed.
    pub allowed: BTreeMap<Attributes, u64>,
    /// Requests that were denied (403).
    pub denied: BTreeMap<Attributes, u64>,
}

impl Usage {
    fn len(&self) -> usize {
        self.allowed.len() + self.denied.len()
    }
}

/// The usage of all users except those with unrestricted access, in bounded memory. If it is full, the least recently
/// active users are removed.
#[derive(Debug, Default)]
pub(crate) struct UsageRecord(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    users: BTreeMap<String, UserUsage>,
    /// The sum of all users' entries.
    entries: usize,
    /// Counts requests, to determine when each user was last active.
    clock: u64,
}

#[derive(Debug, Default)]
struct UserUsage {
    usage: Usage,
    last_seen: u64,
}

impl UsageRecord {
    pub(crate) fn record(&self, user: &UserInfo, attributes: &Attributes, allowed: bool) {
        if user.is_unrestricted() {
            return;
        }
        let attributes = normalized(attributes);
        let mut state = self.0.lock();
        state.clock += 1;
        let clock = state.clock;
        let recorded = state.users.entry(user.name.clone()).or_default();
        recorded.last_seen = clock;
        let seen = if allowed { &mut recorded.usage.allowed } else { &mut recorded.usage.denied };
        if let Some(times) = seen.get_mut(&attributes) {
            *times += 1;
        } else if seen.len() < MAX_REQUESTS {
            seen.insert(attributes, 1);
            state.entries += 1;
        }
        state.shrink();
    }

    /// Returns the requests of this user so far.
    pub(crate) fn of(&self, user: &str) -> Usage {
        self.0.lock().users.get(user).map(|recorded| recorded.usage.clone()).unwrap_or_default()
    }
}

impl State {
    fn shrink(&mut self) {
        while self.users.len() > MAX_USERS || self.entries > MAX_ENTRIES {
            let oldest = self.users.iter().min_by_key(|(_, recorded)| recorded.last_seen);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { return };
            if let Some(forgotten) = self.users.remove(&name) {
                self.entries -= forgotten.usage.len();
            }
        }
    }
}

/// Returns a request without its unique parts: the object's name, or the rest of a path.
fn normalized(attributes: &Attributes) -> Attributes {
    let cut = |text: &str| text[..text.floor_char_boundary(MAX_NAME)].to_owned();
    let mut segments = attributes.path.split('/').filter(|segment| !segment.is_empty());
    let path = match (segments.next(), segments.next()) {
        (None, _) => attributes.path.get(..1).unwrap_or_default().to_owned(),
        (Some(first), None) => format!("/{}", cut(first)),
        (Some(first), Some(_)) => format!("/{}/*", cut(first)),
    };
    Attributes {
        verb: cut(&attributes.verb),
        group: cut(&attributes.group),
        resource: cut(&attributes.resource),
        subresource: cut(&attributes.subresource),
        namespace: cut(&attributes.namespace),
        name: String::new(),
        path,
        fields: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_known_by_their_first_segment() {
        for (path, expect) in [
            ("", ""),
            ("/", "/"),
            ("/metrics", "/metrics"),
            ("/openapi/v3/apis/apps/v1", "/openapi/*"),
            ("//debug//pprof", "/debug/*"),
        ] {
            let attributes = Attributes { path: path.into(), ..Attributes::default() };
            assert_eq!(normalized(&attributes).path, expect, "{path:?}");
        }
        let long = Attributes { path: format!("/{}", "ü".repeat(1_000)), ..Attributes::default() };
        assert!(normalized(&long).path.len() <= MAX_NAME + 1);
    }

    #[test]
    fn the_entries_of_all_users_together_are_bounded() {
        let record = UsageRecord::default();
        for user in 0..30 {
            let user = UserInfo::new(format!("user-{user}"), ["staff"]);
            for resource in 0..1_100 {
                let attributes = Attributes { resource: format!("r{resource}"), ..Attributes::default() };
                record.record(&user, &attributes, false);
            }
        }
        let state = record.0.lock();
        assert_eq!(state.entries, state.users.values().map(|recorded| recorded.usage.len()).sum::<usize>());
        assert!(state.entries <= MAX_ENTRIES && state.users.contains_key("user-29"), "{}", state.entries);
        assert!(!state.users.contains_key("user-0"), "the one seen least lately is forgotten");
    }
}
