//! Traces as text, one line each. Text from the cluster is shown without line breaks and control characters.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    ControllerPage, End, KeyPage, Next, Overview, Phase, Present, Query, Read, Reason, Summary, Trace, Trigger, Write,
};
use crate::object::ObjectKey;

/// The minimum time of waiting for a worker that is shown.
const LONG_WAIT: Duration = Duration::from_millis(100);

/// Formats a run as a sentence; see the [module's documentation](super) for examples.
impl Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", clock(self.started), self.controller, self.object)?;
        let duration = Short(self.duration);
        match &self.end {
            End::Done => write!(f, "ran {duration}")?,
            End::Failed { .. } => write!(f, "failed after {duration}")?,
            End::Panicked { .. } => write!(f, "panicked after {duration}")?,
            End::TimedOut { limit } => write!(f, "was cut off after {}", Short(*limit))?,
        }
        if self.attempt > 1 {
            write!(f, " (attempt {})", self.attempt)?;
        }
        f.write_str(" because ")?;
        because(f, &self.triggers, self.more_triggers, &self.kind, &self.object)?;
        if let Some(held) = self.held {
            write!(f, "; was held back {} until the cache showed what was written last", Short(held))?;
        }
        let waited = self.queued.saturating_sub(self.held.unwrap_or_default());
        if waited >= LONG_WAIT {
            write!(f, "; waited {} for a worker", Short(waited))?;
        }
        self.tell_reads(f)?;
        self.tell_writes(f)?;
        let events = self.events.iter().map(|event| clean(&event.reason)).collect::<Vec<_>>();
        if !events.is_empty() {
            write!(f, "; recorded {}{}", events.join(", "), More(self.more_events))?;
        }
        match &self.end {
            End::Failed { error, .. } | End::Panicked { error } => write!(f, "; error: {}", clean(error))?,
            End::Done | End::TimedOut { .. } => {}
        }
        match (&self.next, &self.end) {
            (Next::Change, End::Failed { terminal: true, .. }) => {
                f.write_str("; next: not before something changes, for the error is final")
            }
            (Next::Change, _) => f.write_str("; next: when something changes"),
            (Next::Now, _) => f.write_str("; next: at once"),
            (Next::After { delay, time }, End::Done) => write!(f, "; next: in {}, at {}", Short(*delay), clock(*time)),
            (Next::After { delay, time }, _) => {
                write!(f, "; next: another try in {}, at {}", Short(*delay), clock(*time))
            }
            (Next::At { time }, _) => write!(f, "; next: at {time:.0}"),
        }
    }
}

impl Trace {
    fn tell_reads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, read) in self.reads.iter().enumerate() {
            f.write_str(if number == 0 { "; read " } else { ", " })?;
            read.tell(f)?;
        }
        write!(f, "{}", More(self.more_reads))
    }

    fn tell_writes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, write) in self.writes.iter().enumerate() {
            f.write_str(if number == 0 { "; " } else { ", " })?;
            let is_own = write.kind == self.kind && write.object == self.object;
            write.tell(f, is_own)?;
        }
        write!(f, "{}", More(self.more_writes))
    }
}

impl Read {
    fn tell(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.query, self.found) {
            (Query::Name { object }, Some(0)) => write!(f, "no {} {}", self.kind, key(object))?,
            (Query::Name { object }, _) => write!(f, "{} {}", self.kind, key(object))?,
            (query, found) => {
                match found {
                    Some(1) => write!(f, "1 {}", self.kind)?,
                    Some(found) => write!(f, "{found} {}", many(&self.kind))?,
                    None => f.write_str(&many(&self.kind))?,
                }
                match query {
                    Query::Labels { selector, .. } if !selector.is_empty() => write!(f, " with {}", clean(selector))?,
                    Query::Index { index, value } => write!(f, " with {} {}", clean(index), clean(value))?,
                    _ => {}
                }
            }
        }
        if self.live {
            f.write_str(" live")?;
        }
        match &self.error {
            Some(error) => write!(f, " in vain ({})", clean(error)),
            None => Ok(()),
        }
    }
}

impl Write {
    fn tell(&self, f: &mut fmt::Formatter<'_>, is_own: bool) -> fmt::Result {
        let (done, to_do) = words(&self.verb);
        let object = match (is_own, &self.subresource) {
            (true, Some(subresource)) => clean(subresource).into_owned(),
            (false, Some(subresource)) => format!("{} of {} {}", clean(subresource), self.kind, key(&self.object)),
            (true, None) => "itself".into(),
            (false, None) => format!("{} {}", self.kind, key(&self.object)),
        };
        match (self.status, &self.error) {
            (Some(status), None) => {
                write!(f, "{done} {object} ({status}")?;
                f.write_str(if self.changed == Some(false) { ", no change" } else { "" })?;
                f.write_str(if self.dry_run { ", dry run)" } else { ")" })
            }
            (Some(status), Some(error)) => write!(f, "couldn't {to_do} {object} ({status}: {})", clean(error)),
            (None, Some(error)) => write!(f, "tried to {to_do} {object}, without an answer ({})", clean(error)),
            (None, None) => write!(f, "tried to {to_do} {object}, without an answer"),
        }
    }
}

/// Returns the past tense and the infinitive of a verb.
fn words(verb: &str) -> (Cow<'_, str>, &str) {
    let done = match verb {
        "create" => "created",
        "update" => "updated",
        "patch" => "patched",
        "apply" => "applied",
        "delete" => "deleted",
        "deletecollection" => return ("deleted all of".into(), "delete all of"),
        other => return (format!("did {other} of").into(), other),
    };
    (done.into(), verb)
}

/// Writes the triggers of a run of this object.
fn because(f: &mut fmt::Formatter<'_>, triggers: &[Trigger], more: u32, kind: &str, object: &ObjectKey) -> fmt::Result {
    for (number, trigger) in triggers.iter().enumerate() {
        if number > 0 {
            f.write_str(", ")?;
        }
        let is_own = trigger.kind.as_deref() == Some(kind) && trigger.object.as_ref() == Some(object);
        trigger.tell(f, is_own)?;
    }
    match more {
        0 => Ok(()),
        more => write!(f, ", and {more} other objects changed"),
    }
}

impl Trigger {
    fn tell(&self, f: &mut fmt::Formatter<'_>, is_own: bool) -> fmt::Result {
        let subject = match (&self.kind, &self.object) {
            _ if is_own => "it".into(),
            (Some(kind), Some(object)) => format!("{kind} {}", key(object)),
            (None, Some(object)) => key(object).into_owned(),
            _ => String::new(),
        };
        match self.reason {
            Reason::Added => write!(f, "{subject} was added")?,
            Reason::Deleted => write!(f, "{subject} was deleted")?,
            Reason::Updated => write!(f, "{subject} changed")?,
            Reason::InitialList => f.write_str("it was there when the controller began")?,
            Reason::Listed => write!(f, "the first list of {} had come", self.kind.as_deref().unwrap_or("a kind"))?,
            Reason::Resync => f.write_str("the cache told of everything again")?,
            Reason::Requeue => f.write_str("the last run asked for another one")?,
            Reason::Timer => f.write_str("the time had come that the last run had asked for")?,
            Reason::Backoff => f.write_str("the last run failed")?,
            Reason::Channel if subject.is_empty() => f.write_str("a channel named it")?,
            Reason::Channel => write!(f, "the channel {subject} named it")?,
            Reason::Unknown => f.write_str("of something that wasn't noted")?,
        }
        if !self.fields.is_empty() {
            let fields = self.fields.iter().map(|field| clean(field)).collect::<Vec<_>>();
            write!(f, " in {}{}", fields.join(" and "), More(self.more_fields))?;
        }
        if self.times > 1 { write!(f, " ({} times)", self.times) } else { Ok(()) }
    }
}

/// Formats the controllers, one line each.
impl Display for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for controller in &self.controllers {
            writeln!(f, "{controller}")?;
        }
        Ok(())
    }
}

/// Formats the state of a controller as a line.
impl Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) ", self.name, self.kind)?;
        self.tell_phase(f)?;
        write!(
            f,
            "; {} waiting, {} held back, {} of {} workers busy; {} runs, {} not well; the last {} of {} objects are kept",
            self.ready, self.held, self.running, self.workers, self.runs, self.failures, self.kept, self.keys,
        )
    }
}

impl Summary {
    fn tell_phase(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.phase {
            Phase::Standby => f.write_str("stands by: the manager starts, or another replica leads"),
            Phase::Syncing if self.missing.is_empty() => f.write_str("is about to begin"),
            Phase::Syncing => {
                let missing = self.missing.iter().map(|missing| clean(missing)).collect::<Vec<_>>();
                write!(f, "can't begin before it has listed {}", missing.join("; "))
            }
            Phase::Working => f.write_str("works"),
            Phase::Stopping => f.write_str("is stopping"),
        }
    }
}

/// Formats the controller and its last runs, one line each.
impl Display for ControllerPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.controller)?;
        self.runs.iter().try_for_each(|run| writeln!(f, "{run}"))
    }
}

/// Formats the last runs, one line each, and the present state of the key as the last line.
impl Display for KeyPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.runs.iter().try_for_each(|run| writeln!(f, "{run}"))?;
        write!(f, "{} {} {} ", clock(self.time), self.controller.name, self.object)?;
        self.tell_present(f)?;
        if !self.waiting.is_empty() {
            f.write_str(", because ")?;
            because(f, &self.waiting, 0, &self.controller.kind, &self.object)?;
        }
        if self.runs.is_empty() {
            f.write_str("; no run of it is kept: ")?;
            f.write_str(match self.controller.displaced {
                0 => "there was none since the start",
                _ => "there was none since the start, or it was displaced by later ones of others",
            })?;
        }
        f.write_str("\n")
    }
}

impl KeyPage {
    fn tell_present(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = |since: Timestamp| Short(Duration::try_from(self.time.duration_since(since)).unwrap_or_default());
        if self.controller.phase != Phase::Working {
            f.write_str("waits: the controller ")?;
            return self.controller.tell_phase(f);
        }
        match &self.present {
            Present::Running { since: began, id } => {
                write!(f, "has been running for {} (reconcile {})", since(*began), clean(id))
            }
            Present::Held { since: began } => {
                write!(f, "is held back for {} now, until the cache shows what was written last", since(*began))
            }
            Present::Ready if self.controller.running >= self.controller.workers => {
                let Summary { workers, ready, .. } = self.controller;
                write!(f, "waits for a worker: all {workers} are busy, and {ready} keys wait")
            }
            Present::Ready => f.write_str("is about to run"),
            Present::Delayed { left } => write!(f, "waits {} more for its time", Short(*left)),
            Present::Elsewhere => f.write_str("belongs to another replica: ask there"),
            Present::Idle if !self.exists => {
                write!(f, "is at rest: the cache has no {} of that name", self.controller.kind)
            }
            Present::Idle => f.write_str("is at rest until something changes that wakes it"),
        }
    }
}

/// Returns the time of day in UTC, to the second.
fn clock(time: Timestamp) -> impl Display {
    time.strftime("%H:%M:%SZ").to_string()
}

/// A duration in a short, readable form.
struct Short(Duration);

impl Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match self.0 {
            duration if duration.is_zero() => f.write_str("0 s"),
            duration if duration < Duration::from_millis(1) => write!(f, "{:.0} µs", seconds * 1e6),
            duration if duration < Duration::from_millis(100) => write!(f, "{:.1} ms", seconds * 1e3),
            duration if duration < Duration::from_secs(1) => write!(f, "{:.0} ms", seconds * 1e3),
            duration if duration < Duration::from_secs(120) => write!(f, "{} s", (seconds * 10.0).round() / 10.0),
            duration if duration < Duration::from_hours(2) => write!(f, "{:.0} min", seconds / 60.0),
            duration if duration < Duration::from_hours(48) => write!(f, "{:.0} h", seconds / 3600.0),
            _ => write!(f, "{:.0} days", seconds / 86400.0),
        }
    }
}

/// The number of omitted entries, such as `, and 3 more`; empty for zero.
struct More(u32);

impl Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", and {} more", self.0) }
    }
}

/// Returns the English plural of a kind.
fn many(kind: &str) -> String {
    let is_vowel = |c: char| "aeiou".contains(c.to_ascii_lowercase());
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{stem}ies"),
        _ if kind == "Endpoints" => kind.into(),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| kind.ends_with(end)) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

fn key(key: &ObjectKey) -> Cow<'static, str> {
    clean(&key.to_string()).into_owned().into()
}

/// Removes line breaks and control characters, so that text can't affect a terminal.
fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let line = text.split(char::is_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::samples::{bare, full, noon, pod, read, trigger, write};

    fn check(trace: Trace, expected: &str) {
        assert_eq!(trace.to_string(), expected);
    }

    #[test]
    fn a_run_is_a_sentence() {
        let trace = Trace {
            triggers: vec![trigger(Reason::Deleted, "web-abc")],
            reads: vec![read(Query::Owner, 3)],
            writes: vec![
                write("create", "web-xyz", 201),
                Write { kind: "PodSet".into(), subresource: Some("status".into()), ..write("patch", "web", 200) },
            ],
            ..bare()
        };
        check(
            trace,
            "12:00:03Z podset demo/web ran 3.1 ms because Pod demo/web-abc was deleted; read 3 Pods; \
             created Pod demo/web-xyz (201), patched status (200); next: when something changes",
        );
    }

    #[test]
    fn all_that_may_be_told_is() {
        check(
            full(),
            "12:00:03Z podset demo/web failed after 3.1 ms (attempt 3) because it changed in spec.replicas and \
             metadata.labels[\"app\"], and 2 more (3 times), Pod demo/web-abc was deleted, the last run failed, \
             and 4 other objects changed; was held back 200 ms until the cache showed what was written last; \
             read 3 Pods, 1 Pod with app=web, Pod demo/web-0, 2 Pods with spec.nodeName n1, \
             Pod demo/web-9 live in vain (no answer), and 1 more; created Pod demo/web-1 (201), \
             couldn't create Pod demo/web-2 (403: pods is forbidden), \
             tried to delete Pod demo/web-3, without an answer (connection reset), patched status (200, no change), \
             and 1 more; recorded Created, FailedCreate, and 1 more; error: create pods demo/web-2: pods is forbidden; \
             next: another try in 1.5 s, at 12:00:05Z",
        );
    }

    #[test]
    fn ends_and_what_comes_next() {
        let own = Trigger::new(Reason::InitialList);
        let with = |end, next| Trace { triggers: vec![own.clone()], end, next, ..bare() };
        let because = "because it was there when the controller began; ";
        let final_error = End::Failed { error: "bad\nspec\u{1b}[31m".into(), terminal: true };
        for (end, next, expected) in [
            (End::Done, Next::Now, format!("ran 3.1 ms {because}next: at once")),
            (End::Done, Next::At { time: noon(86_400) }, format!("ran 3.1 ms {because}next: at 1970-01-02T12:00:00Z")),
            (
                final_error,
                Next::Change,
                format!(
                    "failed after 3.1 ms {because}error: bad spec[31m; \
                     next: not before something changes, for the error is final"
                ),
            ),
            (
                End::TimedOut { limit: Duration::from_secs(30) },
                Next::After { delay: Duration::from_secs(7200), time: noon(7200) },
                format!("was cut off after 30 s {because}next: another try in 2 h, at 14:00:00Z"),
            ),
            (
                End::Panicked { error: "index out of bounds".into() },
                Next::Now,
                format!("panicked after 3.1 ms {because}error: index out of bounds; next: at once"),
            ),
        ] {
            check(with(end, next), &format!("12:00:03Z podset demo/web {expected}"));
        }
    }

    #[test]
    fn kinds_have_plurals() {
        for (kind, expected) in [
            ("Pod", "Pods"),
            ("NetworkPolicy", "NetworkPolicies"),
            ("Gateway", "Gateways"),
            ("Ingress", "Ingresses"),
            ("Endpoints", "Endpoints"),
        ] {
            assert_eq!(many(kind), expected);
        }
    }

    fn page(present: Present, phase: Phase) -> KeyPage {
        let controller = Summary {
            name: "podset".into(),
            kind: "PodSet".into(),
            group: "app.example.com".into(),
            phase,
            missing: vec!["pods: pods is forbidden: grant list and watch to the operator's role".into()],
            workers: 1,
            ready: 4,
            held: 0,
            running: 1,
            runs: 9,
            failures: 2,
            kept: 5,
            keys: 3,
            bytes: 900,
            displaced: 0,
        };
        let (time, object) = (noon(10), pod("web"));
        KeyPage { version: 1, time, controller, object, exists: true, present, waiting: Vec::new(), runs: Vec::new() }
    }

    #[test]
    fn the_last_line_says_why_nothing_happens() {
        let none = "; no run of it is kept: there was none since the start\n";
        for (present, phase, expected) in [
            (Present::Idle, Phase::Working, "is at rest until something changes that wakes it"),
            (Present::Ready, Phase::Working, "waits for a worker: all 1 are busy, and 4 keys wait"),
            (Present::Elsewhere, Phase::Working, "belongs to another replica: ask there"),
            (Present::Delayed { left: Duration::from_secs(8) }, Phase::Working, "waits 8 s more for its time"),
            (
                Present::Held { since: noon(8) },
                Phase::Working,
                "is held back for 2 s now, until the cache shows what was written last",
            ),
            (
                Present::Running { since: noon(9), id: "ab".into() },
                Phase::Working,
                "has been running for 1 s (reconcile ab)",
            ),
            (
                Present::Ready,
                Phase::Syncing,
                "waits: the controller can't begin before it has listed pods: pods is forbidden: \
                 grant list and watch to the operator's role",
            ),
            (
                Present::Idle,
                Phase::Standby,
                "waits: the controller stands by: the manager starts, or another replica leads",
            ),
        ] {
            assert_eq!(page(present, phase).to_string(), format!("12:00:10Z podset demo/web {expected}{none}"));
        }
        let gone = KeyPage { exists: false, runs: vec![bare()], ..page(Present::Idle, Phase::Working) };
        let text = gone.to_string();
        assert_eq!(
            text.lines().last(),
            Some("12:00:10Z podset demo/web is at rest: the cache has no PodSet of that name")
        );
        let waiting = vec![trigger(Reason::Added, "web-1")];
        let waits = KeyPage { waiting, runs: vec![bare()], ..page(Present::Idle, Phase::Working) };
        assert!(waits.to_string().ends_with("wakes it, because Pod demo/web-1 was added\n"));
    }

    #[test]
    fn a_controller_is_a_line() {
        let summary = page(Present::Idle, Phase::Working).controller;
        assert_eq!(
            summary.to_string(),
            "podset (PodSet) works; 4 waiting, 0 held back, 1 of 1 workers busy; 9 runs, 2 not well; \
             the last 5 of 3 objects are kept"
        );
    }
}
