use std::{io, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, Client, Error,
    api::{PostParams, WatchEvent, WatchParams},
    client::Body,
};
use serde_json::json;
use tokio::time::timeout;
use tower::{BoxError, service_fn};

use super::{Faults, Verb};

/// A server that accepts every request, and whose watches send three pods and then nothing more.
fn server() -> Client {
    let service = service_fn(|request: Request<Body>| async move {
        let body: UnsyncBoxBody<Bytes, BoxError> = if request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="))
        {
            let line = |name: &str| {
                let pod =
                    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "resourceVersion": "1" } });
                format!("{}\n", json!({ "type": "ADDED", "object": pod }))
            };
            // The event is split in the middle, as a network may do.
            let text = ["a", "b", "c"].map(line).concat();
            let (head, tail) = text.split_at(40);
            let frames = [head, tail].map(|part| Ok(http_body::Frame::data(Bytes::from(part.to_owned()))));
            StreamBody::new(stream::iter(frames).chain(stream::pending())).boxed_unsync()
        } else {
            let body = json!({ "metadata": { "name": "x" } }).to_string();
            Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync()
        };
        Ok::<_, BoxError>(Response::new(body))
    });
    Client::new(service, "default")
}

async fn create(client: &Client) -> Result<ConfigMap, Error> {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    maps.create(&PostParams::default(), &ConfigMap { metadata: named("x"), ..ConfigMap::default() }).await
}

fn named(name: &str) -> kube::api::ObjectMeta {
    kube::api::ObjectMeta { name: Some(name.into()), ..kube::api::ObjectMeta::default() }
}

/// Returns what a watch of pods sends within ten seconds, and whether it ended.
async fn watch(client: &Client) -> (Vec<String>, bool) {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut events = pods.watch(&WatchParams::default(), "0").await.expect("it begins").boxed();
    let mut seen = Vec::new();
    loop {
        match timeout(Duration::from_secs(10), events.try_next()).await {
            Err(_) => return (seen, false),
            Ok(Ok(None)) => return (seen, true),
            Ok(Ok(Some(WatchEvent::Error(status)))) => seen.push(status.code.to_string()),
            Ok(Ok(Some(WatchEvent::Added(pod)))) => seen.push(pod.metadata.name.unwrap_or_default()),
            Ok(other) => panic!("unexpected: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_has_code_reason_and_retry_after() {
    let (faults, server) = (Faults::new(), server());
    let client = faults.client(&server);
    let fault = faults.on(Verb::WRITES, "configmaps").skip(1).times(2).retry_after(7).refuse(429, "TooManyRequests");
    create(&client).await.unwrap();
    for _ in 0..2 {
        let Err(Error::Api(status)) = create(&client).await else { panic!("it is refused") };
        assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"));
        assert_eq!(status.details.as_ref().map(|details| details.retry_after_seconds), Some(7));
    }
    create(&client).await.unwrap();
    assert_eq!(fault.hits(), 2);
    let codes: Vec<_> = faults.requests().iter().map(|seen| seen.code).collect();
    assert_eq!(codes, [Some(200), Some(429), Some(429), Some(200)]);
}

#[tokio::test]
async fn rules_match_verb_resource_and_name() {
    let (faults, server) = (Faults::new(), server());
    let client = faults.client(&server);
    let other = faults.on(&[Verb::Create], "configmaps").named("y").always().lose_request();
    let reads = faults.on(Verb::READS, "*").always().lose_request();
    create(&client).await.unwrap();
    assert_eq!((other.hits(), reads.hits(), faults.writes()), (0, 0, 1));
    let named = faults.on(&[Verb::Create], "configmaps").named("x").always().lose_request();
    create(&client).await.unwrap_err();
    faults.clear();
    create(&client).await.unwrap();
    assert_eq!((named.hits(), faults.writes()), (1, 3));
    faults.forget();
    assert_eq!(faults.requests(), []);
}

#[tokio::test]
async fn a_lost_answer_means_the_request_was_executed_and_a_lost_request_that_it_was_not() {
    let (behind, faults) = (Faults::new(), Faults::new());
    let client = faults.client(&behind.client(&server()));
    faults.on(&[Verb::Create], "configmaps").lose_response();
    let error = create(&client).await.unwrap_err();
    assert!(!matches!(error, Error::Api(_)), "{error}");
    assert_eq!(behind.writes(), 1);
    faults.on(&[Verb::Create], "configmaps").lose_request();
    create(&client).await.unwrap_err();
    assert_eq!(behind.writes(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_are_delayed_or_held() -> io::Result<()> {
    let (faults, server) = (Faults::new(), server());
    let client = faults.client(&server);
    faults.on(&[Verb::Create], "configmaps").delay(Duration::from_secs(5));
    assert!(timeout(Duration::from_secs(4), create(&client)).await.is_err());
    let gate = faults.on(&[Verb::Create], "configmaps").hold();
    let held = create(&client);
    tokio::pin!(held);
    assert!(timeout(Duration::from_secs(3600), &mut held).await.is_err());
    gate.open();
    held.await.map(drop).map_err(io::Error::other)
}

#[tokio::test(start_paused = true)]
async fn watches_show_their_faults() {
    let (faults, server) = (Faults::new(), server());
    let client = faults.client(&server);
    let all = || vec!["a".to_owned(), "b".into(), "c".into()];
    assert_eq!(watch(&client).await, (all(), false));
    faults.on(&[Verb::Watch], "pods").cut_after(2);
    assert_eq!(watch(&client).await, (all()[..2].to_vec(), true));
    faults.on(&[Verb::Watch], "pods").double();
    assert_eq!(watch(&client).await.0, ["a", "a", "b", "b", "c", "c"]);
    faults.on(&[Verb::Watch], "pods").expire();
    assert_eq!(watch(&client).await, (vec!["410".into()], true));
    faults.on(&[Verb::Watch], "pods").delay(Duration::from_secs(9));
    assert_eq!(watch(&client).await, (all(), false), "all are late by the same, not by the sum");
    faults.on(&[Verb::Watch], "pods").delay(Duration::from_secs(11));
    assert_eq!(watch(&client).await, (vec![], false));
    let gate = faults.on(&[Verb::Watch], "pods").hold();
    let (held, ()) = tokio::join!(watch(&client), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        gate.open();
    });
    assert_eq!(held, (all(), false));
}
