//! Hints for users on requests that failed or were refused.

use std::{error::Error, io};

use rustls::CertificateError;

/// Returns a hint on resolving an error, if there is one. `rights` are the RBAC verbs that the request needs.
pub(crate) fn hint(error: &kube::Error, rights: &str) -> Option<String> {
    let kube::Error::Api(status) = error else { return connection_hint(error).map(Into::into) };
    match status.code {
        _ if is_page(&status.message) => Some(
            "the response is not an API server's: check the server in the kubeconfig, and proxies in between".into(),
        ),
        401 => Some(
            "the API server refuses the credentials: check that they are for this cluster and have not expired".into(),
        ),
        403 => Some(format!("grant {rights} to the operator's role")),
        404 => Some("check that its CustomResourceDefinition is installed".into()),
        _ => None,
    }
}

/// Returns the hint for a failed connection.
fn connection_hint(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let found = match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    Some("nothing listens there: is the cluster running, and is the kubeconfig for this cluster?")
                }
                io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    Some("is the cluster running, and reachable from here (network, VPN, proxy)?")
                }
                _ if error.to_string().contains("lookup address") => {
                    Some("the host can't be resolved: is the server in the kubeconfig right?")
                }
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        if let Some(rustls) = error.downcast_ref::<rustls::Error>() {
            return certificate_hint(rustls);
        }
        // An io::Error that wraps another error doesn't return it as its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|inner| inner as _).or_else(|| error.source());
    }
    None
}

/// Returns whether the response is an HTML page.
fn is_page(message: &str) -> bool {
    message.trim_start().starts_with('<')
}

fn certificate_hint(error: &rustls::Error) -> Option<&'static str> {
    if let rustls::Error::InvalidMessage(_) = error {
        return Some("the server doesn't speak TLS: is the server in the kubeconfig right?");
    }
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    Some(match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the kubeconfig is for another cluster, or for an earlier one at this address"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the API server's certificate, or correct this machine's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "correct this machine's clock",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server in the kubeconfig must be a name or address in its certificate"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn check(error: kube::Error, expected: &str) {
        let found = hint(&error, "list and watch").unwrap_or_default();
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{error}: {found}");
    }

    fn answered(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Any").with_code(code).boxed())
    }

    fn failed(error: impl Error + Send + Sync + 'static) -> kube::Error {
        kube::Error::Service(Box::new(error))
    }

    #[test]
    fn an_error_response_has_a_hint() {
        check(answered(401), "have not expired");
        check(answered(403), "grant list and watch to the operator's role");
        check(answered(404), "check that its CustomResourceDefinition is installed");
        check(answered(503), "");
        let page = Status::failure("<!DOCTYPE HTML>\n<html>", "Any").with_code(404);
        check(kube::Error::Api(page.boxed()), "the response is not an API server's");
    }

    #[test]
    fn a_failed_connection_has_a_hint() {
        check(failed(io::Error::from(io::ErrorKind::ConnectionRefused)), "is the cluster running");
        check(failed(io::Error::from(io::ErrorKind::TimedOut)), "reachable from here");
        let unknown = io::Error::other("failed to lookup address information: Name or service not known");
        check(failed(unknown), "is the server in the kubeconfig right?");
        check(failed(io::Error::from(io::ErrorKind::ConnectionReset)), "");
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error));
        check(failed(invalid(CertificateError::UnknownIssuer)), "the kubeconfig is for another cluster");
        let wrapped = io::Error::other(invalid(CertificateError::BadSignature));
        check(failed(wrapped), "the kubeconfig is for another cluster");
        check(failed(invalid(CertificateError::NotValidForName)), "name or address in its certificate");
        check(failed(invalid(CertificateError::Expired)), "renew");
        let no_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        check(failed(io::Error::new(io::ErrorKind::InvalidData, no_tls)), "doesn't speak TLS");
    }
}
