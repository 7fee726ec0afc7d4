//! The limits of priority levels.

use std::collections::BTreeMap;

use http::HeaderValue;
use serde_json::Value;

use super::uid;
use crate::fields::text;

/// The number of requests that kube-apiserver handles at once by default (`--max-requests-inflight` and
/// `--max-mutating-requests-inflight`), which its priority levels share.
const SEATS: u32 = 600;

/// A priority level.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) uid: HeaderValue,
    shares: f64,
    /// The percentage of the nominal limit that other levels may borrow.
    lendable: f64,
    /// The percentage of the nominal limit that the level may borrow from others; `None` if that isn't limited.
    borrowing: Option<f64>,
}

/// The limits of a priority level, in requests that are handled at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) nominal: f64,
    pub(crate) lower: f64,
    pub(crate) upper: f64,
}

impl Level {
    pub(super) fn of(object: &Value) -> Self {
        let part = if text(object, "/spec/type") == "Exempt" { "exempt" } else { "limited" };
        let part = &object["spec"][part];
        let number = |field: &str| part[field].as_f64();
        Self {
            uid: uid(object),
            shares: number("nominalConcurrencyShares").unwrap_or_default(),
            lendable: number("lendablePercent").unwrap_or_default(),
            borrowing: number("borrowingLimitPercent"),
        }
    }

    /// Returns the limits of a level among levels with so many shares.
    fn limits(&self, all_shares: f64) -> Limits {
        let nominal = (f64::from(SEATS) * self.shares / all_shares.max(1.0)).ceil();
        let percent = |percent: f64| (nominal * percent / 100.0).round();
        let borrowed = self.borrowing.map_or(f64::from(SEATS), percent);
        Limits { nominal, lower: nominal - percent(self.lendable), upper: nominal + borrowed }
    }
}

/// Returns the limits of levels.
pub(super) fn limits(levels: &BTreeMap<Box<str>, Level>) -> Vec<(String, Limits)> {
    let all_shares = levels.values().map(|level| level.shares).sum();
    levels.iter().map(|(name, level)| (name.to_string(), level.limits(all_shares))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn levels_share_the_seats_of_the_server() {
        let limited = |limited: Value| Level::of(&json!({"spec": {"type": "Limited", "limited": limited}}));
        let mut levels = BTreeMap::new();
        levels.insert("a".into(), limited(json!({"nominalConcurrencyShares": 30, "lendablePercent": 33})));
        let rest = json!({"nominalConcurrencyShares": 215, "lendablePercent": 50, "borrowingLimitPercent": 10});
        levels.insert("b".into(), limited(rest));
        let exempt = json!({"nominalConcurrencyShares": 0, "lendablePercent": 0});
        levels.insert("c".into(), Level::of(&json!({"spec": {"type": "Exempt", "exempt": exempt}})));
        let limits = limits(&levels).into_iter().map(|(_, Limits { nominal, lower, upper })| [nominal, lower, upper]);
        assert_eq!(limits.collect::<Vec<_>>(), [[74.0, 50.0, 674.0], [527.0, 263.0, 580.0], [0.0, 0.0, 600.0]]);
    }
}
