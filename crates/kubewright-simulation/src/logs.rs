//! Logs during a run: those of the operator and the runtime are collected for the history.

use std::{cell::RefCell, fmt::Write, sync::OnceLock};

use tracing::{
    Dispatch, Event, Id, Level, Metadata, Subscriber,
    dispatcher::{get_default, with_default},
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Record},
    subscriber::{Interest, NoSubscriber},
};

/// The crates whose logs say nothing of the operator: the cluster, and what carries requests.
const OTHERS: [&str; 9] = [
    "h2",
    "hyper",
    "hyper_util",
    "kube_client",
    "kubewright_apiserver",
    "kubewright_cluster",
    "mio",
    "rustls",
    "tower",
];

thread_local! {
    static LOGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Two subscribers that exist as long as the process. While tracing knows only one, it decides for all threads by the
/// subscriber of the thread that reaches a log statement first whether the statement is of interest. A thread without a
/// simulation has none.
static INTERESTED: OnceLock<[Dispatch; 2]> = OnceLock::new();

/// Collects what is logged on this thread while a function runs. What subscribed to logs before receives them, too.
pub(crate) fn collect<T>(run: impl FnOnce() -> T) -> T {
    INTERESTED.get_or_init(|| [(); 2].map(|()| Dispatch::new(Collector { before: Dispatch::none() })));
    drop(take());
    let before = get_default(Dispatch::clone);
    with_default(&Dispatch::new(Collector { before }), run)
}

/// Returns the logs since the last call.
pub(crate) fn take() -> Vec<String> {
    LOGS.take()
}

/// Collects logs, and passes everything on.
struct Collector {
    before: Dispatch,
}

fn is_collected(metadata: &Metadata<'_>) -> bool {
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    metadata.is_event() && *metadata.level() <= Level::INFO && !OTHERS.contains(&crate_name)
}

impl Subscriber for Collector {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_collected(metadata) || self.before.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.before.is::<NoSubscriber>().then_some(LevelFilter::INFO)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.before.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.before.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.before.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        if is_collected(metadata) {
            let mut line = Line::default();
            event.record(&mut line);
            let text = format!("{} {}: {}{}", metadata.level(), metadata.target(), line.message, line.fields);
            LOGS.with_borrow_mut(|logs| logs.push(text));
        }
        if self.before.enabled(metadata) {
            self.before.event(event);
        }
    }

    fn enter(&self, span: &Id) {
        self.before.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.before.exit(span);
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.before.clone_span(span)
    }

    fn try_close(&self, span: Id) -> bool {
        self.before.try_close(span)
    }
}

/// The text of an event.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string doesn't fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_logs_is_collected() {
        tracing::info!("before");
        collect(|| {
            let name = "web";
            tracing::warn!(name, pods = 3, "too many pods");
            tracing::debug!("not collected");
            tracing::info!(target: "kubewright_cluster::node", "of the cluster");
        });
        tracing::info!("after");
        assert_eq!(take(), ["WARN kubewright_simulation::logs::tests: too many pods name=web pods=3"]);
        assert_eq!(take(), Vec::<String>::new());
    }

    fn log() {
        tracing::info!("from one place");
    }

    #[test]
    fn another_thread_that_logs_first_hides_nothing() {
        collect(|| {
            std::thread::spawn(log).join().unwrap();
            log();
        });
        assert_eq!(take(), ["INFO kubewright_simulation::logs::tests: from one place"]);
    }
}
