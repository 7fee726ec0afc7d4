//! Who sends a request: its `User-Agent`, and the user that it acts as.

use std::{collections::BTreeMap, env::consts};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{InvalidHeaderValue, USER_AGENT},
};

/// Another user, as which requests are sent. The sender needs the verb `impersonate` for it. See
/// <https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/>.
///
/// ```
/// # use kubewright_runtime::client::{Client, Impersonation};
/// # fn example(client: Client) -> Client {
/// client.impersonate(Impersonation::user("jane").group("developers"))
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    user: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    /// Creates the user of this name, such as `jane` or `system:serviceaccount:shop:checkout`, without groups: the API
    /// server adds those of service accounts, and `system:authenticated`.
    pub fn user(name: &str) -> Self {
        Self { user: name.into(), uid: None, groups: Vec::new(), extra: BTreeMap::new() }
    }

    /// Sets the user's UID.
    pub fn uid(self, uid: &str) -> Self {
        Self { uid: Some(uid.into()), ..self }
    }

    /// Adds a group.
    pub fn group(mut self, name: &str) -> Self {
        self.groups.push(name.into());
        self
    }

    /// Adds a value of an extra field. The key is sent in lower case.
    pub fn extra(mut self, key: &str, value: &str) -> Self {
        self.extra.entry(key.to_lowercase()).or_default().push(value.into());
        self
    }

    /// Adds the headers. A name that isn't a valid header is an error: sent without it, the request would have other
    /// rights.
    pub(super) fn write(&self, headers: &mut HeaderMap) -> Result<(), http::Error> {
        headers.insert("impersonate-user", value(&self.user)?);
        if let Some(uid) = &self.uid {
            headers.insert("impersonate-uid", value(uid)?);
        }
        for group in &self.groups {
            headers.append("impersonate-group", value(group)?);
        }
        for (key, values) in &self.extra {
            let name = HeaderName::try_from(format!("impersonate-extra-{}", escaped(key)))?;
            for text in values {
                headers.append(name.clone(), value(text)?);
            }
        }
        Ok(())
    }
}

/// Returns a header with the bytes of the text, as Go sends them.
fn value(text: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    HeaderValue::from_bytes(text.as_bytes())
}

/// Escapes the bytes that aren't allowed in the name of a header by `%`, as the API server expects in keys of extra
/// fields.
fn escaped(key: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z'
        | b'0'..=b'9'
        | b'-'
        | b'_'
        | b'.'
        | b'!'
        | b'#'
        | b'$'
        | b'&'
        | b'\''
        | b'*'
        | b'+'
        | b'^'
        | b'`'
        | b'|'
        | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    };
    key.bytes().map(escape).collect()
}

/// Returns the `User-Agent` of a program: `<product> (<os>/<arch>) kubewright/<version>`, with the names of systems and
/// processors that Kubernetes uses.
pub(crate) fn user_agent(product: &str) -> String {
    let os = if consts::OS == "macos" { "darwin" } else { consts::OS };
    let arch = match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    };
    format!("{product} ({os}/{arch}) kubewright/{}", env!("CARGO_PKG_VERSION"))
}

/// Sets the `User-Agent` unless the request has one.
pub(super) fn set_user_agent(headers: &mut HeaderMap, agent: &HeaderValue) {
    headers.entry(USER_AGENT).or_insert_with(|| agent.clone());
}

/// Returns the text as a header. Characters that a header can't contain are replaced.
pub(super) fn agent_header(text: &str) -> HeaderValue {
    let plain: String = text.chars().map(|letter| if matches!(letter, ' '..='~') { letter } else { '?' }).collect();
    HeaderValue::from_str(&plain).unwrap_or_else(|_| HeaderValue::from_static("kubewright"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_becomes_headers() {
        let mut headers = HeaderMap::new();
        let user = Impersonation::user("jane").uid("7").group("a").group("b").extra("Example.com/Scope", "x");
        user.write(&mut headers).expect("they are valid");
        let lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        let expected = [
            "impersonate-user: jane",
            "impersonate-uid: 7",
            "impersonate-group: a",
            "impersonate-group: b",
            "impersonate-extra-example.com%2fscope: x",
        ];
        assert_eq!(lines, expected);
        Impersonation::user("a\nb").write(&mut HeaderMap::new()).expect_err("a line break");
    }

    #[test]
    fn a_user_agent_names_program_system_and_library() {
        let agent = user_agent("podset/1.2");
        assert!(agent.starts_with("podset/1.2 (") && agent.contains(") kubewright/"), "{agent}");
        assert!(!agent.contains("x86_64") && !agent.contains("aarch64"), "{agent}");
        assert_eq!(agent_header("größe\n").to_str().unwrap(), "gr??e?");
    }
}
