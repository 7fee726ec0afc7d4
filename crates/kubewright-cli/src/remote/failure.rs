//! Messages for failed requests, with hints.

use std::{error::Error, io};

use kube::core::Status;

/// Formats an error in one line: the API server's message, or the reason why there was no response, and a hint if
/// available.
pub(crate) fn explain(error: &kube::Error) -> String {
    let message = match error {
        kube::Error::Api(status) if is_page(status) => "the response is an HTML page".into(),
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("HTTP status {} {}", status.code, status.reason),
        _ => chain(error),
    };
    match hint(error) {
        Some(hint) => format!("{message}; {hint}"),
        None => message,
    }
}

/// Returns the `Status` that the API server sent, if there is one.
pub(crate) fn status(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// Returns whether the same request may succeed later.
pub(crate) fn is_transient(error: &kube::Error) -> bool {
    status(error).is_none_or(|status| matches!(status.code, 429 | 500..=599))
}

fn is_page(status: &Status) -> bool {
    status.message.trim_start().starts_with('<')
}

/// Joins the messages of an error and its sources, without repetitions.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut message = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Some errors include the message of their source.
        let is_news = !message.contains(&text) && !matches!(error.downcast_ref(), Some(kube::Error::Service(_)));
        if is_news {
            let separator = if message.is_empty() { "" } else { ": " };
            message = format!("{message}{separator}{text}");
        }
        next = error.source();
    }
    message
}

fn hint(error: &kube::Error) -> Option<&'static str> {
    let Some(status) = status(error) else { return unreachable(error) };
    Some(match status.code {
        _ if is_page(status) => "this is not an API server: check the server in the kubeconfig",
        401 => "the credentials are invalid: log in again, or choose another context with --context",
        403 if status.message.contains("attempting to grant") => {
            "only a user who has these permissions can grant them: use a context of a cluster administrator (--context)"
        }
        403 if status.message.contains(" cannot ") => {
            "ask an administrator for this permission, or choose another context with --context"
        }
        _ => return None,
    })
}

/// Returns a hint for a request without a response.
fn unreachable(error: &(dyn Error + 'static)) -> Option<&'static str> {
    const CHECK_CONTEXT: &str =
        "check that the cluster is running, and that the context is right (--context, --kubeconfig)";
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable => return Some(CHECK_CONTEXT),
                _ if error.to_string().contains("lookup address") => return Some(CHECK_CONTEXT),
                _ => {}
            }
        }
        match error.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(_)) => {
                return Some("the kubeconfig may belong to another cluster, or to this one before it was recreated");
            }
            Some(_) => return Some("check the server in the kubeconfig"),
            None => {}
        }
        // An `io::Error` that wraps another error omits it from its sources.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|inner| inner as _).or_else(|| error.source());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api_error(code: u16, message: &str) -> String {
        explain(&kube::Error::Api(Status::failure(message, "Any").with_code(code).boxed()))
    }

    fn transport_error(error: impl Error + Send + Sync + 'static) -> String {
        explain(&kube::Error::Service(Box::new(error)))
    }

    #[test]
    fn rejected_requests_have_a_hint() {
        let forbidden = api_error(403, "pods is forbidden: User \"x\" cannot patch resource \"pods\"");
        assert!(
            forbidden.contains("cannot patch resource")
                && forbidden.contains("ask an administrator for this permission")
        );
        assert!(
            api_error(403, "user x is attempting to grant RBAC permissions").contains("of a cluster administrator")
        );
        assert_eq!(api_error(403, "exceeded quota: small"), "exceeded quota: small");
        assert!(api_error(401, "Unauthorized").contains("log in again"));
        assert!(api_error(404, "<html>").contains("not an API server"));
    }

    #[test]
    fn requests_without_a_response_have_a_hint() {
        let refused = transport_error(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(refused.starts_with("connection refused; check that the cluster is running"), "{refused}");
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert!(transport_error(io::Error::other(unknown)).contains("to another cluster"));
    }
}
