//! The clauses of which lines and sentences about traces consist. They lack a subject: `created Pod demo/a`.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;

use super::{End, KeyPage, Next, Phase, Present, Query, Read, Reason, Summary, Trace, Trigger, Write};
use crate::text::{ago, clean, clock, duration, list, plural, until};

/// The amount of detail in a clause.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// At most [`MOST`] triggers and fields, and shortened paths below the status.
    Brief,
    /// Everything that was recorded.
    Full,
}

/// The maximum number of triggers, fields and writes in a brief clause.
pub(super) const MOST: usize = 4;

impl Detail {
    pub(super) const fn most(self) -> usize {
        match self {
            Self::Brief => MOST,
            Self::Full => usize::MAX,
        }
    }
}

/// The reconciled object, to which clauses refer as *it*.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    kind: &'a str,
    object: &'a str,
}

impl Subject<'_> {
    fn is(&self, kind: &str, object: &str) -> bool {
        self.kind == kind && self.object == object
    }
}

impl Trace {
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject { kind: &self.kind, object: &self.object }
    }

    /// Returns the triggers, for after *because*.
    pub(super) fn because(&self, detail: Detail) -> String {
        because(&self.triggers, self.more_triggers, self.subject(), detail)
    }

    /// Returns the time of the next run: `retries in 8s (12:00:18Z)`.
    pub(super) fn due(&self, now: Timestamp) -> String {
        match (&self.next, &self.end) {
            (Next::Change, End::Failed { terminal: true, .. }) => "is not retried until something changes".into(),
            (Next::Change, _) => "runs again when a watched object changes".into(),
            (Next::Now, _) => "requested another run immediately".into(),
            (Next::After { time, .. } | Next::At { time }, End::Done) => {
                format!("requested another run {}", at(now, *time))
            }
            (Next::After { time, .. } | Next::At { time }, _) if *time >= now => format!("retries {}", at(now, *time)),
            (Next::After { time, .. } | Next::At { time }, _) => format!("was due to retry {}", at(now, *time)),
            (Next::Unknown, _) => "runs again at a time that this version of kubewright cannot read".into(),
        }
    }
}

/// Formats a time, which may be in the past.
fn at(now: Timestamp, time: Timestamp) -> String {
    if time < now { format!("at {}, which was {}", clock(time), ago(now, time)) } else { until(now, time) }
}

fn because(triggers: &[Trigger], more: u32, it: Subject<'_>, detail: Detail) -> String {
    let causes = triggers.iter().take(detail.most()).map(|trigger| trigger.cause(it, detail)).collect::<Vec<_>>();
    let rest = (triggers.len() - causes.len()).saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
    match (causes.is_empty(), rest) {
        (true, 0) => "of an unknown trigger".into(),
        (true, rest) => format!("of {rest} unknown triggers"),
        (false, 0) => list(&causes),
        (false, 1) => format!("{} (and one more trigger)", list(&causes)),
        (false, rest) => format!("{} (and {rest} more triggers)", list(&causes)),
    }
}

impl Trigger {
    fn cause(&self, it: Subject<'_>, detail: Detail) -> String {
        let kind = self.kind.as_deref().map_or("object".into(), clean);
        let object = self.object.as_deref().map(clean).unwrap_or_default();
        let subject = match (&self.kind, &self.object) {
            (Some(kind), Some(object)) if it.is(kind, object) => "it".to_owned(),
            _ => format!("{kind} {object}").trim_end().to_owned(),
        };
        let cause = match self.reason {
            Reason::Added => format!("{subject} was created"),
            Reason::Updated => format!("{subject} changed{}", self.fields(detail)),
            Reason::Deleted => format!("{subject} was deleted"),
            Reason::InitialList => format!("{subject} existed when the controller started"),
            Reason::Listed => format!("kind {kind} was listed for the first time"),
            Reason::Resync => "the cache was resynced".into(),
            Reason::Requeue => "the previous run requested another".into(),
            Reason::Timer => "the time was reached that the previous run had requested".into(),
            Reason::Backoff => "the previous run failed".into(),
            Reason::Channel if object.is_empty() => "an event arrived on a channel".into(),
            Reason::Channel => format!("an event arrived on the channel {object}"),
            Reason::Unknown => "of an unknown trigger".into(),
        };
        if self.times > 1 { format!("{cause} ({} times)", self.times) } else { cause }
    }

    fn fields(&self, detail: Detail) -> String {
        let mut all = Vec::new();
        for field in &self.fields {
            let field = if detail == Detail::Brief { shortened(field) } else { field };
            let field = clean(field).into_owned();
            if !all.contains(&field) {
                all.push(field);
            }
        }
        let most = detail.most();
        let rest =
            all.len().saturating_sub(most).saturating_add(usize::try_from(self.more_fields).unwrap_or(usize::MAX));
        all.truncate(most);
        if rest > 0 {
            all.push(format!("{rest} more fields"));
        }
        if all.is_empty() { String::new() } else { format!(" in {}", list(&all)) }
    }
}

/// Shortens the path of a field in the status to its first two segments.
fn shortened(field: &str) -> &str {
    const STATUS: &str = "status.";
    let Some(inner) = field.strip_prefix(STATUS) else { return field };
    inner.find(['.', '[']).map_or(field, |end| &field[..STATUS.len() + end])
}

impl Read {
    /// Returns the objects that were read: `3 Pods`.
    pub(super) fn objects(&self) -> String {
        let kind = clean(&self.kind);
        let mut text = match (&self.query, self.found) {
            (Query::Name { object }, Some(0)) => format!("no {kind} {}", clean(object)),
            (Query::Name { object }, _) => format!("{kind} {}", clean(object)),
            (_, Some(1)) => format!("1 {kind}"),
            (_, Some(found)) => format!("{found} {}", plural(&kind)),
            (_, None) => plural(&kind),
        };
        match &self.query {
            Query::Labels { selector, .. } if !selector.is_empty() => text += &format!(" with {}", clean(selector)),
            Query::Index { index, value } => text += &format!(" with {} {}", clean(index), clean(value)),
            _ => {}
        }
        if self.live {
            text += " from the API server";
        }
        match &self.error {
            Some(error) => format!("{text} (failed: {})", clean(error)),
            None => text,
        }
    }
}

impl Write {
    /// Returns what the write did: `created Pod demo/a`, `could not create Pod demo/a (403: pods is forbidden)`.
    pub(super) fn effect(&self, it: Subject<'_>) -> String {
        if self.is_successful() {
            return self.done(it);
        }
        let (verb, object) = match &*self.verb {
            "deletecollection" => ("delete".into(), self.collection()),
            verb => (clean(verb), self.target(it)),
        };
        let error = self.error.as_deref().map(|error| clean(error.trim_end_matches('.')));
        match (self.status, error) {
            (Some(status), Some(error)) => format!("could not {verb} {object} ({status}: {error})"),
            (Some(status), None) => format!("could not {verb} {object} ({status})"),
            (None, Some(error)) => format!("tried to {verb} {object}, without a response ({error})"),
            (None, None) => format!("tried to {verb} {object}, without a response"),
        }
    }

    fn done(&self, it: Subject<'_>) -> String {
        let done = match &*self.verb {
            "create" => "created",
            "update" => "updated",
            "patch" => "patched",
            "apply" => "applied",
            "delete" | "deletecollection" => "deleted",
            _ => "wrote",
        };
        let object = if self.verb == "deletecollection" { self.collection() } else { self.target(it) };
        let note = match (self.dry_run, self.changed) {
            (true, Some(false)) => " (dry run, no change)",
            (true, _) => " (dry run)",
            (false, Some(false)) => " (no change)",
            (false, _) => "",
        };
        format!("{done} {object}{note}")
    }

    fn target(&self, it: Subject<'_>) -> String {
        let (kind, object) = (clean(&self.kind), clean(&self.object));
        match (&self.subresource, it.is(&self.kind, &self.object)) {
            (Some(part), true) => format!("its {}", clean(part)),
            (Some(part), false) => format!("the {} of {kind} {object}", clean(part)),
            (None, true) => "the object itself".into(),
            (None, false) => format!("{kind} {object}"),
        }
    }

    /// Returns the target of a collection delete: `all Pods in demo`.
    fn collection(&self) -> String {
        let kind = plural(&clean(&self.kind));
        match self.object.strip_suffix('/') {
            Some(namespace) => format!("all {kind} in {}", clean(namespace)),
            None => format!("all {kind}"),
        }
    }
}

impl Summary {
    /// Returns the state of the controller: `is working`.
    pub(super) fn state(&self) -> Cow<'static, str> {
        match self.phase {
            Phase::Standby => "is on standby: the manager is starting, or another replica is the leader".into(),
            Phase::Syncing if self.missing.is_empty() => "is about to start".into(),
            Phase::Syncing => {
                let missing = self.missing.iter().map(|missing| clean(missing)).collect::<Vec<_>>();
                format!("cannot start until it has listed {}", missing.join("; ")).into()
            }
            Phase::Working => "is working".into(),
            Phase::Stopping => "is stopping".into(),
            Phase::Unknown => "is in a phase that this version of kubewright cannot read".into(),
        }
    }
}

impl KeyPage {
    /// Returns the state of the key: `is idle: no watched object has changed since`.
    pub(super) fn state(&self) -> String {
        let controller = &self.controller;
        if !matches!(controller.phase, Phase::Working | Phase::Unknown) {
            return format!("is not reconciled now, as the controller {}", controller.state());
        }
        let since =
            |since: &Timestamp| duration(Duration::try_from(self.time.duration_since(*since)).unwrap_or_default());
        let it = Subject { kind: &controller.kind, object: &self.object };
        let why = match &*self.waiting {
            [] => String::new(),
            waiting => format!(", because {}", because(waiting, 0, it, Detail::Brief)),
        };
        match &self.present {
            Present::Running { since: began, id } if id.is_empty() => {
                format!("has been reconciling for {}", since(began))
            }
            Present::Running { since: began, id } => {
                format!("has been reconciling for {} (reconcile_id {})", since(began), clean(id))
            }
            Present::Held { since: began } => {
                format!("has been waiting for {} until the cache of the operator has its last write{why}", since(began))
            }
            Present::Ready if controller.running >= controller.workers => {
                let Summary { workers, ready, .. } = controller;
                format!("is waiting for a worker{why}: all {workers} are busy, and {ready} objects are waiting")
            }
            Present::Ready => format!("is about to be reconciled{why}"),
            Present::Delayed { left } => format!("will be reconciled in {}{why}", duration(*left)),
            Present::Elsewhere => "is assigned to another replica".into(),
            Present::Idle if !self.exists => "is not in the cache of the operator".into(),
            Present::Idle => format!("is idle: no watched object has changed since{why}"),
            Present::Unknown => "is in a state that this version of kubewright cannot read".into(),
        }
    }

    /// Returns why there are no traces, with the controller as the subject.
    pub(super) fn no_runs(&self) -> &'static str {
        match self.controller.displaced {
            0 => "has not reconciled it since the operator started",
            _ => "has no record of a run: there was none, or it was evicted by newer runs of other objects",
        }
    }
}
