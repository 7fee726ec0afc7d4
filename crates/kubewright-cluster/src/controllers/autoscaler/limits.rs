//! The limits of a scale: the bounds of the autoscaler, its rates, and the stabilization by earlier recommendations.
//! Pure.
//!
//! <https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior>

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::controllers::value::{int, list, number, text};

/// The stabilization window of scale downs, unless the autoscaler sets one.
const DOWN_WINDOW: i64 = 300;
/// The longest window and period that an autoscaler can have, in seconds.
const LONGEST: i64 = 3600;
/// A scale up without `behavior` doubles the replicas, or adds up to this number.
const SCALE_UP_MINIMUM: i64 = 4;

/// What an autoscaler remembers between its decisions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct History {
    /// The numbers of replicas that the metrics asked for.
    recommendations: Vec<(Timestamp, i64)>,
    /// By how many replicas it has scaled up.
    ups: Vec<(Timestamp, i64)>,
    /// By how many replicas it has scaled down.
    downs: Vec<(Timestamp, i64)>,
}

impl History {
    /// Records the number of replicas at the first decision.
    pub(super) fn begin(&mut self, current: i64, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Records a scale, if the autoscaler limits the rate.
    pub(super) fn scaled(&mut self, behavior: &Value, from: i64, to: i64, now: Timestamp) {
        if behavior.is_null() {
            return;
        }
        let (events, change) = if to > from { (&mut self.ups, to - from) } else { (&mut self.downs, from - to) };
        events.retain(|(at, _)| *at >= ago(now, LONGEST));
        events.push((now, change));
    }
}

/// The time some seconds ago.
fn ago(now: Timestamp, seconds: i64) -> Timestamp {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    now.checked_sub(Duration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
}

/// A reason and a message.
pub(super) type Reason = (&'static str, &'static str);

/// A limited number of replicas.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limited {
    /// The number.
    pub(super) replicas: i64,
    /// Why earlier recommendations changed it, or that they didn't.
    pub(super) stabilized: Reason,
    /// Whether a bound or a rate limited it, and why.
    pub(super) limited: (bool, Reason),
}

/// Limits the number of replicas that the metrics ask for, and records it.
pub(super) fn limit(spec: &Value, history: &mut History, current: i64, desired: i64, now: Timestamp) -> Limited {
    let (least, most) = (number(spec, "/minReplicas").unwrap_or(1), int(spec, "/maxReplicas"));
    let behavior = &spec["behavior"];
    let (stable, why) = match behavior {
        Value::Null => stabilize(history, desired, now),
        _ => stabilize_both(behavior, history, current, desired, now),
    };
    history.recommendations.retain(|(at, _)| *at >= ago(now, LONGEST));
    history.recommendations.push((now, desired));
    let (replicas, reason) = match behavior {
        Value::Null => bound(current, stable, least, most),
        _ => bound_rate(behavior, history, (current, stable), (least, most), now),
    };
    let ready = ("ReadyForNewScale", "recommended size matches current size");
    let stabilized = if stable == desired { ready } else { why };
    Limited { replicas, stabilized, limited: (replicas != stable, reason) }
}

const WITHIN: Reason = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: Reason = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: Reason = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const UP_LIMIT: Reason = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: Reason =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const DOWN_STABILIZED: Reason = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: Reason = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);

/// Returns the highest recommendation of the default window.
fn stabilize(history: &History, desired: i64, now: Timestamp) -> (i64, Reason) {
    let recent = history.recommendations.iter().filter(|(at, _)| *at >= ago(now, DOWN_WINDOW));
    (recent.map(|(_, replicas)| *replicas).fold(desired, i64::max), DOWN_STABILIZED)
}

/// Moves the current number as little as possible into the range of the recommendations of the windows.
fn stabilize_both(behavior: &Value, history: &History, current: i64, desired: i64, now: Timestamp) -> (i64, Reason) {
    let window = |rules: &str, default| number(&behavior[rules], "/stabilizationWindowSeconds").unwrap_or(default);
    let (up, down) = (ago(now, window("scaleUp", 0)), ago(now, window("scaleDown", DOWN_WINDOW)));
    let recent =
        |since: Timestamp| history.recommendations.iter().filter(move |(at, _)| *at > since).map(|(_, it)| *it);
    let lowest = recent(up).fold(desired, i64::min);
    let highest = recent(down).fold(desired, i64::max);
    let reason = if desired >= current { UP_STABILIZED } else { DOWN_STABILIZED };
    (current.max(lowest).min(highest), reason)
}

fn bound(current: i64, desired: i64, least: i64, most: i64) -> (i64, Reason) {
    let rate = (2 * current).max(SCALE_UP_MINIMUM);
    let (top, reason) = if most > rate { (rate, UP_LIMIT) } else { (most, TOO_MANY) };
    match desired {
        _ if desired < least => (least, TOO_FEW),
        _ if desired > top => (top, reason),
        _ => (desired, WITHIN),
    }
}

fn bound_rate(
    behavior: &Value,
    history: &History,
    (current, desired): (i64, i64),
    (least, most): (i64, i64),
    now: Timestamp,
) -> (i64, Reason) {
    if desired > current {
        let rate = rate_limit(&behavior["scaleUp"], history, current, true, now).max(current);
        let (top, reason) = if most > rate { (rate, UP_LIMIT) } else { (most, TOO_MANY) };
        if desired > top {
            return (top, reason);
        }
    } else if desired < current {
        let rate = rate_limit(&behavior["scaleDown"], history, current, false, now).min(current);
        let (bottom, reason) = if least < rate { (rate, DOWN_LIMIT) } else { (least, TOO_FEW) };
        if desired < bottom {
            return (bottom, reason);
        }
    }
    (desired, WITHIN)
}

/// Returns the number of replicas that the policies of one direction allow at most, or at least.
fn rate_limit(rules: &Value, history: &History, current: i64, up: bool, now: Timestamp) -> i64 {
    let select = text(rules, "/selectPolicy");
    if select == "Disabled" {
        return current;
    }
    let allowed = list(rules, "/policies").iter().map(|policy| {
        let since = ago(now, int(policy, "/periodSeconds"));
        let changed = |events: &[(Timestamp, i64)]| -> i64 {
            events.iter().filter(|(at, _)| *at > since).map(|(_, change)| *change).sum()
        };
        let start = current - changed(&history.ups) + changed(&history.downs);
        let value = int(policy, "/value");
        let value = if up { value } else { -value };
        match text(policy, "/type") {
            "Pods" => start + value,
            // Rounded so that at least one replica changes.
            _ if up => (start as f64 * (1.0 + value as f64 / 100.0)).ceil() as i64,
            _ => (start as f64 * (1.0 + value as f64 / 100.0)) as i64,
        }
    });
    // The greatest change is the greatest number of a scale up, and the least one of a scale down.
    let limit = if up == (select == "Min") { allowed.min() } else { allowed.max() };
    limit.unwrap_or(current)
}
