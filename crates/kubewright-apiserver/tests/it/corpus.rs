//! The recorded answers of a real API server, compared with those of this one.
//!
//! `tests/corpus` contains the requests and answers, and `known/<file>.txt` there lists the cases that are answered
//! otherwise, in paragraphs with the reason. The lists only shrink: a case that no longer differs must be removed. With
//! `KUBEWRIGHT_GENERATE=1`, the test writes the lists, and sorts new cases by what differs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use kubewright_apiserver::ApiServer;
use kubewright_corpus::{Answer, Corpus, NAMESPACE, RawAnswer, RawRequest, Transport, Verb, exchange, prepare};
use serde_json::json;

use crate::raw::send;

struct Embedded(ApiServer);

impl Transport for Embedded {
    async fn send(&self, request: RawRequest) -> Result<RawAnswer> {
        let line = format!("{} {}", request.method, request.path);
        let answer = send(&self.0, &line, &["Content-Type: application/json"], request.body).await;
        let warnings =
            answer.headers.get_all("warning").iter().map(|value| kubewright_corpus::warning(value.to_str().unwrap()));
        Ok(RawAnswer { code: answer.code, warnings: warnings.collect(), body: answer.text })
    }
}

/// A list of known differences: the reason of each case, by its name.
struct Known {
    path: PathBuf,
    reasons: BTreeMap<String, String>,
}

impl Known {
    fn read(directory: &Path, corpus: &str) -> Self {
        let path = directory.join(format!("known/{corpus}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut reasons = BTreeMap::new();
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            let (comments, cases): (Vec<_>, Vec<_>) = paragraph.trim().lines().partition(|line| line.starts_with("# "));
            assert!(!comments.is_empty(), "{}: no reason precedes {paragraph}", path.display());
            for case in cases {
                let twice = reasons.insert(case.to_owned(), comments.join("\n"));
                assert!(twice.is_none(), "{}: {case} is listed twice", path.display());
            }
        }
        Self { path, reasons }
    }

    /// Writes the cases by reason, each in the order of the corpus.
    fn write(&self, corpus: &Corpus) {
        if self.reasons.is_empty() {
            let _ = fs::remove_file(&self.path);
            return;
        }
        let mut paragraphs: BTreeMap<&str, String> = BTreeMap::new();
        for case in &corpus.cases {
            if let Some(reason) = self.reasons.get(&case.case) {
                *paragraphs.entry(reason).or_default() += &format!("\n{}", case.case);
            }
        }
        let paragraphs: Vec<_> = paragraphs.iter().map(|(reason, cases)| format!("{reason}{cases}\n")).collect();
        fs::write(&self.path, paragraphs.join("\n")).unwrap();
    }
}

/// The reasons that are generated for cases without a reason in the list.
const ACCEPTED: &str = "# accepted, and refused by Kubernetes";
const REFUSED: &str = "# refused, and accepted by Kubernetes";
const CODE: &str = "# another code";
const CAUSES: &str = "# other causes";
const WARNINGS: &str = "# other warnings";
const MESSAGE: &str = "# another message";
const NO_ANSWER: &str = "# no answer";
const NO_OBJECT: &str = "# the valid object is refused";
const UNKNOWN: &[&str] = &[ACCEPTED, REFUSED, CODE, CAUSES, WARNINGS, MESSAGE, NO_ANSWER, NO_OBJECT];

/// How an answer differs from the recorded one.
struct Difference {
    reason: &'static str,
    text: String,
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
    let server = Embedded(ApiServer::builder().service_account_admission(true).build());
    for (path, kind, name) in [
        ("/api/v1/namespaces".to_owned(), "Namespace", NAMESPACE),
        (format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), "ServiceAccount", "default"),
    ] {
        let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}).to_string();
        let answer = server.send(RawRequest { method: "POST", path, body }).await.unwrap();
        assert_eq!(answer.code, 201, "{}", answer.body);
    }
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
    let generate = std::env::var_os("KUBEWRIGHT_GENERATE").is_some();
    let (mut count, mut unlisted, mut gone) = (0, String::new(), Vec::new());
    for corpus in Corpus::read_all(&directory).unwrap() {
        count += corpus.cases.len();
        let mut known = Known::read(&directory, &corpus.name);
        let found = differences(&corpus).await;
        for (case, Difference { reason, text }) in &found {
            if !known.reasons.contains_key(case) {
                unlisted += &format!("{}: {case}\n{text}\n", corpus.name);
            }
            if known.reasons.get(case).is_none_or(|known| UNKNOWN.contains(&&**known)) {
                known.reasons.insert(case.clone(), (*reason).to_owned());
            }
        }
        known.reasons.retain(|case, _| {
            let differs = found.contains_key(case);
            if !differs {
                gone.push(format!("{}: {case}", corpus.name));
            }
            differs
        });
        if generate {
            known.write(&corpus);
        }
    }
    assert!(count > 0, "no cases");
    assert!(generate || unlisted.is_empty(), "these answers differ from those of Kubernetes:\n{unlisted}");
    assert!(generate || gone.is_empty(), "tests/corpus/known lists answers that don't differ, remove them: {gone:#?}");
}
