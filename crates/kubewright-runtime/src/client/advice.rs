//! What a person can do about a request that failed before the API server could answer, or was refused by it.

use std::{error::Error, io};

use rustls::CertificateError;

/// What to do, if it is for a person to do anything. `rights` are the verbs that the request needed, for a role that lacks
/// them.
pub(crate) fn advice(error: &kube::Error, rights: &str) -> Option<String> {
    let kube::Error::Api(status) = error else { return unreachable_advice(error).map(Into::into) };
    match status.code {
        _ if is_page(&status.message) => {
            Some("that is no API server, or something stands before it: is the server in the kubeconfig right?".into())
        }
        401 => Some(
            "the credentials are refused: give the operator those of this cluster, \
             or new ones if they have expired"
                .into(),
        ),
        403 => Some(format!("grant {rights} to the operator's role")),
        404 => Some("is its CustomResourceDefinition installed?".into()),
        _ => None,
    }
}

/// Why no answer came.
fn unreachable_advice(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let found = match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    Some("nothing listens there: is the cluster running, and is the kubeconfig that of this cluster?")
                }
                io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    Some("is the cluster running, and is there a way to it from here (network, VPN, proxy)?")
                }
                _ if error.to_string().contains("lookup address") => {
                    Some("the host's name is not known here: is the server in the kubeconfig right?")
                }
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        if let Some(rustls) = error.downcast_ref::<rustls::Error>() {
            return certificate_advice(rustls);
        }
        // One that wraps another passes it over as its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = inner.map(|inner| inner as _).or_else(|| error.source());
    }
    None
}

/// Whether someone has answered with a page for people.
fn is_page(message: &str) -> bool {
    message.trim_start().starts_with('<')
}

fn certificate_advice(error: &rustls::Error) -> Option<&'static str> {
    if let rustls::Error::InvalidMessage(_) = error {
        return Some("what listens there speaks no TLS: is the server in the kubeconfig right?");
    }
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    Some(match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the kubeconfig is of another cluster, or of this one before it was made anew"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the API server's certificate, or set this machine's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "set this machine's clock",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server in the kubeconfig must be a name or an address that its certificate has"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn check(error: kube::Error, expected: &str) {
        let found = advice(&error, "list and watch").unwrap_or_default();
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{error}: {found}");
    }

    fn answered(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Any").with_code(code).boxed())
    }

    fn failed(error: impl Error + Send + Sync + 'static) -> kube::Error {
        kube::Error::Service(Box::new(error))
    }

    #[test]
    fn what_the_server_refuses() {
        check(answered(401), "give the operator those of this cluster");
        check(answered(403), "grant list and watch to the operator's role");
        check(answered(404), "is its CustomResourceDefinition installed?");
        check(answered(503), "");
        let page = Status::failure("<!DOCTYPE HTML>\n<html>", "Any").with_code(404);
        check(kube::Error::Api(page.boxed()), "that is no API server");
    }

    #[test]
    fn what_does_not_reach_it() {
        check(failed(io::Error::from(io::ErrorKind::ConnectionRefused)), "is the cluster running");
        check(failed(io::Error::from(io::ErrorKind::TimedOut)), "is there a way to it from here");
        let unknown = io::Error::other("failed to lookup address information: Name or service not known");
        check(failed(unknown), "is the server in the kubeconfig right?");
        check(failed(io::Error::from(io::ErrorKind::ConnectionReset)), "");
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error));
        check(failed(invalid(CertificateError::UnknownIssuer)), "the kubeconfig is of another cluster");
        let wrapped = io::Error::other(invalid(CertificateError::BadSignature));
        check(failed(wrapped), "the kubeconfig is of another cluster");
        check(failed(invalid(CertificateError::NotValidForName)), "that its certificate has");
        check(failed(invalid(CertificateError::Expired)), "renew");
        let no_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        check(failed(io::Error::new(io::ErrorKind::InvalidData, no_tls)), "speaks no TLS");
    }
}
