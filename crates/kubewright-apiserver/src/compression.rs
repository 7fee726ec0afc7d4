//! Compression of large responses with gzip, for clients that accept it.
//!
//! As in Kubernetes, only objects, lists and discovery documents are compressed: no watches, logs or OpenAPI documents.

use std::{future::ready, io::Write};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, header};
use http_body::Body as _;

use crate::{
    body::{BoxError, Chunks},
    response::Response,
};

/// The size up to which responses aren't compressed, as in Kubernetes.
pub(crate) const THRESHOLD: usize = 128 << 10;
/// The size of the parts in which a body that exists as a whole is compressed, while it is sent.
const PART: usize = 64 << 10;

/// Returns whether a client accepts gzip. As in Kubernetes, it has to be there without a weight, in the first of
/// several headers.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|encoding| encoding.trim() == "gzip")
}

/// Compresses the body of a response if it is large. One that is produced while it is sent counts as large.
pub(crate) fn compress(mut response: Response) -> Response {
    let is_small = response.body().size_hint().exact().is_some_and(|size| size <= THRESHOLD as u64);
    if is_small {
        return response;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response.map(|body| body.map_stream(PART, gzip))
}

/// Compresses chunks, fast rather than thoroughly, as Kubernetes does.
fn gzip(chunks: Chunks) -> Chunks {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let step = move |chunk: Option<Result<Bytes, BoxError>>| -> Result<Bytes, BoxError> {
        match chunk {
            Some(chunk) => encoder.write_all(&chunk?)?,
            None => encoder.try_finish()?,
        }
        Ok(std::mem::take(encoder.get_mut()).into())
    };
    let steps = chunks.map(Some).chain(stream::once(ready(None))).map(step);
    steps.filter(|chunk| ready(!matches!(chunk, Ok(bytes) if bytes.is_empty()))).boxed()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;

    use super::*;
    use crate::body::Body;

    fn accepts(encodings: &str) -> bool {
        is_accepted(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, encodings.parse().unwrap())]))
    }

    #[test]
    fn gzip_is_accepted_if_it_is_named() {
        assert!(accepts("gzip") && accepts("deflate, gzip") && accepts(" gzip ,br"));
        assert!(!accepts("") && !accepts("*") && !accepts("gzip;q=1") && !accepts("x-gzip") && !accepts("GZIP"));
        assert!(!is_accepted(&HeaderMap::new()));
    }

    async fn check(body: impl Into<Body>, expect: &[u8], is_compressed: bool) {
        let response = compress(Response::new(body.into()));
        let headers = response.headers().clone();
        let mut text = response.into_body().collect().await.unwrap().to_bytes().to_vec();
        assert_eq!(headers.get(header::CONTENT_ENCODING).is_some(), is_compressed);
        assert_eq!(headers.get(header::VARY).is_some(), is_compressed);
        if is_compressed {
            let mut plain = Vec::new();
            assert!(text.len() < expect.len());
            GzDecoder::new(&*text).read_to_end(&mut plain).unwrap();
            text = plain;
        }
        assert!(text == expect);
    }

    #[tokio::test]
    async fn bodies_above_the_threshold_are_compressed() {
        let text: Vec<u8> = (0..=THRESHOLD).map(|place| b'a' + (place / 7 % 20) as u8).collect();
        check(text[1..].to_vec(), &text[1..], false).await;
        check(text.clone(), &text, true).await;
        let chunks: Vec<Result<Bytes, BoxError>> =
            text.chunks(1000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        check(Body::stream(stream::iter(chunks)), &text, true).await;
    }

    #[tokio::test]
    async fn an_error_of_a_body_ends_it() {
        let chunks: [Result<Bytes, BoxError>; 2] = [Ok(Bytes::from(vec![0; PART])), Err("failed".into())];
        let response = compress(Response::new(Body::stream(stream::iter(chunks))));
        assert!(response.into_body().collect().await.is_err());
    }
}
