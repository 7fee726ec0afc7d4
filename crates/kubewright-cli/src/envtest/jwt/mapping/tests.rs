use super::*;

fn claims() -> Value {
    json!({
        "sub": "ann", "email": "ann@example.com", "roles": ["a", "b"], "team": "t", "jti": "7", "exp": 5,
        "flags": [1], "admin": true, "nothing": null,
        "_claim_names": {"elsewhere": "s"},
    })
}

async fn user_of(config: Value, claims: Value) -> Result<UserInfo, String> {
    let config: JwtConfig = serde_json::from_value(config).unwrap();
    let Value::Object(claims) = claims else { panic!("claims are an object") };
    Mappings::new(&config).user(&claims).await
}

/// Returns the user by these mappings; a missing one of the name is that of `sub`.
async fn mapped(mut mappings: Value) -> Result<UserInfo, String> {
    if mappings["username"].is_null() {
        mappings["username"] = json!({"claim": "sub", "prefix": ""});
    }
    user_of(json!({"claimMappings": mappings}), claims()).await
}

#[tokio::test]
async fn users_are_made_of_claims() {
    let found = mapped(json!({
        "username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "roles", "prefix": "g:"},
        "uid": {"claim": "jti"},
    }));
    let found = found.await.unwrap();
    assert_eq!((found.name.as_str(), found.uid.as_str()), ("oidc:ann", "7"));
    assert_eq!(found.groups, ["g:a", "g:b"]);
    assert_eq!(found.extra, [(CREDENTIAL_ID.to_owned(), vec!["JTI=7".to_owned()])].into());
    assert_eq!(mapped(json!({"groups": {"claim": "team", "prefix": ""}})).await.unwrap().groups, ["t"]);
    assert!(mapped(json!({"groups": {"claim": "absent", "prefix": ""}})).await.unwrap().groups.is_empty());
    for (mappings, expect) in [
        (
            json!({"username": {"claim": "absent", "prefix": ""}}),
            "oidc: parse username claims \"absent\": claim not present",
        ),
        (
            json!({"username": {"claim": "exp", "prefix": ""}}),
            "oidc: parse username claims \"exp\": json: cannot unmarshal number into Go value of type string",
        ),
        (
            json!({"groups": {"claim": "flags", "prefix": ""}}),
            "oidc: parse groups claim \"flags\": json: cannot unmarshal array into Go value of type string",
        ),
        (
            json!({"groups": {"claim": "elsewhere", "prefix": ""}}),
            "oidc: could not expand distributed claims: the claim \"elsewhere\" of another server is not supported",
        ),
        (json!({"uid": {"claim": "absent"}}), "oidc: parse uid claim \"absent\": claim not present"),
    ] {
        assert_eq!(mapped(mappings).await.unwrap_err(), expect);
    }
}

#[tokio::test]
async fn addresses_have_to_be_verified() {
    let of = async |verified: Value| {
        let config = json!({"claimMappings": {"username": {"claim": "email", "prefix": ""}}});
        let mut claims = claims();
        if !verified.is_string() || verified == "yes" {
            claims["email_verified"] = verified;
        }
        user_of(config, claims).await.map(|user| user.name)
    };
    assert_eq!(of(json!("absent")).await.as_deref(), Ok("ann@example.com"));
    assert_eq!(of(json!(true)).await.as_deref(), Ok("ann@example.com"));
    assert_eq!(of(json!(false)).await.unwrap_err(), "oidc: email not verified");
    let wrong = "oidc: parse 'email_verified' claim: json: cannot unmarshal string into Go value of type bool";
    assert_eq!(of(json!("yes")).await.unwrap_err(), wrong);
}

#[tokio::test]
async fn users_are_made_by_expressions() {
    let found = mapped(json!({
        "username": {"expression": "claims.sub + ':x'"},
        "groups": {"expression": "claims.roles.map(r, r + '!') + ['']"},
        "uid": {"expression": "claims.jti"},
        "extra": [
            {"key": "a.b/team", "valueExpression": "claims.team"},
            {"key": "a.b/roles", "valueExpression": "claims.roles"},
            {"key": "a.b/none", "valueExpression": "claims.nothing"},
            {"key": "a.b/empty", "valueExpression": "claims.admin ? '' : 'x'"},
        ],
    }));
    let found = found.await.unwrap();
    assert_eq!((found.name.as_str(), found.uid.as_str()), ("ann:x", "7"));
    assert_eq!(found.groups, ["a!", "b!"]);
    let keys: Vec<_> = found.extra.keys().map(String::as_str).collect();
    assert_eq!(keys, ["a.b/roles", "a.b/team", CREDENTIAL_ID]);
    assert_eq!(
        (&found.extra["a.b/roles"], &found.extra["a.b/team"]),
        (&vec!["a".into(), "b".into()], &vec!["t".into()])
    );
    for (mappings, expect) in [
        (
            json!({"username": {"expression": "claims.roles"}}),
            "oidc: error evaluating username claim expression: username claim expression must return a string",
        ),
        (json!({"username": {"expression": "''"}}), "oidc: empty username via CEL expression is not allowed"),
        (
            json!({"username": {"expression": "claims.absent"}}),
            "oidc: error evaluating username claim expression: expression 'claims.absent' resulted in error: no such \
             key: absent",
        ),
        (
            json!({"groups": {"expression": "claims.admin"}}),
            "oidc: error evaluating group claim expression: expression must return a string or a list of strings",
        ),
        (
            json!({"uid": {"expression": "claims.nothing"}}),
            "oidc: error evaluating uid claim expression: uid claim expression must return a string",
        ),
        (
            json!({"extra": [{"key": "a.b/c", "valueExpression": "claims.exp"}]}),
            "oidc: error evaluating extra claim expression: claims.exp: expression must return a string or a list of \
             strings",
        ),
    ] {
        assert_eq!(mapped(mappings).await.unwrap_err(), expect);
    }
}

#[tokio::test]
async fn rules_decide_which_users_are_accepted() {
    let with = async |rules: Value| {
        let mut config = json!({"claimMappings": {"username": {"claim": "sub", "prefix": ""}}});
        for (name, value) in rules.as_object().unwrap() {
            config[name] = value.clone();
        }
        user_of(config, claims()).await.map(|user| user.name)
    };
    let accepted = with(json!({
        "claimValidationRules": [{"claim": "team", "requiredValue": "t"}, {"expression": "claims.exp < 6"},
            {"claim": "nothing"}],
        "userValidationRules": [{"expression": "!user.username.startsWith('system:') && user.groups.size() == 0"},
            {"expression": "user.extra['authentication.kubernetes.io/credential-id'] == ['JTI=7']"}],
    }));
    assert_eq!(accepted.await.as_deref(), Ok("ann"));
    let of_claims = async |rule: Value| with(json!({"claimValidationRules": [rule]})).await.unwrap_err();
    assert_eq!(of_claims(json!({"claim": "absent"})).await, "oidc: required claim absent not present in ID token");
    assert_eq!(
        of_claims(json!({"claim": "team", "requiredValue": "u"})).await,
        "oidc: required claim team value does not match. Got = t, want = u"
    );
    assert_eq!(
        of_claims(json!({"claim": "exp", "requiredValue": "5"})).await,
        "oidc: parse claim exp: json: cannot unmarshal number into Go value of type string"
    );
    assert_eq!(
        of_claims(json!({"expression": "claims.exp > 6.0", "message": "too early"})).await,
        "oidc: error evaluating claim validation expression: validation expression 'claims.exp > 6.0' failed: too early"
    );
    let refused = with(json!({"userValidationRules": [{"expression": "user.username == 'bob'", "message": "m"}]}));
    assert_eq!(
        refused.await.unwrap_err(),
        "oidc: error evaluating user info validation rule: validation expression 'user.username == 'bob'' failed: m"
    );
}
