//! The attributes of an API request in RBAC terms, parsed from the method, path and body.

use bytes::Bytes;
use http::{Method, Uri};
use serde_json::Value;

/// The verb of a request, as in RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Watch a collection.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Update,
    /// Patch an object, also by server-side apply.
    Patch,
    /// Delete an object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
}

impl Verb {
    /// All verbs that change something.
    pub const WRITES: &'static [Self] =
        &[Self::Create, Self::Update, Self::Patch, Self::Delete, Self::DeleteCollection];
    /// All verbs that only read.
    pub const READS: &'static [Self] = &[Self::Get, Self::List, Self::Watch];

    /// Returns whether the verb changes something.
    pub fn is_write(self) -> bool {
        Self::WRITES.contains(&self)
    }
}

/// A request for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiRequest {
    /// The verb.
    pub verb: Verb,
    /// The plural name, followed by a slash and the subresource if there is one: `pods`, `podsets/status`.
    pub resource: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The object's name: from the path, from the body of a create request (`name` or `generateName`), or from the
    /// field selector of a list or watch.
    pub name: Option<String>,
}

impl ApiRequest {
    /// Parses a request. Returns `None` for requests that aren't for a resource, such as discovery, health and version.
    pub fn parse(method: &Method, uri: &Uri, body: &Bytes) -> Option<Self> {
        let mut path = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match path.next()? {
            "api" => String::new(),
            "apis" => path.next()?.to_owned(),
            _ => return None,
        };
        path.next()?;
        let mut parts: Vec<_> = path.collect();
        // /namespaces/<name>/status refers to a namespace, /namespaces/<name>/pods doesn't.
        let namespaced = matches!(parts[..], ["namespaces", _, third, ..] if !matches!(third, "status" | "finalize"));
        let namespace = namespaced.then(|| parts.drain(..2).nth(1).map(str::to_owned)).flatten();
        let (plural, name, subresource) = match parts[..] {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(name), None),
            [plural, name, subresource, ..] => (plural, Some(name), Some(subresource)),
            [] => return None,
        };
        let watches =
            uri.query().is_some_and(|query| query.split('&').any(|it| matches!(it, "watch=true" | "watch=1")));
        let verb = match (method.as_str(), name) {
            ("GET", None) if watches => Verb::Watch,
            ("GET", None) => Verb::List,
            ("GET", Some(_)) => Verb::Get,
            ("POST", _) => Verb::Create,
            ("PUT", _) => Verb::Update,
            ("PATCH", _) => Verb::Patch,
            ("DELETE", None) => Verb::DeleteCollection,
            ("DELETE", Some(_)) => Verb::Delete,
            _ => return None,
        };
        let resource = subresource.map_or(plural.to_owned(), |subresource| format!("{plural}/{subresource}"));
        let name = name.map(str::to_owned).or_else(|| match verb {
            Verb::Create => name_in(body),
            Verb::List | Verb::Watch => selected_name(uri.query()?),
            _ => None,
        });
        Some(Self { verb, resource, group, namespace, name })
    }
}

fn name_in(body: &Bytes) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let metadata = body.get("metadata")?;
    let name = metadata.get("name").or_else(|| metadata.get("generateName"))?;
    name.as_str().map(Into::into)
}

/// Returns the name in a field selector.
fn selected_name(query: &str) -> Option<String> {
    let selector = query.split('&').find_map(|part| part.strip_prefix("fieldSelector="))?;
    let selector = selector.replace("%3D", "=").replace("%2C", ",");
    selector.split(',').find_map(|part| part.strip_prefix("metadata.name=")).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_in_the_words_of_rbac() {
        let pod = r#"{"metadata":{"generateName":"web-"}}"#;
        for (method, uri, body, expected) in [
            ("GET", "/api/v1/pods", "", "List  pods - -"),
            ("GET", "/api/v1/namespaces/a/pods?limit=1&watch=true", "", "Watch  pods a -"),
            ("GET", "/api/v1/namespaces/a/pods/x", "", "Get  pods a x"),
            ("POST", "/api/v1/namespaces/a/pods", pod, "Create  pods a web-"),
            (
                "PATCH",
                "/apis/app.example.com/v1alpha1/namespaces/a/podsets/x/status",
                "{}",
                "Patch app.example.com podsets/status a x",
            ),
            ("PUT", "/api/v1/nodes/x", "{}", "Update  nodes - x"),
            ("DELETE", "/api/v1/namespaces/a/pods", "", "DeleteCollection  pods a -"),
            ("DELETE", "/api/v1/namespaces/a", "", "Delete  namespaces - a"),
            ("PUT", "/api/v1/namespaces/a/finalize", "{}", "Update  namespaces/finalize - a"),
        ] {
            let body = Bytes::from_static(body.as_bytes());
            let found = ApiRequest::parse(&method.parse().unwrap(), &uri.parse().unwrap(), &body).unwrap();
            let ApiRequest { verb, resource, group, namespace, name } = found;
            let (namespace, name) = (namespace.unwrap_or("-".into()), name.unwrap_or("-".into()));
            assert_eq!(format!("{verb:?} {group} {resource} {namespace} {name}"), expected, "{method} {uri}");
        }
        for uri in ["/version", "/api", "/apis/apps/v1", "/"] {
            assert_eq!(ApiRequest::parse(&Method::GET, &uri.parse().unwrap(), &Bytes::new()), None, "{uri}");
        }
    }
}
