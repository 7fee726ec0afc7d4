//! What a member announces on its lease.

use std::{collections::BTreeSet, fmt};

use super::view::{Place, View};

/// The way keys are given to members, and what is claimed beside them. Another way needs another version, so that replicas of
/// two releases never believe that they agree.
const VERSION: &str = "v2";

/// Stands between the members and what is busy. No member's name holds it.
const BUSY: &str = "/";

/// The members that one reckons with, and so claims the keys that these give it; and beside them what it is still working on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) view: View,
    pub(super) busy: BTreeSet<Place>,
}

impl Claim {
    /// Whether what is there is claimed by who announced this.
    pub(super) fn covers(&self, place: Place, member: &str) -> bool {
        self.busy.contains(&place) || self.view.gives(place, member)
    }

    /// What was announced; none if it is of another version, or no claim at all.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        if words.next() != Some(VERSION) {
            return None;
        }
        let view = View::of(words.by_ref().take_while(|word| *word != BUSY));
        let busy = words.map(|word| u64::from_str_radix(word, 16).map(Place)).collect::<Result<_, _>>().ok()?;
        Some(Self { view, busy })
    }
}

/// As it is announced.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        self.view.members().try_for_each(|member| write!(f, " {member}"))?;
        if !self.busy.is_empty() {
            write!(f, " {BUSY}")?;
        }
        self.busy.iter().try_for_each(|Place(hash)| write!(f, " {hash:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_as_it_was_announced() {
        let view = View::of(["podset-1", "podset-0"]);
        for busy in [vec![], vec![Place(7)], vec![Place(u64::MAX), Place(0)]] {
            let claim = Claim { view: view.clone(), busy: busy.into_iter().collect() };
            assert_eq!(Claim::parse(&claim.to_string()), Some(claim));
        }
        let claim = Claim { view, busy: [Place(7)].into() };
        assert_eq!(claim.to_string(), "v2 podset-0 podset-1 / 0000000000000007");
        assert!(claim.covers(Place(7), "podset-9") && !claim.covers(Place(8), "podset-9"));
        for other in ["", "v0 podset-0", "v1 podset-0", "v3 podset-0", "podset-0", "v2 podset-0 / x", "v2 a / 1 b"] {
            let parsed = Claim::parse(other);
            assert!(parsed.is_none() || other == "v2 a / 1 b", "{other:?}: {parsed:?}");
        }
    }
}
