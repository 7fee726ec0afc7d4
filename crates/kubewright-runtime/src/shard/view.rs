//! The owner of a key, by rendezvous hashing.
//!
//! Every member has a weight for every key, and the highest weight owns the key. So shares are about equal, and when a
//! member joins or leaves, only its own keys move. All replicas must compute the same weights, in every release: so the
//! hash functions are defined here, and an [announcement](super::claim) names their version.

use std::{fmt, sync::Arc};

use crate::object::ObjectKey;

/// FNV-1a with 64 bits.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The finalizer of MurmurHash3: every bit of the result depends on every bit of the input.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

/// The hash of a key's namespace and name. Objects with the same name have the same owner in all controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HashPosition(pub(super) u64);

impl HashPosition {
    pub(super) fn of(key: &ObjectKey) -> Self {
        // Names contain no slash, so different keys have different texts.
        Self(hash(format!("{}/{}", key.namespace().unwrap_or_default(), key.name()).as_bytes()))
    }
}

/// A set of members, by the names of their leases. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct View(Arc<[Member]>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    name: Box<str>,
    hash: u64,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members()).finish()
    }
}

impl View {
    pub(super) fn of<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        let members = members.into_iter().map(|member| Member { name: member.into(), hash: hash(member.as_bytes()) });
        let mut members = members.collect::<Vec<_>>();
        members.sort();
        members.dedup();
        Self(members.into())
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|member| &*member.name)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the owner of a position; `None` without members.
    pub(super) fn owner(&self, position: HashPosition) -> Option<&str> {
        // Equal weights are nearly impossible; the later name wins.
        self.0.iter().max_by_key(|member| (mix(member.hash ^ position.0), &member.name)).map(|member| &*member.name)
    }

    pub(super) fn gives(&self, position: HashPosition, member: &str) -> bool {
        self.owner(position) == Some(member)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn view(members: usize) -> View {
        View::of((0..members).map(|number| format!("podset-{number}")).collect::<Vec<_>>().iter().map(String::as_str))
    }

    fn positions() -> impl Iterator<Item = HashPosition> {
        (0..10_000).map(|number| HashPosition::of(&ObjectKey::namespaced("default", &format!("web-{number}"))))
    }

    /// Replicas of two releases run side by side during an upgrade.
    #[test]
    fn owners_never_change_between_releases() {
        let owner =
            |name: &str| view(5).owner(HashPosition::of(&ObjectKey::namespaced("default", name))).map(str::to_owned);
        let owners = ["a", "b", "web", "db"].map(|name| owner(name).unwrap_or_default());
        assert_eq!(owners, ["podset-0", "podset-3", "podset-1", "podset-3"]);
    }

    #[test]
    fn shares_are_about_equal() {
        for members in [2, 3, 7, 20] {
            let view = view(members);
            let mut shares = BTreeMap::<&str, usize>::new();
            positions().for_each(|position| *shares.entry(view.owner(position).unwrap_or_default()).or_default() += 1);
            let fair = 10_000 / members;
            assert_eq!(shares.len(), members);
            assert!(shares.values().all(|share| (fair * 8 / 10..fair * 12 / 10).contains(share)), "{shares:?}");
        }
    }

    #[test]
    fn only_the_keys_of_the_member_that_joins_or_leaves_move() {
        let (four, five) = (view(4), view(5));
        let moved = positions().filter(|position| four.owner(*position) != five.owner(*position)).collect::<Vec<_>>();
        assert!(moved.iter().all(|position| five.gives(*position, "podset-4")));
        assert!((1_600..2_400).contains(&moved.len()), "{}", moved.len());
    }

    #[test]
    fn views_of_the_same_members_are_equal() {
        assert_eq!(View::of(["podset-2", "podset-0", "podset-1", "podset-1"]), view(3));
        assert_eq!(View::of([]).owner(HashPosition(7)), None);
    }
}
