//! One member's side of the protocol that the [module](super) describes, as a state machine: no I/O, time passed in.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Preconditions;

use super::{
    CALLS_ANNOTATION, GROUP_LABEL, ShardOptions, VIEW_ANNOTATION,
    calls::{Call, Calls},
    claim::Claim,
    view::{Place, View},
};
use crate::leader::candidate::{Action, Candidate, duration, holder};

/// The most that is announced as busy: it goes over the wire with each look of each member.
const MOST_BUSY: usize = 1024;

/// What a member may work on, until it is told anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Grant {
    me: String,
    /// All of these must give a key to us: what we have announced, what we may have announced, and what we are about to.
    claims: Vec<View>,
    /// What each of the others has announced: none of these may cover the key. Without a claim, they may have announced
    /// anything. `None` until we know.
    others: Option<Vec<(String, Option<Claim>)>>,
    /// Until when that is true, by our clock.
    pub(super) fence: Option<Duration>,
}

impl Grant {
    /// All keys, until then.
    #[cfg(test)]
    pub(super) fn of_everything(fence: Duration) -> Self {
        Self { me: "a".into(), claims: vec![View::of(["a"])], others: Some(Vec::new()), fence: Some(fence) }
    }

    /// A grant by which nobody else's announcement counts: for tests of what finds that.
    #[cfg(test)]
    pub(super) fn blind(self) -> Self {
        Self { others: self.others.map(|_| Vec::new()), ..self }
    }

    /// A grant by which only what is to be announced counts, not what is: for tests of what finds that.
    #[cfg(test)]
    pub(super) fn hasty(self, target: &View) -> Self {
        Self { claims: vec![target.clone()], ..self }
    }

    /// Whether we may begin to work on what is there, as long as the fence stands.
    pub(super) fn gives(&self, place: Place) -> bool {
        let is_claimed =
            |(member, claim): &(String, Option<Claim>)| claim.as_ref().is_none_or(|claim| claim.covers(place, member));
        !self.claims.is_empty()
            && self.claims.iter().all(|view| view.gives(place, &self.me))
            && self.others.as_ref().is_some_and(|others| !others.iter().any(is_claimed))
    }

    /// Whether it gives the same as another.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.claims, &self.others) == (&other.claims, &other.others)
    }
}

/// Another's lease.
#[derive(Debug)]
struct Peer {
    version: Option<String>,
    uid: Option<String>,
    /// When we first saw it as it is.
    changed: Duration,
    duration: Duration,
    claim: Option<Claim>,
    is_released: bool,
    is_there: bool,
    /// Since when it doesn't count, if so.
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

    /// Looks at whether it still counts; `asked` is before the request for the leases was sent.
    ///
    /// What we first saw at `changed` was written before that, and its writer's fence stands for less than `duration`
    /// from when it sent it. A renewal that it could build on would have been stored before that fence fell, so before
    /// `asked`, and we would see it now.
    fn judge(&mut self, asked: Duration) {
        if self.is_released || asked >= self.changed.saturating_add(self.duration) {
            self.gone.get_or_insert(asked);
        }
    }
}

/// What we have announced.
#[derive(Debug)]
struct Announced {
    claim: Claim,
    /// When we came to know that it is stored.
    since: Duration,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Member {
    candidate: Candidate,
    group: String,
    me: String,
    peers: BTreeMap<String, Peer>,
    /// The members as we see them.
    target: View,
    announced: Option<Announced>,
    /// What we have sent, and don't know to be stored.
    in_doubt: Option<Claim>,
    grant: Grant,
    /// How often the members have changed.
    rebalances: u64,
    calls: Calls,
    /// What others have called for, and nobody was told yet.
    heard: Vec<Call>,
}

impl Member {
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
            calls: Calls::default(),
            heard: Vec::new(),
            me,
        }
    }

    pub(super) fn candidate(&mut self) -> &mut Candidate {
        &mut self.candidate
    }

    /// What we may work on.
    pub(super) fn grant(&self) -> Grant {
        Grant { fence: self.candidate.fence(), ..self.grant.clone() }
    }

    /// The members as we see them.
    pub(super) fn target(&self) -> &View {
        &self.target
    }

    pub(super) fn rebalances(&self) -> u64 {
        self.rebalances
    }

    /// Whether our own lease is known well enough to be written.
    pub(super) fn can_write(&self) -> bool {
        !self.candidate.must_read()
    }

    /// Whether all members have announced the same, and nobody works on what isn't theirs by it.
    pub(super) fn is_settled(&self) -> bool {
        let agrees = |claim: &Claim| claim.view == self.target && claim.busy.is_empty();
        let ours = self.announced.as_ref().is_some_and(|announced| agrees(&announced.claim));
        let theirs = |(_, claim): &(String, Option<Claim>)| claim.as_ref().is_some_and(agrees);
        ours && self.grant.claims == [self.target.clone()] && self.grant.others.iter().flatten().all(theirs)
    }

    /// The leases of the group, as they were at some time from `asked` until `now`.
    pub(super) fn listed(&mut self, leases: Vec<Lease>, asked: Duration, now: Duration) {
        let (own, others): (Vec<_>, _) = leases.into_iter().partition(|lease| name(lease) == self.me);
        match own.into_iter().next() {
            None if self.candidate.fence().is_some() => self.candidate.forfeit(),
            own => self.candidate.observe(own, now),
        }
        self.meet(&others, asked, now);
        self.hear(&others);
        let members = self.peers.iter().filter(|(_, peer)| peer.gone.is_none()).map(|(name, _)| name.as_str());
        let target = View::of(members.chain([self.me.as_str()]));
        if target != self.target {
            self.rebalances += 1;
            self.target = target;
        }
        self.claim(asked);
    }

    fn hear(&mut self, leases: &[Lease]) {
        for lease in leases {
            let annotations = lease.metadata.annotations.as_ref();
            if let Some(text) = annotations.and_then(|annotations| annotations.get(CALLS_ANNOTATION)) {
                self.heard.extend(self.calls.listen(name(lease), text));
            }
        }
        self.calls.retain(|member| self.peers.contains_key(member));
    }

    /// What others have called for since the last call of this.
    pub(super) fn take_heard(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.heard)
    }

    /// Calls for keys that others own, for as long as any of them may be without a look. Returns how many there is no room for.
    pub(super) fn call(&mut self, calls: Vec<Call>, now: Duration) -> usize {
        self.calls.add(calls, now.saturating_add(self.candidate.options().lease_duration))
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
        // A lease that was taken away under its holder is waited out before it is forgotten.
        self.peers.retain(|_, peer| peer.is_there || peer.gone.is_none());
    }

    /// Brings the grant in line with what is known now.
    fn claim(&mut self, asked: Duration) {
        let target = self.target.clone();
        let is_fresh = self.announced.as_ref().filter(|announced| asked >= announced.since);
        if let Some(Announced { claim, .. }) = is_fresh {
            let others = self.peers.iter().filter(|(_, peer)| peer.gone.is_none());
            self.grant.others = Some(others.map(|(name, peer)| (name.clone(), peer.claim.clone())).collect());
            // What may have been announced since stays claimed until that is cleared up.
            if self.in_doubt.is_none() {
                self.grant.claims = vec![claim.view.clone()];
            }
        }
        if !self.grant.claims.contains(&target) {
            self.grant.claims.push(target);
        }
    }

    /// What to write. `busy` is what is worked on and isn't ours by [`Member::target`]: it is announced too, and if it is too
    /// much for that, what was announced before stays. Look at it after the grant was made known to whoever begins work.
    pub(super) fn decide(&mut self, busy: BTreeSet<Place>, now: Duration, wall: Timestamp) -> Action {
        let claim = match &self.announced {
            Some(announced) if busy.len() > MOST_BUSY => announced.claim.clone(),
            _ => Claim { view: self.target.clone(), busy },
        };
        let calls = self.calls.announcement(now);
        let decorate = |mut lease: Box<Lease>| {
            let metadata = &mut lease.metadata;
            let annotations = metadata.annotations.get_or_insert_default();
            match calls {
                Some(calls) => drop(annotations.insert(CALLS_ANNOTATION.into(), calls)),
                None => drop(annotations.remove(CALLS_ANNOTATION)),
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
        // If something else is in doubt, it stays so: any of them may be what is stored.
        let is_known = self.announced.as_ref().is_some_and(|announced| announced.claim == claim);
        if !is_known || self.in_doubt.is_some() {
            self.in_doubt = Some(claim);
        }
        action
    }

    /// What was decided was sent at `sent`, took effect, and this came back. All that was sent before has taken effect
    /// earlier, or never will: each write names the version that it replaces. Returns whether something new was announced by
    /// which there may be more to do.
    pub(super) fn written(&mut self, lease: Lease, sent: Duration, now: Duration) -> bool {
        self.candidate.written(lease, sent);
        let Some(claim) = self.in_doubt.take() else { return false };
        let had = self.announced.replace(Announced { claim, since: now });
        had.map(|had| had.claim.view) != self.announced.as_ref().map(|has| has.claim.view.clone())
    }

    /// A request was refused, or its answer didn't come.
    pub(super) fn unsure(&mut self) {
        self.candidate.unsure();
    }

    /// The lease of one that is long gone, if it is on us to take it away, with what must hold for that.
    pub(super) fn litter(&self, now: Duration) -> Option<(String, Preconditions)> {
        // All who are there have seen it gone by then: none need wait for what it finds missing.
        let is_old = |peer: &Peer| {
            peer.is_there && peer.gone.is_some_and(|since| now >= since + self.candidate.options().lease_duration)
        };
        let is_ours = |name: &str| self.target.gives(Place(super::view::hash(name.as_bytes())), &self.me);
        let (name, peer) = self.peers.iter().find(|(name, peer)| is_old(peer) && is_ours(name))?;
        let conditions = Preconditions { uid: peer.uid.clone(), resource_version: peer.version.clone() };
        Some((name.clone(), conditions))
    }
}

fn name(lease: &Lease) -> &str {
    lease.metadata.name.as_deref().unwrap_or_default()
}
