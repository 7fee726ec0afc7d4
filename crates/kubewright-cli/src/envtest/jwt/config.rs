//! The file of `--authentication-config`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration>).

use anyhow::{Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::audit::single_document;

/// The versions of the file.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];
const KIND: &str = "AuthenticationConfiguration";

/// Issuers of tokens, and which requests without credentials are accepted.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AuthenticationConfig {
    api_version: String,
    kind: String,
    #[serde(default)]
    pub(super) jwt: Vec<JwtConfig>,
    pub(super) anonymous: Option<AnonymousConfig>,
}

/// Which requests without credentials are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AnonymousConfig {
    pub(super) enabled: bool,
    pub(super) conditions: Vec<AnonymousCondition>,
}

/// A path for which requests without credentials are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AnonymousCondition {
    pub(super) path: String,
}

/// The users of the tokens of one issuer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct JwtConfig {
    pub(super) issuer: IssuerConfig,
    pub(super) claim_validation_rules: Vec<ClaimRuleConfig>,
    pub(super) claim_mappings: MappingsConfig,
    pub(super) user_validation_rules: Vec<UserRuleConfig>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct IssuerConfig {
    pub(super) url: String,
    #[serde(rename = "discoveryURL")]
    pub(super) discovery_url: String,
    pub(super) certificate_authority: String,
    pub(super) audiences: Vec<String>,
    pub(super) audience_match_policy: String,
    pub(super) egress_selector_type: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimRuleConfig {
    pub(super) claim: String,
    pub(super) required_value: String,
    pub(super) expression: String,
    pub(super) message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MappingsConfig {
    pub(super) username: MappingConfig,
    pub(super) groups: MappingConfig,
    pub(super) uid: UidConfig,
    pub(super) extra: Vec<ExtraConfig>,
}

/// A mapping by a claim, by an expression, or none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct MappingConfig {
    pub(super) claim: String,
    pub(super) prefix: Option<String>,
    pub(super) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UidConfig {
    pub(super) claim: String,
    pub(super) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExtraConfig {
    pub(super) key: String,
    pub(super) value_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct UserRuleConfig {
    pub(super) expression: String,
    pub(super) message: String,
}

impl AuthenticationConfig {
    /// Returns a configuration without a file.
    pub(super) fn of(jwt: Vec<JwtConfig>) -> Self {
        Self { jwt, ..Self::default() }
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// If it isn't an AuthenticationConfiguration, or has unknown fields.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            bail!("empty config data");
        }
        let config: Self = serde_json::from_value(without_nulls(single_document(text)?))?;
        let Self { api_version, kind, .. } = &config;
        if kind != KIND || !VERSIONS.contains(&api_version.as_str()) {
            bail!("it is of {api_version}, kind {kind}, instead of {}, kind {KIND}", VERSIONS[0]);
        }
        Ok(config)
    }
}

/// Removes fields that are null, which Kubernetes reads as if they weren't there.
pub(in crate::envtest) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let present = fields.into_iter().filter(|(_, field)| !field.is_null());
            Value::Object(present.map(|(name, field)| (name, without_nulls(field))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_version_and_known_fields() {
        for version in VERSIONS {
            let text = format!("apiVersion: {version}\nkind: {KIND}\njwt: null\nanonymous: {{enabled: true}}");
            let config = AuthenticationConfig::parse(&text).unwrap();
            assert!(config.jwt.is_empty() && config.anonymous.unwrap().enabled);
        }
        for (text, expect) in [
            ("", "empty config data"),
            ("kind: Pod\napiVersion: v1", "it is of v1, kind Pod"),
            ("kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v2", "config.k8s.io/v2, kind"),
            ("kind: Pod\napiVersion: v1\njwt: [{issuer: {URL: x}}]", "unknown field `URL`"),
            ("apiVersion: v1", "missing field `kind`"),
        ] {
            let error = AuthenticationConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
