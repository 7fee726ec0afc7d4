//! The flags `--oidc-*`, which describe one issuer.

use anyhow::{Context, Result, bail};

use super::{
    config::{ClaimRuleConfig, IssuerConfig, JwtConfig, MappingConfig, MappingsConfig},
    key::Algorithm,
};
use crate::envtest::{api_server::read, flags::Flags};

const NAMES: [&str; 9] = [
    "oidc-ca-file",
    "oidc-client-id",
    "oidc-groups-claim",
    "oidc-groups-prefix",
    "oidc-issuer-url",
    "oidc-required-claim",
    "oidc-signing-algs",
    "oidc-username-claim",
    "oidc-username-prefix",
];

/// Returns whether one of the flags is there.
pub(super) fn are_given(flags: &Flags) -> bool {
    NAMES.into_iter().any(|name| flags.is_given(name))
}

/// Returns the issuer of the flags.
///
/// # Errors
/// If `--oidc-issuer-url` or `--oidc-client-id` is missing, if `--oidc-ca-file` can't be read, or if a required claim
/// has no value.
pub(super) fn issuer(flags: &Flags) -> Result<JwtConfig> {
    let (Some(url), Some(client)) = (flags.last("oidc-issuer-url"), flags.last("oidc-client-id")) else {
        bail!("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set");
    };
    let claim = flags.last("oidc-username-claim").unwrap_or("sub");
    // Names of different issuers differ, unless they are addresses or the prefix says otherwise.
    let prefix = match flags.last("oidc-username-prefix") {
        Some("-") => String::new(),
        Some(prefix) => prefix.to_owned(),
        None if claim == "email" => String::new(),
        None => format!("{url}#"),
    };
    let of_claim = |claim: &str, prefix: &str| MappingConfig {
        claim: claim.to_owned(),
        prefix: Some(prefix.to_owned()),
        expression: String::new(),
    };
    let groups = flags.last("oidc-groups-claim");
    let groups = groups.map(|claim| of_claim(claim, flags.last("oidc-groups-prefix").unwrap_or_default()));
    let certificate_authority = flags.last("oidc-ca-file").map(read).transpose()?.unwrap_or_default();
    let required = flags.all("oidc-required-claim").map(|pair| {
        let (claim, value) = pair.split_once('=').context("malformed pair, expect string=string")?;
        let (claim, required_value) = (claim.trim().to_owned(), value.trim().to_owned());
        Ok(ClaimRuleConfig { claim, required_value, ..ClaimRuleConfig::default() })
    });
    Ok(JwtConfig {
        issuer: IssuerConfig {
            url: url.to_owned(),
            audiences: vec![client.to_owned()],
            certificate_authority,
            ..IssuerConfig::default()
        },
        claim_validation_rules: required.collect::<Result<_>>().context("read --oidc-required-claim")?,
        claim_mappings: MappingsConfig {
            username: of_claim(claim, &prefix),
            groups: groups.unwrap_or_default(),
            ..MappingsConfig::default()
        },
        user_validation_rules: Vec::new(),
    })
}

/// Returns the algorithms of signatures that the flags accept.
///
/// # Errors
/// If Kubernetes doesn't know one of them.
pub(super) fn algorithms(flags: &Flags) -> Result<Vec<Algorithm>> {
    let names = flags.list("oidc-signing-algs");
    if names.is_empty() {
        return Ok(vec![Algorithm::Rs256]);
    }
    let algorithm =
        |name: &str| Algorithm::from_name(name).with_context(|| format!("oidc: unsupported signing alg: {name:?}"));
    names.into_iter().map(algorithm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envtest::flags::Known;

    fn flags(arguments: &[&str]) -> Flags {
        let all = NAMES.join("\n");
        let known = Known { program: "p", all: all.leak(), used: &[], accepted: &[] };
        known.parse(arguments.iter().map(|argument| format!("--oidc-{argument}"))).unwrap()
    }

    #[test]
    fn flags_describe_one_issuer() {
        assert!(!are_given(&flags(&[])) && are_given(&flags(&["ca-file="])));
        let both = ["issuer-url=https://a/b", "client-id=c"];
        let with = |others: &[&str]| issuer(&flags(&[&both, others].concat()));
        let found = with(&[]).unwrap();
        assert_eq!((found.issuer.url.as_str(), found.issuer.audiences), ("https://a/b", vec!["c".to_owned()]));
        let username = found.claim_mappings.username;
        assert_eq!((username.claim.as_str(), username.prefix.as_deref()), ("sub", Some("https://a/b#")));
        assert!(found.claim_mappings.groups.claim.is_empty());
        for (others, expect) in [
            (["username-claim=email"].as_slice(), ("email", "")),
            (&["username-claim=email", "username-prefix=x:"], ("email", "x:")),
            (&["username-prefix=-"], ("sub", "")),
        ] {
            let username = with(others).unwrap().claim_mappings.username;
            assert_eq!((username.claim.as_str(), username.prefix.as_deref()), (expect.0, Some(expect.1)));
        }
        let groups = with(&["groups-claim=roles", "groups-prefix=g,"]).unwrap().claim_mappings.groups;
        assert_eq!((groups.claim.as_str(), groups.prefix.as_deref()), ("roles", Some("g,")));
        let rules = with(&["required-claim=a=b=c", "required-claim=d = e,f "]).unwrap().claim_validation_rules;
        let rules: Vec<_> = rules.iter().map(|rule| (rule.claim.as_str(), rule.required_value.as_str())).collect();
        assert_eq!(rules, [("a", "b=c"), ("d", "e,f")]);
    }

    #[test]
    fn incomplete_flags_are_errors() {
        let error = |arguments: &[&str]| format!("{:#}", issuer(&flags(arguments)).unwrap_err());
        assert!(error(&["issuer-url=https://a"]).contains("must be specified together"));
        assert!(error(&["groups-claim=a"]).contains("must be specified together"));
        let both = ["issuer-url=https://a", "client-id=c"];
        assert!(error(&[&both[..], &["required-claim=a"]].concat()).contains("malformed pair"));
        assert!(error(&[&both[..], &["ca-file=/nowhere"]].concat()).contains("read /nowhere"));
    }

    #[test]
    fn algorithms_are_those_of_kubernetes() {
        let names = |arguments: &[&str]| {
            algorithms(&flags(arguments)).map(|all| all.iter().map(Algorithm::name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["RS256"]);
        assert_eq!(names(&["signing-algs=ES256,PS512", "signing-algs=RS384"]).unwrap(), ["ES256", "PS512", "RS384"]);
        let error = names(&["signing-algs=HS256"]).unwrap_err().to_string();
        assert_eq!(error, "oidc: unsupported signing alg: \"HS256\"");
    }
}
