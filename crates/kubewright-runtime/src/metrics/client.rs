//! `rest_client_*`: the number of requests to the API server and, if enabled, their durations and sizes.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, combinators::MapFrame};
use kubewright_apimachinery::clock::SharedClock;
use prometheus::{Histogram, HistogramVec, IntCounterVec, Registry};
use tower::{Layer, Service};

use super::histograms;

/// Upper bounds in seconds, as in Kubernetes' own components.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Upper bounds in bytes, from 64 B to 16 MiB, as in Kubernetes' own components.
const BYTES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

/// The histograms of requests. They are optional because of their cardinality: one of each per verb.
#[derive(Clone, Debug)]
pub(super) struct Families {
    duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
}

impl Families {
    pub(super) fn new(registry: &Registry) -> Self {
        let family = |name: &str, help: &str, buckets: &[f64]| {
            histograms(registry, &format!("rest_client_{name}"), help, &["host", "verb"], buckets)
        };
        Self {
            duration: family(
                "request_duration_seconds",
                "How long a request takes, to the last byte of its answer, by verb and host. Watches don't count.",
                &SECONDS,
            ),
            request_size: family("request_size_bytes", "Size of what is sent, by verb and host.", &BYTES),
            response_size: family(
                "response_size_bytes",
                "Size of what is answered, by verb and host. Watches don't count.",
                &BYTES,
            ),
        }
    }
}

/// A layer for `kube::client::ClientBuilder::with_layer` that counts requests by code, host and method, and measures
/// them if [`Metrics::measure_requests`](super::Metrics::measure_requests) is enabled.
///
/// A request without a response is counted with the code `<error>`, as in client-go.
#[derive(Clone, Debug)]
pub struct ClientMetricsLayer {
    pub(super) requests: IntCounterVec,
    pub(super) measured: Arc<OnceLock<Families>>,
    pub(super) clock: SharedClock,
    pub(super) host: String,
}

impl ClientMetricsLayer {
    /// Starts to measure a request; `None` if requests are not measured.
    fn meter<A: Body>(&self, request: &Request<A>) -> Option<Meter> {
        let families = self.measured.get()?;
        let labels = [self.host.as_str(), request.method().as_str()];
        if let Some(size) = request.body().size_hint().exact() {
            families.request_size.with_label_values(&labels).observe(bytes(size));
        }
        if is_watch(request.uri().query()) {
            return None;
        }
        Some(Meter {
            duration: families.duration.with_label_values(&labels),
            size: families.response_size.with_label_values(&labels),
            clock: self.clock.clone(),
            start: self.clock.monotonic(),
            received: None,
        })
    }
}

/// Returns whether the request is a watch, whose response is an open-ended stream.
fn is_watch(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")))
}

#[expect(clippy::cast_precision_loss, reason = "no body has 2^52 bytes")]
fn bytes(size: u64) -> f64 {
    size as f64
}

/// The measurement of a request, which ends when this is dropped: after the last byte of the response, or without one.
struct Meter {
    duration: Histogram,
    size: Histogram,
    clock: SharedClock,
    start: Duration,
    /// The number of bytes received; `None` without a response.
    received: Option<u64>,
}

impl Meter {
    fn receive(&mut self, size: usize) {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        self.received = self.received.map(|received| received.saturating_add(size));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.duration.observe(self.clock.monotonic().saturating_sub(self.start).as_secs_f64());
        if let Some(received) = self.received {
            self.size.observe(bytes(received));
        }
    }
}

/// A response body that is measured as it arrives.
type MeasuredBody<B> = MapFrame<B, FrameObserver<<B as Body>::Data>>;
type FrameObserver<D> = Box<dyn FnMut(Frame<D>) -> Frame<D> + Send>;

fn measure_frames<D: Buf>(meter: Option<Meter>) -> FrameObserver<D> {
    let Some(mut meter) = meter else { return Box::new(|frame| frame) };
    meter.received = Some(0);
    Box::new(move |frame| {
        meter.receive(frame.data_ref().map_or(0, Buf::remaining));
        frame
    })
}

impl<S> Layer<S> for ClientMetricsLayer {
    type Service = ClientMetrics<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ClientMetrics { inner, layer: self.clone() }
    }
}

/// The service of a [`ClientMetricsLayer`].
#[derive(Clone, Debug)]
pub struct ClientMetrics<S> {
    inner: S,
    layer: ClientMetricsLayer,
}

impl<S, A, B> Service<Request<A>> for ClientMetrics<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    A: Body,
    B: Body,
{
    type Response = Response<MeasuredBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let meter = self.layer.meter(&request);
        let ClientMetricsLayer { requests, host, .. } = self.layer.clone();
        let method = request.method().clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or("<error>".into(), |answer| answer.status().as_u16().to_string());
            requests.with_label_values(&[code.as_str(), &host, method.as_str()]).inc();
            answer.map(|answer| answer.map(|body| body.map_frame(measure_frames(meter))))
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{Empty, Full};
    use kubewright_apimachinery::clock::VirtualClock;
    use tokio::time::advance;
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::metrics::Metrics;

    fn metrics() -> Metrics {
        Metrics::new(VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH))
    }

    #[track_caller]
    fn has(metrics: &Metrics, lines: &[&str]) {
        let text = metrics.encode().unwrap();
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line} is missing in\n{text}");
        }
    }

    #[tokio::test]
    async fn requests_are_counted_with_and_without_a_response() {
        let metrics = metrics();
        let server = service_fn(|request: Request<Empty<Bytes>>| async move {
            match request.uri().path() {
                "/lost" => Err("connection reset"),
                _ => Ok(Response::builder().status(404).body(Empty::<Bytes>::new()).unwrap()),
            }
        });
        let client = metrics.client_layer("kubernetes.default:443").layer(server);
        let send = |path: &str| client.clone().oneshot(Request::get(path).body(Empty::new()).unwrap());
        assert_eq!(send("/api").await.unwrap().status(), 404);
        assert_eq!(send("/lost").await.err(), Some("connection reset"));
        has(
            &metrics,
            &[
                r#"rest_client_requests_total{code="404",host="kubernetes.default:443",method="GET"} 1"#,
                r#"rest_client_requests_total{code="<error>",host="kubernetes.default:443",method="GET"} 1"#,
            ],
        );
        assert!(!metrics.encode().unwrap().contains("rest_client_request_duration_seconds"), "no request was sent");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_other_than_watches_are_measured_to_the_last_byte() {
        let metrics = metrics().measure_requests();
        let server = service_fn(|_: Request<Full<Bytes>>| async {
            advance(Duration::from_millis(300)).await;
            Ok::<_, &str>(Response::new(Full::new(Bytes::from_static(&[b'x'; 300]))))
        });
        let client = metrics.client_layer("h").layer(server);
        let send = async |request: http::request::Builder, body: &'static [u8]| {
            client.clone().oneshot(request.body(Full::new(Bytes::from_static(body))).unwrap()).await.unwrap()
        };
        let answer = send(Request::post("/api/v1/pods?watch=false"), &[b'x'; 100]).await;
        advance(Duration::from_millis(300)).await;
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 300);
        drop(send(Request::get("/api/v1/pods?limit=1&watch=true"), b"").await);
        has(
            &metrics,
            &[
                r#"rest_client_request_duration_seconds_bucket{host="h",verb="POST",le="0.5"} 0"#,
                r#"rest_client_request_duration_seconds_bucket{host="h",verb="POST",le="1"} 1"#,
                r#"rest_client_request_duration_seconds_sum{host="h",verb="POST"} 0.6"#,
                r#"rest_client_request_size_bytes_sum{host="h",verb="POST"} 100"#,
                r#"rest_client_request_size_bytes_sum{host="h",verb="GET"} 0"#,
                r#"rest_client_response_size_bytes_bucket{host="h",verb="POST",le="256"} 0"#,
                r#"rest_client_response_size_bytes_sum{host="h",verb="POST"} 300"#,
                r#"rest_client_requests_total{code="200",host="h",method="GET"} 1"#,
            ],
        );
        assert!(!metrics.encode().unwrap().contains(r#"duration_seconds_count{host="h",verb="GET""#));
    }
}
