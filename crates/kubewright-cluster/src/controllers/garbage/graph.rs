//! Who owns whom, and what follows from it for each object. Pure.
//!
//! The graph is fed with every change in revision order, so it is exact as of some revision, and each decision is about
//! one object at one resource version. The write that carries it out has both as preconditions: if the object has
//! changed meanwhile, the write fails, the change arrives, and the object is decided upon again.
//!
//! The rules are those of <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::access::Address;

/// A deletion waits for those dependents that block it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// A deletion waits until no dependent refers to the object.
pub(crate) const ORPHAN: &str = "orphan";

/// The UID of an object.
pub(crate) type Uid = Arc<str>;

/// What matters of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    /// Which one it is.
    pub(crate) uid: Uid,
    /// Where it is.
    pub(crate) address: Address,
    /// Its kind.
    pub(crate) kind: Arc<str>,
    /// Its resource version.
    pub(crate) version: String,
    /// Its owners.
    pub(crate) owners: Vec<OwnerReference>,
    /// What its deletion waits for.
    pub(crate) finalizers: Vec<String>,
    /// It is being deleted.
    pub(crate) deleting: bool,
}

impl Object {
    fn is_held_by(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|present| present == finalizer)
    }

    /// What a reference to it must say.
    fn identity(&self) -> Claim {
        Claim {
            uid: self.uid.clone(),
            group: self.address.group.to_string(),
            kind: self.kind.to_string(),
            namespace: self.address.namespace.clone(),
            name: self.address.name.clone(),
        }
    }

    /// Whether the graph may ever have something to do for it.
    fn matters(&self) -> bool {
        !self.owners.is_empty() || self.deleting
    }
}

/// What an owner reference says, for the namespace that it is made in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    /// The owner's UID.
    pub(crate) uid: Uid,
    /// Its group.
    pub(crate) group: String,
    /// Its kind.
    pub(crate) kind: String,
    /// The dependent's namespace, hence the owner's, if the owner is in one.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
}

impl Claim {
    fn new(dependent: &Object, owner: &OwnerReference) -> Self {
        Self {
            uid: owner.uid.as_str().into(),
            group: owner.api_version.rsplit_once('/').map_or("", |(group, _)| group).into(),
            kind: owner.kind.clone(),
            namespace: dependent.address.namespace.clone(),
            name: owner.name.clone(),
        }
    }

    /// Whether it means the object that has `identity`. A cluster-scoped owner serves every namespace.
    fn means(&self, identity: &Self) -> bool {
        let placed = identity.namespace.is_none() || identity.namespace == self.namespace;
        placed
            && (&self.uid, &self.group, &self.kind, &self.name)
                == (&identity.uid, &identity.group, &identity.kind, &identity.name)
    }
}

/// What a look at the API server has said about a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is no such object.
    Absent,
    /// There is.
    Present,
    /// It can't be told, and nobody's owner is presumed dead: its kind is unknown, or it can't be an owner here.
    Unknown,
}

/// What is to be done with an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing, until something changes.
    Nothing,
    /// Look whether these owners exist, tell [`Graph::verified`], and ask again.
    Verify(Vec<Claim>),
    /// Delete it, with this propagation policy.
    Delete(&'static str),
    /// Replace its owner references.
    SetOwners(Vec<OwnerReference>),
    /// Replace its finalizers.
    SetFinalizers(Vec<String>),
}

/// An owner, as a dependent's reference finds it.
enum Owner {
    Solid,
    /// Being deleted in the foreground: it waits for its dependents.
    Waiting,
    /// Being deleted, and its dependents are to be let go.
    Orphaning,
    Absent,
    Unverified(Claim),
    Unknown,
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    objects: BTreeMap<Uid, Object>,
    /// By the owner's UID, whether the owner is there or not.
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    /// What is known about owners that some dependent refers to and that are not in the graph as referred to.
    verdicts: BTreeMap<Claim, Verdict>,
    /// Objects to decide upon.
    dirty: BTreeSet<Uid>,
}

impl Graph {
    /// An object was created or changed.
    pub(crate) fn set(&mut self, object: Object) {
        let uid = object.uid.clone();
        let holds = |object: &Object| object.is_held_by(FOREGROUND) || object.is_held_by(ORPHAN);
        let begins_to_hold = holds(&object) && !self.objects.get(&uid).is_some_and(holds);
        if object.matters() {
            self.dirty.insert(uid.clone());
        }
        let before = self.unlink(&uid);
        for owner in &object.owners {
            self.dependents.entry(owner.uid.as_str().into()).or_default().insert(uid.clone());
        }
        let after: BTreeSet<Uid> = object.owners.iter().map(|owner| owner.uid.as_str().into()).collect();
        self.objects.insert(uid.clone(), object);
        for owner in before.difference(&after) {
            self.forget_if_unreferenced(owner);
        }
        self.touch_deleting(before.union(&after));
        if begins_to_hold {
            self.touch_dependents(&uid);
            self.dirty.extend(after.into_iter().filter(|owner| self.objects.contains_key(owner)));
        }
    }

    /// An object is gone.
    pub(crate) fn remove(&mut self, uid: &str) {
        let owners = self.unlink(uid);
        self.dirty.remove(uid);
        if let Some(object) = self.objects.remove(uid)
            && self.dependents.contains_key(uid)
        {
            let mut identity = object.identity();
            for namespace in self.namespaces_of_dependents(uid) {
                if object.address.namespace.is_none() {
                    identity.namespace = namespace;
                }
                self.verdicts.insert(identity.clone(), Verdict::Absent);
            }
        }
        self.touch_dependents(uid);
        for owner in &owners {
            self.forget_if_unreferenced(owner);
        }
        self.touch_deleting(owners.iter());
    }

    fn namespaces_of_dependents(&self, uid: &str) -> BTreeSet<Option<String>> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents.filter_map(|uid| Some(self.objects.get(uid)?.address.namespace.clone())).collect()
    }

    /// Takes the object's references out of the index, and says whom they were to.
    fn unlink(&mut self, uid: &str) -> BTreeSet<Uid> {
        let owners: BTreeSet<Uid> = self
            .objects
            .get(uid)
            .map(|object| object.owners.iter().map(|owner| owner.uid.as_str().into()).collect())
            .unwrap_or_default();
        for owner in &owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(uid);
            }
        }
        owners
    }

    /// Drops what is remembered of an owner that nothing refers to any more.
    fn forget_if_unreferenced(&mut self, owner: &Uid) {
        if self.dependents.get(owner).is_some_and(BTreeSet::is_empty) {
            self.dependents.remove(owner);
            self.verdicts.retain(|claim, _| claim.uid != *owner);
        }
    }

    fn touch_dependents(&mut self, uid: &str) {
        if let Some(dependents) = self.dependents.get(uid) {
            self.dirty.extend(dependents.iter().cloned());
        }
    }

    fn touch_deleting<'a>(&mut self, uids: impl Iterator<Item = &'a Uid>) {
        let objects = &self.objects;
        self.dirty.extend(uids.filter(|uid| objects.get(*uid).is_some_and(|object| object.deleting)).cloned());
    }

    /// What a look at the API server has said.
    pub(crate) fn verified(&mut self, claim: Claim, verdict: Verdict) {
        if self.dependents.contains_key(&claim.uid) {
            self.verdicts.insert(claim, verdict);
        }
    }

    /// Kinds have come or gone: owners that could not be told must be looked at again.
    pub(crate) fn kinds_changed(&mut self) {
        let unknown = self.verdicts.extract_if(.., |_, verdict| *verdict != Verdict::Absent);
        let unknown: Vec<_> = unknown.map(|(claim, _)| claim.uid).collect();
        for uid in unknown {
            self.touch_dependents(&uid);
        }
    }

    /// An object to decide upon, and no more dirty.
    pub(crate) fn next(&mut self) -> Option<Uid> {
        self.dirty.pop_first()
    }

    /// Asks for another decision.
    pub(crate) fn touch(&mut self, uid: Uid) {
        if self.objects.contains_key(&uid) {
            self.dirty.insert(uid);
        }
    }

    /// The object.
    pub(crate) fn get(&self, uid: &str) -> Option<&Object> {
        self.objects.get(uid)
    }

    /// Owners of an object that live in another namespace than it says, by their references' UIDs.
    pub(crate) fn misplaced_owners(&self, uid: &str) -> Vec<OwnerReference> {
        let Some(object) = self.objects.get(uid) else { return Vec::new() };
        let misplaced = |owner: &&OwnerReference| {
            let found = self.objects.get(owner.uid.as_str());
            found.is_some_and(|found| {
                found.address.namespace.is_some() && found.address.namespace != object.address.namespace
            })
        };
        object.owners.iter().filter(misplaced).cloned().collect()
    }

    /// What is to be done with an object now.
    pub(crate) fn decide(&self, uid: &str) -> Decision {
        let Some(object) = self.objects.get(uid) else { return Decision::Nothing };
        let owners: Vec<_> = object.owners.iter().map(|owner| (owner, self.owner(object, owner))).collect();
        if owners.iter().any(|(_, owner)| matches!(owner, Owner::Orphaning)) {
            let kept = owners.into_iter().filter(|(_, owner)| !matches!(owner, Owner::Orphaning));
            return Decision::SetOwners(kept.map(|(reference, _)| reference.clone()).collect());
        }
        if object.deleting {
            return self.decide_deleting(object);
        }
        let unverified: Vec<_> = owners
            .iter()
            .filter_map(|(_, owner)| match owner {
                Owner::Unverified(claim) => Some(claim.clone()),
                _ => None,
            })
            .collect();
        if !unverified.is_empty() {
            return Decision::Verify(unverified);
        }
        if owners.is_empty() || owners.iter().any(|(_, owner)| matches!(owner, Owner::Unknown)) {
            return Decision::Nothing;
        }
        let solid = |owner: &Owner| matches!(owner, Owner::Solid);
        if owners.iter().all(|(_, owner)| solid(owner)) {
            return Decision::Nothing;
        }
        if owners.iter().any(|(_, owner)| solid(owner)) {
            let kept = owners.into_iter().filter(|(_, owner)| solid(owner));
            return Decision::SetOwners(kept.map(|(reference, _)| reference.clone()).collect());
        }
        let waiting = owners.iter().any(|(_, owner)| matches!(owner, Owner::Waiting));
        if waiting && self.dependents_of(object).next().is_some() {
            return Decision::Delete("Foreground");
        }
        let own = |finalizer: &str| object.finalizers.iter().any(|present| present == finalizer);
        Decision::Delete(match (own(ORPHAN), own(FOREGROUND)) {
            (true, _) => "Orphan",
            (false, true) => "Foreground",
            (false, false) => "Background",
        })
    }

    fn decide_deleting(&self, object: &Object) -> Decision {
        let without = |finalizer: &str| {
            Decision::SetFinalizers(object.finalizers.iter().filter(|one| *one != finalizer).cloned().collect())
        };
        if object.is_held_by(ORPHAN) && self.dependents_of(object).next().is_none() {
            return without(ORPHAN);
        }
        if object.is_held_by(FOREGROUND) && self.awaited(object).all(|dependent| self.awaits(dependent, object)) {
            return without(FOREGROUND);
        }
        Decision::Nothing
    }

    /// The dependents that an object waits for when it is deleted in the foreground.
    fn awaited<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = &'a Object> {
        let dependents = self.dependents_of(object);
        dependents.filter(|(_, owner)| owner.block_owner_deletion == Some(true)).map(|(dependent, _)| dependent)
    }

    /// Whether one object waits for another, be it by way of others. Two that wait for each other would do so for ever, so
    /// such a circle doesn't hold anything.
    fn awaits(&self, waiting: &Object, object: &Object) -> bool {
        let mut seen = BTreeSet::from([&waiting.uid]);
        let mut path = vec![waiting];
        while let Some(next) = path.pop() {
            if !next.is_held_by(FOREGROUND) {
                continue;
            }
            for dependent in self.awaited(next) {
                if dependent.uid == object.uid {
                    return true;
                }
                if seen.insert(&dependent.uid) {
                    path.push(dependent);
                }
            }
        }
        false
    }

    /// The other objects that rightly refer to this one, and how.
    fn dependents_of<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = (&'a Object, &'a OwnerReference)> {
        let identity = object.identity();
        let uids = self.dependents.get(&object.uid).into_iter().flatten().filter(|uid| **uid != object.uid);
        uids.filter_map(move |uid| {
            let dependent = self.objects.get(uid)?;
            let reference = dependent.owners.iter().find(|owner| Claim::new(dependent, owner).means(&identity))?;
            Some((dependent, reference))
        })
    }

    fn owner(&self, dependent: &Object, reference: &OwnerReference) -> Owner {
        let claim = Claim::new(dependent, reference);
        match self.objects.get(reference.uid.as_str()) {
            Some(found) if claim.means(&found.identity()) => {
                if found.uid == dependent.uid {
                    Owner::Solid
                } else if found.is_held_by(ORPHAN) {
                    Owner::Orphaning
                } else if found.is_held_by(FOREGROUND) {
                    Owner::Waiting
                } else {
                    Owner::Solid
                }
            }
            found => match self.verdicts.get(&claim) {
                Some(Verdict::Absent) => Owner::Absent,
                Some(Verdict::Present) => found.map_or(Owner::Unknown, |_| Owner::Solid),
                Some(Verdict::Unknown) => Owner::Unknown,
                None => Owner::Unverified(claim),
            },
        }
    }
}
