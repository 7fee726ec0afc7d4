//! Responses: negotiation of the media type, and encoding of objects and errors.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kubewright_apimachinery::status::Status;
use serde_json::Value;

use crate::{body::Body, object_type};

/// The response to a request.
pub(crate) type Response = http::Response<Body>;

const ACCEPTED: &str = "application/json, application/yaml";

/// The text format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextFormat {
    Json,
    Yaml,
}

/// The representation of objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Representation {
    /// Complete objects.
    Whole,
    /// A `Table` of `meta.k8s.io/v1`.
    Table,
    /// `PartialObjectMetadata` of `meta.k8s.io/v1`.
    Metadata,
    /// `PartialObjectMetadataList` of `meta.k8s.io/v1`.
    MetadataList,
}

/// The negotiated media type of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accept {
    pub(crate) text: TextFormat,
    pub(crate) representation: Representation,
}

impl Accept {
    /// Returns plain JSON.
    pub(crate) const JSON: Self = Self { text: TextFormat::Json, representation: Representation::Whole };

    /// Returns the supported media type with the greatest weight in the `Accept` header; of several, the first.
    ///
    /// # Errors
    /// Returns 406 if none is supported.
    pub(crate) fn parse(headers: &HeaderMap) -> Result<Self, Status> {
        Self::of_resource(headers, true)
    }

    /// Like [`Self::parse`], for a resource whose objects may not have tables.
    pub(crate) fn of_resource(headers: &HeaderMap, has_tables: bool) -> Result<Self, Status> {
        let mut clauses: Vec<Clause> = Vec::new();
        for value in headers.get_all(header::ACCEPT) {
            let text = value.to_str().unwrap_or_default();
            clauses.extend(text.split(',').filter(|clause| !clause.trim().is_empty()).map(Self::clause));
        }
        if clauses.is_empty() {
            return Ok(Self::JSON);
        }
        // The sort is stable, so types of equal weight keep their order.
        clauses.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        let is_allowed = |accept: &Self| has_tables || accept.representation != Representation::Table;
        clauses.iter().find_map(|clause| clause.accept.filter(is_allowed)).ok_or_else(|| {
            // Kubernetes' router knows the types, and only the handler the representations.
            if clauses.iter().any(|clause| clause.is_known) {
                let message = format!("only the following media types are accepted: {ACCEPTED}");
                return Status::new(406, "NotAcceptable", message);
            }
            let message = format!("406: Not Acceptable\n\nAvailable representations: {ACCEPTED}");
            Status::generic(406, "NotAcceptable", message)
        })
    }

    fn clause(clause: &str) -> Clause {
        let mut parts = clause.split(';').map(str::trim);
        let text = match parts.next().unwrap_or_default() {
            "application/json" | "*/*" => Some(TextFormat::Json),
            "application/yaml" | "application/x-yaml" | "text/yaml" => Some(TextFormat::Yaml),
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
        let representation = match (kind, group, version) {
            ("", _, _) => Some(Representation::Whole),
            ("Table", "meta.k8s.io", "v1") => Some(Representation::Table),
            ("PartialObjectMetadata", "meta.k8s.io", "v1") => Some(Representation::Metadata),
            ("PartialObjectMetadataList", "meta.k8s.io", "v1") => Some(Representation::MetadataList),
            _ => None,
        };
        let accept = text.zip(representation).map(|(text, representation)| Self { text, representation });
        Clause { weight, is_known: text.is_some(), accept }
    }
}

/// One media type of an `Accept` header.
struct Clause {
    weight: f32,
    /// True if the type is supported, though its representation may not be.
    is_known: bool,
    accept: Option<Accept>,
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

/// Returns a response with a value in the negotiated text format.
pub(crate) fn value(code: StatusCode, text: TextFormat, value: &Value) -> Response {
    match text {
        TextFormat::Json => bytes(code, line(object_type::to_vec(value))),
        TextFormat::Yaml => match serde_saphyr::to_string(value) {
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
pub(crate) fn json_text(code: StatusCode, accept: TextFormat, json: Bytes) -> Response {
    match accept {
        TextFormat::Json => bytes(code, line(json)),
        TextFormat::Yaml => match serde_json::from_slice::<Value>(&json) {
            Ok(parsed) => value(code, TextFormat::Yaml, &parsed),
            Err(error) => status(&Status::internal(error)),
        },
    }
}

/// Returns a text with a newline, which ends every JSON object that kube-apiserver sends.
fn line(text: impl AsRef<[u8]>) -> Vec<u8> {
    [text.as_ref(), b"\n"].concat()
}

/// Returns a response with an error.
pub(crate) fn status(status: &Status) -> Response {
    status_as(TextFormat::Json, status)
}

/// Returns a response with an error in the negotiated text format.
pub(crate) fn status_as(text: TextFormat, status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_text(code, text, object_type::to_vec(&status.to_json()).into());
    if let Some(seconds) = status.details.as_ref().and_then(|details| details.retry_after_seconds) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds `Warning` headers, which kubectl prints (RFC 7234, code 299).
pub(crate) fn add_warnings(response: &mut Response, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning.replace('\\', r"\\").replace('"', r#"\""#).replace(char::is_control, " ");
        if let Ok(value) = HeaderValue::try_from(format!(r#"299 - "{escaped}""#)) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expect: Option<(TextFormat, Representation)>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        let actual = Accept::parse(&headers).ok().map(|accept| (accept.text, accept.representation));
        assert_eq!(actual, expect, "{accept}");
    }

    #[test]
    fn the_first_supported_media_type_is_used() {
        check("application/json", Some((TextFormat::Json, Representation::Whole)));
        check("application/vnd.kubernetes.protobuf, application/json", Some((TextFormat::Json, Representation::Whole)));
        check("application/vnd.kubernetes.protobuf", None);
        check("text/html, */*", Some((TextFormat::Json, Representation::Whole)));
        check("application/yaml", Some((TextFormat::Yaml, Representation::Whole)));
        check("application/json;q=0.5,application/yaml", Some((TextFormat::Yaml, Representation::Whole)));
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        check(kubectl, Some((TextFormat::Json, Representation::Table)));
        check("application/json;as=Table;v=v2;g=meta.k8s.io", None);
        check(
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Some((TextFormat::Json, Representation::MetadataList)),
        );
    }
}
