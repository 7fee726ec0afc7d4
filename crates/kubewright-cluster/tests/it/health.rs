//! A gRPC server with the service `grpc.health.v1.Health`, for probes.
//!
//! The name of a service is a path, and the service serves if the file exists; the empty name stands for the whole
//! server, which serves. `silent` isn't answered, `absent` is unknown, and for `other` the server says that it has no
//! health service.

use std::{convert::Infallible, net::TcpListener, path::Path};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};

pub(crate) fn serve(listener: TcpListener) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a listener");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((stream, _)) = listener.accept().await {
            let served =
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(served);
        }
    });
}

async fn answer(request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    // The names are shorter than 128 bytes: five bytes of header, a tag, and the length.
    let service = String::from_utf8_lossy(body.get(7..).unwrap_or_default()).into_owned();
    let response = Response::builder().header("content-type", "application/grpc");
    let status = match service.as_str() {
        _ if path != "/grpc.health.v1.Health/Check" => Some(("12", "unknown method")),
        "silent" => std::future::pending().await,
        "absent" => Some(("5", "no%20such service")),
        "other" => Some(("12", "unknown service")),
        _ => None,
    };
    if let Some((code, message)) = status {
        let empty = http_body_util::Empty::new().boxed();
        return Ok(response
            .header("grpc-status", code)
            .header("grpc-message", message)
            .body(empty)
            .expect("a response"));
    }
    let state = if service.is_empty() || Path::new(&service).exists() { 1 } else { 2 };
    let trailers = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), "0".parse().expect("a value"))]);
    let frames = [Frame::data(Bytes::from(vec![0, 0, 0, 0, 2, 8, state])), Frame::trailers(trailers)];
    let frames = stream::iter(frames.map(Ok));
    Ok(response.body(BodyExt::boxed(StreamBody::new(frames))).expect("a response"))
}
