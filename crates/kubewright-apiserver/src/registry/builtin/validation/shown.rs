//! Values as messages show them.

use serde_json::Value;

use super::value::{entries, items};

/// A value as a message shows it: texts are quoted, objects and lists are JSON with their fields in declared order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::registry::builtin) struct Shown(String);

impl Shown {
    /// Creates an object with fields in this order.
    pub(in crate::registry::builtin) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("{name:?}:{}", value.0)).collect();
        Self(format!("{{{}}}", fields.join(",")))
    }

    /// Creates a list.
    pub(in crate::registry::builtin) fn list(items: impl IntoIterator<Item = Self>) -> Self {
        let items: Vec<_> = items.into_iter().map(|item| item.0).collect();
        Self(format!("[{}]", items.join(",")))
    }

    /// Shows a field of Kubernetes' internal types: null if it is absent.
    pub(in crate::registry::builtin) fn nullable(value: Option<&Value>) -> Self {
        Self::from(value.cloned().unwrap_or_default())
    }

    /// Shows a label selector.
    pub(in crate::registry::builtin) fn selector(selector: &Value) -> Self {
        if selector.is_null() {
            return Value::Null.into();
        }
        let labels = entries(selector, "matchLabels").next().map(|_| ("matchLabels", selector["matchLabels"].clone()));
        let expressions = items(selector, "matchExpressions");
        let expressions = (!expressions.is_empty()).then(|| ("matchExpressions", expressions.to_vec().into()));
        Self::object(labels.into_iter().chain(expressions).map(|(name, value)| (name, Self::from(value))))
    }

    /// Returns the text.
    pub(in crate::registry::builtin) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Value> for Shown {
    fn from(value: Value) -> Self {
        let text = value.to_string();
        // Go's encoder escapes these characters, except where a text is quoted on its own.
        let is_composite = value.is_object() || value.is_array();
        if is_composite && text.contains(['<', '>', '&']) {
            return Self(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"));
        }
        Self(text)
    }
}

impl From<&str> for Shown {
    fn from(text: &str) -> Self {
        Self(Value::from(text).to_string())
    }
}

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl From<i64> for Shown {
    fn from(number: i64) -> Self {
        Self(number.to_string())
    }
}

impl From<bool> for Shown {
    fn from(flag: bool) -> Self {
        Self(flag.to_string())
    }
}

impl From<Vec<Value>> for Shown {
    fn from(items: Vec<Value>) -> Self {
        Self::from(Value::from(items))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_as_json() {
        let object = json!({"a": 1, "b": "<x>", "c": null});
        assert_eq!(Shown::from(object).as_str(), r#"{"a":1,"b":"\u003cx\u003e","c":null}"#);
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchLabels": {"b": "c"}});
        let expected = r#"{"matchLabels":{"b":"c"},"matchExpressions":[{"key":"a","operator":"Exists"}]}"#;
        assert_eq!(Shown::selector(&selector).as_str(), expected);
        assert_eq!(Shown::selector(&json!({"matchLabels": {}})).as_str(), "{}");
    }
}
