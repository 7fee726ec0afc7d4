//! Sharding: replicas divide the keys among themselves, and all of them work.
//!
//! Each replica holds a `Lease` of its own, a **member** of the group, and renews it as a leader does. Whose lease is
//! renewed is there; a key belongs to the one of those that rendezvous hashing names. A replica that comes takes
//! its part from all the others, and the part of one that goes falls to all of them; no other key moves.
//!
//! # A key is never worked by two
//!
//! Replicas learn at different times who is there, so they never just act on what they see. On its lease, each
//! **announces** a view (the members it reckons with), and by that *claims* the keys that this view gives to itself; and beside
//! it the keys that it is still **busy** with although the view doesn't give them to it, which it claims as well. Then:
//!
//! 1. It begins work on a key only if it has announced a view that gives it the key, and then, in a list of the leases that
//!    it asked for after it knew the announcement to be stored, no other has announced that it claims the key.
//! 2. Once it sees other members than those announced, it begins no more work on what it is to give up. Then it announces the
//!    new view, and what it is busy with by then; and when that has come to its end, that it is no more. So nothing is
//!    interrupted half-way, and nobody waits for more than is worked on.
//! 3. It stops everything at once, and ends, when it could not renew its lease for `renew_deadline`.
//! 4. It disregards another's lease only when that was given back, or when it saw no change of it for `lease_duration`, which
//!    is longer, from a first look until before the request for the last one. Both are measured by monotonic clocks, each
//!    its own; nobody reads another's wall clock.
//!
//! Why that is enough. By 2, what a member works on is always among what its stored announcement claims. Let A and B work on one
//! key, and B have begun later. B has looked at A's lease before it began, and found that A didn't claim the key. If A
//! was at work by then, that contradicts 2. If it was not, A stored the view that gives it the key after that look, so after B's, and
//! looked at B's lease later still; there it found the view by which B was to begin, and may not have begun. What A could not see of B, or B of A, is
//! what 4 disregards; but by 3 and 4 who is disregarded has stopped. Requests that come late do no harm: each write
//! names the version it replaces, and while a member doesn't know whether a view was stored, it acts on no key that either that view or
//! the one before doesn't give it.
//!
//! As with leader election there are limits: this can't stop a write that is on its way when a replica has to stop, nor
//! see through a machine that was suspended, nor make up for a lease that someone deletes by hand.
//!
//! # How long a key may be without anyone
//!
//! When a replica leaves in good order: until the others look again, so about the `retry_period`. When it vanishes: the
//! `lease_duration` more. When one comes: two or three times the `retry_period`, for the keys it is to get, and for as
//! long as it takes, a key that is being worked on. A reconcile that never ends would keep its key for ever: give the
//! controller a [time limit](crate::controller::Controller::timeout).
//!
//! # Wakes from outside
//!
//! What happens in the cluster, all members see. What comes by a [channel or a source](crate::controller::Controller::reconcile_on) only one
//! may have heard of: if it doesn't own the key, it writes the wake on its lease, where the owner finds it at its next
//! look, so within some two `retry_period`s. At most 256 are carried in a `lease_duration`; more are lost, which the log says.
//!
//! # What it asks for
//!
//! The Role for leader election (`leases` in the operator's namespace: `get`, `create`, `update`) needs `list` too, and
//! `delete` to clear away the leases of replicas that are gone. A replica that doesn't take part, or that couldn't list the
//! leases for a `lease_duration`, isn't ready (`/readyz/shards`). Replicas that elect a leader know nothing of those that
//! divide the work: to go from one to the other, stop all before you start any (a Deployment does that by `strategy: Recreate`).

mod calls;
mod claim;
mod member;
mod membership;
mod share;
#[cfg(test)]
mod tests;
mod view;

use std::time::Duration;

use kubewright_apimachinery::name;
use thiserror::Error;

use self::view::hash;
pub(crate) use self::{
    membership::Membership,
    share::{Gained, Share, Ticket},
};
use crate::leader::{LeaderOptions, LeaderOptionsError};

/// On a member's lease: the group's name.
pub const GROUP_LABEL: &str = "shard.kubewright.dev/group";

/// On a member's lease: the members it has announced, and behind a `/` the hashes of the keys it is busy with beside what these
/// give it (at most 1,024; with more it waits).
pub const VIEW_ANNOTATION: &str = "shard.kubewright.dev/view";

/// The longest name of a group: it is a label's value, and the names of the leases begin with it.
const LONGEST_NAME: usize = 63;

/// On a member's lease: the wakes that came to it from outside of the cluster, for keys that others work on.
pub const CALLS_ANNOTATION: &str = "shard.kubewright.dev/calls";

/// Which replicas divide the keys, who of them we are, and at what pace they notice each other: for
/// [`Manager::sharding`](crate::manager::Manager::sharding). A binary with the flags of [`crate::args`] says `--shard`.
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
    /// The name of the group: one per operator, at most 63 characters. The leases are named `<name>-<hash of the identity>`.
    pub name: String,
    /// Who we are: unique among the replicas, also across restarts; see [`crate::leader::identity`].
    pub identity: String,
    /// How long after they last saw a renewal the others wait before they take a replica's keys (15 s).
    pub lease_duration: Duration,
    /// How long after its last renewal a replica stops all work (10 s). Less than `lease_duration`: the difference is the
    /// time that its work has to stop.
    pub renew_deadline: Duration,
    /// How often to renew, and to look at the others (2 s, and at random up to a fifth more): one list and one update each
    /// time.
    pub retry_period: Duration,
}

/// Options that can't work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShardError {
    /// The durations don't fit together.
    #[error("sharding: {0}")]
    Durations(#[from] LeaderOptionsError),
    /// The name is none.
    #[error("sharding: {name:?} can't name a group: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

impl ShardOptions {
    /// With the durations of leader election.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        let LeaderOptions { namespace, name, identity, lease_duration, renew_deadline, retry_period } =
            LeaderOptions::new(namespace, name, identity);
        Self { namespace, name, identity, lease_duration, renew_deadline, retry_period }
    }

    fn validate(&self) -> Result<(), ShardError> {
        self.own_lease().validate()?;
        // A lease is named after it, and its label's value is it.
        let mut wrong = name::dns1123_subdomain(&self.name);
        if self.name.len() > LONGEST_NAME {
            wrong.push(format!("must be no more than {LONGEST_NAME} characters"));
        }
        let why = wrong.join("; ");
        if why.is_empty() { Ok(()) } else { Err(ShardError::Name { name: self.name.clone(), why }) }
    }

    /// The lease of this member.
    pub(crate) fn own_lease(&self) -> LeaderOptions {
        let name = format!("{}-{:016x}", self.name, hash(self.identity.as_bytes()));
        let Self { namespace, identity, lease_duration, renew_deadline, retry_period, .. } = self.clone();
        LeaderOptions { namespace, name, identity, lease_duration, renew_deadline, retry_period }
    }
}
