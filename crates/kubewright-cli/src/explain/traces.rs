//! Sentences about an operator's work on an object, and about the object's current state in the operator. Pure.

use jiff::Timestamp;

use super::{
    format::{ago, clean, duration, list, ordinal, quoted, until},
    page::{End, Next, Page, Phase, Present, Reason, Run, Trigger, Write},
};

/// The maximum number of triggers, fields and writes that are shown.
const MOST: usize = 4;

/// Describes the runs of a controller for an object, with one or more sentences per line. `is_there` is whether the
/// object exists.
pub(super) fn describe(page: &Page, is_there: bool) -> Vec<String> {
    let name = clean(&page.controller.name);
    let is_unknown = !page.exists && page.runs.is_empty() && page.present == Present::Idle;
    if is_unknown && page.controller.phase == Phase::Working {
        return vec![if is_there {
            format!(
                "The controller {name} does not have it in its cache; check that it watches this namespace (--watch-namespace)."
            )
        } else {
            format!("The controller {name} does not know such an object either, and has no record of it.")
        }];
    }
    let mut lines = Vec::new();
    let effective = page.runs.iter().rposition(|run| !is_idle(run));
    match (page.runs.last(), effective) {
        (Some(last), Some(effective)) if effective + 1 < page.runs.len() => {
            lines.extend(last_effective_run(page, &page.runs[effective]));
            lines.push(idle_since(page, last, page.runs.len() - effective - 1));
        }
        (Some(run), _) => lines.extend(last_run(page, run)),
        (None, _) if page.controller.displaced == 0 => {
            lines.push(format!("The controller {name} has not reconciled it since the operator started."));
        }
        (None, _) => lines.push(format!(
            "The controller {name} has no record of a run: there was none, or it was evicted by newer runs of other objects."
        )),
    }
    let failed = page.runs.iter().filter(|run| run.end != End::Done).count();
    if failed > 0 && page.runs.len() > 1 {
        lines.push(format!("{failed} of its last {} runs failed.", page.runs.len()));
    }
    // Otherwise the sentence about the last run contains it.
    let is_said = page.runs.last().is_some_and(|run| matches!(run.next, Next::After { .. } | Next::At { .. }));
    if !(is_said && page.waiting.is_empty() && matches!(page.present, Present::Delayed { .. })) {
        lines.push(present(page));
    }
    lines
}

/// Returns whether a run had nothing to do.
fn is_idle(run: &Run) -> bool {
    run.end == End::Done
        && run.more_writes == 0
        && run.writes.iter().all(|write| is_done(write) && write.changed == Some(false))
}

/// Describes the last run that had an effect, if later runs had none.
fn last_effective_run(page: &Page, run: &Run) -> Vec<String> {
    let (name, when) = (clean(&page.controller.name), ago(page.time, run.started));
    let mut lines =
        vec![format!("The controller {name} last did something for it {when}, because {}.", because(page, run))];
    lines.extend(writes(page, run));
    lines.push(ended(run));
    lines
}

/// Describes the runs after the last one that had an effect.
fn idle_since(page: &Page, last: &Run, runs: usize) -> String {
    let (when, why) = (ago(page.time, last.started), because(page, last));
    let times = if runs == 1 { "once again".into() } else { format!("{runs} more times") };
    format!("It was reconciled {times}, last {when}, because {why}, with nothing to do. {}", next(page.time, last))
}

fn last_run(page: &Page, run: &Run) -> Vec<String> {
    let (name, when) = (clean(&page.controller.name), ago(page.time, run.started));
    let took = duration(run.duration);
    let mut lines =
        vec![format!("The controller {name} last reconciled it {when}, for {took}, because {}.", because(page, run))];
    lines.extend(writes(page, run));
    lines.push(format!("{} {}", ended(run), next(page.time, run)));
    lines
}

fn ended(run: &Run) -> String {
    let again = match run.attempt {
        0 | 1 => String::new(),
        attempt => format!(", for the {} time in a row", ordinal(attempt)),
    };
    match &run.end {
        End::Done if run.writes.iter().all(is_done) => "It succeeded.".into(),
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
        End::Unknown => "Its result is not known to this version of kubewright.".into(),
    }
}

fn next(now: Timestamp, run: &Run) -> String {
    let is_final = matches!(run.end, End::Failed { terminal: true, .. });
    match &run.next {
        Next::Change if is_final => "It is not retried until something changes: correct the object.".into(),
        Next::Change => "It runs again when a watched object changes.".into(),
        Next::Now => "It requested another run immediately.".into(),
        Next::After { time } if run.end != End::Done && *time >= now => format!("It retries {}.", at(now, *time)),
        Next::After { time } if run.end != End::Done => format!("It was due to retry {}.", at(now, *time)),
        Next::After { time } | Next::At { time } => format!("It requested another run {}.", at(now, *time)),
        Next::Unknown => "The time of its next run is not known to this version of kubewright.".into(),
    }
}

/// Formats a time, which may be in the past.
fn at(now: Timestamp, time: Timestamp) -> String {
    if time < now {
        format!("at {}, which was {}", time.strftime("%H:%M:%SZ"), ago(now, time))
    } else {
        until(now, time)
    }
}

fn because(page: &Page, run: &Run) -> String {
    let mut parts: Vec<_> = run.triggers.iter().take(MOST).map(|trigger| cause(page, trigger)).collect();
    let rest = run.triggers.len().saturating_sub(MOST) + usize::try_from(run.more_triggers).unwrap_or(usize::MAX);
    match rest {
        0 if parts.is_empty() => return "of an unknown trigger".into(),
        0 => {}
        1 => parts.push("of one more trigger".into()),
        more => parts.push(format!("of {more} more triggers")),
    }
    list(&parts)
}

fn cause(page: &Page, trigger: &Trigger) -> String {
    let own = trigger.kind.as_deref() == Some(&page.controller.kind) && trigger.object.as_ref() == Some(&page.object);
    let kind = trigger.kind.as_deref().map_or_else(|| "object".into(), clean);
    let object = trigger.object.as_deref().map(clean).unwrap_or_default();
    let what = if own { "it".to_owned() } else { format!("{kind} {object}").trim_end().to_owned() };
    match trigger.reason {
        Reason::Added => format!("{what} was created"),
        Reason::Updated => format!("{what} changed{}", fields(trigger)),
        Reason::Deleted => format!("{what} was deleted"),
        Reason::InitialList => format!("{what} existed when the operator started"),
        Reason::Listed => format!("the first list of kind {kind} arrived"),
        Reason::Resync => "of the periodic resync".into(),
        Reason::Requeue => "the previous run requested another".into(),
        Reason::Timer => "the time was reached that the previous run had requested".into(),
        Reason::Backoff => "the previous run failed".into(),
        Reason::Channel if object.is_empty() => "of a custom event source".into(),
        Reason::Channel => format!("of an event for {object} from a custom source"),
        Reason::Unknown => "of an unknown trigger".into(),
    }
}

fn fields(trigger: &Trigger) -> String {
    let mut all = Vec::new();
    for field in trigger.fields.iter().map(|field| short(&clean(field))) {
        if !all.contains(&field) {
            all.push(field);
        }
    }
    let rest = all.len().saturating_sub(MOST) + usize::try_from(trigger.more_fields).unwrap_or(usize::MAX);
    let mut fields: Vec<_> = all.into_iter().take(MOST).collect();
    if rest > 0 {
        fields.push(format!("{rest} more fields"));
    }
    if fields.is_empty() { String::new() } else { format!(" in {}", list(&fields)) }
}

/// Shortens the path of a field in the status.
fn short(field: &str) -> String {
    let Some(inner) = field.strip_prefix("status.") else { return field.to_owned() };
    let end = inner.find(['.', '[']).unwrap_or(inner.len());
    format!("status.{}", &inner[..end])
}

fn is_done(write: &Write) -> bool {
    write.error.is_none() && write.status.is_none_or(|status| status < 400)
}

/// Describes all successful writes in one sentence, and each failed write in a separate one.
fn writes(page: &Page, run: &Run) -> Vec<String> {
    let (well, badly): (Vec<_>, Vec<_>) = run.writes.iter().partition(|write| is_done(write));
    let mut done: Vec<_> = well.iter().take(MOST).map(|write| done(page, write)).collect();
    let rest = well.len().saturating_sub(MOST);
    let rest = rest + usize::try_from(run.more_writes).unwrap_or(usize::MAX);
    if rest > 0 {
        done.push(format!("made {rest} more writes"));
    }
    let mut lines = Vec::new();
    if done.is_empty() && run.writes.is_empty() {
        lines.push("It wrote nothing.".into());
    } else if !done.is_empty() {
        lines.push(format!("It {}.", list(&done)));
    }
    lines.extend(badly.into_iter().map(|write| failed(page, write)));
    lines
}

fn object(page: &Page, write: &Write) -> String {
    let own = write.kind == page.controller.kind && write.object == page.object;
    match (&write.subresource, own) {
        (Some(part), true) => format!("its {}", clean(part)),
        (Some(part), false) => format!("{} of {} {}", clean(part), clean(&write.kind), clean(&write.object)),
        (None, true) => "the object itself".into(),
        (None, false) => format!("{} {}", clean(&write.kind), clean(&write.object)),
    }
}

fn done(page: &Page, write: &Write) -> String {
    let object = object(page, write);
    let past = match write.verb.as_str() {
        "create" => "created",
        "update" => "updated",
        "patch" => "patched",
        "apply" => "applied",
        "delete" => "deleted",
        "deletecollection" => "deleted all of",
        other => return format!("did {} {object}", clean(other)),
    };
    match (write.dry_run, write.changed) {
        (true, _) => format!("did a dry run in which it {past} {object}"),
        (false, Some(false)) => format!("{past} {object} (no change)"),
        (false, _) => format!("{past} {object}"),
    }
}

fn failed(page: &Page, write: &Write) -> String {
    let (verb, object) = (clean(&write.verb), object(page, write));
    let why = write.error.as_deref().map_or_else(|| ".".into(), |error| format!(": {}", quoted(error)));
    match write.status {
        Some(403) => {
            format!("It is not allowed to {verb} {object}{why} The role of the operator lacks this permission.")
        }
        Some(409) => format!("It could not {verb} {object}, which was changed or created by another client{why}"),
        Some(status) => format!("It could not {verb} {object} ({status}){why}"),
        None => format!("It tried to {verb} {object} without getting a response, so this may have happened{why}"),
    }
}

fn present(page: &Page) -> String {
    let controller = &page.controller;
    let since = |time: &Timestamp| duration(page.time.duration_since(*time).as_secs_f64());
    let waiting: Vec<_> = page.waiting.iter().take(MOST).map(|trigger| cause(page, trigger)).collect();
    let why = if waiting.is_empty() { String::new() } else { format!(", because {}", list(&waiting)) };
    match (controller.phase, &page.present) {
        (Phase::Standby, _) => {
            "Nothing happens now: this replica is on standby, as it is starting or another one is the leader.".into()
        }
        (Phase::Syncing, _) if controller.missing.is_empty() => "The controller is about to start.".into(),
        (Phase::Syncing, _) => {
            let missing: Vec<_> = controller.missing.iter().map(|missing| clean(missing)).collect();
            format!("Nothing happens now: the controller cannot start until it has listed {}.", missing.join("; "))
        }
        (Phase::Stopping, _) => "The operator is stopping.".into(),
        (_, Present::Running { since: began }) => format!("It has been reconciling for {}.", since(began)),
        (_, Present::Held { since: began }) => {
            format!("It has been waiting for {} until the cache of the operator has its last write{why}.", since(began))
        }
        (_, Present::Ready) if controller.running >= controller.workers => format!(
            "It is waiting for a worker{why}: all {} are busy, and {} objects are waiting.",
            controller.workers, controller.ready
        ),
        (_, Present::Ready) => format!("It is about to be reconciled{why}."),
        (_, Present::Delayed { left }) => format!("It will be reconciled in {}{why}.", duration(*left)),
        (_, Present::Elsewhere) => "Another replica works on it.".into(),
        (_, Present::Idle) if !page.exists => "The operator does not have it in its cache.".into(),
        (_, Present::Idle) => "It is idle: no watched object has changed since.".into(),
        (_, Present::Unknown) => "Its state is not known to this version of kubewright.".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn page(over: Value) -> Page {
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
            "attempt": 1, "started": "2026-01-01T12:00:05Z", "durationSeconds": 0.0031, "end": {"result": "done"},
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
        describe(&page(json!({"runs": [run(over)]})), true).join("\n")
    }

    #[test]
    fn a_successful_run_is_described() {
        assert_eq!(
            describe(&page(json!({})), true),
            [
                "The controller podset last reconciled it 5s ago, for 3ms, because it changed in spec.replicas.",
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
        let text = |runs: Vec<Value>| describe(&page(json!({"runs": runs})), true);
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
            text(vec![idle(5), effective])[0].starts_with("The controller podset last reconciled it 7s ago, for 3ms,")
        );
        assert!(text(vec![idle(5), idle(7)])[0].starts_with("The controller podset last reconciled it 3s ago"));
    }

    #[test]
    fn unknown_objects_are_described_once() {
        let unknown = page(json!({"exists": false, "runs": []}));
        assert_eq!(
            describe(&unknown, false),
            ["The controller podset does not know such an object either, and has no record of it."]
        );
        assert!(describe(&unknown, true)[0].ends_with("check that it watches this namespace (--watch-namespace)."));
        let asked = json!([run(json!({"next": {"when": "after", "time": "2026-01-01T12:00:19Z"}}))]);
        let waits = describe(&page(json!({"runs": asked, "present": {"state": "delayed", "leftSeconds": 9.0}})), true);
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
                "with a non-retryable error: bad spec. It is not retried until something changes: correct",
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
                "not known to this version of kubewright. The time of its next run is not known",
            ),
        ] {
            let text = last(over);
            assert!(text.contains(expected), "{expected}\nin\n{text}");
        }
        let runs = json!([
            run(json!({"end": {"result": "panicked", "error": "x"}})),
            run(json!({"writes": [{"verb": "create", "kind": "Pod", "object": "demo/a"}]}))
        ]);
        let text = describe(&page(json!({"runs": runs})), true);
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
                "it existed when the operator started",
            ),
            (json!({"reason": "listed", "kind": "Pod"}), "the first list of kind Pod arrived"),
            (json!({"reason": "resync"}), "periodic resync"),
            (json!({"reason": "requeue"}), "the previous run requested another"),
            (json!({"reason": "timer"}), "the time was reached"),
            (json!({"reason": "backoff"}), "the previous run failed"),
            (json!({"reason": "channel", "object": "door"}), "an event for door from a custom source"),
            (json!({"reason": "eclipse"}), "an unknown trigger"),
        ] {
            let text = last(json!({"triggers": [trigger]}));
            assert!(text.lines().next().unwrap().contains(expected), "{expected}\nin\n{text}");
        }
        let many = last(json!({"triggers": [], "moreTriggers": 2}));
        assert!(many.contains("because of 2 more triggers"), "{many}");
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
            write("create", "f", 422, Some("spec is wrong")),
        ]}));
        for expected in [
            "It created Pod demo/a, deleted Pod demo/b and patched its status (no change).",
            "It is not allowed to create Pod demo/c: pods is forbidden. The role of the operator lacks this permission.",
            "It could not update Pod demo/e, which was changed or created by another client.",
            "It could not create Pod demo/f (422): spec is wrong.",
            "It tried to delete Pod demo/d without getting a response, so this may have happened: connection reset.",
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
            (json!({"present": {"state": "elsewhere"}}), "Another replica works on it."),
            (json!({"present": {"state": "asleep"}}), "not known"),
            (json!({"exists": false}), "not have it in its cache"),
            (json!({"controller": controller("standby", &[])}), "on standby"),
            (json!({"controller": controller("syncing", &[])}), "about to start"),
            (
                json!({"controller": controller("syncing", &["pods: forbidden"])}),
                "until it has listed pods: forbidden.",
            ),
            (json!({"controller": controller("stopping", &[])}), "is stopping"),
        ] {
            let text = describe(&page(over), true);
            assert!(text.last().unwrap().contains(expected), "{expected}\nin\n{text:?}");
        }
        let none = describe(&page(json!({"runs": []})), true);
        assert_eq!(none[0], "The controller podset has not reconciled it since the operator started.");
    }
}
