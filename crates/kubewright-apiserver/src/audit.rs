//! Which requests each user made, and whether they were allowed: for tests of how much of its rights a user needs.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::auth::{attributes::Attributes, user::UserInfo};

/// The most users that are remembered.
const MAX_USERS: usize = 1_000;
/// The most different requests of one user that are remembered, of those allowed and of those denied.
const MAX_REQUESTS: usize = 1_000;
/// The most different requests of all users together.
const MAX_ENTRIES: usize = 20_000;
/// Longer names can't be those of anything that exists; they are cut.
const MAX_NAME: usize = 253;

/// The requests of a user, each with how often it was made.
///
/// Objects' names are left out, and of paths that aren't a resource's all but the first segment: `/openapi/*`.
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

/// The usage of all users but those who may do everything, in bounded memory: where it is full, the users that have
/// made no request for the longest time are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    users: BTreeMap<String, Recorded>,
    /// The sum of all users' entries.
    entries: usize,
    /// Counts requests, to tell which user was seen last.
    clock: u64,
}

#[derive(Debug, Default)]
struct Recorded {
    usage: Usage,
    last_seen: u64,
}

impl Audit {
    pub(crate) fn record(&self, user: &UserInfo, attributes: &Attributes, allowed: bool) {
        if user.is_master() {
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

    /// The requests of this user so far.
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

/// A request without what makes each one different: the object's name, and the rest of a path.
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
        let audit = Audit::default();
        for user in 0..30 {
            let user = UserInfo::new(format!("user-{user}"), ["staff"]);
            for resource in 0..1_100 {
                let attributes = Attributes { resource: format!("r{resource}"), ..Attributes::default() };
                audit.record(&user, &attributes, false);
            }
        }
        let state = audit.0.lock();
        assert_eq!(state.entries, state.users.values().map(|recorded| recorded.usage.len()).sum::<usize>());
        assert!(state.entries <= MAX_ENTRIES && state.users.contains_key("user-29"), "{}", state.entries);
        assert!(!state.users.contains_key("user-0"), "the one seen least lately is forgotten");
    }
}
