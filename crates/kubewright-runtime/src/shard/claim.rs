//! The claim that a member announces on its lease.

use std::{collections::BTreeSet, fmt};

use super::view::{HashPosition, View};

/// The version of hash functions and format. Any change needs another version, so that replicas of two releases never
/// assume that they agree.
const VERSION: &str = "v2";

/// Separates the members from the busy positions. No member's name contains it.
const BUSY: &str = "/";

/// The members that a replica has seen, by which it claims its keys, and the positions of other keys that it still
/// reconciles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) view: View,
    pub(super) busy: BTreeSet<HashPosition>,
}

impl Claim {
    /// Returns whether the member that announced this claims the position.
    pub(super) fn covers(&self, position: HashPosition, member: &str) -> bool {
        self.busy.contains(&position) || self.view.gives(position, member)
    }

    /// Parses an announcement; `None` if it has another version or is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        if words.next() != Some(VERSION) {
            return None;
        }
        let view = View::of(words.by_ref().take_while(|word| *word != BUSY));
        let busy = words.map(|word| u64::from_str_radix(word, 16).map(HashPosition)).collect::<Result<_, _>>().ok()?;
        Some(Self { view, busy })
    }
}

/// The format of the announcement.
impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VERSION)?;
        self.view.members().try_for_each(|member| write!(f, " {member}"))?;
        if !self.busy.is_empty() {
            write!(f, " {BUSY}")?;
        }
        self.busy.iter().try_for_each(|HashPosition(hash)| write!(f, " {hash:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_as_it_was_announced() {
        let view = View::of(["podset-1", "podset-0"]);
        for busy in [vec![], vec![HashPosition(7)], vec![HashPosition(u64::MAX), HashPosition(0)]] {
            let claim = Claim { view: view.clone(), busy: busy.into_iter().collect() };
            assert_eq!(Claim::parse(&claim.to_string()), Some(claim));
        }
        let claim = Claim { view, busy: [HashPosition(7)].into() };
        assert_eq!(claim.to_string(), "v2 podset-0 podset-1 / 0000000000000007");
        assert!(claim.covers(HashPosition(7), "podset-9") && !claim.covers(HashPosition(8), "podset-9"));
        for other in ["", "v0 podset-0", "v1 podset-0", "v3 podset-0", "podset-0", "v2 podset-0 / x", "v2 a / 1 b"] {
            let parsed = Claim::parse(other);
            assert!(parsed.is_none() || other == "v2 a / 1 b", "{other:?}: {parsed:?}");
        }
    }
}
