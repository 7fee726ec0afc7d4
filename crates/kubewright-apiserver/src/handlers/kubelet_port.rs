//! Requests to the port of a kubelet, which a [listener](crate::ListenOptions::prefix) passes to `nodes/NAME/proxy`:
//! who may make them (<https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/>).

use std::sync::Arc;

use http::{Request, Uri};
use kubewright_apimachinery::status::Status;

use crate::{
    auth::{Attributes, UserInfo, authenticator::unauthorized, user::ANONYMOUS},
    authorizer::Decision,
    registry::builtin::kubelet_subresources,
};

/// Marks a request to the port of a kubelet, with the path there.
#[derive(Clone, Debug)]
pub(crate) struct KubeletPath(Arc<str>);

/// Puts a prefix before the path of a request, and marks the request.
pub(crate) fn prefix_path<B>(request: &mut Request<B>, prefix: &str) {
    let path = KubeletPath(request.uri().path().into());
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    if let Ok(uri) = format!("{prefix}{target}").parse::<Uri>() {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(path);
    }
}

impl KubeletPath {
    /// Decides about a request with the attributes of one to the proxy.
    pub(super) fn decide(&self, of_proxy: &Attributes, decide: impl Fn(&Attributes) -> Decision) -> Decision {
        let mut decision = Decision::default();
        for attributes in self.attributes(of_proxy) {
            if !decision.allowed {
                decision = decide(&attributes);
            }
        }
        decision
    }

    /// Returns the attributes of which one must be allowed.
    fn attributes(&self, of_proxy: &Attributes) -> Vec<Attributes> {
        let first = self.0.trim_start_matches('/').split('/').next().unwrap_or_default();
        let with = |name: &&str| Attributes { subresource: (*name).to_owned(), ..of_proxy.clone() };
        kubelet_subresources(first).iter().map(with).collect()
    }

    /// Refuses requests without credentials.
    pub(super) fn check_user(&self, user: &UserInfo) -> Result<(), Status> {
        if user.name == ANONYMOUS { Err(unauthorized()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_subresources() {
        let check = |path: &str, expect: &[&str]| {
            let mut request = Request::builder().uri(path).body(()).unwrap();
            prefix_path(&mut request, "/prefix");
            assert_eq!(request.uri().to_string(), format!("/prefix{path}"));
            let found = request.extensions().get::<KubeletPath>().unwrap().attributes(&Attributes::default());
            assert_eq!(found.iter().map(|one| &*one.subresource).collect::<Vec<_>>(), expect, "{path}");
        };
        check("/metrics/resource?a=b", &["metrics"]);
        check("/stats/summary", &["stats"]);
        check("/logs/", &["log"]);
        check("/healthz", &["healthz", "proxy"]);
        check("/pods", &["pods", "proxy"]);
        check("/metricsx", &["proxy"]);
        check("/", &["proxy"]);
    }
}
