//! Sharding: replicas divide the keys among themselves, and all of them reconcile.
//!
//! Each replica holds a `Lease` of its own as a **member** of the group, and renews it as a leader does. A replica
//! whose lease is renewed is a current member; rendezvous hashing gives each key to one of the members. A replica that
//! joins takes its share from all the others, and the share of one that leaves falls to all of them; no other key
//! moves.
//!
//! # No key is reconciled by two replicas
//!
//! Replicas see changes of the members at different times, so they don't act on what they see alone. On its lease, each
//! replica **announces** a view (the members that it has seen), and by that *claims* the keys that this view gives to
//! it. It also announces the other keys that it is still **busy** with, and claims these as well. The rules are:
//!
//! 1. A replica begins runs of a key only if it has announced a view that gives it the key, and if then, in a list of
//!    the leases that it requested after it knew the announcement to be stored, no other replica's announcement claims
//!    the key.
//! 2. Once a replica sees other members than it has announced, it begins no more runs of the keys that it has to give
//!    up. Then it announces the new view and the keys that it is busy with; and when their runs have ended, it
//!    announces that. So no run is interrupted, and others wait only for keys with current runs.
//! 3. A replica stops all runs at once, and ends, when it could not renew its lease for `renew_deadline`.
//! 4. A replica disregards another one's lease only when that was released, or when it did not change for
//!    `lease_duration`, which is longer than `renew_deadline`, from the first list that showed its state until before
//!    the request for the last one. Each replica measures durations by its own monotonic clock, and none uses another
//!    one's wall clock.
//!
//! The proof: by rule 2, the keys with runs of a member are always among those that its stored announcement claims. Let
//! A and B both have a run of one key, and let B have begun later. Before it began, B read A's lease, which didn't
//! claim the key. If A had a run at that time, this contradicts rule 2. If not, A stored the view that gives it the key
//! after B's list, so after B's own view was stored, and listed the leases later still. In that list it found B's view,
//! which claims the key, so A may not have begun. The only leases that A or B disregarded are those of rule 4, whose
//! holders have stopped by rules 3 and 4. Late requests are safe: each write names the version that it replaces, and
//! while a member doesn't know whether a view was stored, it reconciles only keys that both this view and the previous
//! one give to it.
//!
//! As with leader election there are limits: a write that is in flight when a replica has to stop can't be recalled, a
//! machine that was suspended may act late, and a lease that is deleted by hand is lost.
//!
//! # The time until a key has a new owner
//!
//! After a replica leaves in order: about `retry_period`, until the others list again. After one fails:
//! `lease_duration` more. After one joins: two or three times `retry_period` for the keys that it gets, and for a key
//! with a current run until that ends. A reconcile that never ends keeps its key forever: give the controller a [time
//! limit](crate::controller::Controller::timeout).
//!
//! # Sources outside of the cluster
//!
//! All members see the changes in the cluster. A key from a [channel or a
//! source](crate::controller::Controller::reconcile_on) may reach one replica only: if that doesn't own the key, it
//! writes a wake-up on its lease, which the owner finds with its next list, within about two `retry_period`s. A lease
//! carries at most 256 wake-ups within a `lease_duration`; more are lost, which is logged.
//!
//! # Permissions
//!
//! In addition to the Role for leader election (`leases` in the operator's namespace: `get`, `create`, `update`),
//! sharding needs `list`, and `delete` to remove the leases of replicas that are gone. A replica that has not joined,
//! or that could not list the leases for a `lease_duration`, isn't ready (`/readyz/shards`). Replicas with leader
//! election and replicas with sharding don't see each other: to change from one to the other, stop all replicas before
//! starting any (a Deployment does so with `strategy: Recreate`).

mod claim;
mod membership;
mod protocol;
mod share;
#[cfg(test)]
mod tests;
mod view;
mod wakeups;

use std::{collections::BTreeMap, time::Duration};

use kubewright_apimachinery::name;
use thiserror::Error;

use self::view::hash;
pub(crate) use self::{
    membership::Membership,
    share::{Acquired, KeyGuard, Share},
};
use crate::leader::{LeaderOptions, LeaderOptionsError};

/// The label of a member's lease with the group's name.
pub const GROUP_LABEL: &str = "shard.kubewright.dev/group";

/// The annotation of a member's lease with the members that it has announced and, after a `/`, the hashes of the other
/// keys that it is busy with (at most 1,024; with more it waits).
pub const VIEW_ANNOTATION: &str = "shard.kubewright.dev/view";

/// The maximum length of a group's name, which is a label value and a prefix of the leases' names.
const LONGEST_NAME: usize = 63;

/// The annotation of a member's lease with its wake-ups of keys of other members, from sources outside of the cluster.
pub const WAKEUPS_ANNOTATION: &str = "shard.kubewright.dev/wakeups";

/// The options of sharding, for [`Manager::sharding`](crate::manager::Manager::sharding): the group, this replica's
/// identity, and the durations of the leases. A binary with the flags of [`crate::args`] has the flag `--shard`.
///
/// ```
/// # use kubewright_runtime::{leader::identity, manager::Manager, random::Random, shard::ShardOptions};
/// # fn example(manager: Manager, random: &Random) -> Manager {
/// manager.sharding(ShardOptions::new("podset-system", "podset", identity(random)))
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// The namespace of the leases.
    pub namespace: String,
    /// The name of the group: one per operator, at most 63 characters. The leases are named
    /// `<name>-<hash of the identity>`.
    pub name: String,
    /// The identity of this replica, unique among the replicas and across restarts; see [`crate::leader::identity`].
    pub identity: String,
    /// The time after the last renewal that the others have seen, after which they take a replica's keys (15 s).
    pub lease_duration: Duration,
    /// The time after its last renewal at which a replica stops all runs (10 s). Less than `lease_duration`: the
    /// difference is the time that runs have to stop.
    pub renew_deadline: Duration,
    /// The interval of renewals and lists (2 s, and up to a fifth more at random), each with one list and one update.
    pub retry_period: Duration,
    /// Further labels of the leases (none).
    pub labels: BTreeMap<String, String>,
}

/// Invalid options.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The durations are inconsistent.
    #[error("sharding: {0}")]
    Durations(#[from] LeaderOptionsError),
    /// The name is invalid.
    #[error("sharding: invalid group name {name:?}: {why}")]
    Name {
        /// The name.
        name: String,
        /// The reasons.
        why: String,
    },
}

impl From<LeaderOptions> for ShardOptions {
    /// The name becomes that of the group.
    fn from(options: LeaderOptions) -> Self {
        let LeaderOptions { namespace, name, identity, lease_duration, renew_deadline, retry_period, labels } = options;
        Self { namespace, name, identity, lease_duration, renew_deadline, retry_period, labels }
    }
}

impl ShardOptions {
    /// Returns options with the default durations of leader election.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        LeaderOptions::new(namespace, name, identity).into()
    }

    fn validate(&self) -> Result<(), ShardError> {
        self.own_lease().validate()?;
        // The name is a prefix of the leases' names and a label value.
        let mut wrong = name::dns1123_subdomain(&self.name);
        if self.name.len() > LONGEST_NAME {
            wrong.push(format!("must be no more than {LONGEST_NAME} characters"));
        }
        let why = wrong.join("; ");
        if why.is_empty() { Ok(()) } else { Err(ShardError::Name { name: self.name.clone(), why }) }
    }

    /// Returns the options of this member's own lease.
    pub(crate) fn own_lease(&self) -> LeaderOptions {
        let name = format!("{}-{:016x}", self.name, hash(self.identity.as_bytes()));
        let Self { namespace, identity, lease_duration, renew_deadline, retry_period, labels, .. } = self.clone();
        LeaderOptions { namespace, name, identity, lease_duration, renew_deadline, retry_period, labels }
    }
}
