//! The graph of owner references, and the decisions that follow from it. Pure.
//!
//! The graph receives every change in revision order, so it is exact as of some revision, and each decision concerns
//! one object at one resource version. The write that executes a decision has both as preconditions: if the object has
//! changed meanwhile, the write fails, the change arrives, and a new decision is made.
//!
//! The rules are those of <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::object_client::ObjectPath;

/// The finalizer of a deletion that waits for the dependents that block it.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of a deletion that waits until no dependent refers to the object.
pub(crate) const ORPHAN: &str = "orphan";

/// The UID of an object.
pub(crate) type Uid = Arc<str>;

/// The parts of an object that the graph needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    /// The UID.
    pub(crate) uid: Uid,
    /// The API path.
    pub(crate) address: ObjectPath,
    /// The kind.
    pub(crate) kind: Arc<str>,
    /// The resource version.
    pub(crate) version: String,
    /// The owners.
    pub(crate) owners: Vec<OwnerReference>,
    /// The finalizers.
    pub(crate) finalizers: Vec<String>,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
}

impl Object {
    fn is_held_by(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|present| present == finalizer)
    }

    /// Returns the values that a reference to the object must contain.
    fn identity(&self) -> OwnerIdentity {
        OwnerIdentity {
            uid: self.uid.clone(),
            group: self.address.group.to_string(),
            version: self.address.version.to_string(),
            kind: self.kind.to_string(),
            namespace: self.address.namespace.clone(),
            name: self.address.name.clone(),
        }
    }

    /// Returns whether the object may ever require a decision.
    fn matters(&self) -> bool {
        !self.owners.is_empty() || self.deleting
    }
}

/// The owner that a reference names, for the namespace of the dependent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnerIdentity {
    /// The owner's UID.
    pub(crate) uid: Uid,
    /// The owner's group.
    pub(crate) group: String,
    /// The version of its kind.
    pub(crate) version: String,
    /// The owner's kind.
    pub(crate) kind: String,
    /// The dependent's namespace, in which a namespaced owner must be.
    pub(crate) namespace: Option<String>,
    /// The owner's name.
    pub(crate) name: String,
}

impl OwnerIdentity {
    fn new(dependent: &Object, owner: &OwnerReference) -> Self {
        let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", &owner.api_version));
        Self {
            uid: owner.uid.as_str().into(),
            group: group.into(),
            version: version.into(),
            kind: owner.kind.clone(),
            namespace: dependent.address.namespace.clone(),
            name: owner.name.clone(),
        }
    }

    /// Returns whether the reference refers to the object with `identity`, in whatever version. A cluster-scoped owner
    /// may have dependents in every namespace.
    fn means(&self, identity: &Self) -> bool {
        let placed = identity.namespace.is_none() || identity.namespace == self.namespace;
        placed
            && (&self.uid, &self.group, &self.kind, &self.name)
                == (&identity.uid, &identity.group, &identity.kind, &identity.name)
    }
}

/// The result of looking up an owner at the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// The owner doesn't exist.
    Absent,
    /// The owner exists.
    Present,
    /// The state can't be determined, since the kind is unknown or can't be an owner here. The owner counts as present.
    Unknown,
}

/// A decision about an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// No action until something changes.
    Nothing,
    /// Look up these owners, call [`Graph::verified`], and request another decision.
    Verify(Vec<OwnerIdentity>),
    /// Delete it, with this propagation policy.
    Delete(&'static str),
    /// Replace its owner references.
    SetOwners(Vec<OwnerReference>),
    /// Replace its finalizers.
    SetFinalizers(Vec<String>),
}

/// The state of an owner that a reference names.
enum Owner {
    Solid,
    /// It is being deleted in the foreground, and waits for its dependents.
    Waiting,
    /// It is being deleted, and its dependents will be orphaned.
    Orphaning,
    Absent,
    Unverified(OwnerIdentity),
    Unknown,
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    objects: BTreeMap<Uid, Object>,
    /// The dependents by the owner's UID, whether the owner exists or not.
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    /// The results of lookups, for owners that are not in the graph in the form in which their dependents name them.
    verdicts: BTreeMap<OwnerIdentity, OwnerState>,
    /// The owners that have been removed, as long as they have dependents. A lookup may have found one before.
    gone: BTreeSet<Uid>,
    /// Objects that need a decision.
    dirty: BTreeSet<Uid>,
}

impl Graph {
    /// Adds or replaces an object.
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

    /// Removes an object.
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
                self.verdicts.insert(identity.clone(), OwnerState::Absent);
            }
            self.verdicts.retain(|claim, verdict| *claim.uid != *uid || *verdict != OwnerState::Present);
            self.gone.insert(object.uid);
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

    /// Removes an object's references from the index, and returns the owners.
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

    /// Drops the state of an owner that has no dependents.
    fn forget_if_unreferenced(&mut self, owner: &Uid) {
        if self.dependents.get(owner).is_some_and(BTreeSet::is_empty) {
            self.dependents.remove(owner);
            self.gone.remove(owner);
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

    /// Records the result of looking up an owner.
    pub(crate) fn verified(&mut self, claim: OwnerIdentity, verdict: OwnerState) {
        if self.dependents.contains_key(&claim.uid) {
            let is_outdated = verdict == OwnerState::Present && self.gone.contains(&claim.uid);
            self.verdicts.insert(claim, if is_outdated { OwnerState::Absent } else { verdict });
        }
    }

    /// Called when kinds were added or removed. Owners of unknown kinds then have to be looked up again.
    pub(crate) fn kinds_changed(&mut self) {
        let unknown = self.verdicts.extract_if(.., |_, verdict| *verdict != OwnerState::Absent);
        let unknown: Vec<_> = unknown.map(|(claim, _)| claim.uid).collect();
        for uid in unknown {
            self.touch_dependents(&uid);
        }
    }

    /// Returns the next object that needs a decision, and removes it from the set.
    pub(crate) fn next(&mut self) -> Option<Uid> {
        self.dirty.pop_first()
    }

    /// Requests another decision about an object.
    pub(crate) fn touch(&mut self, uid: Uid) {
        if self.objects.contains_key(&uid) {
            self.dirty.insert(uid);
        }
    }

    /// Returns an object.
    pub(crate) fn get(&self, uid: &str) -> Option<&Object> {
        self.objects.get(uid)
    }

    /// Returns the owner references of an object that name owners in another namespace.
    pub(crate) fn cross_namespace_owners(&self, uid: &str) -> Vec<OwnerReference> {
        let Some(object) = self.objects.get(uid) else { return Vec::new() };
        let misplaced = |owner: &&OwnerReference| {
            let found = self.objects.get(owner.uid.as_str());
            found.is_some_and(|found| {
                found.address.namespace.is_some() && found.address.namespace != object.address.namespace
            })
        };
        object.owners.iter().filter(misplaced).cloned().collect()
    }

    /// Returns the decision about an object.
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

    /// Returns the dependents that a foreground deletion of the object waits for.
    fn awaited<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = &'a Object> {
        let dependents = self.dependents_of(object);
        dependents.filter(|(_, owner)| owner.block_owner_deletion == Some(true)).map(|(dependent, _)| dependent)
    }

    /// Returns whether one object waits for another, directly or indirectly. Objects in a cycle would wait for each
    /// other forever, so a cycle blocks nothing.
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

    /// Returns the objects that correctly refer to this one, with their references.
    fn dependents_of<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = (&'a Object, &'a OwnerReference)> {
        let identity = object.identity();
        let uids = self.dependents.get(&object.uid).into_iter().flatten().filter(|uid| **uid != object.uid);
        uids.filter_map(move |uid| {
            let dependent = self.objects.get(uid)?;
            let reference =
                dependent.owners.iter().find(|owner| OwnerIdentity::new(dependent, owner).means(&identity))?;
            Some((dependent, reference))
        })
    }

    fn owner(&self, dependent: &Object, reference: &OwnerReference) -> Owner {
        let claim = OwnerIdentity::new(dependent, reference);
        let found = self.objects.get(reference.uid.as_str());
        let meant = found.filter(|found| claim.means(&found.identity()));
        if let Some(found) = meant.filter(|found| *found.address.version == *claim.version) {
            return Self::owner_that_is_there(found, dependent);
        }
        // Whether the kind has that version, too, only the server knows.
        match self.verdicts.get(&claim) {
            Some(OwnerState::Absent) => Owner::Absent,
            Some(OwnerState::Present) => match meant {
                Some(found) => Self::owner_that_is_there(found, dependent),
                None => found.map_or(Owner::Unknown, |_| Owner::Solid),
            },
            Some(OwnerState::Unknown) => Owner::Unknown,
            None => Owner::Unverified(claim),
        }
    }

    fn owner_that_is_there(found: &Object, dependent: &Object) -> Owner {
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
}
