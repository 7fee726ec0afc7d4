//! Traces as text, one line each.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use super::{ControllerPage, End, KeyPage, Overview, Summary, Trace, clause::Detail};
use crate::text::{clean, clock, duration};

/// The minimum time of waiting for a worker that is shown.
const LONG_WAIT: Duration = Duration::from_millis(100);

/// Formats a run as a line, such as
/// `12:00:03Z podset demo/web ran for 3.1ms because Pod demo/web-abc was deleted; created Pod demo/web-xyz; …`.
impl Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", clock(self.started), clean(&self.controller), clean(&self.object))?;
        let took = duration(self.duration);
        match &self.end {
            End::Done => write!(f, "ran for {took}")?,
            End::Failed { .. } => write!(f, "failed after {took}")?,
            End::Panicked { .. } => write!(f, "panicked after {took}")?,
            End::TimedOut { limit } => write!(f, "timed out after {}", duration(*limit))?,
            End::Unknown => write!(f, "ended after {took}")?,
        }
        if self.attempt > 1 {
            write!(f, " (attempt {})", self.attempt)?;
        }
        write!(f, " because {}", self.because(Detail::Full))?;
        if let Some(held) = self.held {
            write!(f, "; waited {} until the cache had its last write", duration(held))?;
        }
        let waited = self.queued.saturating_sub(self.held.unwrap_or_default());
        if waited >= LONG_WAIT {
            write!(f, "; waited {} for a worker", duration(waited))?;
        }
        for (number, read) in self.reads.iter().enumerate() {
            write!(f, "{}{}", if number == 0 { "; read " } else { ", " }, read.objects())?;
        }
        write!(f, "{}", More(self.more_reads))?;
        for (number, write) in self.writes.iter().enumerate() {
            write!(f, "{}{}", if number == 0 { "; " } else { ", " }, write.effect(self.subject()))?;
        }
        write!(f, "{}", More(self.more_writes))?;
        let events = self.events.iter().map(|event| clean(&event.reason)).collect::<Vec<_>>();
        if !events.is_empty() {
            write!(f, "; recorded {}{}", events.join(", "), More(self.more_events))?;
        }
        if let End::Failed { error, .. } | End::Panicked { error } = &self.end {
            write!(f, "; error: {}", clean(error))?;
        }
        let ended = self.started.checked_add(self.duration).unwrap_or(self.started);
        write!(f, "; {}", self.due(ended))
    }
}

/// Formats the controllers, one line each.
impl Display for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.controllers.iter().try_for_each(|controller| writeln!(f, "{controller}"))
    }
}

/// Formats the state of a controller as a line.
impl Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", clean(&self.name), clean(&self.kind), self.state())?;
        write!(
            f,
            "; {} keys waiting, {} waiting for the cache, {} of {} workers busy; {} runs, {} failed; {} traces of {} keys",
            self.ready, self.held, self.running, self.workers, self.runs, self.failures, self.kept, self.keys,
        )
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
        write!(f, "{} {} {} ", clock(self.time), clean(&self.controller.name), clean(&self.object))?;
        f.write_str(&self.state())?;
        if self.runs.is_empty() {
            write!(f, "; the controller {}", self.no_runs())?;
        }
        f.write_str("\n")
    }
}

/// The number of omitted entries, such as `, and 3 more`; empty for zero.
struct More(u32);

impl Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", and {} more", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{
        Next, Phase, Present, Query, Reason, Trigger, Write,
        samples::{bare, full, noon, read, trigger, write},
    };

    fn check(trace: &Trace, expected: &str) {
        assert_eq!(trace.to_string(), expected);
    }

    #[test]
    fn a_run_is_a_line() {
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
            &trace,
            "12:00:03Z podset demo/web ran for 3.1ms because Pod demo/web-abc was deleted; read 3 Pods; \
             created Pod demo/web-xyz, patched its status; runs again when a watched object changes",
        );
    }

    #[test]
    fn a_line_contains_every_entry() {
        check(
            &full(),
            "12:00:03Z podset demo/web failed after 3.1ms (attempt 3) because it changed in spec.replicas, \
             metadata.labels[\"app\"] and 2 more fields (3 times), Pod demo/web-abc was deleted and \
             the previous run failed (and 4 more triggers); waited 200ms until the cache had its last write; \
             read 3 Pods, 1 Pod with app=web, Pod demo/web-0, 2 Pods with spec.nodeName n1, \
             Pod demo/web-9 from the API server (failed: no answer), and 1 more; created Pod demo/web-1, \
             could not create Pod demo/web-2 (403: pods is forbidden), \
             tried to delete Pod demo/web-3, without a response (connection reset), patched its status (no change), \
             and 1 more; recorded Created, FailedCreate, and 1 more; error: create pods demo/web-2: pods is forbidden; \
             retries in 2s (12:00:05Z)",
        );
    }

    #[test]
    fn collections_and_dry_runs_are_described() {
        let writes = vec![
            Write { object: "demo/".into(), ..write("deletecollection", "", 200) },
            Write { object: String::new(), kind: "Node".into(), ..write("deletecollection", "", 403) },
            Write { dry_run: true, ..write("apply", "web-1", 200) },
        ];
        let text = Trace { writes, ..bare() }.to_string();
        let expected =
            "; deleted all Pods in demo, could not delete all Nodes (403), applied Pod demo/web-1 (dry run); ";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn each_end_has_its_words() {
        let own = Trigger::change(Reason::InitialList, "PodSet", "demo/web");
        let with = |end, next| Trace { triggers: vec![own.clone()], end, next, ..bare() };
        let because = "because it existed when the controller started; ";
        let final_error = End::Failed { error: "bad\nspec\u{1b}[31m".into(), terminal: true };
        for (end, next, expected) in [
            (End::Done, Next::Now, format!("ran for 3.1ms {because}requested another run immediately")),
            (
                End::Done,
                Next::At { time: noon(86_400) },
                format!("ran for 3.1ms {because}requested another run in 24 hours (1970-01-02T12:00:00Z)"),
            ),
            (
                final_error,
                Next::Change,
                format!("failed after 3.1ms {because}error: bad spec[31m; is not retried until something changes"),
            ),
            (
                End::TimedOut { limit: Duration::from_secs(30) },
                Next::After { delay: Duration::from_secs(7200), time: noon(7210) },
                format!("timed out after 30s {because}retries in 2 hours (14:00:10Z)"),
            ),
            (
                End::Panicked { error: "index out of bounds".into() },
                Next::Now,
                format!("panicked after 3.1ms {because}error: index out of bounds; requested another run immediately"),
            ),
        ] {
            check(&with(end, next), &format!("12:00:03Z podset demo/web {expected}"));
        }
    }

    fn page(present: Present, phase: Phase) -> KeyPage {
        let controller = Summary {
            phase,
            missing: vec!["pods: pods is forbidden: grant list and watch to the operator's role".into()],
            workers: 1,
            ready: 4,
            running: 1,
            runs: 9,
            failures: 2,
            kept: 5,
            keys: 3,
            bytes: 900,
            ..Summary::new("podset", "PodSet", "app.example.com")
        };
        KeyPage { exists: true, present, ..KeyPage::new(noon(10), controller, "demo/web") }
    }

    #[test]
    fn the_last_line_is_the_state_of_the_key() {
        let none = "; the controller has not reconciled it since the operator started\n";
        for (present, phase, expected) in [
            (Present::Idle, Phase::Working, "is idle: no watched object has changed since"),
            (Present::Ready, Phase::Working, "is waiting for a worker: all 1 are busy, and 4 objects are waiting"),
            (Present::Elsewhere, Phase::Working, "is assigned to another replica"),
            (Present::Delayed { left: Duration::from_secs(8) }, Phase::Working, "will be reconciled in 8s"),
            (
                Present::Held { since: noon(8) },
                Phase::Working,
                "has been waiting for 2s until the cache of the operator has its last write",
            ),
            (
                Present::Running { since: noon(9), id: "ab".into() },
                Phase::Working,
                "has been reconciling for 1s (reconcile_id ab)",
            ),
            (
                Present::Ready,
                Phase::Syncing,
                "is not reconciled now, as the controller cannot start until it has listed pods: pods is forbidden: \
                 grant list and watch to the operator's role",
            ),
            (
                Present::Idle,
                Phase::Standby,
                "is not reconciled now, as the controller is on standby: the manager is starting, \
                 or another replica is the leader",
            ),
        ] {
            assert_eq!(page(present, phase).to_string(), format!("12:00:10Z podset demo/web {expected}{none}"));
        }
        let gone = KeyPage { exists: false, runs: vec![bare()], ..page(Present::Idle, Phase::Working) };
        let text = gone.to_string();
        assert_eq!(text.lines().last(), Some("12:00:10Z podset demo/web is not in the cache of the operator"));
        let waiting = vec![trigger(Reason::Added, "web-1")];
        let waits = KeyPage { waiting, runs: vec![bare()], ..page(Present::Idle, Phase::Working) };
        assert!(waits.to_string().ends_with("changed since, because Pod demo/web-1 was created\n"));
    }

    #[test]
    fn a_controller_is_a_line() {
        assert_eq!(
            page(Present::Idle, Phase::Working).controller.to_string(),
            "podset (PodSet) is working; 4 keys waiting, 0 waiting for the cache, 1 of 1 workers busy; \
             9 runs, 2 failed; 5 traces of 3 keys"
        );
    }
}
