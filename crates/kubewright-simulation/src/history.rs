//! What happened in a run, in order and with the virtual time.

use std::{fmt, sync::Arc, time::Duration};

use kubewright_runtime::trace::Trace;
use ring::digest::{Context, SHA256};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The records of a run. Two runs of the same schedule have equal histories.
#[derive(Debug, Default)]
pub struct History {
    records: Vec<Record>,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// The virtual time since the start, in milliseconds.
    pub at: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Entry {
    /// The user does something.
    Step(String),
    /// A process of the operator is started or ends.
    Process {
        /// The number of the process, counted from 0.
        process: u64,
        /// What happens to it.
        what: String,
    },
    /// The operator sends a request.
    Request(Request),
    /// A request is answered.
    Response {
        /// The number of the request.
        request: u64,
        /// The status code that the operator receives, unless the response is lost.
        code: Option<u16>,
    },
    /// The API server calls a webhook of the operator.
    Review {
        /// The number of the review, counted from 0.
        review: u64,
        /// The number of the process that is called, if one can be reached.
        process: Option<u64>,
        /// The path of the webhook.
        path: String,
        /// The operation and the object, or what is converted.
        about: String,
    },
    /// A review is answered, or why it isn't. Absent if the API server doesn't wait as long.
    Reviewed {
        /// The number of the review.
        review: u64,
        /// What the webhook says.
        result: String,
    },
    /// The operator receives an event of a watch other than a bookmark.
    Event {
        /// The number of the request that started the watch.
        request: u64,
        /// The type of the event, such as `MODIFIED`.
        event: String,
        /// The kind.
        kind: String,
        /// The namespace and name.
        object: String,
        /// The resource version.
        version: String,
    },
    /// A reconcile has ended. It is recorded with the next request, answer or event of the operator.
    Reconcile {
        /// The number of the process.
        process: u64,
        /// What triggered it, what it saw and wrote, and how it ended.
        #[serde(serialize_with = "shared")]
        trace: Arc<Trace>,
    },
    /// The operator or the runtime logs something, at level `INFO` or above.
    Log(String),
    /// An object changes.
    Change {
        /// `Added`, `Modified` or `Deleted`.
        change: String,
        /// The kind.
        kind: String,
        /// The namespace and name.
        name: String,
        /// The object after the change.
        #[serde(serialize_with = "shared")]
        object: Arc<Value>,
    },
    /// A fault of the schedule happens.
    Fault(String),
    /// An oracle or condition finds something.
    Finding(String),
}

/// A request of the operator.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Request {
    /// The number of the request, counted from 0.
    pub number: u64,
    /// The number of the process.
    pub process: u64,
    /// The number of the write, if it is one at which faults may happen.
    pub write: Option<usize>,
    /// The verb, in lower case.
    pub verb: String,
    /// The plural name, with the subresource after a slash.
    pub resource: String,
    /// The namespace and name.
    pub object: String,
    /// The body of a write.
    pub body: Option<Value>,
}

impl History {
    pub(crate) fn push(&mut self, at: Duration, entry: Entry) {
        let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.records.push(Record { at, entry });
    }

    /// Returns the records in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the SHA-256 digest of all records, in hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut digest = Context::new(&SHA256);
        for record in &self.records {
            // A record consists of texts and numbers, so it has a form in JSON.
            digest.update(&serde_json::to_vec(record).unwrap_or_default());
            digest.update(b"\n");
        }
        digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the first position at which two histories differ.
    pub fn first_difference(&self, other: &Self) -> Option<usize> {
        let text = |record: &Record| serde_json::to_string(record).unwrap_or_default();
        let longest = self.records.len().max(other.records.len());
        (0..longest).find(|at| self.records.get(*at).map(text) != other.records.get(*at).map(text))
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3}s  ", Duration::from_millis(self.at).as_secs_f64())?;
        match &self.entry {
            Entry::Step(what) => write!(f, "user        {what}"),
            Entry::Process { process, what } => write!(f, "operator    process {process} {what}"),
            Entry::Request(Request { number, write, verb, resource, object, .. }) => {
                let write = write.map(|nth| format!(", write {nth}")).unwrap_or_default();
                write!(f, "operator    {verb} {resource} {object} (request {number}{write})")
            }
            Entry::Response { request, code: Some(code) } => {
                write!(f, "operator    receives {code} for request {request}")
            }
            Entry::Response { request, code: None } => write!(f, "operator    receives nothing for request {request}"),
            Entry::Review { review, process: Some(process), about, .. } => {
                write!(f, "webhook     process {process} reviews {about} (review {review})")
            }
            Entry::Review { review, process: None, about, .. } => {
                write!(f, "webhook     nothing can review {about} (review {review})")
            }
            Entry::Reviewed { review, result } => write!(f, "webhook     {result} (review {review})"),
            Entry::Event { event, kind, object, .. } => write!(f, "cache       {event} {kind} {object}"),
            Entry::Reconcile { process, trace } => write!(f, "operator    process {process}: {trace}"),
            Entry::Change { change, kind, name, .. } => write!(f, "API server  {kind} {name}: {change}"),
            Entry::Log(what) => write!(f, "operator    logs {what}"),
            Entry::Fault(what) => write!(f, "fault       {what}"),
            Entry::Finding(what) => write!(f, "finding     {what}"),
        }
    }
}

fn shared<T: Serialize, S: Serializer>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.serialize(serializer)
}

/// Returns `namespace/name`, or what there is of it.
pub(crate) fn path(namespace: Option<&str>, name: Option<&str>) -> String {
    let parts = [namespace, name].into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("/")
}
