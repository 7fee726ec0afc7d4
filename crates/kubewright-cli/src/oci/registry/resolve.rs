//! The digests that tags stand for.

use http::{Method, StatusCode};

use super::{
    RegistryError,
    client::{Client, Response},
    credentials::Credentials,
    reason,
    reference::{Reference, is_digest},
};
use crate::oci::layout::digest;

/// Returns the digest of the image that has a tag: that of its index, if it is for several platforms.
pub(crate) async fn resolve(reference: &Reference, credentials: Option<Credentials>) -> Result<String, RegistryError> {
    let mut client = Client::new(reference, credentials, false)?.for_reading();
    let address = client.address(&format!("manifests/{}", reference.tag));
    let response = client.send(&Method::HEAD, &address, None).await?;
    let found = response.headers.get("docker-content-digest").and_then(|found| found.to_str().ok());
    if let Some(found) = found.filter(|found| response.status == StatusCode::OK && is_digest(found)) {
        return Ok(found.to_owned());
    }
    // The header is optional, and a response to HEAD has no reasons.
    let response = client.send(&Method::GET, &address, None).await?;
    match response.status {
        StatusCode::OK => Ok(digest(&response.body)),
        _ => Err(refused(reference, &response)),
    }
}

/// Returns the error for a manifest that is not sent.
pub(super) fn refused(reference: &Reference, response: &Response) -> RegistryError {
    let Reference { registry, repository, tag } = reference.clone();
    let reason = reason(&response.body);
    match response.status {
        StatusCode::NOT_FOUND => RegistryError::NoImage { registry, repository, tag },
        StatusCode::UNAUTHORIZED => RegistryError::Login { registry },
        StatusCode::FORBIDDEN => RegistryError::Unreadable { registry, repository, reason },
        status => RegistryError::Refused { registry, what: format!("the query for the tag {tag}"), status, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{self, Registry, State},
        *,
    };

    async fn ask(registry: &Registry, tag: &str, password: &str) -> Result<String, String> {
        let reference = Reference::parse(&format!("{}/me/cow:{tag}", registry.address)).unwrap();
        let credentials = Credentials::Password { user: "me".into(), password: password.into() };
        resolve(&reference, Some(credentials)).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_tag_is_resolved_with_or_without_the_header() {
        let manifest = testing::manifest("moo");
        for hides_digests in [false, true] {
            let manifests = [("v1".to_owned(), manifest.clone())].into();
            let registry = Registry::start(State { manifests, hides_digests, ..State::default() }).await;
            assert_eq!(ask(&registry, "v1", "secret").await.unwrap(), digest(&manifest.1));
            let state = registry.state.lock().unwrap();
            assert!(!state.tokens[0].contains("push"), "{:?}", state.tokens);
            assert_eq!(state.seen.iter().any(|request| request.starts_with("GET /v2/")), hides_digests);
        }
    }

    #[tokio::test]
    async fn a_tag_that_cannot_be_resolved_is_an_error_with_advice() {
        let registry = Registry::start(State::default()).await;
        let missing = ask(&registry, "v2", "secret").await.unwrap_err();
        assert!(missing.contains("has no image me/cow:v2") && missing.contains("push it first"), "{missing}");
        let denied = ask(&registry, "v2", "wrong").await.unwrap_err();
        assert!(denied.contains("run docker login"), "{denied}");
    }
}
