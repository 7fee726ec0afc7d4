use serde_json::Value;

use super::*;

fn valid() -> Value {
    json!({
        "issuer": {"url": "https://a", "audiences": ["x"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    })
}

fn errors(jwt: &[Value], anonymous: &Value, before: Option<&Option<AnonymousConfig>>) -> String {
    let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": jwt, "anonymous": anonymous});
    let config = AuthenticationConfig::parse(&text.to_string()).unwrap();
    validate(&config, &["https://own".to_owned(), "https://b".to_owned()], before).err().unwrap_or_default()
}

/// Returns the errors about an authenticator that is valid but for one field.
fn with(field: &str, value: Value) -> String {
    let mut jwt = valid();
    match jwt.pointer_mut(field) {
        Some(present) => *present = value,
        None => {
            let (parent, name) = field.rsplit_once('/').unwrap();
            jwt.pointer_mut(parent).unwrap()[name] = value;
        }
    }
    errors(&[jwt], &Value::Null, None)
}

#[test]
fn issuers_have_an_address_and_audiences() {
    assert_eq!(errors(&[valid()], &Value::Null, None), "");
    let same = "jwt[1].issuer.url: Duplicate value: \"https://a\"";
    assert_eq!(errors(&[valid(), valid()], &Value::Null, None), same);
    assert_eq!(errors(&vec![valid(); 65], &Value::Null, None), "jwt: Too many: 65: must have at most 64 items");
    for (url, expect) in [
        ("", "Required value"),
        ("http://a", "Invalid value: \"http://a\": URL scheme must be https"),
        ("a", "Invalid value: \"a\": URL scheme must be https"),
        ("https://u:p@a", "Invalid value: \"https://u:p@a\": URL must not contain a username or password"),
        ("https://a?b=c", "Invalid value: \"https://a?b=c\": URL must not contain a query"),
        ("https://a#b", "Invalid value: \"https://a#b\": URL must not contain a fragment"),
        (
            "https://own",
            "Invalid value: \"https://own\": URL must not overlap with disallowed issuers: [https://b https://own]",
        ),
    ] {
        assert_eq!(with("/issuer/url", json!(url)), format!("jwt[0].issuer.url: {expect}"));
    }
    assert!(with("/issuer/url", json!("https://a b")).starts_with("jwt[0].issuer.url: Invalid value"));
    let discovery = with("/issuer/discoveryURL", json!("https://a/"));
    assert_eq!(
        discovery,
        "jwt[0].issuer.discoveryURL: Invalid value: \"https://a/\": discoveryURL must be different from URL"
    );
    assert_eq!(with("/issuer/discoveryURL", json!("https://own")), "");
    for (field, value, expect) in [
        ("audiences", json!([]), "audiences: Required value: at least one jwt[0].issuer.audiences is required"),
        ("audiences", json!([""]), "audiences[0]: Required value"),
        (
            "audiences",
            json!(["x", "x"]),
            "audiences[1]: Duplicate value: \"x\", jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": \
             audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
        (
            "audienceMatchPolicy",
            json!("All"),
            "audienceMatchPolicy: Invalid value: \"All\": audienceMatchPolicy must be empty or MatchAny for single \
             audience",
        ),
        (
            "certificateAuthority",
            json!("x"),
            "certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA \
             certificates",
        ),
        (
            "egressSelectorType",
            json!("x"),
            "egressSelectorType: Invalid value: \"x\": egress selector must be either controlplane or cluster",
        ),
        (
            "egressSelectorType",
            json!("cluster"),
            "egressSelectorType: Internal error: oidc: egress lookup required with egress selector type \"cluster\"",
        ),
    ] {
        let found = with(&format!("/issuer/{field}"), value);
        assert_eq!(found.trim_matches(['[', ']']), format!("jwt[0].issuer.{expect}").trim_matches(['[', ']']));
    }
}

#[test]
fn mappings_are_by_a_claim_or_an_expression() {
    for (field, value, expect) in [
        ("username", json!({}), "username: Required value: claim or expression is required"),
        (
            "username",
            json!({"claim": "sub"}),
            "username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string \
             to disable prefixing",
        ),
        (
            "username",
            json!({"claim": "a", "expression": "b"}),
            "username: Invalid value: \"\": claim and expression can't both be set",
        ),
        (
            "username",
            json!({"prefix": "a", "expression": "claims.sub"}),
            "username.prefix: Invalid value: \"a\": may not be specified when expression is set",
        ),
        ("username", json!({"expression": "claims.email"}), VERIFIED),
        ("groups", json!({"expression": "user.groups"}), "undeclared reference to 'user'"),
        ("uid", json!({"claim": "a", "expression": "b"}), "uid: Invalid value: \"\": claim and expression can't"),
        ("uid", json!({"expression": "claims."}), "uid.expression: Invalid value: \"claims.\": compilation failed"),
        ("extra", json!([{"key": ""}]), "extra[0].key: Required value"),
        (
            "extra",
            json!([{"key": "foo", "valueExpression": "'a'"}]),
            "extra[0].key: Invalid value: \"foo\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            "extra",
            json!([{"key": "a.b/Foo", "valueExpression": "'a'"}]),
            "extra[0].key: Invalid value: \"a.b/Foo\": must be lowercase",
        ),
        (
            "extra",
            json!([{"key": "a.b/foo bar", "valueExpression": "'a'"}]),
            "extra[0].key: Invalid value: \"foo bar\": Invalid path (regex used",
        ),
        (
            "extra",
            json!([{"key": "x.k8s.io/a", "valueExpression": "'a'"}]),
            "extra[0].key: Invalid value: \"x.k8s.io/a\": k8s.io, kubernetes.io and their subdomains are reserved",
        ),
        ("extra", json!([{"key": "a.b/c"}]), "extra[0].valueExpression: Required value"),
        (
            "extra",
            json!([{"key": "a.b/c", "valueExpression": "'a'"}, {"key": "a.b/c", "valueExpression": "'a'"}]),
            "extra[1].key: Duplicate value: \"a.b/c\"",
        ),
    ] {
        let found = with(&format!("/claimMappings/{field}"), value);
        assert!(found.contains(expect), "{found}");
    }
    for verified in
        ["claims.email_verified ? claims.email : ''", "claims.?email_verified.orValue(true) ? 'a' : claims.email"]
    {
        assert_eq!(with("/claimMappings/username", json!({"expression": verified})), "");
    }
    let mut by_rule = valid();
    by_rule["claimMappings"]["username"] = json!({"expression": "claims.email"});
    by_rule["claimValidationRules"] = json!([{"expression": "claims.email_verified == true"}]);
    assert_eq!(errors(&[by_rule], &Value::Null, None), "");
}

#[test]
fn rules_are_expressions_of_booleans() {
    let of_claims = |rules: Value| with("/claimValidationRules", rules);
    for (rules, expect) in [
        (json!([{}]), "jwt[0].claimValidationRules[0]: Required value: claim or expression is required"),
        (json!([{"claim": "a", "expression": "true"}]), "claim and expression can't both be set"),
        (json!([{"claim": "a", "message": "m"}]), "[0].message: Invalid value: \"m\": may not be specified when claim"),
        (json!([{"claim": "a"}, {"claim": "a"}]), "[1].claim: Duplicate value: \"a\""),
        (json!([{"expression": "true", "requiredValue": "v"}]), "[0].requiredValue: Invalid value: \"v\": may not"),
        (json!([{"expression": "true"}, {"expression": "true"}]), "[1].expression: Duplicate value: \"true\""),
        (
            json!([{"expression": "claims.admin"}]),
            "jwt[0].claimValidationRules[0].expression: Invalid value: \"claims.admin\": must evaluate to bool",
        ),
    ] {
        let found = of_claims(rules);
        assert!(found.contains(expect), "{found}");
        assert!(!found.contains("but got"), "{found}");
    }
    for (rules, expect) in [
        (json!([{}]), "jwt[0].userValidationRules[0].expression: Required value"),
        (json!([{"expression": "true"}, {"expression": "true"}]), "[1].expression: Duplicate value: \"true\""),
        (json!([{"expression": "user.name == ''"}]), "undefined field 'name'"),
        (json!([{"expression": "user.username"}]), "must evaluate to bool"),
    ] {
        let found = with("/userValidationRules", rules);
        assert!(found.contains(expect), "{found}");
    }
}

#[test]
fn the_configuration_of_anonymous_requests_does_not_change() {
    let anonymous = json!({"enabled": false, "conditions": [{"path": "/a"}]});
    let expect = "anonymous.conditions: Invalid value: [{\"Path\":\"/a\"}]: enabled should be set to true when conditions \
                  are defined";
    assert_eq!(errors(&[], &anonymous, None), expect);
    let enabled = json!({"enabled": true, "conditions": [{"path": "/a"}]});
    assert_eq!(errors(&[], &enabled, None), "");
    let before = serde_json::from_value(enabled.clone()).unwrap();
    assert_eq!(errors(&[], &enabled, Some(&before)), "");
    let changed = "anonymous: Forbidden: changed from initial configuration file";
    assert_eq!(errors(&[], &Value::Null, Some(&before)), changed);
}

/// The errors are those of kube-apiserver 1.36.3.
#[test]
fn the_errors_are_those_of_kubernetes() {
    let config = AuthenticationConfig::parse(include_str!("../testdata/wrong.yaml")).unwrap();
    let errors = validate(&config, &[], None).unwrap_err();
    let expect = include_str!("../testdata/wrong.txt").trim_end();
    // A line may have an error's end, and others.
    let parts = |text: &str| text.split(", jwt").map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(parts(&errors), parts(expect));
}
