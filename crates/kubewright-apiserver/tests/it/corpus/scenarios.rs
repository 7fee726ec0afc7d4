//! Sequences of requests, whose answers are compared as a whole.

use std::{collections::BTreeMap, path::Path};

use kubewright_corpus::scenario::{Reply, Scenario, define, run};
use serde_json::Value;

use super::{
    Embedded,
    known::{ACCEPTED, CODE, Difference, MESSAGE, NO_ANSWER, OTHER, REFUSED, Report, WARNINGS},
};

/// The number of differences of an answer that are shown.
const SHOWN: usize = 12;

fn difference(recorded: &Reply, actual: &Reply) -> Difference {
    let accepted = |reply: &Reply| reply.code < 300;
    let reason = match (accepted(recorded), accepted(actual)) {
        (false, true) => ACCEPTED,
        (true, false) => REFUSED,
        _ if recorded.code != actual.code => CODE,
        _ if recorded.warnings != actual.warnings => WARNINGS,
        (false, false) => MESSAGE,
        _ => OTHER,
    };
    let value = |reply: &Reply| serde_json::to_value(reply).unwrap();
    let mut lines = Vec::new();
    compare("", &value(recorded), &value(actual), &mut lines);
    lines.truncate(SHOWN);
    Difference { reason, text: lines.join("\n") }
}

/// Lists where two values differ.
fn compare(at: &str, recorded: &Value, actual: &Value, lines: &mut Vec<String>) {
    match (recorded, actual) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one.keys().chain(other.keys().filter(|name| !one.contains_key(*name))) {
                let at = format!("{at}.{name}");
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(&at, one, other, lines),
                    (Some(one), None) => lines.push(format!("  {at} is missing: {one}")),
                    (None, other) => lines.push(format!("  {at} is surplus: {}", other.unwrap_or(&Value::Null))),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{at}[{index}]"), one, other, lines);
            }
        }
        _ if recorded != actual => {
            lines.push(format!("  {at}\n    recorded: {recorded}\n    actual:   {actual}"));
        }
        _ => {}
    }
}

async fn differences(scenario: &Scenario) -> BTreeMap<String, Difference> {
    let replies = match run(&Embedded::start(), scenario, "0").await {
        Ok(replies) => replies,
        Err(error) => {
            let difference = |_| Difference { reason: NO_ANSWER, text: format!("  {error:#}") };
            return scenario.steps.iter().map(|step| (step.step.clone(), difference(step))).collect();
        }
    };
    let mut found = BTreeMap::new();
    for (step, reply) in scenario.steps.iter().zip(&replies) {
        let recorded = step.answer.as_ref().unwrap_or_else(|| panic!("{}: {} has no answer", scenario.name, step.step));
        if recorded != reply {
            found.insert(step.step.clone(), difference(recorded, reply));
        }
    }
    found
}

/// Runs on a paused clock, so that watches end at once.
#[tokio::test(start_paused = true)]
async fn scenarios_are_answered_as_by_kubernetes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/scenarios");
    let mut report = Report::default();
    for scenario in Scenario::read_all(&directory).unwrap() {
        let names = scenario.steps.iter().map(|step| step.step.as_str());
        report.compare(&directory.join("known"), &scenario.name, names, &differences(&scenario).await);
    }
    report.check();
}

/// A changed definition has to be recorded again.
#[test]
fn the_recorded_scenarios_are_those_that_are_defined() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recorded = Scenario::read_all(&root.join("tests/corpus/scenarios")).unwrap();
    let defined = define(&root.join("../kubewright-corpus/scenarios")).unwrap();
    let requests = |scenarios: &[Scenario]| {
        let mut scenarios = scenarios.to_vec();
        for scenario in &mut scenarios {
            scenario.server.clear();
            scenario.steps.iter_mut().for_each(|step| step.answer = None);
        }
        scenarios
    };
    for (recorded, defined) in requests(&recorded).iter().zip(requests(&defined)) {
        assert_eq!(*recorded, defined, "record the scenario {} again", defined.name);
    }
    assert_eq!(recorded.len(), defined.len());
}
