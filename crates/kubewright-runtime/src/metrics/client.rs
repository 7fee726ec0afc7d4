//! `rest_client_requests_total`: what the client asked of the API server, and how it was answered.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use prometheus::IntCounterVec;
use tower::{Layer, Service};

/// A layer for `kube::client::ClientBuilder::with_layer` that counts requests by code, host and method.
///
/// A request without an answer counts with the code `<error>`, as client-go's.
#[derive(Clone, Debug)]
pub struct ClientMetricsLayer {
    requests: IntCounterVec,
    host: String,
}

impl ClientMetricsLayer {
    pub(super) fn new(requests: IntCounterVec, host: String) -> Self {
        Self { requests, host }
    }
}

impl<S> Layer<S> for ClientMetricsLayer {
    type Service = ClientMetrics<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ClientMetrics { inner, layer: self.clone() }
    }
}

/// The service that [`ClientMetricsLayer`] makes.
#[derive(Clone, Debug)]
pub struct ClientMetrics<S> {
    inner: S,
    layer: ClientMetricsLayer,
}

impl<S, A, B> Service<Request<A>> for ClientMetrics<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let ClientMetricsLayer { requests, host } = self.layer.clone();
        let method = request.method().clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or("<error>".into(), |answer| answer.status().as_u16().to_string());
            requests.with_label_values(&[code.as_str(), &host, method.as_str()]).inc();
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apimachinery::clock::SystemClock;
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn counts_answers_and_their_absence() {
        let metrics = Metrics::new(SystemClock::shared());
        let server = service_fn(|request: Request<()>| async move {
            match request.uri().path() {
                "/lost" => Err("connection reset"),
                _ => Ok(Response::builder().status(404).body(()).unwrap()),
            }
        });
        let client = metrics.client_layer("kubernetes.default:443").layer(server);
        let send = |path: &str| client.clone().oneshot(Request::get(path).body(()).unwrap());
        assert_eq!(send("/api").await.unwrap().status(), 404);
        assert_eq!(send("/lost").await.unwrap_err(), "connection reset");
        let text = metrics.encode().unwrap();
        let host = "host=\"kubernetes.default:443\",method=\"GET\"} 1";
        assert!(text.contains(&format!("rest_client_requests_total{{code=\"404\",{host}")), "{text}");
        assert!(text.contains(&format!("rest_client_requests_total{{code=\"<error>\",{host}")), "{text}");
    }
}
