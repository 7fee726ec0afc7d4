//! Sentences about what an operator did with an object, and does now. Pure.

use jiff::Timestamp;

use super::{
    format::{ago, clean, duration, list, ordinal, quoted, until},
    page::{End, Next, Page, Phase, Present, Reason, Run, Trigger, Write},
};

/// So many triggers, fields and writes are told.
const MOST: usize = 4;

/// What a controller has to say of an object, a sentence or a few for each line; `is_there` says whether the API server has it.
pub(super) fn tell(page: &Page, is_there: bool) -> Vec<String> {
    let name = clean(&page.controller.name);
    let is_unknown = !page.exists && page.runs.is_empty() && page.present == Present::Idle;
    if is_unknown && page.controller.phase == Phase::Working {
        return vec![if is_there {
            format!(
                "The controller {name} doesn't know it: its cache has no such object. Does it watch this namespace (--watch-namespace)?"
            )
        } else {
            format!("The controller {name} doesn't know it either, and has done nothing with one of that name.")
        }];
    }
    let mut lines = Vec::new();
    let deed = page.runs.iter().rposition(|run| !is_idle(run));
    match (page.runs.last(), deed) {
        (Some(last), Some(deed)) if deed + 1 < page.runs.len() => {
            lines.extend(last_deed(page, &page.runs[deed]));
            lines.push(idle_since(page, last, page.runs.len() - deed - 1));
        }
        (Some(run), _) => lines.extend(last_run(page, run)),
        (None, _) if page.controller.displaced == 0 => {
            lines.push(format!("The controller {name} has not reconciled it since the operator started."));
        }
        (None, _) => lines.push(format!(
            "The controller {name} keeps no run of it: there was none, or later ones of other objects took its room."
        )),
    }
    let failed = page.runs.iter().filter(|run| run.end != End::Done).count();
    if failed > 0 && page.runs.len() > 1 {
        lines.push(format!("Of its last {} runs, {failed} did not end well.", page.runs.len()));
    }
    // Else it was said with the run that asked for it.
    let is_said = page.runs.last().is_some_and(|run| matches!(run.next, Next::After { .. } | Next::At { .. }));
    if !(is_said && page.waiting.is_empty() && matches!(page.present, Present::Delayed { .. })) {
        lines.push(present(page));
    }
    lines
}

/// Whether a run found nothing to do.
fn is_idle(run: &Run) -> bool {
    run.end == End::Done
        && run.more_writes == 0
        && run.writes.iter().all(|write| is_done(write) && write.changed == Some(false))
}

/// The last run that came to something; later ones did not.
fn last_deed(page: &Page, run: &Run) -> Vec<String> {
    let (name, when) = (clean(&page.controller.name), ago(page.time, run.started));
    let mut lines =
        vec![format!("The controller {name} last had to do with it {when}, because {}.", because(page, run))];
    lines.extend(writes(page, run));
    lines.push(ended(run));
    lines
}

/// The runs after that.
fn idle_since(page: &Page, last: &Run, runs: usize) -> String {
    let (when, why) = (ago(page.time, last.started), because(page, last));
    let times = if runs == 1 { "once more".into() } else { format!("{runs} times more") };
    format!(
        "It was reconciled {times}, last {when}, because {why}, and there was nothing to do. {}",
        next(page.time, last)
    )
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
        End::Done if run.writes.iter().all(is_done) => "That went well.".into(),
        End::Done => "The reconciler took that for no error.".into(),
        End::Failed { error, terminal: false } => format!("It failed{again}: {}", quoted(error)),
        End::Failed { error, terminal: true } => {
            format!("It failed{again}, with an error that no other try can mend: {}", quoted(error))
        }
        End::Panicked { error } => {
            format!("It panicked{again}, which is a defect of the operator; its log has the place: {}", quoted(error))
        }
        End::TimedOut { limit } => format!(
            "It was cut off{again}, since it took longer than the {} that a reconcile may take.",
            duration(*limit)
        ),
        End::Unknown => "How it ended is told in a way that this version of kubewright doesn't know.".into(),
    }
}

fn next(now: Timestamp, run: &Run) -> String {
    let is_final = matches!(run.end, End::Failed { terminal: true, .. });
    match &run.next {
        Next::Change if is_final => "It is not tried again before something changes: correct the object.".into(),
        Next::Change => "It runs again when something changes that concerns it.".into(),
        Next::Now => "It wants to run again at once.".into(),
        Next::After { time } if run.end != End::Done && *time >= now => format!("It tries again {}.", at(now, *time)),
        Next::After { time } if run.end != End::Done => format!("It was to try again {}.", at(now, *time)),
        Next::After { time } | Next::At { time } => format!("It asked to run again {}.", at(now, *time)),
        Next::Unknown => "When it runs again is told in a way that this version of kubewright doesn't know.".into(),
    }
}

/// A time that may be over.
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
        0 if parts.is_empty() => return "of something that isn't known".into(),
        0 => {}
        1 => parts.push("there was one more cause".into()),
        more => parts.push(format!("there were {more} more causes")),
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
        Reason::InitialList => format!("{what} was there when the operator began"),
        Reason::Listed => format!("the first list of the kind {kind} had come"),
        Reason::Resync => "everything is looked at again from time to time".into(),
        Reason::Requeue => "the run before asked for another".into(),
        Reason::Timer => "the time had come that the run before had asked for".into(),
        Reason::Backoff => "the run before had failed".into(),
        Reason::Channel if object.is_empty() => "the operator was told so from elsewhere".into(),
        Reason::Channel => format!("the operator was told so by {object}"),
        Reason::Unknown => "of something that isn't known".into(),
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

/// Of a status only the field, not what of it.
fn short(field: &str) -> String {
    let Some(inner) = field.strip_prefix("status.") else { return field.to_owned() };
    let end = inner.find(['.', '[']).unwrap_or(inner.len());
    format!("status.{}", &inner[..end])
}

fn is_done(write: &Write) -> bool {
    write.error.is_none() && write.status.is_none_or(|status| status < 400)
}

/// What it wrote: what came to pass in a sentence, and one for each that did not.
fn writes(page: &Page, run: &Run) -> Vec<String> {
    let (well, badly): (Vec<_>, Vec<_>) = run.writes.iter().partition(|write| is_done(write));
    let mut done: Vec<_> = well.iter().take(MOST).map(|write| done(page, write)).collect();
    let rest = well.len().saturating_sub(MOST);
    let rest = rest + usize::try_from(run.more_writes).unwrap_or(usize::MAX);
    if rest > 0 {
        done.push(format!("did {rest} more writes"));
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
        (true, _) => format!("asked what would be if it {past} {object}"),
        (false, Some(false)) => format!("{past} {object} (which changed nothing)"),
        (false, _) => format!("{past} {object}"),
    }
}

fn failed(page: &Page, write: &Write) -> String {
    let (verb, object) = (clean(&write.verb), object(page, write));
    let why = write.error.as_deref().map_or_else(|| ".".into(), |error| format!(": {}", quoted(error)));
    match write.status {
        Some(403) => format!("It may not {verb} {object}{why} The role of the operator lacks that right."),
        Some(409) => format!("It could not {verb} {object}, which another had changed or made{why}"),
        Some(status) => format!("It could not {verb} {object} ({status}){why}"),
        None => format!("It tried to {verb} {object}, without an answer, so that this may have happened{why}"),
    }
}

fn present(page: &Page) -> String {
    let controller = &page.controller;
    let since = |time: &Timestamp| duration(page.time.duration_since(*time).as_secs_f64());
    let waiting: Vec<_> = page.waiting.iter().take(MOST).map(|trigger| cause(page, trigger)).collect();
    let why = if waiting.is_empty() { String::new() } else { format!(", because {}", list(&waiting)) };
    match (controller.phase, &page.present) {
        (Phase::Standby, _) => "Nothing happens now: that replica stands by, since it starts or another leads.".into(),
        (Phase::Syncing, _) if controller.missing.is_empty() => "The controller is about to begin.".into(),
        (Phase::Syncing, _) => {
            let missing: Vec<_> = controller.missing.iter().map(|missing| clean(missing)).collect();
            format!("Nothing happens now: the controller can't begin before it has listed {}.", missing.join("; "))
        }
        (Phase::Stopping, _) => "The operator is stopping.".into(),
        (_, Present::Running { since: began }) => format!("It is being reconciled now, for {}.", since(began)),
        (_, Present::Held { since: began }) => {
            format!(
                "It waits, for {} now, until the cache of the operator shows what was written last{why}.",
                since(began)
            )
        }
        (_, Present::Ready) if controller.running >= controller.workers => format!(
            "It waits for a worker{why}: all {} are busy, and {} objects wait.",
            controller.workers, controller.ready
        ),
        (_, Present::Ready) => format!("It is about to be reconciled{why}."),
        (_, Present::Delayed { left }) => format!("It is to be reconciled in {}{why}.", duration(*left)),
        (_, Present::Elsewhere) => "Another replica works on it.".into(),
        (_, Present::Idle) if !page.exists => "The operator doesn't know such an object: its cache has none.".into(),
        (_, Present::Idle) => "Now it is at rest: nothing has changed since that concerns it.".into(),
        (_, Present::Unknown) => {
            "What it waits for is told in a way that this version of kubewright doesn't know.".into()
        }
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
        tell(&page(json!({"runs": [run(over)]})), true).join("\n")
    }

    #[test]
    fn a_run_that_went_well() {
        assert_eq!(
            tell(&page(json!({})), true),
            [
                "The controller podset last reconciled it 5 s ago, for 3 ms, because it changed in spec.replicas.",
                "It wrote nothing.",
                "That went well. It runs again when something changes that concerns it.",
                "Now it is at rest: nothing has changed since that concerns it.",
            ]
        );
    }

    #[test]
    fn what_was_done_is_told_rather_than_that_nothing_was() {
        let wrote = |changed: bool| json!([{"verb": "create", "kind": "Pod", "object": "demo/a", "status": 201, "changed": changed}]);
        let fields = ["status.conditions[0].reason", "status.conditions[0].message"];
        let own = json!([{"reason": "updated", "kind": "PodSet", "object": "demo/web", "fields": fields}]);
        let deed = run(json!({"started": "2026-01-01T12:00:03Z", "writes": wrote(true)}));
        let idle = |second: u32| {
            run(json!({"started": format!("2026-01-01T12:00:0{second}Z"), "triggers": own, "writes": wrote(false)}))
        };
        let said = |runs: Vec<Value>| tell(&page(json!({"runs": runs})), true);
        assert_eq!(
            said(vec![idle(1), deed.clone(), idle(5), idle(7)])[..4],
            [
                "The controller podset last had to do with it 7 s ago, because it changed in spec.replicas.",
                "It created Pod demo/a.",
                "That went well.",
                "It was reconciled 2 times more, last 3 s ago, because it changed in status.conditions, and there was nothing to do. \
                 It runs again when something changes that concerns it.",
            ]
        );
        assert!(said(vec![deed.clone(), idle(5)])[3].starts_with("It was reconciled once more, last 5 s ago, because"));
        assert!(
            said(vec![idle(5), deed])[0].starts_with("The controller podset last reconciled it 7 s ago, for 3 ms,")
        );
        assert!(said(vec![idle(5), idle(7)])[0].starts_with("The controller podset last reconciled it 3 s ago"));
    }

    #[test]
    fn what_nobody_knows_is_told_once() {
        let unknown = page(json!({"exists": false, "runs": []}));
        assert_eq!(
            tell(&unknown, false),
            ["The controller podset doesn't know it either, and has done nothing with one of that name."]
        );
        assert!(tell(&unknown, true)[0].ends_with("Does it watch this namespace (--watch-namespace)?"));
        let asked = json!([run(json!({"next": {"when": "after", "time": "2026-01-01T12:00:19Z"}}))]);
        let waits = tell(&page(json!({"runs": asked, "present": {"state": "delayed", "leftSeconds": 9.0}})), true);
        assert_eq!(waits.last().unwrap(), "That went well. It asked to run again in 9 s (12:00:19Z).");
    }

    #[test]
    fn each_end_has_its_sentence() {
        let after = json!({"when": "after", "delaySeconds": 8, "time": "2026-01-01T12:00:18Z"});
        for (over, expected) in [
            (
                json!({"end": {"result": "failed", "error": "no room", "terminal": false}, "attempt": 3, "next": after}),
                "It failed, for the 3rd time in a row: no room. It tries again in 8 s (12:00:18Z).",
            ),
            (
                json!({"end": {"result": "failed", "error": "bad spec.", "terminal": true}}),
                "with an error that no other try can mend: bad spec. It is not tried again before something changes: correct",
            ),
            (
                json!({"end": {"result": "panicked", "error": "index out of bounds"}, "next": {"when": "now"}}),
                "defect of the operator; its log has the place: index out of bounds. It wants to run again at once.",
            ),
            (
                json!({"end": {"result": "timedOut", "limitSeconds": 30}, "next": {"when": "after", "time": "2026-01-01T12:00:08Z"}}),
                "longer than the 30 s that a reconcile may take. It was to try again at 12:00:08Z, which was 2 s ago.",
            ),
            (
                json!({"next": {"when": "at", "time": "2026-01-01T13:00:10Z"}}),
                "That went well. It asked to run again in 60 minutes (13:00:10Z).",
            ),
            (
                json!({"end": {"result": "eclipsed"}, "next": {"when": "moon"}}),
                "doesn't know. When it runs again is told",
            ),
        ] {
            let said = last(over);
            assert!(said.contains(expected), "{expected}\nin\n{said}");
        }
        let runs = json!([
            run(json!({"end": {"result": "panicked", "error": "x"}})),
            run(json!({"writes": [{"verb": "create", "kind": "Pod", "object": "demo/a"}]}))
        ]);
        let said = tell(&page(json!({"runs": runs})), true);
        assert!(said.contains(&"Of its last 2 runs, 1 did not end well.".into()), "{said:?}");
    }

    #[test]
    fn each_cause_has_its_words() {
        for (trigger, expected) in [
            (json!({"reason": "added", "kind": "Pod", "object": "demo/a"}), "Pod demo/a was created"),
            (json!({"reason": "deleted", "kind": "Pod", "object": "demo/a"}), "Pod demo/a was deleted"),
            (json!({"reason": "updated", "kind": "Pod", "object": "demo/web"}), "Pod demo/web changed."),
            (
                json!({"reason": "initialList", "kind": "PodSet", "object": "demo/web"}),
                "it was there when the operator began",
            ),
            (json!({"reason": "listed", "kind": "Pod"}), "the first list of the kind Pod had come"),
            (json!({"reason": "resync"}), "from time to time"),
            (json!({"reason": "requeue"}), "the run before asked for another"),
            (json!({"reason": "timer"}), "the time had come"),
            (json!({"reason": "backoff"}), "the run before had failed"),
            (json!({"reason": "channel", "object": "door"}), "told so by door"),
            (json!({"reason": "eclipse"}), "isn't known"),
        ] {
            let said = last(json!({"triggers": [trigger]}));
            assert!(said.lines().next().unwrap().contains(expected), "{expected}\nin\n{said}");
        }
        let many = last(json!({"triggers": [], "moreTriggers": 2}));
        assert!(many.contains("because there were 2 more causes"), "{many}");
    }

    #[test]
    fn writes_are_told_and_why_they_failed() {
        let write = |verb: &str, name: &str, status: u16, error: Option<&str>| json!({"verb": verb, "kind": "Pod", "object": format!("demo/{name}"), "status": status, "error": error});
        let status = json!({
            "verb": "patch", "kind": "PodSet", "object": "demo/web", "subresource": "status", "status": 200, "changed": false,
        });
        let lost = json!({"verb": "delete", "kind": "Pod", "object": "demo/d", "error": "connection reset"});
        let said = last(json!({"writes": [
            write("create", "a", 201, None), write("delete", "b", 200, None), status, lost,
            write("create", "c", 403, Some("pods is forbidden")), write("update", "e", 409, None),
            write("create", "f", 422, Some("spec is wrong")),
        ]}));
        for expected in [
            "It created Pod demo/a, deleted Pod demo/b and patched its status (which changed nothing).",
            "It may not create Pod demo/c: pods is forbidden. The role of the operator lacks that right.",
            "It could not update Pod demo/e, which another had changed or made.",
            "It could not create Pod demo/f (422): spec is wrong.",
            "It tried to delete Pod demo/d, without an answer, so that this may have happened: connection reset.",
        ] {
            assert!(said.lines().any(|line| line == expected), "{expected}\nin\n{said}");
        }
        assert!(said.contains("The reconciler took that for no error. It runs again"), "{said}");
    }

    #[test]
    fn what_it_waits_for_is_told() {
        let controller = |phase: &str, missing: &[&str]| json!({"name": "podset", "kind": "PodSet", "phase": phase, "missing": missing, "workers": 1, "ready": 4, "running": 1});
        let waiting = json!([{"reason": "added", "kind": "Pod", "object": "demo/a"}]);
        for (over, expected) in [
            (
                json!({"present": {"state": "running", "since": "2026-01-01T12:00:08Z"}}),
                "being reconciled now, for 2 s.",
            ),
            (json!({"present": {"state": "held", "since": "2026-01-01T12:00:08Z"}}), "for 2 s now, until the cache"),
            (
                json!({"present": {"state": "ready"}, "waiting": waiting}),
                "because Pod demo/a was created: all 1 are busy, and 4",
            ),
            (json!({"present": {"state": "delayed", "leftSeconds": 9.0}}), "It is to be reconciled in 9 s."),
            (json!({"present": {"state": "elsewhere"}}), "Another replica works on it."),
            (json!({"present": {"state": "asleep"}}), "doesn't know"),
            (json!({"exists": false}), "its cache has none"),
            (json!({"controller": controller("standby", &[])}), "stands by"),
            (json!({"controller": controller("syncing", &[])}), "about to begin"),
            (
                json!({"controller": controller("syncing", &["pods: forbidden"])}),
                "before it has listed pods: forbidden.",
            ),
            (json!({"controller": controller("stopping", &[])}), "is stopping"),
        ] {
            let said = tell(&page(over), true);
            assert!(said.last().unwrap().contains(expected), "{expected}\nin\n{said:?}");
        }
        let none = tell(&page(json!({"runs": []})), true);
        assert_eq!(none[0], "The controller podset has not reconciled it since the operator started.");
    }
}
