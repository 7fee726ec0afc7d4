//! Writes in a world at rest, and changes after a restart in it.

use kubewright_cluster::faults::ApiRequest;

use super::{Answer, Oracle, Seen};
use crate::history::{Request, path};

/// Finds writes, other than those of leases, after the world has come to rest. If children were left without an owner,
/// and so keep names that others need, writes that the API server refuses aren't found: an operator has to try again
/// for as long as they are there. After a restart, an operator may apply what is there already.
pub(super) struct Quiet {
    counts_refused: bool,
    is_at_rest: bool,
    is_restarted: bool,
}

impl Quiet {
    pub(super) fn new(counts_refused: bool) -> Self {
        Self { counts_refused, is_at_rest: false, is_restarted: false }
    }

    fn found(&self, verb: &str, resource: &str, object: &str) -> Vec<String> {
        let what = if self.is_restarted { "is restarted and changes something" } else { "writes" };
        match self.is_at_rest {
            true => vec![format!("nothing happens, and the operator {what}: {verb} {resource} {object}")],
            false => Vec::new(),
        }
    }
}

impl Oracle for Quiet {
    fn name(&self) -> &'static str {
        "quiet"
    }

    fn request(&mut self, request: &Request, _: &Seen<'_>) -> Vec<String> {
        match request.write {
            Some(_) if self.counts_refused && !self.is_restarted => {
                self.found(&request.verb, &request.resource, &request.object)
            }
            _ => Vec::new(),
        }
    }

    fn executed(&mut self, request: &ApiRequest, answer: Answer, _: &Seen<'_>) -> Vec<String> {
        let is_found = if self.is_restarted { answer.version.is_some() } else { !self.counts_refused };
        if !is_found || !request.verb.is_write() || request.resource == "leases" || answer.code >= 400 {
            return Vec::new();
        }
        let object = path(request.namespace.as_deref(), request.name.as_deref());
        self.found(&format!("{:?}", request.verb).to_lowercase(), &request.resource, &object)
    }

    fn at_rest(&mut self, _: &Seen<'_>) -> Vec<String> {
        self.is_at_rest = true;
        Vec::new()
    }

    fn restarted(&mut self) {
        self.is_restarted = true;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Method, Uri};

    use super::*;
    use crate::{oracle::Created, world::World};

    /// Returns what is found of a write at rest that is answered with a code: before and after it was executed.
    fn found(counts_refused: bool, code: u16) -> [bool; 2] {
        let (created, world) = (Created::default(), World::default());
        let seen = Seen { at: Duration::ZERO, created: &created, world: &world, is_unavailable: false };
        let mut oracle = Quiet::new(counts_refused);
        oracle.at_rest(&seen);
        let request = Request {
            number: 7,
            process: 0,
            write: Some(3),
            verb: "create".into(),
            resource: "configmaps".into(),
            object: "default/a".into(),
            body: None,
        };
        let body = Bytes::from_static(br#"{"metadata": {"name": "a"}}"#);
        let uri = Uri::from_static("/api/v1/namespaces/default/configmaps");
        let about = ApiRequest::parse(&Method::POST, &uri, &body).unwrap();
        let answer = Answer { code, version: None };
        let before = oracle.request(&request, &seen);
        let after = oracle.executed(&about, answer, &seen);
        let text = "nothing happens, and the operator writes: create configmaps default/a";
        assert!(before.iter().chain(&after).all(|message| message == text));
        [!before.is_empty(), !after.is_empty()]
    }

    #[test]
    fn after_a_restart_only_changes_count() {
        let found = |version| {
            let (created, world) = (Created::default(), World::default());
            let seen = Seen { at: Duration::ZERO, created: &created, world: &world, is_unavailable: false };
            let mut oracle = Quiet::new(true);
            oracle.at_rest(&seen);
            oracle.restarted();
            let uri = Uri::from_static("/api/v1/namespaces/default/configmaps/a");
            let about = ApiRequest::parse(&Method::PATCH, &uri, &Bytes::from_static(b"{}")).unwrap();
            oracle.executed(&about, Answer { code: 200, version }, &seen)
        };
        let text = "nothing happens, and the operator is restarted and changes something: patch configmaps default/a";
        assert_eq!(found(Some(9)), [text]);
        assert_eq!(found(None), [""; 0]);
    }

    #[test]
    fn refused_writes_count_unless_orphans_keep_names() {
        assert_eq!(found(true, 409), [true, false]);
        assert_eq!(found(true, 201), [true, false]);
        assert_eq!(found(false, 409), [false, false]);
        assert_eq!(found(false, 201), [false, true]);
    }
}
