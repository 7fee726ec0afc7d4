//! Who owns a key: rendezvous hashing.
//!
//! Every member draws a weight for every key, and the highest wins. So each has about the same share, and when one comes
//! or goes only the keys that it gets or had move. All replicas must come to the same weights, in every release: the
//! hashes are written down here, and what is [announced](super::claim) names their version.

use std::{fmt, sync::Arc};

use crate::object::ObjectKey;

/// FNV-1a with 64 bits.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The end of MurmurHash3: every bit of the result depends on every bit given.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

/// A key, as far as its owner is concerned: namespace and name, but not the kind. Objects of one name have one owner, in all controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(pub(super) u64);

impl Place {
    pub(super) fn of(key: &ObjectKey) -> Self {
        // No name holds a slash, so no two keys run together.
        Self(hash(format!("{}/{}", key.namespace().unwrap_or_default(), key.name()).as_bytes()))
    }
}

/// A set of members, by the names of their leases: cheap to clone, equal if the members are.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct View(Arc<[Seat]>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seat {
    member: Box<str>,
    hash: u64,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members()).finish()
    }
}

impl View {
    pub(super) fn of<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        let seats = members.into_iter().map(|member| Seat { member: member.into(), hash: hash(member.as_bytes()) });
        let mut seats = seats.collect::<Vec<_>>();
        seats.sort();
        seats.dedup();
        Self(seats.into())
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|seat| &*seat.member)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Who works what is there. None if there are no members.
    pub(super) fn owner(&self, place: Place) -> Option<&str> {
        // Equal weights are as good as impossible; then it is the later name.
        self.0.iter().max_by_key(|seat| (mix(seat.hash ^ place.0), &seat.member)).map(|seat| &*seat.member)
    }

    pub(super) fn gives(&self, place: Place, member: &str) -> bool {
        self.owner(place) == Some(member)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn view(members: usize) -> View {
        View::of((0..members).map(|number| format!("podset-{number}")).collect::<Vec<_>>().iter().map(String::as_str))
    }

    fn places() -> impl Iterator<Item = Place> {
        (0..10_000).map(|number| Place::of(&ObjectKey::namespaced("default", &format!("web-{number}"))))
    }

    /// Replicas of two releases work side by side during an upgrade.
    #[test]
    fn owners_never_change_between_releases() {
        let owner = |name: &str| view(5).owner(Place::of(&ObjectKey::namespaced("default", name))).map(str::to_owned);
        let owners = ["a", "b", "web", "db"].map(|name| owner(name).unwrap_or_default());
        assert_eq!(owners, ["podset-0", "podset-3", "podset-1", "podset-3"]);
    }

    #[test]
    fn shares_are_about_equal() {
        for members in [2, 3, 7, 20] {
            let view = view(members);
            let mut shares = BTreeMap::<&str, usize>::new();
            places().for_each(|place| *shares.entry(view.owner(place).unwrap_or_default()).or_default() += 1);
            let fair = 10_000 / members;
            assert_eq!(shares.len(), members);
            assert!(shares.values().all(|share| (fair * 8 / 10..fair * 12 / 10).contains(share)), "{shares:?}");
        }
    }

    #[test]
    fn only_the_keys_of_who_comes_or_goes_move() {
        let (four, five) = (view(4), view(5));
        let moved = places().filter(|place| four.owner(*place) != five.owner(*place)).collect::<Vec<_>>();
        assert!(moved.iter().all(|place| five.gives(*place, "podset-4")));
        assert!((1_600..2_400).contains(&moved.len()), "{}", moved.len());
    }

    #[test]
    fn views_of_the_same_members_are_equal() {
        assert_eq!(View::of(["podset-2", "podset-0", "podset-1", "podset-1"]), view(3));
        assert_eq!(View::of([]).owner(Place(7)), None);
    }
}
