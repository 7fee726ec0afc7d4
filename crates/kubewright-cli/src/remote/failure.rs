//! What a person can do about a request that failed.

use std::{error::Error, io};

use kube::core::Status;

/// What the API server said, or why it said nothing, in one line; and what to do, if it is for a person to do anything.
pub(super) fn explain(error: &kube::Error) -> String {
    let said = match error {
        kube::Error::Api(status) if is_page(status) => "the answer is a page for people".into(),
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("the answer was {} {}", status.code, status.reason),
        _ => chain(error),
    };
    match advice(error) {
        Some(advice) => format!("{said}; {advice}"),
        None => said,
    }
}

/// The API server's answer, if there was one.
pub(super) fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// Whether the same request may succeed in a moment.
pub(super) fn is_transient(error: &kube::Error) -> bool {
    status(error).is_none_or(|status| matches!(status.code, 429 | 500..=599))
}

fn is_page(status: &Status) -> bool {
    status.message.trim_start().starts_with('<')
}

/// An error and its sources, each said once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut message = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Some say of themselves what their source says.
        let is_news = !message.contains(&text) && !matches!(error.downcast_ref(), Some(kube::Error::Service(_)));
        if is_news {
            let separator = if message.is_empty() { "" } else { ": " };
            message = format!("{message}{separator}{text}");
        }
        next = error.source();
    }
    message
}

fn advice(error: &kube::Error) -> Option<&'static str> {
    let Some(status) = status(error) else { return unreachable(error) };
    Some(match status.code {
        _ if is_page(status) => "that is no API server: is the server in the kubeconfig right?",
        401 => "the credentials are refused: log in anew, or choose another context with --context",
        403 if status.message.contains("attempting to grant") => {
            "nobody can hand on rights that he lacks: do it as an administrator of the cluster (--context)"
        }
        403 if status.message.contains(" cannot ") => {
            "ask an administrator for a role with that right, or choose another context with --context"
        }
        _ => return None,
    })
}

/// Why no answer came.
fn unreachable(error: &(dyn Error + 'static)) -> Option<&'static str> {
    const ELSEWHERE: &str = "is the cluster running, and is it the right context (--context, --kubeconfig)?";
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable => return Some(ELSEWHERE),
                _ if error.to_string().contains("lookup address") => return Some(ELSEWHERE),
                _ => {}
            }
        }
        match error.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(_)) => {
                return Some("is the kubeconfig of another cluster, or of this one before it was made anew?");
            }
            Some(_) => return Some("is the server in the kubeconfig right?"),
            None => {}
        }
        // One that wraps another passes it over as its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|inner| inner as _).or_else(|| error.source());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16, message: &str) -> String {
        explain(&kube::Error::Api(Status::failure(message, "Any").with_code(code).boxed()))
    }

    fn failed(error: impl Error + Send + Sync + 'static) -> String {
        explain(&kube::Error::Service(Box::new(error)))
    }

    #[test]
    fn what_is_refused_says_what_to_do() {
        let forbidden = answered(403, "pods is forbidden: User \"x\" cannot patch resource \"pods\"");
        assert!(forbidden.contains("cannot patch resource") && forbidden.contains("a role with that right"));
        assert!(answered(403, "user x is attempting to grant RBAC permissions").contains("as an administrator"));
        assert_eq!(answered(403, "exceeded quota: small"), "exceeded quota: small");
        assert!(answered(401, "Unauthorized").contains("log in anew"));
        assert!(answered(404, "<html>").contains("no API server"));
    }

    #[test]
    fn what_does_not_reach_it_says_what_to_do() {
        let refused = failed(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(refused.starts_with("connection refused; is the cluster running"), "{refused}");
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(failed(io::Error::other(unknown)).contains("of another cluster"));
    }
}
