//! Routing of paths.

use std::{borrow::Cow, sync::Arc};

use http::Uri;
use percent_encoding::percent_decode_str;

use super::health;
use crate::registry::{Registry, Resource};

/// The route of a path.
#[derive(Debug)]
pub(crate) enum Route {
    /// `/healthz`, `/livez`, `/readyz`.
    Health {
        /// The path, without the name of a check.
        path: &'static str,
        /// Whether it is that of one check.
        is_single: bool,
    },
    /// `/`
    Index,
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
    /// `/metrics`
    Metrics,
    /// `/metrics/slis`
    HealthMetrics,
    /// `/statusz`
    StatusPage,
    /// `/flagz`
    FlagsPage,
    /// `/.well-known/openid-configuration`
    OpenIdConfiguration,
    /// `/openid/v1/jwks`
    OpenIdKeys,
    /// A collection, an object or a subresource.
    Resource(Target),
    /// Any other path, with its segments.
    Unknown(Vec<String>),
}

/// The resource of a path, with the object and subresource if it contains them.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    /// The namespace; empty for all namespaces, and for cluster-scoped resources.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// True for the deprecated paths of watches, such as `/api/v1/watch/namespaces/default/pods`.
    pub(crate) watch: bool,
}

/// The number of segments of most paths, such as `/api/v1/namespaces/default/pods/web/status`.
const SEGMENTS: usize = 8;

impl Route {
    /// Returns the path of a non-resource route for metrics; `None` for paths that aren't counted.
    pub(crate) fn label(&self) -> Option<&'static str> {
        match self {
            Self::Health { path, .. } => Some(path),
            Self::Index => Some("/"),
            Self::Version => Some("/version"),
            Self::CoreVersions => Some("api"),
            Self::Groups => Some("apis"),
            Self::OpenApiV2 => Some("openapi/v2"),
            Self::OpenApiV3Index | Self::OpenApiV3(_) => Some("openapi/v3"),
            Self::Metrics => Some("/metrics"),
            Self::HealthMetrics => Some("/metrics/slis"),
            Self::StatusPage => Some("/statusz"),
            Self::FlagsPage => Some("/flagz"),
            Self::OpenIdConfiguration => Some("/.well-known/openid-configuration"),
            Self::OpenIdKeys => Some("/openid/v1/jwks"),
            Self::Group(_) | Self::GroupVersion(..) | Self::Resource(_) | Self::Unknown(_) => None,
        }
    }

    /// Returns the route of a path whose resource isn't known to this server.
    pub(crate) fn of_unknown(uri: &Uri) -> Self {
        Self::unknown(&segments(&decode(uri)))
    }

    pub(crate) fn parse(uri: &Uri, registry: &Registry) -> Self {
        let path = decode(uri);
        // The paths of these have no slash at the end.
        let is_exact = !path.ends_with('/');
        let path = segments(&path);
        let health = |rest: &[&str], path| match rest {
            _ if !is_exact => None,
            [] => Some(Self::Health { path, is_single: false }),
            _ => health::checks(path).contains(&rest.join("/")).then_some(Self::Health { path, is_single: true }),
        };
        let found = match path.as_slice() {
            ["healthz", rest @ ..] => health(rest, "/healthz"),
            ["livez", rest @ ..] => health(rest, "/livez"),
            ["readyz", rest @ ..] => health(rest, "/readyz"),
            ["metrics"] if is_exact => Some(Self::Metrics),
            ["metrics", "slis"] if is_exact => Some(Self::HealthMetrics),
            ["statusz"] if is_exact => Some(Self::StatusPage),
            ["flagz"] if is_exact => Some(Self::FlagsPage),
            ["index.html"] if is_exact => Some(Self::Index),
            [".well-known", "openid-configuration"] => Some(Self::OpenIdConfiguration),
            ["openid", "v1", "jwks"] => Some(Self::OpenIdKeys),
            [] => Some(Self::Index),
            ["version"] => Some(Self::Version),
            ["openapi", "v2"] => Some(Self::OpenApiV2),
            ["openapi", "v3"] => Some(Self::OpenApiV3Index),
            ["openapi", "v3", rest @ ..] => Some(Self::OpenApiV3(rest.join("/"))),
            ["api"] => Some(Self::CoreVersions),
            ["apis"] => Some(Self::Groups),
            ["apis", group] => Some(Self::Group((*group).into())),
            ["api", version] => Some(Self::GroupVersion(String::new(), (*version).into())),
            ["apis", group, version] => Some(Self::GroupVersion((*group).into(), (*version).into())),
            ["api", version, rest @ ..] => Target::parse(registry, "", version, rest).map(Self::Resource),
            ["apis", group, version, rest @ ..] => Target::parse(registry, group, version, rest).map(Self::Resource),
            _ => None,
        };
        found.unwrap_or_else(|| Self::unknown(&path))
    }

    fn unknown(segments: &[&str]) -> Self {
        Self::Unknown(segments.iter().map(|segment| (*segment).to_owned()).collect())
    }
}

/// Returns a path in decoded form, of which an escaped slash also separates segments.
fn decode(uri: &Uri) -> Cow<'_, str> {
    percent_decode_str(uri.path()).decode_utf8_lossy()
}

/// Returns the segments of a decoded path. A slash at its end is ignored, but not an empty segment, which no route has.
fn segments(path: &str) -> Vec<&str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut segments = Vec::with_capacity(SEGMENTS);
    if !path.is_empty() {
        segments.extend(path.split('/'));
    }
    segments
}

impl Target {
    fn parse(registry: &Registry, group: &str, version: &str, path: &[&str]) -> Option<Self> {
        let (watch, path) = match path {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, path),
        };
        // `namespaces/a/pods` is a collection in a namespace, `namespaces/a/status` a subresource of a namespace.
        let (namespace, path) = match path {
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status"] | ["finalize"]) => {
                (Some(*namespace), rest)
            }
            _ => (None, path),
        };
        let [plural, rest @ ..] = path else { return None };
        let resource = registry.find(group, version, plural)?;
        if watch && (rest.len() > 1 || !resource.verbs.contains(&"watch")) {
            return None;
        }
        let fits = match (resource.namespaced, namespace) {
            (true, None) => rest.is_empty(),
            (true, Some(_)) | (false, None) => true,
            (false, Some(_)) => false,
        };
        if !fits {
            return None;
        }
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some((*name).into()), None),
            [name, subresource @ ..] => (Some((*name).into()), Some(subresource.join("/"))),
        };
        Some(Self { resource, namespace: namespace.unwrap_or_default().into(), name, subresource, watch })
    }
}
