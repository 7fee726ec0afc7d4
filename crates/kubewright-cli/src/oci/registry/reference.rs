//! Image references.

use thiserror::Error;

/// An image reference, `registry/repository:tag`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The host, optionally with a port.
    pub(crate) registry: String,
    /// The repository.
    pub(crate) repository: String,
    /// The tag, or the digest of an image that is pulled. Defaults to `latest`.
    pub(crate) tag: String,
}

/// An invalid image reference.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("invalid image reference {text:?}: {why}; use the form ghcr.io/me/cow:v1")]
pub(crate) struct ReferenceError {
    text: String,
    why: &'static str,
}

/// The default registry.
const DOCKER: &str = "docker.io";

impl Reference {
    /// Parses an image reference according to Docker's rules.
    pub(crate) fn parse(text: &str) -> Result<Self, ReferenceError> {
        let wrong = |why| ReferenceError { text: text.into(), why };
        if text.contains('@') {
            return Err(wrong("a digest cannot be given"));
        }
        let (registry, rest) = match text.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => (DOCKER, text),
        };
        let (repository, tag) = rest.rsplit_once(':').unwrap_or((rest, "latest"));
        if repository.is_empty() || !repository.split('/').all(is_part) {
            return Err(wrong(
                "a repository consists of lower-case letters, digits, dots, dashes, underscores and slashes",
            ));
        }
        let is_tag = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if tag.is_empty() || tag.len() > 128 || tag.starts_with(['.', '-']) || !tag.chars().all(is_tag) {
            return Err(wrong("a tag has at most 128 letters, digits, dots, dashes and underscores"));
        }
        let library = if registry == DOCKER && !repository.contains('/') { "library/" } else { "" };
        Ok(Self { registry: registry.into(), repository: format!("{library}{repository}"), tag: tag.into() })
    }

    /// Parses the reference of an image that is pulled, which may end with a digest.
    pub(crate) fn parse_pulled(text: &str) -> Result<Self, ReferenceError> {
        let Some((name, digest)) = text.split_once('@') else { return Self::parse(text) };
        if !is_digest(digest) {
            let why = "a digest consists of sha256: and 64 lower-case hexadecimal digits";
            return Err(ReferenceError { text: text.into(), why });
        }
        Ok(Self { tag: digest.into(), ..Self::parse(name)? })
    }

    /// Returns the host of the registry API.
    pub(super) fn host(&self) -> &str {
        if self.registry == DOCKER { "registry-1.docker.io" } else { &self.registry }
    }

    /// Returns the name of another repository in the same registry, which is given with or without the registry.
    pub(crate) fn sibling(&self, text: &str) -> Result<String, ReferenceError> {
        let wrong = |why| ReferenceError { text: text.into(), why };
        let has_host = text.split_once('/').is_some_and(|(host, _)| host.contains(['.', ':']) || host == "localhost");
        let full = if has_host { text.to_owned() } else { format!("{}/{text}", self.registry) };
        let other = Self::parse(&full)?;
        if other.registry != self.registry {
            return Err(wrong("blobs are mounted from repositories of the registry that is pushed to"));
        }
        if full.ends_with(&format!(":{}", other.tag)) {
            return Err(wrong("a repository is named without a tag"));
        }
        Ok(other.repository)
    }

    /// Returns the repository as it is named in signatures: those of Docker Hub have a registry with another name.
    pub(super) fn signed_name(&self) -> String {
        let registry = if self.registry == DOCKER { "index.docker.io" } else { &self.registry };
        format!("{registry}/{}", self.repository)
    }

    /// Returns whether the registry is on this machine. As in Docker, TLS is not used for such registries.
    pub(super) fn is_local(&self) -> bool {
        let host = self.registry.rsplit_once(':').map_or(self.registry.as_str(), |(host, _)| host);
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let separator = if self.tag.contains(':') { '@' } else { ':' };
        write!(f, "{}/{}{separator}{}", self.registry, self.repository, self.tag)
    }
}

/// Returns whether a text is a digest of SHA-256.
pub(super) fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:");
    hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

fn is_part(part: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(is_letter) && part.ends_with(is_letter) && part.chars().all(|c| is_letter(c) || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed_as_in_docker() {
        for (text, whole, host) in [
            ("cow", "docker.io/library/cow:latest", "registry-1.docker.io"),
            ("me/cow:v1", "docker.io/me/cow:v1", "registry-1.docker.io"),
            ("ghcr.io/me/cow", "ghcr.io/me/cow:latest", "ghcr.io"),
            ("localhost:5000/cow:v1", "localhost:5000/cow:v1", "localhost:5000"),
            ("localhost/cow", "localhost/cow:latest", "localhost"),
        ] {
            let reference = Reference::parse(text).unwrap();
            assert_eq!((reference.to_string().as_str(), reference.host()), (whole, host));
        }
    }

    #[test]
    fn repositories_are_named_in_signatures_as_by_cosign() {
        for (text, name) in [("cow:v1", "index.docker.io/library/cow"), ("ghcr.io/me/cow:v1", "ghcr.io/me/cow")] {
            assert_eq!(Reference::parse(text).unwrap().signed_name(), name);
        }
    }

    #[test]
    fn siblings_are_repositories_of_the_same_registry() {
        let reference = Reference::parse("ghcr.io/me/cow:v1").unwrap();
        for text in ["me/base", "ghcr.io/me/base"] {
            assert_eq!(reference.sibling(text).unwrap(), "me/base");
        }
        assert_eq!(Reference::parse("cow").unwrap().sibling("base").unwrap(), "library/base");
        for (text, says) in [
            ("quay.io/me/base", "of the registry that is pushed to"),
            ("me/base:v1", "without a tag"),
            ("Me", "lower-case"),
        ] {
            let refused = reference.sibling(text).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn local_registries_are_recognized() {
        for (text, local) in [
            ("localhost:5000/cow", true),
            ("127.0.0.1/cow", true),
            ("[::1]:80/cow", true),
            ("10.0.0.1/cow", false),
            ("cow", false),
        ] {
            assert_eq!(Reference::parse(text).unwrap().is_local(), local, "{text}");
        }
    }

    #[test]
    fn images_are_pulled_by_tag_or_digest() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        for (text, whole) in [
            ("cow:v1", "docker.io/library/cow:v1".to_owned()),
            (&format!("ghcr.io/me/cow@{digest}"), format!("ghcr.io/me/cow@{digest}")),
            (&format!("localhost:5000/cow:v1@{digest}"), format!("localhost:5000/cow@{digest}")),
        ] {
            assert_eq!(Reference::parse_pulled(text).unwrap().to_string(), whole);
        }
        let refused = Reference::parse_pulled("cow@sha256:0").unwrap_err().to_string();
        assert!(refused.contains("64 lower-case hexadecimal digits"), "{refused}");
    }

    #[test]
    fn only_digests_are_believed() {
        let hex = "0123456789abcdef".repeat(4);
        assert!(is_digest(&format!("sha256:{hex}")));
        for other in ["", "sha256:", "sha256:0", &hex, &format!("sha256:{}", hex.to_uppercase())] {
            assert!(!is_digest(other), "{other}");
        }
    }

    #[test]
    fn invalid_references_are_errors() {
        for text in
            ["", "Cow", "ghcr.io/", "ghcr.io/me//cow", "cow:", "cow:a b", "cow@sha256:0", "ghcr.io/-cow", "cow:-v"]
        {
            let refused = Reference::parse(text).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("invalid image reference {text:?}"))
                    && refused.ends_with("ghcr.io/me/cow:v1"),
                "{refused}"
            );
        }
    }
}
