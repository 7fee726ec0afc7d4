//! One member's side of the protocol in the [module's documentation](super), as a state machine without I/O; the time
//! is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Preconditions;

use super::{
    GROUP_LABEL, ShardOptions, VIEW_ANNOTATION, WAKEUPS_ANNOTATION,
    claim::Claim,
    view::{HashPosition, View, hash},
    wakeups::{Wakeup, Wakeups},
};
use crate::leader::candidate::{Action, Candidate, duration, holder};

/// The maximum number of announced busy positions: each member reads them with each list.
const MOST_BUSY: usize = 1024;

/// The keys that a member may reconcile, until the next grant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Grant {
    me: String,
    /// The own views: the announced one, those that may have been announced, and the next one. All of them must give a
    /// key to this member.
    claims: Vec<View>,
    /// The claims of the other members, none of which may cover the key. A member without a readable claim may claim
    /// anything. `None` until they are known.
    others: Option<Vec<(String, Option<Claim>)>>,
    /// The time at which the grant ends, by this replica's clock.
    pub(super) fence: Option<Duration>,
}

impl Grant {
    /// Returns a grant of all keys.
    #[cfg(test)]
    pub(super) fn of_everything(fence: Duration) -> Self {
        Self { me: "a".into(), claims: vec![View::of(["a"])], others: Some(Vec::new()), fence: Some(fence) }
    }

    /// Returns a grant that ignores the other members' claims, to test that the simulation detects it.
    #[cfg(test)]
    pub(super) fn blind(self) -> Self {
        Self { others: self.others.map(|_| Vec::new()), ..self }
    }

    /// Returns a grant by the next view alone, to test that the simulation detects it.
    #[cfg(test)]
    pub(super) fn hasty(self, target: &View) -> Self {
        Self { claims: vec![target.clone()], ..self }
    }

    /// Returns whether runs at a position may begin, before the end of the grant.
    pub(super) fn gives(&self, position: HashPosition) -> bool {
        let is_claimed = |(member, claim): &(String, Option<Claim>)| {
            claim.as_ref().is_none_or(|claim| claim.covers(position, member))
        };
        !self.claims.is_empty()
            && self.claims.iter().all(|view| view.gives(position, &self.me))
            && self.others.as_ref().is_some_and(|others| !others.iter().any(is_claimed))
    }

    /// Returns the fraction of all keys that it gives, estimated from a sample.
    pub(super) fn fraction(&self) -> f64 {
        const SAMPLE: u64 = 1024;
        let given = (0..SAMPLE).filter(|number| self.gives(HashPosition(hash(&number.to_le_bytes())))).count();
        given as f64 / SAMPLE as f64
    }

    /// Returns whether both grants give the same keys.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.claims, &self.others) == (&other.claims, &other.others)
    }
}

/// The lease of another member.
#[derive(Debug)]
struct Peer {
    version: Option<String>,
    uid: Option<String>,
    /// The time at which its current version was first seen.
    changed: Duration,
    duration: Duration,
    claim: Option<Claim>,
    is_released: bool,
    is_there: bool,
    /// The time since which the member counts as gone.
    gone: Option<Duration>,
}

impl Peer {
    fn seen(lease: &Lease, ours: Duration, now: Duration) -> Self {
        let metadata = &lease.metadata;
        let claim = metadata.annotations.as_ref().and_then(|annotations| annotations.get(VIEW_ANNOTATION));
        Self {
            version: metadata.resource_version.clone(),
            uid: metadata.uid.clone(),
            changed: now,
            duration: duration(lease, ours),
            claim: claim.and_then(|claim| Claim::parse(claim)),
            is_released: holder(lease).is_none(),
            is_there: true,
            gone: None,
        }
    }

    /// Decides whether the member is gone; `asked` is a time before the request for the leases was sent.
    ///
    /// The version first seen at `changed` was written before that, and its writer stops work less than `duration`
    /// after it sent the write. A renewal by which it could continue would have been stored before it stopped, so
    /// before `asked`, and would be seen now.
    fn judge(&mut self, asked: Duration) {
        if self.is_released || asked >= self.changed.saturating_add(self.duration) {
            self.gone.get_or_insert(asked);
        }
    }
}

/// The own claim that is known to be stored.
#[derive(Debug)]
struct StoredClaim {
    claim: Claim,
    /// The time at which the answer to the write arrived.
    since: Duration,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Protocol {
    candidate: Candidate,
    group: String,
    me: String,
    peers: BTreeMap<String, Peer>,
    /// The current members.
    target: View,
    announced: Option<StoredClaim>,
    /// A claim that was sent, and whose answer is missing.
    in_doubt: Option<Claim>,
    grant: Grant,
    /// The number of changes of the members.
    rebalances: u64,
    wakeups: Wakeups,
    /// The wake-ups from other members that were not returned yet.
    received: Vec<Wakeup>,
}

impl Protocol {
    pub(super) fn new(options: &ShardOptions) -> Self {
        let lease = options.own_lease();
        let me = lease.name.clone();
        Self {
            candidate: Candidate::new(lease),
            group: options.name.clone(),
            peers: BTreeMap::new(),
            target: View::of([me.as_str()]),
            announced: None,
            in_doubt: None,
            grant: Grant { me: me.clone(), ..Grant::default() },
            rebalances: 0,
            wakeups: Wakeups::default(),
            received: Vec::new(),
            me,
        }
    }

    pub(super) fn candidate(&mut self) -> &mut Candidate {
        &mut self.candidate
    }

    /// Returns the keys that this member may reconcile.
    pub(super) fn grant(&self) -> Grant {
        Grant { fence: self.candidate.fence(), ..self.grant.clone() }
    }

    /// Returns the current members.
    pub(super) fn target(&self) -> &View {
        &self.target
    }

    pub(super) fn rebalances(&self) -> u64 {
        self.rebalances
    }

    /// Returns whether the state of the own lease is known, so that it can be written.
    pub(super) fn can_write(&self) -> bool {
        !self.candidate.must_read()
    }

    /// Returns whether all members have announced the same view, and none has runs of other members' keys.
    pub(super) fn is_settled(&self) -> bool {
        let agrees = |claim: &Claim| claim.view == self.target && claim.busy.is_empty();
        let ours = self.announced.as_ref().is_some_and(|announced| agrees(&announced.claim));
        let theirs = |(_, claim): &(String, Option<Claim>)| claim.as_ref().is_some_and(agrees);
        ours && self.grant.claims == [self.target.clone()] && self.grant.others.iter().flatten().all(theirs)
    }

    /// Takes in the leases of the group, as of a time between `asked` and `now`.
    pub(super) fn listed(&mut self, leases: Vec<Lease>, asked: Duration, now: Duration) {
        let (own, others): (Vec<_>, _) = leases.into_iter().partition(|lease| name(lease) == self.me);
        match own.into_iter().next() {
            None if self.candidate.fence().is_some() => self.candidate.forfeit(),
            own => self.candidate.observe(own, now),
        }
        self.meet(&others, asked, now);
        self.read_wakeups(&others);
        let members = self.peers.iter().filter(|(_, peer)| peer.gone.is_none()).map(|(name, _)| name.as_str());
        let target = View::of(members.chain([self.me.as_str()]));
        if target != self.target {
            self.rebalances += 1;
            self.target = target;
        }
        self.claim(asked);
    }

    fn read_wakeups(&mut self, leases: &[Lease]) {
        for lease in leases {
            let annotations = lease.metadata.annotations.as_ref();
            if let Some(text) = annotations.and_then(|annotations| annotations.get(WAKEUPS_ANNOTATION)) {
                self.received.extend(self.wakeups.read(name(lease), text));
            }
        }
        self.wakeups.retain(|member| self.peers.contains_key(member));
    }

    /// Returns the wake-ups from other members since the last call of this function.
    pub(super) fn take_received(&mut self) -> Vec<Wakeup> {
        std::mem::take(&mut self.received)
    }

    /// Adds wake-ups of keys of other members, which stay on the lease until all members have read them. Returns the
    /// number of wake-ups that don't fit.
    pub(super) fn forward(&mut self, wakeups: Vec<Wakeup>, now: Duration) -> usize {
        self.wakeups.add(wakeups, now.saturating_add(self.candidate.options().lease_duration))
    }

    fn meet(&mut self, leases: &[Lease], asked: Duration, now: Duration) {
        self.peers.values_mut().for_each(|peer| peer.is_there = false);
        for lease in leases {
            let known = self.peers.get_mut(name(lease));
            match known.filter(|known| known.version == lease.metadata.resource_version) {
                Some(known) => known.is_there = true,
                None => {
                    let peer = Peer::seen(lease, self.candidate.options().lease_duration, now);
                    self.peers.insert(name(lease).into(), peer);
                }
            }
        }
        self.peers.values_mut().for_each(|peer| peer.judge(asked));
        // A lease that was deleted while it was held is forgotten only after its duration.
        self.peers.retain(|_, peer| peer.is_there || peer.gone.is_none());
    }

    /// Updates the grant.
    fn claim(&mut self, asked: Duration) {
        let target = self.target.clone();
        let is_fresh = self.announced.as_ref().filter(|announced| asked >= announced.since);
        if let Some(StoredClaim { claim, .. }) = is_fresh {
            let others = self.peers.iter().filter(|(_, peer)| peer.gone.is_none());
            self.grant.others = Some(others.map(|(name, peer)| (name.clone(), peer.claim.clone())).collect());
            // A claim that may have been stored since keeps counting until its write is resolved.
            if self.in_doubt.is_none() {
                self.grant.claims = vec![claim.view.clone()];
            }
        }
        if !self.grant.claims.contains(&target) {
            self.grant.claims.push(target);
        }
    }

    /// Returns the next write. `busy` are the positions with runs of other members' keys by [`Protocol::target`]: they
    /// are announced, too, and if there are too many, the previous claim stays. They must be determined after the grant
    /// was published.
    pub(super) fn decide(&mut self, busy: BTreeSet<HashPosition>, now: Duration, wall: Timestamp) -> Action {
        let claim = match &self.announced {
            Some(announced) if busy.len() > MOST_BUSY => announced.claim.clone(),
            _ => Claim { view: self.target.clone(), busy },
        };
        let wakeups = self.wakeups.announcement(now);
        let decorate = |mut lease: Box<Lease>| {
            let metadata = &mut lease.metadata;
            let annotations = metadata.annotations.get_or_insert_default();
            match wakeups {
                Some(wakeups) => drop(annotations.insert(WAKEUPS_ANNOTATION.into(), wakeups)),
                None => drop(annotations.remove(WAKEUPS_ANNOTATION)),
            }
            metadata.labels.get_or_insert_default().insert(GROUP_LABEL.into(), self.group.clone());
            metadata.annotations.get_or_insert_default().insert(VIEW_ANNOTATION.into(), claim.to_string());
            lease
        };
        let action = match self.candidate.decide(now, wall) {
            Action::Wait => return Action::Wait,
            Action::Create(lease) => Action::Create(decorate(lease)),
            Action::Update(lease) => Action::Update(decorate(lease)),
        };
        // An earlier unanswered write stays unresolved: either may be stored.
        let is_known = self.announced.as_ref().is_some_and(|announced| announced.claim == claim);
        if !is_known || self.in_doubt.is_some() {
            self.in_doubt = Some(claim);
        }
        action
    }

    /// Takes in the answer to a write that was sent at `sent`. Earlier writes have taken effect before it, or never
    /// will, since each write names the version that it replaces. Returns whether a new view was announced, after which
    /// there may be more to do.
    pub(super) fn written(&mut self, lease: Lease, sent: Duration, now: Duration) -> bool {
        self.candidate.written(lease, sent);
        let Some(claim) = self.in_doubt.take() else { return false };
        let had = self.announced.replace(StoredClaim { claim, since: now });
        had.map(|had| had.claim.view) != self.announced.as_ref().map(|has| has.claim.view.clone())
    }

    /// Records that a request was refused or not answered.
    pub(super) fn unsure(&mut self) {
        self.candidate.unsure();
    }

    /// Returns a lease of a member that is gone and which this member has to delete, with the preconditions.
    pub(super) fn litter(&self, now: Duration) -> Option<(String, Preconditions)> {
        // By then all members have seen that it is gone, so that none waits because the lease is missing.
        let is_old = |peer: &Peer| {
            peer.is_there && peer.gone.is_some_and(|since| now >= since + self.candidate.options().lease_duration)
        };
        let is_ours = |name: &str| self.target.gives(HashPosition(super::view::hash(name.as_bytes())), &self.me);
        let (name, peer) = self.peers.iter().find(|(name, peer)| is_old(peer) && is_ours(name))?;
        let conditions = Preconditions { uid: peer.uid.clone(), resource_version: peer.version.clone() };
        Some((name.clone(), conditions))
    }
}

fn name(lease: &Lease) -> &str {
    lease.metadata.name.as_deref().unwrap_or_default()
}
