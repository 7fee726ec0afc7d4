//! The webhooks of the operator, which the API server calls within the process, so that no socket is needed.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use kubewright_apiserver::{ServerTrust, WebhookTransport};
use kubewright_runtime::webhook::ServedCertificate;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::sleep;
use tower::ServiceExt;

use crate::{certificates::Certificates, history::Entry, network::LATENCY, state::State};

/// What Go's client says if nothing listens.
const REFUSED: &str = "dial tcp: connect: connection refused";
/// What it says if the process ends before the response.
const RESET: &str = "EOF";

/// The webhooks of a run: the processes that serve them.
#[derive(Default)]
pub(crate) struct Webhooks {
    /// Absent until the run begins.
    state: OnceLock<Weak<State>>,
    serving: Mutex<Vec<Serving>>,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").field("serving", &self.serving.lock().len()).finish_non_exhaustive()
    }
}

/// A process that serves webhooks.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) process: u64,
    pub(crate) routes: Router,
    /// Absent if it is called without certificates.
    pub(crate) certificate: Option<ServedCertificate>,
    pub(crate) is_dead: Arc<AtomicBool>,
    /// Until when the process is paused, as virtual time since the start.
    pub(crate) pause: Arc<Mutex<Option<Duration>>>,
}

impl Webhooks {
    /// Records the reviews in a run. It isn't kept, since it has the cluster that calls.
    pub(crate) fn record_in(&self, state: &Arc<State>) {
        // There is one run.
        let _ = self.state.set(Arc::downgrade(state));
    }

    /// Lets a process answer from now on.
    pub(crate) fn serve(&self, serving: Serving) {
        self.serving.lock().push(serving);
    }

    /// Returns the processes that are alive and have the certificate that they need, which makes them ready.
    fn ready(&self) -> Vec<Serving> {
        let mut serving = self.serving.lock();
        serving.retain(|process| !process.is_dead.load(Ordering::Relaxed));
        serving.iter().filter(|process| process.is_ready()).cloned().collect()
    }

    /// Returns the certificates of the processes that are ready, by their numbers.
    pub(crate) fn certificates(&self) -> Certificates {
        let ready = self.ready().into_iter();
        ready.filter_map(|process| Some((process.process, process.certificate?.chain()))).collect()
    }

    /// Returns the process that answers a review: those that are ready take turns, as the endpoints of a service.
    fn choose(&self, review: u64) -> Option<Serving> {
        let serving = self.ready();
        let turn = review % u64::try_from(serving.len()).ok().filter(|count| *count > 0)?;
        serving.get(usize::try_from(turn).ok()?).cloned()
    }
}

impl WebhookTransport for Webhooks {
    fn call(&self, review: Request<Bytes>, trust: ServerTrust) -> BoxFuture<'static, Result<Response<Bytes>, String>> {
        let Some(state) = self.state.get().and_then(Weak::upgrade) else {
            return Box::pin(async { Err(REFUSED.to_owned()) });
        };
        let number = state.review();
        let serving = self.choose(number).filter(|_| !state.is_webhook_unavailable());
        let (path, about) = (review.uri().path().to_owned(), about(review.body()));
        let process = serving.as_ref().map(|serving| serving.process);
        state.record(Entry::Review { review: number, process, path, about });
        Box::pin(async move {
            sleep(LATENCY).await;
            let response = match serving {
                Some(serving) => serving.answer(&state, review, &trust).await,
                None => Err(REFUSED.to_owned()),
            };
            let result = match &response {
                Ok(response) => result(response),
                Err(why) => why.clone(),
            };
            state.record(Entry::Reviewed { review: number, result });
            response
        })
    }
}

impl Serving {
    fn is_ready(&self) -> bool {
        self.certificate.as_ref().is_none_or(|certificate| !certificate.chain().is_empty())
    }

    async fn answer(
        &self,
        state: &State,
        review: Request<Bytes>,
        trust: &ServerTrust,
    ) -> Result<Response<Bytes>, String> {
        self.alive(state).await?;
        if let Some(certificate) = &self.certificate {
            trust.verify(&certificate.chain())?;
        }
        let response = self.routes.clone().oneshot(review.map(Body::from)).await;
        let (head, body) = response.unwrap_or_else(|never| match never {}).into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        self.alive(state).await?;
        Ok(Response::from_parts(head, body))
    }

    /// Waits while the process is paused.
    async fn alive(&self, state: &State) -> Result<(), String> {
        let pause = *self.pause.lock();
        if let Some(left) = pause.and_then(|end| end.checked_sub(state.elapsed())) {
            sleep(left).await;
        }
        if self.is_dead.load(Ordering::Relaxed) { Err(RESET.to_owned()) } else { Ok(()) }
    }
}

/// Returns what a review is about.
fn about(body: &Bytes) -> String {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    let request = &review["request"];
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    if let Some(objects) = request["objects"].as_array() {
        return format!("{} objects to {}", objects.len(), text(&request["desiredAPIVersion"]));
    }
    let names = [text(&request["namespace"]), text(&request["name"])];
    let object = names.iter().filter(|name| !name.is_empty()).cloned().collect::<Vec<_>>().join("/");
    format!("{} {} {object}", text(&request["operation"]), text(&request["resource"]["resource"]))
}

/// Returns what a response says, in a few words.
fn result(response: &Response<Bytes>) -> String {
    let review: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    let answer = &review["response"];
    let message = |status: &str| answer[status]["message"].as_str().unwrap_or_default();
    match (answer["allowed"].as_bool(), answer.pointer("/result/status").and_then(Value::as_str)) {
        (Some(true), _) if answer["patch"].is_string() => "allows with changes".into(),
        (Some(true), _) => "allows".into(),
        (Some(false), _) => format!("denies: {}", message("status")),
        (None, Some("Success")) => "converts".into(),
        (None, Some(_)) => format!("fails to convert: {}", message("result")),
        (None, None) => format!("answers {}", response.status().as_u16()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(review: Value) -> Bytes {
        review.to_string().into()
    }

    #[test]
    fn reviews_have_short_descriptions() {
        let request =
            json!({"operation": "CREATE", "resource": {"resource": "cows"}, "namespace": "default", "name": "elsie"});
        assert_eq!(about(&body(json!({"request": request}))), "CREATE cows default/elsie");
        let request = json!({"desiredAPIVersion": "my.domain/v2", "objects": [{}, {}]});
        assert_eq!(about(&body(json!({"request": request}))), "2 objects to my.domain/v2");
    }

    #[test]
    fn responses_have_short_descriptions() {
        for (response, expected) in [
            (json!({"allowed": true}), "allows"),
            (json!({"allowed": true, "patch": "W10="}), "allows with changes"),
            (json!({"allowed": false, "status": {"status": "Failure", "message": "no"}}), "denies: no"),
            (json!({"result": {"status": "Success"}}), "converts"),
            (json!({"result": {"status": "Failed", "message": "no"}}), "fails to convert: no"),
            (json!(null), "answers 200"),
        ] {
            assert_eq!(result(&Response::new(body(json!({"response": response})))), expected);
        }
    }
}
