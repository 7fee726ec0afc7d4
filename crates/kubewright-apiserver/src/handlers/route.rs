//! From a path to what it names.

use std::sync::Arc;

use http::Uri;
use percent_encoding::percent_decode_str;

use crate::registry::{Registry, Resource};

/// What a path names.
#[derive(Debug)]
pub(crate) enum Route {
    /// `/healthz`, `/livez`, `/readyz`.
    Health {
        /// The endpoint's name.
        check: &'static str,
    },
    /// `/version`
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/api/v1` and `/apis/G/V`
    GroupVersion(String, String),
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiV3Index,
    /// `/openapi/v3/apis/G/V`: the part after `v3/`.
    OpenApiV3(String),
    /// A resource, an object or a subresource.
    Resource(Target),
    /// None of these.
    Unknown,
}

/// A resource, and maybe an object and a subresource of it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    /// Empty for all namespaces, and for resources without.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Route {
    pub(crate) fn parse(uri: &Uri, registry: &Registry) -> Self {
        let path: Vec<String> = uri
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["healthz", ..] => Self::Health { check: "healthz" },
            ["livez", ..] => Self::Health { check: "livez" },
            ["readyz", ..] => Self::Health { check: "readyz" },
            ["version"] => Self::Version,
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApiV3Index,
            ["openapi", "v3", rest @ ..] => Self::OpenApiV3(rest.join("/")),
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).into()),
            ["api", version] => Self::GroupVersion(String::new(), (*version).into()),
            ["apis", group, version] => Self::GroupVersion((*group).into(), (*version).into()),
            ["api", version, rest @ ..] => Target::parse(registry, "", version, rest),
            ["apis", group, version, rest @ ..] => Target::parse(registry, group, version, rest),
            _ => Self::Unknown,
        }
    }
}

impl Target {
    fn parse(registry: &Registry, group: &str, version: &str, path: &[&str]) -> Route {
        // Namespaces are objects and places at once: `namespaces/a/pods` is a place, `namespaces/a/status` is not.
        let (namespace, path) = match path {
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status"] | ["finalize"]) => {
                (Some(*namespace), rest)
            }
            _ => (None, path),
        };
        let [plural, rest @ ..] = path else { return Route::Unknown };
        let Some(resource) = registry.find(group, version, plural) else { return Route::Unknown };
        let fits = match (resource.namespaced, namespace) {
            (true, None) => rest.is_empty(),
            (true, Some(_)) | (false, None) => true,
            (false, Some(_)) => false,
        };
        if !fits {
            return Route::Unknown;
        }
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some((*name).into()), None),
            [name, subresource @ ..] => (Some((*name).into()), Some(subresource.join("/"))),
        };
        Route::Resource(Self { resource, namespace: namespace.unwrap_or_default().into(), name, subresource })
    }
}
