//! Sentences about an operator's work on an object, and about the object's current state in the operator.

use super::{
    End, KeyPage, Next, Phase, Present, Trace, Write,
    clause::{Detail, MOST},
};
use crate::text::{ago, clean, duration, list, ordinal, quoted};

impl KeyPage {
    /// Describes the latest run of the key and its current state, with one or more sentences per line. `is_there` is
    /// whether the API server has the object.
    pub fn explain(&self, is_there: bool) -> Vec<String> {
        let name = clean(&self.controller.name);
        let is_unknown = !self.exists && self.runs.is_empty() && self.present == Present::Idle;
        if is_unknown && self.controller.phase == Phase::Working {
            return vec![if is_there {
                format!(
                    "The controller {name} does not have it in its cache; check that it watches this namespace (--watch-namespace)."
                )
            } else {
                format!("The controller {name} does not know such an object either, and has no record of it.")
            }];
        }
        let mut lines = Vec::new();
        let effective = self.runs.iter().rposition(|run| !is_idle(run));
        match (self.runs.last(), effective) {
            (Some(last), Some(effective)) if effective + 1 < self.runs.len() => {
                lines.extend(self.last_effective_run(&self.runs[effective]));
                lines.push(self.idle_since(last, self.runs.len() - effective - 1));
            }
            (Some(run), _) => lines.extend(self.last_run(run)),
            (None, _) => lines.push(format!("The controller {name} {}.", self.no_runs())),
        }
        let failed = self.runs.iter().filter(|run| run.end != End::Done).count();
        if failed > 0 && self.runs.len() > 1 {
            lines.push(format!("{failed} of its last {} runs failed.", self.runs.len()));
        }
        // Otherwise the sentence about the last run contains it.
        let is_stated = self.runs.last().is_some_and(|run| matches!(run.next, Next::After { .. } | Next::At { .. }));
        if !(is_stated && self.waiting.is_empty() && matches!(self.present, Present::Delayed { .. })) {
            lines.push(format!("It {}.", self.state()));
        }
        lines
    }

    /// Describes the last run that had an effect, if later runs had none.
    fn last_effective_run(&self, run: &Trace) -> Vec<String> {
        let (name, when) = (clean(&self.controller.name), ago(self.time, run.started));
        let because = run.because(Detail::Brief);
        let mut lines = vec![format!("The controller {name} last did something for it {when}, because {because}.")];
        lines.extend(writes(run));
        lines.push(result(run));
        lines
    }

    /// Describes the runs after the last one that had an effect.
    fn idle_since(&self, last: &Trace, runs: usize) -> String {
        let (when, because) = (ago(self.time, last.started), last.because(Detail::Brief));
        let times = if runs == 1 { "once again".into() } else { format!("{runs} more times") };
        let due = last.due(self.time);
        format!("It was reconciled {times}, last {when}, because {because}, with nothing to do. It {due}.")
    }

    fn last_run(&self, run: &Trace) -> Vec<String> {
        let (name, when) = (clean(&self.controller.name), ago(self.time, run.started));
        let (took, because) = (duration(run.duration), run.because(Detail::Brief));
        let mut lines =
            vec![format!("The controller {name} last reconciled it {when}, for {took}, because {because}.")];
        lines.extend(writes(run));
        let advice = match &run.end {
            End::Failed { terminal: true, .. } if run.next == Next::Change => " Correct the object.",
            _ => "",
        };
        lines.push(format!("{} It {}.{advice}", result(run), run.due(self.time)));
        lines
    }
}

/// Returns whether a run had nothing to do.
fn is_idle(run: &Trace) -> bool {
    run.end == End::Done
        && run.more_writes == 0
        && run.writes.iter().all(|write| write.is_successful() && write.changed == Some(false))
}

fn result(run: &Trace) -> String {
    let again = match run.attempt {
        0 | 1 => String::new(),
        attempt => format!(", for the {} time in a row", ordinal(attempt)),
    };
    match &run.end {
        End::Done if run.writes.iter().all(Write::is_successful) => "It succeeded.".into(),
        End::Done => "The reconciler ignored this error.".into(),
        End::Failed { error, terminal: false } => format!("It failed{again}: {}", quoted(error)),
        End::Failed { error, terminal: true } => {
            format!("It failed{again}, with a non-retryable error: {}", quoted(error))
        }
        End::Panicked { error } => {
            format!(
                "It panicked{again}, which is a bug in the operator; see its log for the location: {}",
                quoted(error)
            )
        }
        End::TimedOut { limit } => {
            format!("It timed out{again}, after the limit of {} for a reconcile.", duration(*limit))
        }
        End::Unknown => "It ended with a result that this version of kubewright cannot read.".into(),
    }
}

/// Describes all successful writes in one sentence, and each failed write in a separate one.
fn writes(run: &Trace) -> Vec<String> {
    let it = run.subject();
    let (successful, failed): (Vec<_>, Vec<_>) = run.writes.iter().partition(|write| write.is_successful());
    let mut done = successful.iter().take(MOST).map(|write| write.effect(it)).collect::<Vec<_>>();
    let rest = successful.len().saturating_sub(MOST);
    let rest = rest.saturating_add(usize::try_from(run.more_writes).unwrap_or(usize::MAX));
    if rest > 0 {
        done.push(format!("made {rest} more writes"));
    }
    let mut lines = Vec::new();
    if done.is_empty() && run.writes.is_empty() {
        lines.push("It wrote nothing.".into());
    } else if !done.is_empty() {
        lines.push(format!("It {}.", list(&done)));
    }
    lines.extend(failed.into_iter().map(|write| {
        let advice = match write.status {
            Some(403) => " The role of the operator lacks this permission.",
            Some(409) => " Another client changed or created it.",
            Some(_) => "",
            None => " It may have taken effect.",
        };
        format!("It {}.{advice}", write.effect(it))
    }));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn page(over: Value) -> KeyPage {
        let mut page = json!({
            "version": 1, "time": "2026-01-01T12:00:10Z", "object": "demo/web", "exists": true,
            "controller": {"name": "podset", "kind": "PodSet", "phase": "working", "workers": 1, "ready": 4, "running": 1},
            "present": {"state": "idle"}, "waiting": [], "runs": [run(json!({}))],
        });
        merge(&mut page, over);
        serde_json::from_value(page).unwrap()
    }

    fn run(over: Value) -> Value {
        let mut run = json!({
            "kind": "PodSet", "object": "demo/web", "attempt": 1, "started": "2026-01-01T12:00:05Z",
            "durationSeconds": 0.0031, "end": {"result": "done"},
            "triggers": [{"reason": "updated", "kind": "PodSet", "object": "demo/web", "fields": ["spec.replicas"]}],
            "writes": [], "next": {"when": "change"},
        });
        merge(&mut run, over);
        run
    }

    fn merge(into: &mut Value, over: Value) {
        let Value::Object(over) = over else { panic!("an object") };
        for (name, value) in over {
            into[name] = value;
        }
    }

    fn last(over: Value) -> String {
        page(json!({"runs": [run(over)]})).explain(true).join("\n")
    }

    #[test]
    fn a_successful_run_is_described() {
        assert_eq!(
            page(json!({})).explain(true),
            [
                "The controller podset last reconciled it 5s ago, for 3.1ms, because it changed in spec.replicas.",
                "It wrote nothing.",
                "It succeeded. It runs again when a watched object changes.",
                "It is idle: no watched object has changed since.",
            ]
        );
    }

    #[test]
    fn the_last_effective_run_is_described_first() {
        let wrote = |changed: bool| json!([{"verb": "create", "kind": "Pod", "object": "demo/a", "status": 201, "changed": changed}]);
        let fields = ["status.conditions[0].reason", "status.conditions[0].message"];
        let own = json!([{"reason": "updated", "kind": "PodSet", "object": "demo/web", "fields": fields}]);
        let effective = run(json!({"started": "2026-01-01T12:00:03Z", "writes": wrote(true)}));
        let idle = |second: u32| {
            run(json!({"started": format!("2026-01-01T12:00:0{second}Z"), "triggers": own, "writes": wrote(false)}))
        };
        let text = |runs: Vec<Value>| page(json!({"runs": runs})).explain(true);
        assert_eq!(
            text(vec![idle(1), effective.clone(), idle(5), idle(7)])[..4],
            [
                "The controller podset last did something for it 7s ago, because it changed in spec.replicas.",
                "It created Pod demo/a.",
                "It succeeded.",
                "It was reconciled 2 more times, last 3s ago, because it changed in status.conditions, with nothing to do. \
                 It runs again when a watched object changes.",
            ]
        );
        assert!(
            text(vec![effective.clone(), idle(5)])[3].starts_with("It was reconciled once again, last 5s ago, because")
        );
        assert!(
            text(vec![idle(5), effective])[0]
                .starts_with("The controller podset last reconciled it 7s ago, for 3.1ms,")
        );
        assert!(text(vec![idle(5), idle(7)])[0].starts_with("The controller podset last reconciled it 3s ago"));
    }

    #[test]
    fn unknown_objects_are_described_once() {
        let unknown = page(json!({"exists": false, "runs": []}));
        assert_eq!(
            unknown.explain(false),
            ["The controller podset does not know such an object either, and has no record of it."]
        );
        assert!(unknown.explain(true)[0].ends_with("check that it watches this namespace (--watch-namespace)."));
        let asked = json!([run(json!({"next": {"when": "after", "time": "2026-01-01T12:00:19Z"}}))]);
        let waits = page(json!({"runs": asked, "present": {"state": "delayed", "leftSeconds": 9.0}})).explain(true);
        assert_eq!(waits.last().unwrap(), "It succeeded. It requested another run in 9s (12:00:19Z).");
    }

    #[test]
    fn each_result_is_described() {
        let after = json!({"when": "after", "delaySeconds": 8, "time": "2026-01-01T12:00:18Z"});
        for (over, expected) in [
            (
                json!({"end": {"result": "failed", "error": "no room", "terminal": false}, "attempt": 3, "next": after}),
                "It failed, for the 3rd time in a row: no room. It retries in 8s (12:00:18Z).",
            ),
            (
                json!({"end": {"result": "failed", "error": "bad spec.", "terminal": true}}),
                "with a non-retryable error: bad spec. It is not retried until something changes. Correct the object.",
            ),
            (
                json!({"end": {"result": "panicked", "error": "index out of bounds"}, "next": {"when": "now"}}),
                "bug in the operator; see its log for the location: index out of bounds. It requested another run immediately.",
            ),
            (
                json!({"end": {"result": "timedOut", "limitSeconds": 30}, "next": {"when": "after", "time": "2026-01-01T12:00:08Z"}}),
                "after the limit of 30s for a reconcile. It was due to retry at 12:00:08Z, which was 2s ago.",
            ),
            (
                json!({"next": {"when": "at", "time": "2026-01-01T13:00:10Z"}}),
                "It succeeded. It requested another run in 60 minutes (13:00:10Z).",
            ),
            (
                json!({"end": {"result": "eclipsed"}, "next": {"when": "moon"}}),
                "It ended with a result that this version of kubewright cannot read. It runs again at a time that this version",
            ),
        ] {
            let text = last(over);
            assert!(text.contains(expected), "{expected}\nin\n{text}");
        }
        let runs = json!([
            run(json!({"end": {"result": "panicked", "error": "x"}})),
            run(json!({"writes": [{"verb": "create", "kind": "Pod", "object": "demo/a"}]}))
        ]);
        let text = page(json!({"runs": runs})).explain(true);
        assert!(text.contains(&"1 of its last 2 runs failed.".into()), "{text:?}");
    }

    #[test]
    fn each_trigger_is_described() {
        for (trigger, expected) in [
            (json!({"reason": "added", "kind": "Pod", "object": "demo/a"}), "Pod demo/a was created"),
            (json!({"reason": "deleted", "kind": "Pod", "object": "demo/a"}), "Pod demo/a was deleted"),
            (json!({"reason": "updated", "kind": "Pod", "object": "demo/web"}), "Pod demo/web changed."),
            (
                json!({"reason": "initialList", "kind": "PodSet", "object": "demo/web"}),
                "it existed when the controller started",
            ),
            (json!({"reason": "listed", "kind": "Pod"}), "kind Pod was listed for the first time"),
            (json!({"reason": "resync"}), "the cache was resynced"),
            (json!({"reason": "requeue"}), "the previous run requested another"),
            (json!({"reason": "timer"}), "the time was reached"),
            (json!({"reason": "backoff"}), "the previous run failed"),
            (json!({"reason": "channel", "object": "orders"}), "an event arrived on the channel orders"),
            (json!({"reason": "channel"}), "an event arrived on a channel."),
            (json!({"reason": "backoff", "times": 3}), "the previous run failed (3 times)."),
            (json!({"reason": "eclipse"}), "of an unknown trigger."),
        ] {
            let text = last(json!({"triggers": [trigger]}));
            assert!(text.lines().next().unwrap().contains(expected), "{expected}\nin\n{text}");
        }
        for (over, expected) in [
            (json!({"triggers": []}), "because of an unknown trigger."),
            (json!({"triggers": [], "moreTriggers": 2}), "because of 2 unknown triggers."),
            (json!({"moreTriggers": 1}), "because it changed in spec.replicas (and one more trigger)."),
            (
                json!({"triggers": vec![json!({"reason": "timer"}); 6], "moreTriggers": 2}),
                "requested (and 4 more triggers).",
            ),
        ] {
            let text = last(over);
            assert!(text.contains(expected), "{expected}\nin\n{text}");
        }
    }

    #[test]
    fn writes_and_their_errors_are_described() {
        let write = |verb: &str, name: &str, status: u16, error: Option<&str>| json!({"verb": verb, "kind": "Pod", "object": format!("demo/{name}"), "status": status, "error": error});
        let status = json!({
            "verb": "patch", "kind": "PodSet", "object": "demo/web", "subresource": "status", "status": 200, "changed": false,
        });
        let lost = json!({"verb": "delete", "kind": "Pod", "object": "demo/d", "error": "connection reset"});
        let text = last(json!({"writes": [
            write("create", "a", 201, None), write("delete", "b", 200, None), status, lost,
            write("create", "c", 403, Some("pods is forbidden")), write("update", "e", 409, None),
            write("create", "f", 422, Some("spec is wrong.")),
        ]}));
        for expected in [
            "It created Pod demo/a, deleted Pod demo/b and patched its status (no change).",
            "It could not create Pod demo/c (403: pods is forbidden). The role of the operator lacks this permission.",
            "It could not update Pod demo/e (409). Another client changed or created it.",
            "It could not create Pod demo/f (422: spec is wrong).",
            "It tried to delete Pod demo/d, without a response (connection reset). It may have taken effect.",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected}\nin\n{text}");
        }
        assert!(text.contains("The reconciler ignored this error. It runs again"), "{text}");
    }

    #[test]
    fn the_current_state_is_described() {
        let controller = |phase: &str, missing: &[&str]| json!({"name": "podset", "kind": "PodSet", "phase": phase, "missing": missing, "workers": 1, "ready": 4, "running": 1});
        let waiting = json!([{"reason": "added", "kind": "Pod", "object": "demo/a"}]);
        for (over, expected) in [
            (json!({"present": {"state": "running", "since": "2026-01-01T12:00:08Z"}}), "reconciling for 2s."),
            (json!({"present": {"state": "held", "since": "2026-01-01T12:00:08Z"}}), "waiting for 2s until the cache"),
            (
                json!({"present": {"state": "ready"}, "waiting": waiting}),
                "because Pod demo/a was created: all 1 are busy, and 4",
            ),
            (json!({"present": {"state": "delayed", "leftSeconds": 9.0}}), "It will be reconciled in 9s."),
            (json!({"present": {"state": "elsewhere"}}), "It is assigned to another replica."),
            (json!({"present": {"state": "asleep"}}), "cannot read"),
            (json!({"exists": false}), "is not in the cache"),
            (json!({"controller": controller("standby", &[])}), "on standby"),
            (json!({"controller": controller("syncing", &[])}), "about to start"),
            (
                json!({"controller": controller("syncing", &["pods: forbidden"])}),
                "until it has listed pods: forbidden.",
            ),
            (json!({"controller": controller("stopping", &[])}), "is stopping"),
        ] {
            let text = page(over).explain(true);
            assert!(text.last().unwrap().contains(expected), "{expected}\nin\n{text:?}");
        }
        let none = page(json!({"runs": []})).explain(true);
        assert_eq!(none[0], "The controller podset has not reconciled it since the operator started.");
    }
}
