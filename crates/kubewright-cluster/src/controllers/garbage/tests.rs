//! Tests of the graph against a minimal API server: decisions are executed until there are no more.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright_apimachinery::random::Random;

use super::graph::{Decision, FOREGROUND, Graph, ORPHAN, Object, OwnerState};
use crate::object_client::ObjectPath;

#[derive(Default)]
struct World {
    objects: BTreeMap<String, Object>,
    graph: Graph,
    writes: usize,
    /// Kinds and versions that the server doesn't serve.
    unknown: BTreeSet<String>,
}

impl World {
    /// Adds objects as `name` or `name: owner owner!`, where `!` means that the owner's deletion is blocked.
    fn with(lines: &[&str]) -> Self {
        let mut world = Self::default();
        for line in lines {
            let (name, owners) = line.split_once(':').unwrap_or((line, ""));
            world.put(object(name, "default", owners));
        }
        world
    }

    fn put(&mut self, mut object: Object) {
        object.version = (object.version.parse::<u32>().unwrap_or(0) + 1).to_string();
        if object.deleting && object.finalizers.is_empty() {
            self.objects.remove(&object.address.name);
            self.graph.remove(&object.uid);
        } else {
            self.graph.set(object.clone());
            self.objects.insert(object.address.name.clone(), object);
        }
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Object)) {
        let mut object = self.objects.get(name).cloned().expect("the object");
        change(&mut object);
        self.put(object);
    }

    fn delete(&mut self, name: &str, policy: &str) {
        self.change(name, |object| {
            object.deleting = true;
            object.finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
            match policy {
                "Foreground" => object.finalizers.push(FOREGROUND.into()),
                "Orphan" => object.finalizers.push(ORPHAN.into()),
                _ => {}
            }
        });
    }

    /// Executes all decisions, and returns the remaining objects: `name`, `name: owners`, `name (deleting)`.
    fn settle(&mut self) -> Vec<String> {
        let mut steps = 0;
        while let Some(uid) = self.graph.next() {
            steps += 1;
            assert!(steps < 1000, "it goes round in circles");
            let name = uid.trim_start_matches("uid-").to_owned();
            let decision = self.graph.decide(&uid);
            self.writes += usize::from(!matches!(decision, Decision::Nothing | Decision::Verify(_)));
            match decision {
                Decision::Nothing => {}
                Decision::Verify(claims) => {
                    for claim in claims {
                        let found = self.objects.get(&claim.name).filter(|found| {
                            found.uid == claim.uid
                                && (found.address.namespace == claim.namespace)
                                && *found.kind == *claim.kind
                        });
                        let verdict = match found {
                            _ if [&claim.kind, &claim.version].iter().any(|name| self.unknown.contains(*name)) => {
                                OwnerState::Unknown
                            }
                            Some(_) => OwnerState::Present,
                            None => OwnerState::Absent,
                        };
                        self.graph.verified(claim, verdict);
                    }
                    self.graph.touch(uid);
                }
                Decision::Delete(policy) => self.delete(&name, policy),
                Decision::SetOwners(owners) => self.change(&name, |object| object.owners = owners),
                Decision::SetFinalizers(finalizers) => self.change(&name, |object| object.finalizers = finalizers),
            }
        }
        let line = |object: &Object| {
            let mut line = object.address.name.clone();
            if object.deleting {
                line += " (deleting)";
            }
            if !object.owners.is_empty() {
                let owners: Vec<_> = object.owners.iter().map(|owner| owner.name.as_str()).collect();
                line += &format!(": {}", owners.join(" "));
            }
            line
        };
        self.objects.values().map(line).collect()
    }

    fn check(&mut self, expect: &[&str]) {
        assert_eq!(self.settle(), expect);
        let writes = self.writes;
        self.settle();
        assert_eq!(self.writes, writes, "a settled world is left alone");
    }
}

fn object(name: &str, namespace: &str, owners: &str) -> Object {
    let owner = |word: &str| {
        let name = word.trim_end_matches('!');
        OwnerReference {
            api_version: "v1".into(),
            kind: "Thing".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            block_owner_deletion: Some(word.ends_with('!')),
            ..OwnerReference::default()
        }
    };
    Object {
        uid: format!("uid-{name}").as_str().into(),
        address: ObjectPath::core("things", Some(namespace).filter(|name| !name.is_empty()), name),
        kind: "Thing".into(),
        version: "0".into(),
        owners: owners.split_whitespace().map(owner).collect(),
        finalizers: Vec::new(),
        deleting: false,
    }
}

#[test]
fn background() {
    let mut world = World::with(&["a", "b: a!", "c: b!", "d"]);
    world.check(&["a", "b: a", "c: b", "d"]);
    world.delete("a", "Background");
    world.check(&["d"]);
}

#[test]
fn foreground_deletion_waits_for_blocking_dependents() {
    let mut world = World::with(&["a", "b: a!", "c: a", "d: b!"]);
    world.change("d", |object| object.finalizers.push("example.com/mine".into()));
    world.delete("a", "Foreground");
    world.check(&["a (deleting)", "b (deleting): a", "d (deleting): b"]);
    world.change("d", |object| object.finalizers.clear());
    world.check(&[]);
}

#[test]
fn orphaning_removes_the_reference() {
    let mut world = World::with(&["a", "b: a! x", "x", "c: b!"]);
    world.delete("a", "Orphan");
    world.check(&["b: x", "c: b", "x"]);
}

#[test]
fn an_owner_among_several_is_enough() {
    let mut world = World::with(&["a", "b", "c: a! b!"]);
    world.delete("a", "Background");
    world.check(&["b", "c: b"]);
    world.delete("b", "Background");
    world.check(&[]);
}

#[test]
fn a_waiting_owner_is_dropped_if_another_one_stays() {
    let mut world = World::with(&["a", "b", "c: a! b!"]);
    world.delete("a", "Foreground");
    world.check(&["b", "c: b"]);
}

#[test]
fn absent_owners() {
    World::with(&["b: ghost", "c: ghost2 a", "a"]).check(&["a", "c: a"]);
}

#[test]
fn an_objects_finalizer_decides_the_policy_of_its_deletion() {
    let mut world = World::with(&["a", "b: a!", "c: b!"]);
    world.change("b", |object| object.finalizers.push(ORPHAN.into()));
    world.delete("a", "Background");
    world.check(&["c"]);
}

#[test]
fn circles() {
    for policy in ["Background", "Foreground"] {
        let mut world = World::with(&["a: c!", "b: a!", "c: b!"]);
        world.check(&["a: c", "b: a", "c: b"]);
        world.delete("a", policy);
        world.check(&[]);
        let mut world = World::with(&["a: b!", "b: a!"]);
        world.delete("a", policy);
        world.check(&[]);
        let mut world = World::with(&["a: a!"]);
        world.delete("a", policy);
        world.check(&[]);
    }
    let mut world = World::with(&["a: b!", "b: a!"]);
    world.delete("a", "Orphan");
    world.check(&["b"]);
}

#[test]
fn an_owner_in_another_namespace_is_not_an_owner() {
    let mut world = World::with(&["a"]);
    world.put(object("b", "elsewhere", "a!"));
    assert_eq!(world.graph.cross_namespace_owners("uid-b").len(), 1);
    world.check(&["a"]);

    let mut world = World::default();
    world.put(object("cluster", "", ""));
    world.put(object("b", "elsewhere", "cluster!"));
    world.check(&["b: cluster", "cluster"]);
    world.delete("cluster", "Foreground");
    world.check(&[]);
}

#[test]
fn an_owner_with_another_uid_is_another_object() {
    let mut world = World::with(&["a", "b: a!"]);
    world.delete("a", "Background");
    let mut again = object("a", "default", "");
    again.uid = "uid-a2".into();
    world.put(again);
    world.check(&["a"]);
}

#[test]
fn an_unknown_kind_is_waited_for() {
    let mut world = World::with(&["b: ghost"]);
    world.unknown.insert("Thing".into());
    world.check(&["b: ghost"]);
    world.unknown.clear();
    world.check(&["b: ghost"]);
    world.graph.kinds_changed();
    world.check(&[]);
}

#[test]
fn an_owner_of_a_removed_kind_is_not_looked_up_for_ever() {
    let mut world = World::with(&["a", "b: a!"]);
    world.check(&["a", "b: a"]);
    world.unknown.insert("Thing".into());
    world.delete("a", "Background");
    world.check(&[]);
}

#[test]
fn removed_objects_are_forgotten() {
    let mut world = World::with(&["a", "b: a! ghost", "c: b!"]);
    for name in ["a", "c", "b"] {
        if world.objects.contains_key(name) {
            world.delete(name, "Background");
        }
        world.settle();
    }
    assert_eq!(format!("{:?}", world.graph), format!("{:?}", Graph::default()));
}

/// Generates random graphs with cycles and all policies, and deletes objects while other deletions are in progress.
/// Nothing gets stuck, no object whose owners are gone remains, and objects that nobody deleted still exist.
#[test]
fn any_graph_settles() {
    for seed in 0..3000 {
        let random = Random::seeded(seed);
        let below = |bound: usize| usize::try_from(random.u64()).unwrap_or(0) % bound;
        let count = 2 + below(7);
        let name = |index: usize| format!("o{index}");
        let mut world = World::default();
        for index in 0..count {
            world.put(object(&name(index), "default", ""));
        }
        let mut refers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for index in 0..count {
            let owners: BTreeSet<_> = (0..below(4)).map(|_| below(count)).collect();
            let words: Vec<_> =
                owners.iter().map(|owner| name(*owner) + if below(2) == 0 { "!" } else { "" }).collect();
            refers.insert(name(index), owners.iter().map(|owner| name(*owner)).collect());
            let owners = object("", "", &words.join(" ")).owners;
            world.change(&name(index), |object| object.owners = owners);
        }
        let mut deleted = BTreeSet::new();
        let mut orphaned = BTreeSet::new();
        for _ in 0..1 + below(3) {
            let victim = name(below(count));
            if world.objects.contains_key(&victim) {
                let policy = ["Background", "Foreground", "Orphan"][below(3)];
                if policy == "Orphan" {
                    orphaned.insert(victim.clone());
                }
                world.delete(&victim, policy);
                deleted.insert(victim);
            }
            if below(2) == 0 {
                world.settle();
            }
        }
        let left = world.settle();
        assert!(!left.iter().any(|line| line.contains("deleting")), "seed {seed}: stuck: {left:?}");
        for object in world.objects.values().filter(|object| !object.owners.is_empty()) {
            let there = |owner: &OwnerReference| world.objects.contains_key(&owner.name);
            assert!(object.owners.iter().all(there), "seed {seed}: a dangling owner: {left:?}");
        }
        // Only descendants of deleted objects may be deleted.
        let mut doomed = deleted.clone();
        loop {
            let more: BTreeSet<_> = refers
                .iter()
                .filter(|(_, owners)| !owners.is_disjoint(&doomed))
                .map(|(name, _)| name.clone())
                .collect();
            let before = doomed.len();
            doomed.extend(more);
            if doomed.len() == before {
                break;
            }
        }
        for index in 0..count {
            let name = name(index);
            assert!(doomed.contains(&name) || world.objects.contains_key(&name), "seed {seed}: {name} is missed");
            assert!(!deleted.contains(&name) || !world.objects.contains_key(&name), "seed {seed}: {name} lives on");
        }
    }
}

#[test]
fn an_owner_may_be_named_in_any_version_that_there_is() {
    for version in ["v1", "v2", "v9"] {
        let mut world = World::with(&["a"]);
        world.unknown.insert("v9".into());
        let mut dependent = object("b", "default", "a");
        dependent.owners[0].api_version = version.into();
        world.put(dependent);
        world.check(&["a", "b: a"]);
        world.delete("a", "Background");
        let expect: &[&str] = if version == "v9" { &["b: a"] } else { &[] };
        world.check(expect);
    }
}

#[test]
fn an_owner_that_goes_during_its_lookup_is_gone() {
    let mut world = World::with(&["a", "b: a"]);
    // The dependent names the owner by another version than that in which it is stored.
    world.change("b", |object| object.owners[0].api_version = "v2".into());
    world.graph.next();
    let uid = world.objects["b"].uid.clone();
    let Decision::Verify(claims) = world.graph.decide(&uid) else { panic!("{:?}", world.graph.decide(&uid)) };
    // The server answers that the owner is there; its removal arrives before the answer.
    world.delete("a", "Background");
    while world.graph.next().is_some() {}
    for claim in claims {
        world.graph.verified(claim, OwnerState::Present);
    }
    world.graph.touch(uid);
    world.check(&[]);
}
