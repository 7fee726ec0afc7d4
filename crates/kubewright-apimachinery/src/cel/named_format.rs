//! The named formats of Kubernetes' library (`k8s.io/apiserver/pkg/cel/library/format.go`).

use std::sync::Arc;

use kube_cel::cel::{Value, objects::Opaque};

use super::{
    failure::{Evaluated, Failure},
    value::optional_of,
};
use crate::{name, schema::is_format, url::Url};

/// A named format.
#[derive(Debug)]
struct NamedFormat {
    name: &'static str,
    /// Returns what is wrong with a text.
    check: fn(&str) -> Vec<String>,
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for NamedFormat {}

impl Opaque for NamedFormat {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }
}

const FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", check: name::dns1123_label },
    NamedFormat { name: "dns1123Subdomain", check: name::dns1123_subdomain },
    NamedFormat { name: "dns1035Label", check: name::dns1035_label },
    NamedFormat { name: "qualifiedName", check: name::label_key },
    NamedFormat { name: "dns1123LabelPrefix", check: |text| name::generate_name(text, name::dns1123_label) },
    NamedFormat { name: "dns1123SubdomainPrefix", check: |text| name::generate_name(text, name::dns1123_subdomain) },
    NamedFormat { name: "dns1035LabelPrefix", check: |text| name::generate_name(text, name::dns1035_label) },
    NamedFormat { name: "labelValue", check: name::label_value },
    NamedFormat { name: "uri", check: |text| Url::parse(text).err().into_iter().collect() },
    NamedFormat { name: "uuid", check: |text| matched("uuid", text, "does not match the UUID format") },
    NamedFormat { name: "byte", check: |text| matched("byte", text, "invalid base64") },
    NamedFormat { name: "date", check: |text| matched("date", text, "invalid date") },
    NamedFormat { name: "datetime", check: |text| matched("datetime", text, "invalid datetime") },
];

fn matched(format: &str, text: &str, error: &str) -> Vec<String> {
    if is_format(format, text) { Vec::new() } else { vec![error.to_owned()] }
}

/// Calls one of these functions. `None` if it is another one, or has no overload for these values here.
pub(super) fn call(function: &str, values: &[Value]) -> Option<Evaluated> {
    let named = |name: &str| {
        let format = FORMATS.into_iter().find(|format| format.name == name);
        format.map(|format| Value::Opaque(Arc::new(format)))
    };
    match (function, values) {
        ("format.named", [Value::String(name)]) => Some(Ok(optional_of(named(name)))),
        ("validate", [Value::Opaque(format), Value::String(text)]) => {
            let format: &NamedFormat = format.downcast_ref()?;
            let errors: Vec<Value> = (format.check)(text).into_iter().map(Value::from).collect();
            Some(Ok(optional_of((!errors.is_empty()).then(|| Value::List(Arc::new(errors))))))
        }
        (function, []) => {
            let name = function.strip_prefix("format.")?;
            Some(named(name).ok_or_else(Failure::no_such_overload))
        }
        _ => None,
    }
}
