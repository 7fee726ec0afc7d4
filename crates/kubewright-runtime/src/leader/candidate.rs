//! The state machine of one candidate: no I/O, and time is passed in.
//!
//! Another replica's lease counts from when *this* replica saw it change, by its monotonic clock; the times in the
//! lease are only informative. Own leadership counts from before the renewal was sent. So the leader always gives up
//! first, whatever the wall clocks say and however slow the network is, as long as `renew_deadline` is less than
//! `lease_duration`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};

use super::LeaderOptions;

/// The next action of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Create the lease; it must not exist.
    Create(Box<Lease>),
    /// Replace the lease; it must not have changed.
    Update(Box<Lease>),
    /// Wait: another replica leads.
    Wait,
}

#[derive(Debug)]
struct Observed {
    lease: Lease,
    changed: Duration,
}

#[derive(Debug)]
pub(crate) struct Candidate {
    options: LeaderOptions,
    observed: Option<Observed>,
    /// Whether the observed lease may be out of date.
    stale: bool,
    /// The time until which this replica may assume that it leads.
    fence: Option<Duration>,
}

impl Candidate {
    pub(crate) fn new(options: LeaderOptions) -> Self {
        Self { options, observed: None, stale: true, fence: None }
    }

    pub(crate) fn options(&self) -> &LeaderOptions {
        &self.options
    }

    /// Takes the lease that was read; `now` is after the answer arrived.
    pub(crate) fn observe(&mut self, lease: Option<Lease>, now: Duration) {
        self.stale = false;
        let Some(lease) = lease else {
            // The holder of a deleted lease may still assume that it leads, so wait for as long as if it existed.
            if let Some(observed) = &mut self.observed {
                observed.lease.metadata.resource_version = None;
            }
            return;
        };
        if holder(&lease) != Some(&self.options.identity) {
            self.fence = None;
        }
        let version = &lease.metadata.resource_version;
        let same = self.observed.as_ref().filter(|observed| observed.lease.metadata.resource_version == *version);
        let changed = same.map_or(now, |observed| observed.changed);
        self.observed = Some(Observed { lease, changed });
    }

    /// Takes the lease that this replica wrote, in a request sent at `sent`.
    pub(crate) fn written(&mut self, lease: Lease, sent: Duration) {
        let ours = holder(&lease) == Some(&self.options.identity);
        self.fence = ours.then(|| sent + self.options.renew_deadline);
        self.observed = Some(Observed { lease, changed: sent });
        self.stale = false;
    }

    /// Notes that a write was refused or got no answer.
    pub(crate) fn unsure(&mut self) {
        self.stale = true;
    }

    /// Whether the lease must be read before the next write. The leader needn't read it, since no other candidate
    /// should have written it.
    pub(crate) fn must_read(&self) -> bool {
        self.stale || self.fence.is_none()
    }

    /// Returns the last known holder of the lease.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.observed.as_ref().and_then(|observed| holder(&observed.lease)).map(String::as_str)
    }

    /// Returns the time until which this replica may assume that it leads.
    pub(crate) fn fence(&self) -> Option<Duration> {
        self.fence
    }

    /// Returns the next action; `wall` is the time that it writes into the lease.
    pub(crate) fn decide(&self, now: Duration, wall: Timestamp) -> Action {
        let Some(Observed { lease, changed }) = &self.observed else {
            return Action::Create(Box::new(self.claim(None, wall)));
        };
        let ours = holder(lease) == Some(&self.options.identity);
        if !ours && holder(lease).is_some() && now < *changed + duration(lease, self.options.lease_duration) {
            return Action::Wait;
        }
        match lease.metadata.resource_version {
            Some(_) => Action::Update(Box::new(self.claim(Some(lease), wall))),
            None => Action::Create(Box::new(self.claim(Some(lease), wall))),
        }
    }

    /// Returns the lease without a holder, if this replica holds it.
    pub(crate) fn release(&self, wall: Timestamp) -> Option<Lease> {
        let lease = &self.observed.as_ref().filter(|_| self.fence.is_some())?.lease;
        let mut released = lease.clone();
        let spec = released.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(wall));
        Some(released)
    }

    /// Notes that the lease was deleted, and must not be acquired again.
    pub(crate) fn forfeit(&mut self) {
        self.fence = None;
        self.stale = true;
    }

    /// Returns the lease with this replica as its holder.
    fn claim(&self, before: Option<&Lease>, wall: Timestamp) -> Lease {
        let LeaderOptions { namespace, name, identity, lease_duration, labels, .. } = &self.options;
        let old = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = old.holder_identity.as_ref() == Some(identity);
        let taken_over = i32::from(before.is_some() && !ours);
        let fresh =
            || ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.clone()), ..ObjectMeta::default() };
        let stored = before.filter(|lease| lease.metadata.resource_version.is_some());
        let spec = LeaseSpec {
            holder_identity: Some(identity.clone()),
            lease_duration_seconds: Some(i32::try_from(lease_duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: old.acquire_time.filter(|_| ours).or(Some(MicroTime(wall))),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(old.lease_transitions.unwrap_or_default().saturating_add(taken_over)),
            ..LeaseSpec::default()
        };
        let mut metadata = stored.map_or_else(fresh, |lease| lease.metadata.clone());
        if !labels.is_empty() {
            metadata.labels.get_or_insert_default().extend(labels.clone());
        }
        Lease { metadata, spec: Some(spec) }
    }
}

/// Returns the time after which the lease's holder has given up: its own setting or ours, whichever is longer.
pub(crate) fn duration(lease: &Lease, ours: Duration) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).max(ours)
}

/// Returns the holder of a lease; `None` if it was released.
pub(crate) fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(identity: &str) -> Candidate {
        Candidate::new(LeaderOptions::new("system", "operator", identity))
    }

    fn second(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// As the API server stores it.
    fn stored(action: Action, version: &str) -> Lease {
        let (Action::Create(lease) | Action::Update(lease)) = action else { panic!("nothing is written") };
        let mut lease = *lease;
        lease.metadata.resource_version = Some(version.into());
        lease
    }

    fn spec(lease: &Lease) -> &LeaseSpec {
        lease.spec.as_ref().unwrap()
    }

    #[test]
    fn creates_and_renews() {
        let mut a = candidate("a");
        assert!(a.must_read());
        a.observe(None, second(1));
        let Action::Create(lease) = a.decide(second(1), wall(100)) else { panic!("it doesn't exist") };
        assert_eq!(spec(&lease).lease_transitions, Some(0));
        assert_eq!(a.fence(), None);
        a.written(stored(Action::Create(lease), "1"), second(1));
        assert_eq!(a.fence(), Some(second(11)));
        assert!(!a.must_read());
        let Action::Update(lease) = a.decide(second(3), wall(102)) else { panic!("it is renewed") };
        assert_eq!(spec(&lease).acquire_time, Some(MicroTime(wall(100))));
        assert_eq!(spec(&lease).renew_time, Some(MicroTime(wall(102))));
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("1"));
        a.written(stored(Action::Update(lease), "2"), second(3));
        assert_eq!(a.fence(), Some(second(13)));
    }

    #[test]
    fn sets_labels_and_keeps_others() {
        let mut options = LeaderOptions::new("system", "operator", "a");
        options.labels = [("team".to_owned(), "b".to_owned())].into();
        let mut a = Candidate::new(options);
        let mut lease = stored(a.decide(second(0), wall(0)), "1");
        assert_eq!(lease.metadata.labels, Some([("team".to_owned(), "b".to_owned())].into()));
        lease.metadata.labels =
            Some([("other".to_owned(), "c".to_owned()), ("team".to_owned(), "x".to_owned())].into());
        a.written(lease, second(0));
        let renewed = stored(a.decide(second(2), wall(2)), "2");
        let labels = renewed.metadata.labels.expect("labels");
        assert_eq!(
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
            ["other=c", "team=b"]
        );
    }

    #[test]
    fn takes_over_when_it_has_seen_no_change_for_long_enough_whatever_the_wall_clocks_say() {
        let mut a = candidate("a");
        let first = stored(a.decide(second(0), wall(0)), "1");
        a.written(first.clone(), second(0));
        let renewed = stored(a.decide(second(2), wall(2)), "2");
        let mut b = candidate("b");
        let far_ahead = wall(1_000_000);
        b.observe(Some(first), second(500));
        assert_eq!(b.decide(second(514), far_ahead), Action::Wait);
        b.observe(Some(renewed.clone()), second(514));
        b.observe(Some(renewed), second(520));
        assert_eq!(b.decide(second(528), far_ahead), Action::Wait);
        let Action::Update(lease) = b.decide(second(529), far_ahead) else { panic!("the holder is gone") };
        assert_eq!(spec(&lease).lease_transitions, Some(1));
        assert_eq!(spec(&lease).acquire_time, Some(MicroTime(far_ahead)));
        assert_eq!(lease.metadata.resource_version.as_deref(), Some("2"));
    }

    #[test]
    fn the_holders_longer_lease_duration_is_respected() {
        let mut options = LeaderOptions::new("system", "operator", "slow");
        options.lease_duration = second(60);
        let theirs = stored(Candidate::new(options).decide(second(0), wall(0)), "1");
        let mut b = candidate("b");
        b.observe(Some(theirs), second(0));
        assert_eq!(b.decide(second(59), wall(0)), Action::Wait);
        assert_ne!(b.decide(second(60), wall(0)), Action::Wait);
    }

    #[test]
    fn a_released_lease_is_free_at_once() {
        let mut a = candidate("a");
        assert_eq!(a.release(wall(0)), None);
        let lease = stored(a.decide(second(0), wall(0)), "1");
        a.written(lease, second(0));
        let released = a.release(wall(1)).unwrap();
        assert_eq!(released.metadata.resource_version.as_deref(), Some("1"));
        assert_eq!(spec(&released).holder_identity.as_deref(), Some(""));
        let mut b = candidate("b");
        b.observe(Some(released), second(1));
        let Action::Update(lease) = b.decide(second(1), wall(1)) else { panic!("it is free") };
        assert_eq!(spec(&lease).lease_transitions, Some(1));
    }

    #[test]
    fn seeing_another_holder_ends_leadership() {
        let mut a = candidate("a");
        let lease = stored(a.decide(second(0), wall(0)), "1");
        a.written(lease, second(0));
        let theirs = stored(candidate("b").decide(second(0), wall(0)), "2");
        a.observe(Some(theirs), second(1));
        assert_eq!(a.fence(), None);
        assert_eq!(a.decide(second(1), wall(1)), Action::Wait);
        assert_eq!(a.release(wall(1)), None);
    }

    #[test]
    fn a_deleted_lease_is_acquired_only_after_its_duration() {
        let theirs = stored(candidate("a").decide(second(0), wall(0)), "1");
        let mut b = candidate("b");
        b.observe(Some(theirs), second(0));
        b.observe(None, second(1));
        assert_eq!(b.decide(second(14), wall(14)), Action::Wait);
        let Action::Create(lease) = b.decide(second(15), wall(15)) else { panic!("it is gone") };
        assert_eq!(lease.metadata.resource_version, None);
    }
}
