//! The recorded answers of a real API server, compared with those of this one.
//!
//! `tests/corpus` contains the requests and answers, `scenarios` there sequences of requests, and `known/<file>.txt`
//! and `scenarios/known/<file>.txt` list the cases that are answered otherwise, in paragraphs with the reason. The
//! lists only shrink: a case that no longer differs must be removed. With `KUBEWRIGHT_GENERATE=1`, the test writes the
//! lists, and sorts new cases by what differs.

mod known;
mod scenarios;

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use kubewright_apiserver::{ApiServer, UserInfo};
use kubewright_corpus::{
    Answer, Corpus, NAMESPACE, RawAnswer, RawRequest, Transport, Verb, create_namespace, exchange, prepare,
};

use self::known::{ACCEPTED, CAUSES, CODE, Difference, MESSAGE, NO_ANSWER, NO_OBJECT, REFUSED, Report, WARNINGS};
use crate::raw::send_as;

struct Embedded(ApiServer);

impl Embedded {
    fn start() -> Self {
        Self(ApiServer::builder().service_account_admission(true).build())
    }
}

/// Returns the user of the recordings, whom a client certificate identifies.
fn recorder() -> UserInfo {
    let mut user = UserInfo::new("admin", ["system:masters", "system:authenticated"]);
    user.extra = [("authentication.kubernetes.io/credential-id".to_owned(), vec!["X509SHA256=0".to_owned()])].into();
    user
}

impl Transport for Embedded {
    async fn send(&self, request: RawRequest) -> Result<RawAnswer> {
        let line = format!("{} {}", request.method, request.path);
        let headers: Vec<_> = request.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        let answer = send_as(&self.0, &recorder(), &line, &headers, request.body).await;
        Ok(RawAnswer { code: answer.code, headers: answer.headers, body: answer.text })
    }
}

impl Difference {
    fn new(recorded: &Answer, actual: &Answer) -> Self {
        let accepted = |answer: &Answer| answer.code < 300;
        let reason = match (accepted(recorded), accepted(actual)) {
            (false, true) => ACCEPTED,
            (true, false) => REFUSED,
            _ if recorded.code != actual.code => CODE,
            _ if recorded.causes != actual.causes => CAUSES,
            _ if recorded.warnings != actual.warnings => WARNINGS,
            _ => MESSAGE,
        };
        let show = |answer| serde_json::to_string(answer).unwrap();
        Self { reason, text: format!("  recorded: {}\n  actual:   {}", show(recorded), show(actual)) }
    }
}

/// Returns the differences of a file by case.
async fn differences(corpus: &Corpus) -> BTreeMap<String, Difference> {
    let server = Embedded::start();
    create_namespace(&server, NAMESPACE).await.unwrap();
    let mut differences = BTreeMap::new();
    let mut refused = None;
    // As in the recording, the valid object exists only for the updates.
    let (creates, updates): (Vec<_>, Vec<_>) = corpus.cases.iter().partition(|case| case.verb == Verb::Create);
    let create_count = creates.len();
    for (index, case) in creates.into_iter().chain(updates).enumerate() {
        if index == create_count {
            refused = prepare(&server, &corpus.header, &corpus.cases).await.err();
        }
        let recorded = case.answer.as_ref().unwrap_or_else(|| panic!("{}: {} is not recorded", corpus.name, case.case));
        let difference = match exchange(&server, &corpus.header, case).await {
            _ if index >= create_count && refused.is_some() => {
                Difference { reason: NO_OBJECT, text: format!("  {refused:?}") }
            }
            Ok(answer) if answer == *recorded => continue,
            Ok(answer) => Difference::new(recorded, &answer),
            Err(error) => Difference { reason: NO_ANSWER, text: format!("  {error:#}") },
        };
        differences.insert(case.case.clone(), difference);
    }
    differences
}

#[tokio::test]
async fn answers_equal_those_of_kubernetes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut report = Report::default();
    for corpus in Corpus::read_all(&directory).unwrap() {
        let names = corpus.cases.iter().map(|case| case.case.as_str());
        report.compare(&directory.join("known"), &corpus.name, names, &differences(&corpus).await);
    }
    report.check();
}
