//! ConfigMaps and Secrets.

use base64::{Engine, prelude::BASE64_STANDARD};
use kubewright_apimachinery::{name, status::Cause, types::json_type};
use serde_json::Value;

use super::{
    columns::{self, age, count},
    tls_secret,
    validation::{Errors, IMMUTABLE, Path, boolean, entries, entry, string, validate_text},
};
use crate::{
    fields::{fill, remove, set, text, within},
    registry::{Column, Strategy},
};

/// The maximum size of all values together, in bytes.
const LIMIT: usize = 1024 * 1024;
const DATA: Path<'static> = Path::new("data");
/// The type of Secrets with a certificate and its key.
const TLS: &str = "kubernetes.io/tls";

/// The strategy of ConfigMaps.
#[derive(Debug)]
pub(super) struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            let mut size = 0;
            for (field, encoded) in [("data", false), ("binaryData", true)] {
                let path = Path::new(field);
                for (key, value) in entries(new, field) {
                    validate_text(key, name::config_key, &path.key(key), errors);
                    if !encoded && new["binaryData"].get(key).is_some() {
                        errors.invalid(&path.key(key), key, "duplicate of key present in binaryData");
                    }
                    size += value_size(encoded, value);
                }
            }
            // Kubernetes uses this name for the whole object.
            validate_size(&Path::new("[]"), size, errors);
            if let Some(old) = old {
                validate_frozen(old, new, &["data", "binaryData"], errors);
            }
        })
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// The strategy of Secrets.
#[derive(Debug)]
pub(super) struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn default(&self, object: &mut Value) {
        fill(object, "type", "Opaque");
        let Some(Value::Object(plain)) = remove(object, "stringData") else { return };
        within(object, "data", |data| {
            for (key, value) in plain {
                // Values of other types are kept, and then fail schema validation.
                let encoded = value.as_str().map(|text| BASE64_STANDARD.encode(text).into());
                set(data, &key, encoded.unwrap_or(value));
            }
        });
    }

    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            let mut size = 0;
            for (key, value) in entries(new, "data") {
                validate_text(key, name::config_key, &DATA.key(key), errors);
                size += value_size(true, value);
            }
            validate_size(&DATA, size, errors);
            validate_secret_type(new, errors);
            if let Some(old) = old {
                if old["type"] != new["type"] {
                    errors.invalid(&Path::new("type"), new["type"].clone(), IMMUTABLE);
                }
                validate_frozen(old, new, &["data"], errors);
            }
        })
    }

    fn warnings(&self, _old: Option<&Value>, new: &Value) -> Vec<String> {
        if string(new, "type") != TLS {
            return Vec::new();
        }
        let data = |key: &str| BASE64_STANDARD.decode(string(&new["data"], key)).unwrap_or_default();
        tls_secret::problem(&data("tls.crt"), &data("tls.key")).into_iter().collect()
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

/// Checks the data that the type of a Secret requires.
fn validate_secret_type(secret: &Value, errors: &mut Errors) {
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    let account = entry(&secret["metadata"], "annotations", ACCOUNT).unwrap_or_default();
    let value = |key: &str| secret["data"].get(key).and_then(Value::as_str);
    let mut require = |keys: &[&str]| keys.iter().for_each(|key| errors.required(&DATA.key(key), ""));
    match string(secret, "type") {
        "kubernetes.io/service-account-token" if account.is_empty() => {
            errors.required(&Path::new("metadata.annotations").key(ACCOUNT), "");
        }
        "kubernetes.io/dockercfg" => validate_json(".dockercfg", value(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => validate_json(".dockerconfigjson", value(".dockerconfigjson"), errors),
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").unwrap_or_default().is_empty() => {
            require(&["ssh-privatekey"]);
        }
        TLS => {
            ["tls.crt", "tls.key"].iter().filter(|key| value(key).is_none()).for_each(|key| require(&[*key]));
        }
        _ => {}
    }
}

/// Checks that a value is a JSON object, in base64.
fn validate_json(key: &str, value: Option<&str>, errors: &mut Errors) {
    let path = DATA.key(key);
    let Some(value) = value else { return errors.required(&path, "") };
    let bytes = BASE64_STANDARD.decode(value).unwrap_or_default();
    if let Err(why) = check_json_object(&bytes) {
        errors.invalid(&path, "<secret contents redacted>", &why);
    }
}

/// Returns where Go's decoder didn't expect a character, for an error of serde's.
fn go_context(error: &str) -> &'static str {
    const CONTEXTS: [(&str, &str); 4] = [
        ("key must be a string", "looking for beginning of object key string"),
        ("expected `:`", "after object key"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
    ];
    let found = CONTEXTS.into_iter().find(|(start, _)| error.starts_with(start));
    found.map_or("looking for beginning of value", |(_, context)| context)
}

/// Returns why a text isn't a JSON object, in the words of Go's decoder.
fn check_json_object(text: &[u8]) -> Result<(), String> {
    let shown =
        |byte: Option<&u8>| byte.map_or_else(String::new, |byte| char::from(*byte).escape_default().to_string());
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let value = match values.next() {
        None => return Err("unexpected end of JSON input".into()),
        Some(Err(error)) if error.is_eof() => return Err("unexpected end of JSON input".into()),
        Some(Err(error)) => {
            let place = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
            let at = shown(place.get(error.column().saturating_sub(1)));
            return Err(format!("invalid character '{at}' {}", go_context(&error.to_string())));
        }
        Some(Ok(value)) => value,
    };
    if let Some(byte) = text[values.byte_offset()..].iter().find(|byte| !byte.is_ascii_whitespace()) {
        return Err(format!("invalid character '{}' after top-level value", shown(Some(byte))));
    }
    match json_type(&value) {
        "object" | "null" => Ok(()),
        other => Err(format!("json: cannot unmarshal {other} into Go value of type map[string]interface {{}}")),
    }
}

/// Returns the size of a value in bytes. For a base64 value this is approximately the decoded size.
fn value_size(encoded: bool, value: &Value) -> usize {
    let length = value.as_str().map_or(0, str::len);
    if encoded { length / 4 * 3 } else { length }
}

fn validate_size(path: &Path<'_>, size: usize, errors: &mut Errors) {
    if size > LIMIT {
        errors.too_long(path, LIMIT);
    }
}

/// Checks that an immutable object remains immutable and keeps its data.
fn validate_frozen(old: &Value, new: &Value, fields: &[&str], errors: &mut Errors) {
    if !boolean(old, "immutable") {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if !boolean(new, "immutable") {
        errors.forbidden(&Path::new("immutable"), why);
    }
    for field in fields.iter().filter(|field| old[**field] != new[**field]) {
        errors.forbidden(&Path::new(field), why);
    }
}

pub(super) fn config_map_columns() -> Vec<Column> {
    vec![columns::string("Data", |object, _| count(object, &["/data", "/binaryData"])), age()]
}

pub(super) fn secret_columns() -> Vec<Column> {
    vec![
        columns::string("Type", |object, _| text(object, "/type").into()),
        columns::string("Data", |object, _| count(object, &["/data"])),
        age(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(strategy: &dyn Strategy, old: Option<Value>, new: Value, expect: &[&str]) {
        let found: Vec<_> = strategy.validate(old.as_ref(), &new).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.starts_with(expect), "{found:?} is not {expect:?}");
        }
    }

    #[test]
    fn string_data_of_secrets_is_encoded() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}});
        SecretStrategy.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eQ==", "b": "eg=="}}));
    }

    #[test]
    fn keys_sizes_and_types_are_checked() {
        let strategy = &ConfigMapStrategy;
        check(strategy, None, json!({"data": {"a b": ""}}), &["data[a b]: Invalid value: \"a b\": a valid config key"]);
        check(
            strategy,
            None,
            json!({"data": {"a": ""}, "binaryData": {"a": ""}}),
            &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
        );
        check(
            strategy,
            None,
            json!({"data": {"a": "x".repeat(LIMIT + 1)}}),
            &["[]: Too long: may not be more than 1048576"],
        );
        check(
            &SecretStrategy,
            None,
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
            &["data[tls.key]: Required value"],
        );
    }

    #[test]
    fn registry_credentials_are_json_objects() {
        let wrong = |text: &str| check_json_object(text.as_bytes()).unwrap_err();
        assert_eq!(check_json_object(b" {} "), Ok(()));
        assert_eq!(wrong("{}1"), "invalid character '1' after top-level value");
        assert_eq!(wrong("{"), "unexpected end of JSON input");
        assert_eq!(wrong("x"), "invalid character 'x' looking for beginning of value");
        assert_eq!(wrong("{\"a\": b}"), "invalid character 'b' looking for beginning of value");
        assert_eq!(wrong("{\"a\": 1 2}"), "invalid character '2' after object key:value pair");
        assert_eq!(wrong("[]"), "json: cannot unmarshal array into Go value of type map[string]interface {}");
    }

    #[test]
    fn immutable_data_cannot_be_changed() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        check(&ConfigMapStrategy, Some(old.clone()), json!({"immutable": true, "data": {"a": "1"}}), &[]);
        let why = "Forbidden: field is immutable when `immutable` is set";
        check(
            &ConfigMapStrategy,
            Some(old),
            json!({"data": {"a": "2"}}),
            &[&format!("immutable: {why}"), &format!("data: {why}")],
        );
        let old = json!({"type": "Opaque"});
        check(&SecretStrategy, Some(old), json!({"type": "x"}), &["type: Invalid value: \"x\": field is immutable"]);
    }
}
