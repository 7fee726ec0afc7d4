//! Uploads of blobs: in one request, or in chunks that are resumed after a failure.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, header};

use super::{
    Pusher, RegistryError, Step,
    challenge::query,
    client::{Content, Response},
};
use crate::oci::layout::{Blob, Descriptor};

/// The media type of chunks.
const BYTES: &str = "application/octet-stream";

/// How often a chunk is sent in vain before the upload fails.
const ATTEMPTS: u32 = 5;

/// The sizes and times of uploads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadOptions {
    /// The size of a chunk in bytes, unless the registry asks for larger ones. A blob that isn't larger is uploaded in
    /// one request.
    pub(crate) chunk: usize,
    /// The time before a chunk is sent again. It doubles with each failure.
    pub(crate) delay: Duration,
}

impl Default for UploadOptions {
    /// Chunks of 64 MiB: programs are usually smaller, and proxies often limit a request to 100 MB.
    fn default() -> Self {
        Self { chunk: 64 << 20, delay: Duration::from_secs(1) }
    }
}

/// An upload that the registry began.
pub(super) struct Upload {
    /// The URL of the next request.
    location: String,
    /// The size of the smallest chunk that the registry takes.
    least: usize,
}

/// What a registry does with a request to mount a blob.
pub(super) enum Mount {
    /// The repository has the blob now.
    Mounted,
    /// The blob has to be uploaded, and the upload is begun.
    Begun(Upload),
    /// The blob has to be uploaded.
    Refused,
}

impl Pusher<'_> {
    /// Asks for a blob of another repository, if one is named.
    pub(super) async fn mount(&mut self, blob: &Blob) -> Result<Mount, RegistryError> {
        let Some(source) = self.mount_from else { return Ok(Mount::Refused) };
        let digest = &blob.descriptor.digest;
        let address = self.client.address(&format!("blobs/uploads/?{}", query(&[("mount", digest), ("from", source)])));
        let response = self.client.send(&Method::POST, &address, None).await?;
        if response.status == StatusCode::CREATED {
            self.compare(&response, digest)?;
            return Ok(Mount::Mounted);
        }
        // A registry without mounts, or without permission to read the other repository, begins an upload or refuses.
        Ok(self.begun(&response).map_or(Mount::Refused, Mount::Begun))
    }

    /// Begins an upload.
    async fn begin(&mut self) -> Result<Upload, RegistryError> {
        let address = self.client.address("blobs/uploads/");
        let response = self.client.send(&Method::POST, &address, None).await?;
        self.begun(&response).ok_or_else(|| self.refused("the upload", &response))
    }

    /// Returns the upload that a response is about.
    fn begun(&self, response: &Response) -> Option<Upload> {
        let location = self.location(response).filter(|_| response.status == StatusCode::ACCEPTED)?;
        let least = response.headers.get("oci-chunk-min-length").and_then(|least| least.to_str().ok()?.parse().ok());
        Some(Upload { location, least: least.unwrap_or_default() })
    }

    /// Uploads a blob that the registry doesn't have, by an upload that is begun or a new one.
    pub(super) async fn upload(
        &mut self,
        blob: &Blob,
        begun: Option<Upload>,
        observe: &mut impl FnMut(Step<'_>),
    ) -> Result<(), RegistryError> {
        let upload = match begun {
            Some(upload) => upload,
            None => self.begin().await?,
        };
        let (digest, bytes) = (&blob.descriptor.digest, Bytes::from(blob.bytes.clone()));
        let chunk = self.uploads.chunk.max(upload.least);
        if bytes.len() > chunk {
            let location = self.chunks(upload.location, &blob.descriptor, &bytes, chunk, observe).await?;
            return self.close(&location, &blob.descriptor).await;
        }
        let content = Content::new(BYTES, bytes);
        let response = self.client.send(&Method::PUT, &closing(&upload.location, digest), Some(content)).await?;
        self.stored(&response, digest)
    }

    /// Sends a blob in chunks, and returns the URL to close the upload at. After a failure, the upload goes on with
    /// what the registry has not received.
    async fn chunks(
        &mut self,
        mut location: String,
        blob: &Descriptor,
        bytes: &Bytes,
        chunk: usize,
        observe: &mut impl FnMut(Step<'_>),
    ) -> Result<String, RegistryError> {
        let (mut sent, mut failures) = (0, 0);
        while sent < bytes.len() {
            let end = bytes.len().min(sent + chunk);
            let content = Content { media_type: BYTES, bytes: bytes.slice(sent..end), offset: Some(sent) };
            let response = self.client.send(&Method::PATCH, &location, Some(content)).await;
            let why = match self.temporary(response, "a chunk of a blob")? {
                Ok(response) => {
                    location = self.location(&response).unwrap_or(location);
                    // The registry may have stored a part.
                    let received = received(&response).unwrap_or(end).min(end);
                    if received > sent {
                        (sent, failures) = (received, 0);
                        observe(Step::Sent(blob, sent as u64));
                        continue;
                    }
                    "it was not stored".to_owned()
                }
                Err(why) => why,
            };
            failures += 1;
            self.wait(failures, blob, sent, why).await?;
            let response = self.client.send(&Method::GET, &location, None).await;
            if let Ok(response) = self.temporary(response, "the query for an upload")? {
                location = self.location(&response).unwrap_or(location);
                sent = received(&response).unwrap_or_default().min(bytes.len());
            }
            observe(Step::Resumed(blob, sent as u64));
        }
        Ok(location)
    }

    /// Closes an upload whose chunks are sent.
    async fn close(&mut self, location: &str, blob: &Descriptor) -> Result<(), RegistryError> {
        let address = closing(location, &blob.digest);
        let mut failures = 0;
        loop {
            let response = self.client.send(&Method::PUT, &address, None).await;
            let why = match self.temporary(response, "the end of an upload")? {
                Ok(response) => return self.stored(&response, &blob.digest),
                Err(why) => why,
            };
            failures += 1;
            self.wait(failures, blob, blob.size as usize, why).await?;
            // Only the response may be lost.
            if self.has(&blob.digest).await? {
                return Ok(());
            }
        }
    }

    /// Waits after a failure, or returns an error after too many.
    async fn wait(&self, failures: u32, blob: &Descriptor, sent: usize, why: String) -> Result<(), RegistryError> {
        if failures >= ATTEMPTS {
            return Err(RegistryError::Interrupted {
                registry: self.reference.registry.clone(),
                digest: blob.digest.clone(),
                sent: sent as u64,
                size: blob.size,
                why,
            });
        }
        tokio::time::sleep(self.uploads.delay * 2_u32.pow(failures - 1)).await;
        Ok(())
    }

    /// Returns a response of success, or the reason of a failure after which the request may be repeated. Other
    /// failures are errors.
    fn temporary(
        &self,
        response: Result<Response, RegistryError>,
        what: &str,
    ) -> Result<Result<Response, String>, RegistryError> {
        match response {
            Ok(response) if response.status.is_success() => Ok(Ok(response)),
            Ok(response) => {
                let error = self.refused(what, &response);
                let is_temporary = response.status.is_server_error()
                    || matches!(
                        response.status,
                        StatusCode::REQUEST_TIMEOUT | StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::TOO_MANY_REQUESTS
                    );
                if is_temporary { Ok(Err(error.to_string())) } else { Err(error) }
            }
            Err(RegistryError::Unreachable { why, .. }) => Ok(Err(why)),
            Err(error) => Err(error),
        }
    }

    /// Checks the response to the last request of an upload.
    fn stored(&self, response: &Response, digest: &str) -> Result<(), RegistryError> {
        if response.status != StatusCode::CREATED {
            return Err(self.refused(&format!("the blob {digest}"), response));
        }
        self.compare(response, digest)
    }

    /// Returns the URL in a response.
    fn location(&self, response: &Response) -> Option<String> {
        let location = response.headers.get(header::LOCATION)?.to_str().ok()?;
        Some(self.client.follow(location))
    }
}

/// Returns the URL of the last request of an upload.
fn closing(location: &str, digest: &str) -> String {
    let joint = if location.contains('?') { '&' } else { '?' };
    format!("{location}{joint}{}", query(&[("digest", digest)]))
}

/// Returns how many bytes a registry has received.
fn received(response: &Response) -> Option<usize> {
    parse_range(response.headers.get(header::RANGE)?.to_str().ok()?)
}

/// Parses the range of received bytes, which begins at zero and includes its last byte. Registries report `0-0` for an
/// upload without bytes; chunks are longer than the one byte that it could mean.
fn parse_range(range: &str) -> Option<usize> {
    let (first, last) = range.trim().trim_start_matches("bytes=").split_once('-')?;
    match last.parse::<usize>().ok().filter(|_| first == "0")? {
        0 => Some(0),
        last => last.checked_add(1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::{
        super::{
            PushOptions,
            testing::{Fault, Registry, State},
        },
        *,
    };
    use crate::oci::layout::{Bundle, Layout, MANIFEST, Manifest};

    /// An image whose layer has a number of bytes.
    fn layout(size: usize) -> Layout {
        let config = Blob::new("application/vnd.oci.image.config.v1+json", b"{}".to_vec());
        let bytes = (0..size).map(|position| position as u8).collect();
        let layer = Blob::new("application/vnd.oci.image.layer.v1.tar", bytes);
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST.into(),
            artifact_type: None,
            config: config.descriptor.clone(),
            layers: vec![layer.descriptor.clone()],
            subject: None,
            annotations: Default::default(),
        };
        let manifest = Blob::json(MANIFEST, &manifest).unwrap();
        let image = Bundle { manifest, blobs: vec![config, layer], subject: None };
        Layout { image, platforms: Vec::new(), referrers: Vec::new() }
    }

    /// Pushes a layer of 250 bytes in chunks of 100, and returns the ranges that were sent.
    async fn push(state: State) -> Result<Vec<String>, String> {
        let (registry, layout) = (Registry::start(state).await, layout(250));
        let uploads = UploadOptions { chunk: 100, delay: Duration::from_millis(1) };
        let pushed =
            registry.push_with(&layout, Some("secret"), PushOptions { uploads, ..PushOptions::default() }).await;
        let state = registry.state.lock().unwrap();
        if pushed.is_ok() {
            let layer = &layout.image.blobs[1];
            assert_eq!(state.blobs[&layer.descriptor.digest], layer.bytes);
            assert!(state.manifests.contains_key("v1"));
        }
        pushed.map(|_| state.ranges.clone())
    }

    fn failing(faults: impl Into<VecDeque<Fault>>) -> State {
        State { faults: faults.into(), ..State::default() }
    }

    #[tokio::test]
    async fn a_large_blob_is_uploaded_in_chunks() {
        assert_eq!(push(State::default()).await.unwrap(), ["0-99", "100-199", "200-249"]);
        let larger = State { least: Some(120), ..State::default() };
        assert_eq!(push(larger).await.unwrap(), ["0-119", "120-239", "240-249"]);
        let largest = State { least: Some(250), ..State::default() };
        assert!(push(largest).await.unwrap().is_empty(), "one request is enough");
    }

    #[tokio::test]
    async fn an_interrupted_upload_is_resumed_from_what_the_registry_has() {
        let ranges = push(failing([Fault::None, Fault::Half(500)])).await.unwrap();
        assert_eq!(ranges, ["0-99", "100-199", "150-249"]);
        let ranges = push(failing([Fault::Disconnect])).await.unwrap();
        assert_eq!(ranges, ["0-99", "50-149", "150-249"]);
        // Everything is stored, but the response is lost.
        let ranges = push(failing([Fault::None, Fault::None, Fault::Whole(502)])).await.unwrap();
        assert_eq!(ranges, ["0-99", "100-199", "200-249"]);
        // The registry accepts a part.
        let ranges = push(failing([Fault::Half(202)])).await.unwrap();
        assert_eq!(ranges, ["0-99", "50-149", "150-249"]);
    }

    #[tokio::test]
    async fn a_lost_response_to_the_end_of_an_upload_is_no_failure() {
        for is_stored in [true, false] {
            let state = State { lost_ends: 1, is_end_stored: is_stored, ..State::default() };
            assert_eq!(push(state).await.unwrap().len(), 3);
        }
    }

    #[tokio::test]
    async fn an_upload_fails_after_some_attempts() {
        let failed = push(failing(vec![Fault::Nothing(503); 9])).await.unwrap_err();
        assert!(failed.contains("after 0 of 250 bytes") && failed.contains("push again"), "{failed}");
        assert!(failed.contains("503"), "{failed}");
        let refused = push(failing([Fault::Nothing(403)])).await.unwrap_err();
        assert!(refused.contains("push to me/cow denied"), "{refused}");
        let lost = push(failing([Fault::Lost])).await.unwrap_err();
        assert!(lost.contains("rejected the query for an upload (404"), "{lost}");
    }

    #[test]
    fn ranges_are_parsed() {
        for (range, expect) in
            [("0-99", Some(100)), ("bytes=0-9", Some(10)), ("0-0", Some(0)), ("5-9", None), ("0-", None), ("", None)]
        {
            assert_eq!(parse_range(range), expect, "{range}");
        }
    }
}
