//! What was asked for, by whom, and whether it was allowed: for those who want to know which rights someone uses.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::auth::{Attempt, UserInfo};

/// How many users, and how many different attempts of each, are remembered. What comes after is not.
const LIMITS: (usize, usize) = (1_000, 1_000);

/// What a user has tried, each with how often. Objects' names are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What was allowed.
    pub allowed: BTreeMap<Attempt, u64>,
    /// What was answered with 403.
    pub denied: BTreeMap<Attempt, u64>,
}

/// The usage of all users but those who may do everything.
#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<BTreeMap<String, Usage>>);

impl Audit {
    pub(crate) fn record(&self, user: &UserInfo, attempt: &Attempt, allowed: bool) {
        if user.is_master() {
            return;
        }
        let attempt = Attempt { name: String::new(), ..attempt.clone() };
        let mut users = self.0.lock();
        if !users.contains_key(&user.name) && users.len() >= LIMITS.0 {
            return;
        }
        let usage = users.entry(user.name.clone()).or_default();
        let seen = if allowed { &mut usage.allowed } else { &mut usage.denied };
        if seen.len() < LIMITS.1 || seen.contains_key(&attempt) {
            *seen.entry(attempt).or_default() += 1;
        }
    }

    /// What this user has tried so far.
    pub(crate) fn of(&self, user: &str) -> Usage {
        self.0.lock().get(user).cloned().unwrap_or_default()
    }
}
