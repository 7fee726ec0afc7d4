//! Responses: negotiation of the media type, and encoding of objects and errors.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri::PathAndQuery};
use kubewright_apimachinery::{go_format, status::Status};
use serde::Serialize;
use serde_json::Value;

use crate::{body::Body, object_type, protobuf, warning_headers::WarningHeaders};

/// The response to a request.
pub(crate) type Response = http::Response<Body>;

/// The media types in which Kubernetes answers, as it lists them in errors.
const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

const META_V1: &str = "meta.k8s.io/v1";

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

/// The representation of objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Representation {
    /// Complete objects.
    Whole,
    /// A `Table` of `meta.k8s.io`.
    Table,
    /// `PartialObjectMetadata` of `meta.k8s.io`.
    Metadata,
    /// `PartialObjectMetadataList` of `meta.k8s.io`.
    MetadataList,
}

/// The form of a page about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Text,
    Object { encoding: Encoding, version: &'static str },
}

/// The API group of pages.
pub(crate) const PAGE_GROUP: &str = "config.k8s.io";
/// The versions of pages, of which only the first isn't deprecated.
pub(crate) const PAGE_VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// The negotiated media type of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accept {
    pub(crate) encoding: Encoding,
    pub(crate) representation: Representation,
    /// The version of tables and partial objects: `meta.k8s.io/v1` or its predecessor, whose types are the same.
    pub(crate) meta_version: &'static str,
}

impl Accept {
    /// Returns plain JSON.
    pub(crate) const JSON: Self =
        Self { encoding: Encoding::Json, representation: Representation::Whole, meta_version: META_V1 };

    /// Returns the supported media type with the greatest weight in the `Accept` header; of several, the first.
    ///
    /// # Errors
    /// Returns 406 if none is supported.
    pub(crate) fn parse(headers: &HeaderMap) -> Result<Self, Status> {
        Self::allowed(headers, |accept| accept.encoding != Encoding::Protobuf)
    }

    /// Returns the encoding of a discovery document, and whether the client prefers the aggregated form, which not all
    /// documents have.
    pub(crate) fn of_discovery(headers: &HeaderMap, may_be_aggregated: bool) -> Result<(Encoding, bool), Status> {
        Self::choose(headers, (Encoding::Json, false), |clause| match clause.accept {
            _ if clause.is_discovery => clause.encoding.filter(|_| may_be_aggregated).map(|encoding| (encoding, true)),
            Some(Self { encoding, representation: Representation::Whole, .. }) => Some((encoding, false)),
            _ => None,
        })
    }

    /// Like [`Self::parse`], for objects that may have no tables, and no protobuf form except for their metadata. There
    /// are no tables in protobuf.
    pub(crate) fn of_objects(headers: &HeaderMap, tables: bool, protobuf: bool) -> Result<Self, Status> {
        Self::allowed(headers, |accept| match (accept.encoding, accept.representation) {
            (Encoding::Protobuf, Representation::Table) => false,
            (Encoding::Protobuf, Representation::Whole) => protobuf,
            (_, Representation::Table) => tables,
            _ => true,
        })
    }

    /// Checks that a client accepts the only media type of a document.
    ///
    /// # Errors
    /// Returns 406.
    pub(crate) fn check(headers: &HeaderMap, media_type: &str) -> Result<(), Status> {
        let accepts = |text: &str| text.split(',').any(|clause| [media_type, "*/*"].contains(&media_type_of(clause)));
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.is_empty() || accepts(accept) {
            return Ok(());
        }
        let message = format!("406: Not Acceptable\n\nAvailable representations: {media_type}");
        Err(Status::generic(406, "NotAcceptable", message))
    }

    /// Returns the form of a page about the server, which is text unless the client asks for an object of its kind.
    pub(crate) fn of_page(headers: &HeaderMap, kind: &str) -> Result<Page, Status> {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.is_empty() {
            return Ok(Page::Text);
        }
        let form = |clause: &str| {
            let parameter = |name: &str| {
                let found = clause.split(';').filter_map(|part| part.trim().split_once('='));
                found.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next().unwrap_or_default()
            };
            let version = PAGE_VERSIONS.into_iter().find(|version| *version == parameter("v"));
            match (media_type_of(clause), parameter("as").as_str(), version) {
                ("text/plain" | "*/*" | "text/*", "", _) => Some(Page::Text),
                (media_type, of, Some(version)) if of == kind && parameter("g") == PAGE_GROUP => {
                    let encoding = Self::clause(media_type).encoding?;
                    (encoding != Encoding::Protobuf).then_some(Page::Object { encoding, version })
                }
                _ => None,
            }
        };
        accept.split(',').find_map(form).ok_or_else(|| {
            let accepted = "application/json, application/yaml, text/plain";
            Status::new(406, "NotAcceptable", format!("only the following media types are accepted: {accepted}"))
        })
    }

    /// Returns the encoding of an error about a request whose media types aren't supported: the first that is known.
    pub(crate) fn of_errors(headers: &HeaderMap) -> Encoding {
        let known = Self::clauses(headers).into_iter().filter_map(|clause| clause.accept);
        let mut whole = known.filter(|accept| accept.representation == Representation::Whole);
        whole.next().map_or(Encoding::Json, |accept| accept.encoding)
    }

    /// Returns the media types of the `Accept` header, those with the greatest weight first.
    fn clauses(headers: &HeaderMap) -> Vec<Clause> {
        let mut clauses: Vec<Clause> = Vec::new();
        for value in headers.get_all(header::ACCEPT) {
            let text = value.to_str().unwrap_or_default();
            clauses.extend(text.split(',').filter(|clause| !clause.trim().is_empty()).map(Self::clause));
        }
        // The sort is stable, so types of equal weight keep their order.
        clauses.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        clauses
    }

    fn allowed(headers: &HeaderMap, is_allowed: impl Fn(&Self) -> bool) -> Result<Self, Status> {
        Self::choose(headers, Self::JSON, |clause| clause.accept.filter(&is_allowed))
    }

    /// Returns what the first clause for which there is something means, or `default` if there are no clauses.
    fn choose<T>(headers: &HeaderMap, default: T, meaning: impl Fn(&Clause) -> Option<T>) -> Result<T, Status> {
        let clauses = Self::clauses(headers);
        if clauses.is_empty() {
            return Ok(default);
        }
        clauses.iter().find_map(meaning).ok_or_else(|| {
            // Kubernetes' router knows the types, and only the handler the representations.
            if clauses.iter().any(|clause| clause.encoding.is_some()) {
                let message = format!("only the following media types are accepted: {ACCEPTED}");
                return Status::new(406, "NotAcceptable", message);
            }
            let message = format!("406: Not Acceptable\n\nAvailable representations: {ACCEPTED}");
            Status::generic(406, "NotAcceptable", message)
        })
    }

    fn clause(clause: &str) -> Clause {
        let mut parts = clause.split(';').map(str::trim);
        let encoding = match parts.next().unwrap_or_default() {
            "application/json" | "*/*" => Some(Encoding::Json),
            "application/yaml" | "application/x-yaml" | "text/yaml" => Some(Encoding::Yaml),
            protobuf::MEDIA_TYPE => Some(Encoding::Protobuf),
            _ => None,
        };
        let (mut weight, mut kind, mut group, mut version) = (1.0, "", "", "");
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.trim() {
                "q" => weight = value.trim().parse().unwrap_or(1.0),
                "as" => kind = value.trim(),
                "g" => group = value.trim(),
                "v" => version = value.trim(),
                _ => {}
            }
        }
        let meta_version = match (group, version) {
            _ if kind.is_empty() => Some(META_V1),
            ("meta.k8s.io", "v1") => Some(META_V1),
            ("meta.k8s.io", "v1beta1") => Some("meta.k8s.io/v1beta1"),
            _ => None,
        };
        let representation = match kind {
            "" => Some(Representation::Whole),
            "Table" => Some(Representation::Table),
            "PartialObjectMetadata" => Some(Representation::Metadata),
            "PartialObjectMetadataList" => Some(Representation::MetadataList),
            _ => None,
        };
        let accept = encoding.zip(representation).zip(meta_version);
        let accept =
            accept.map(|((encoding, representation), meta_version)| Self { encoding, representation, meta_version });
        let is_discovery = (kind, group, version) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2");
        Clause { weight, encoding, accept, is_discovery }
    }
}

/// Returns the media type of a clause of an `Accept` header, without parameters.
fn media_type_of(clause: &str) -> &str {
    clause.split(';').next().unwrap_or_default().trim()
}

/// One media type of an `Accept` header.
struct Clause {
    weight: f32,
    /// The encoding, if it is supported, though the representation may not be.
    encoding: Option<Encoding>,
    accept: Option<Accept>,
    /// True if the client asks for aggregated discovery.
    is_discovery: bool,
}

/// Returns a response with JSON text.
pub(crate) fn bytes(code: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns a response with plain text.
pub(crate) fn plain(code: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = bytes(code, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns the text that Kubernetes answers when a request fails before it is handled.
pub(crate) fn internal_error(uri: &Uri, why: &str) -> Response {
    let path = uri.path_and_query().map_or("", PathAndQuery::as_str);
    let text = format!("Internal Server Error: {}: {why}\n", go_format::quoted(path));
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut response = plain(StatusCode::INTERNAL_SERVER_ERROR, text);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns a response with protobuf.
pub(crate) fn protobuf(code: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = bytes(code, body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(protobuf::MEDIA_TYPE));
    response
}

/// Returns a response with a value in the negotiated encoding. What has no protobuf form is sent as JSON.
pub(crate) fn value(code: StatusCode, encoding: Encoding, value: &Value) -> Response {
    match encoding {
        Encoding::Protobuf => match protobuf::encode(value) {
            Some(encoded) => protobuf(code, encoded),
            None => self::value(code, Encoding::Json, value),
        },
        Encoding::Json => bytes(code, json_line(value)),
        Encoding::Yaml => match serde_saphyr::to_string(value) {
            Ok(text) => {
                let mut response = bytes(code, text);
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
                response
            }
            Err(error) => status(&Status::internal(error)),
        },
    }
}

/// Returns a response with a value whose JSON text already exists.
pub(crate) fn json_text(code: StatusCode, accept: Encoding, json: Bytes) -> Response {
    match accept {
        Encoding::Json => bytes(code, line(json)),
        other => match serde_json::from_slice::<Value>(&json) {
            Ok(parsed) => value(code, other, &parsed),
            Err(error) => status(&Status::internal(error)),
        },
    }
}

/// Returns a value as JSON text with a newline.
pub(crate) fn json_line(value: &Value) -> Vec<u8> {
    line(object_type::to_vec(value))
}

/// Returns a text with a newline, which ends every JSON object that kube-apiserver sends.
fn line(text: impl AsRef<[u8]>) -> Vec<u8> {
    [text.as_ref(), b"\n"].concat()
}

/// Returns a response with a document that is no API object: Kubernetes indents it, and ends it without a newline.
pub(crate) fn indented(document: &impl Serialize) -> Response {
    match serde_json::to_vec_pretty(document) {
        Ok(text) => bytes(StatusCode::OK, text),
        Err(error) => status(&Status::internal(error)),
    }
}

/// Returns a response with an error.
pub(crate) fn status(status: &Status) -> Response {
    status_as(Encoding::Json, status)
}

/// Returns a response with an error about a request with these headers, in the first encoding that it accepts.
pub(crate) fn error(headers: &HeaderMap, status: &Status) -> Response {
    status_as(Accept::of_errors(headers), status)
}

/// Returns a response with an error in the negotiated encoding.
pub(crate) fn status_as(encoding: Encoding, status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_text(code, encoding, object_type::to_vec(&status.to_json()).into());
    if let Some(seconds) = status.details.as_ref().and_then(|details| details.retry_after_seconds) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds warnings to those of a response.
pub(crate) fn add_warnings(response: &mut Response, warnings: &[String]) {
    if warnings.is_empty() {
        return;
    }
    let mut added = response.extensions_mut().remove::<WarningHeaders>().unwrap_or_default();
    added.write(warnings, response.headers_mut());
    response.extensions_mut().insert(added);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expect: Option<(Encoding, Representation)>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        let actual = Accept::allowed(&headers, |_| true).ok().map(|accept| (accept.encoding, accept.representation));
        assert_eq!(actual, expect, "{accept}");
    }

    #[test]
    fn the_first_supported_media_type_is_used() {
        check("application/json", Some((Encoding::Json, Representation::Whole)));
        let protobuf = Some((Encoding::Protobuf, Representation::Whole));
        check("application/vnd.kubernetes.protobuf, application/json", protobuf);
        check("application/vnd.kubernetes.protobuf;stream=watch", protobuf);
        check("application/vnd.kubernetes.protobuf;q=0.5, */*", Some((Encoding::Json, Representation::Whole)));
        check("application/cbor", None);
        check("text/html, */*", Some((Encoding::Json, Representation::Whole)));
        check("application/yaml", Some((Encoding::Yaml, Representation::Whole)));
        check("application/json;q=0.5,application/yaml", Some((Encoding::Yaml, Representation::Whole)));
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        check(kubectl, Some((Encoding::Json, Representation::Table)));
        check("application/json;as=Table;v=v2;g=meta.k8s.io", None);
        check(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Some((Encoding::Json, Representation::MetadataList)),
        );
    }
}
