//! `kube-apiserver` of `kubewright envtest` with users of other issuers, and what it accepts without credentials.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use kubewright_apimachinery::clock::SystemClock;
use rcgen::{CertificateParams, KeyPair, SanType};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring::default_provider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};

use crate::envtest::{PATIENCE, Running, administrator, free_port, programs, request, wait_for};

/// The answers of an issuer by path, and the paths that were asked for.
type Answers = Arc<Mutex<(BTreeMap<String, Value>, Vec<String>)>>;

/// A server with TLS that says which keys sign its tokens.
struct Issuer {
    url: String,
    certificate: String,
    address: SocketAddr,
    answers: Answers,
    server: Option<JoinHandle<()>>,
}

/// A key that signs tokens.
struct Key {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self { id, pair: EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap() }
    }

    fn public(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": BASE64.encode(x), "y": BASE64.encode(y)})
    }

    /// Returns a token of an issuer, for the audience `shop`, with these claims.
    fn token(&self, issuer: &Issuer, claims: &Value) -> String {
        let expiry = SystemClock::shared().now().as_second() + 3600;
        let mut all = json!({"iss": issuer.url, "aud": "shop", "exp": expiry});
        for (name, claim) in claims.as_object().unwrap() {
            all[name] = claim.clone();
        }
        let encoded = |value: Value| BASE64.encode(value.to_string());
        let text = format!("{}.{}", encoded(json!({"alg": "ES256", "kid": self.id})), encoded(all));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", BASE64.encode(signature))
    }
}

impl Issuer {
    fn start(keys: &[&Key]) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        let certificate = params.self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
            );
        let (config, answers) = (Arc::new(config.unwrap()), Answers::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn({
            let answers = answers.clone();
            move || while serve(&listener, &config, &answers) {}
        });
        let (url, certificate) = (format!("https://{address}"), certificate.pem());
        let issuer = Self { url, certificate, address, answers, server: Some(server) };
        let about = json!({"issuer": issuer.url, "jwks_uri": format!("{}/keys", issuer.url)});
        issuer.set("/.well-known/openid-configuration", about);
        issuer.publish(keys);
        issuer
    }

    fn set(&self, path: &str, answer: Value) {
        self.answers.lock().unwrap().0.insert(path.to_owned(), answer);
    }

    fn publish(&self, keys: &[&Key]) {
        self.set("/keys", json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()}));
    }

    /// Returns how often the keys were asked for.
    fn requests(&self) -> usize {
        self.answers.lock().unwrap().1.iter().filter(|path| *path == "/keys").count()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        // A connection without a request ends the server.
        drop(TcpStream::connect(self.address));
        let _ = self.server.take().map(JoinHandle::join);
    }
}

/// Answers one request. Returns false for a connection without one.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>, answers: &Answers) -> bool {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    if stream.peek(&mut [0]).unwrap_or_default() == 0 {
        return false;
    }
    let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    // A client that refuses the certificate sends no request.
    if reader.read_line(&mut line).is_err() {
        return true;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while !line.is_empty() && line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    let mut answers = answers.lock().unwrap();
    let answer = answers.0.get(&path).map(Value::to_string);
    answers.1.push(path);
    let (status, body) = answer.map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let mut stream = reader.into_inner();
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
    stream.conn.send_close_notify();
    let _ = stream.flush();
    true
}

/// A `kube-apiserver`.
struct Server {
    port: u16,
    _process: Running,
}

impl Server {
    fn start(folder: &Path, flags: &[String]) -> Self {
        let (directory, port) = (programs(folder), free_port());
        let program = Command::new(directory.join("kube-apiserver"))
            .args([format!("--secure-port={port}"), "--authorization-mode=RBAC".into()])
            .args(flags)
            .stderr(Stdio::null())
            .spawn();
        let process = Running(program.unwrap());
        wait_for(&format!("https://127.0.0.1:{port}/healthz"), "ok");
        Self { port, _process: process }
    }

    /// Returns the user of a token, or the server's message if it refuses the token.
    fn user(&self, token: &str) -> Value {
        let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
        let output = Command::new("curl")
            .args(["--silent", "--insecure", "--max-time", "20", "--data", body])
            .args(["--header", "Content-Type: application/json"])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .arg(format!("https://127.0.0.1:{}/apis/authentication.k8s.io/v1/selfsubjectreviews", self.port))
            .output()
            .unwrap();
        let review: Value = serde_json::from_slice(&output.stdout).unwrap();
        if review["kind"] == "Status" { review["message"].clone() } else { review["status"]["userInfo"].clone() }
    }

    /// Waits until the user of a token has a name.
    fn wait_for_user(&self, token: &str, name: &str) {
        let clock = SystemClock::shared();
        let deadline = clock.monotonic() + PATIENCE;
        loop {
            let user = self.user(token);
            if user["username"] == name {
                return;
            }
            assert!(clock.monotonic() < deadline, "{user}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn write(path: &Path, text: &str) -> String {
    fs::write(path, text).unwrap();
    path.display().to_string()
}

/// Returns a file with one issuer, whose users have names with this prefix.
fn file(issuer: &Issuer, prefix: &str, fields: &Value) -> String {
    let mut jwt = json!({
        "issuer": {"url": issuer.url, "audiences": ["shop"], "certificateAuthority": issuer.certificate},
        "claimMappings": {"username": {"claim": "sub", "prefix": prefix}, "groups": {"claim": "roles", "prefix": "g:"}},
    });
    for (name, field) in fields.as_object().unwrap() {
        jwt[name] = field.clone();
    }
    json!({"apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration", "jwt": [jwt]})
        .to_string()
}

#[test]
fn users_are_those_of_the_tokens_of_an_issuer() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, unknown] = ["first", "second", "unknown"].map(Key::new);
    let issuer = Issuer::start(&[&first]);
    let fields = json!({
        "claimValidationRules": [{"claim": "tenant", "requiredValue": "t"},
            {"expression": "claims.exp - claims.iat <= 7200.0", "message": "too long"}],
        "claimMappings": {
            "username": {"expression": "claims.sub + '@' + claims.tenant"},
            "groups": {"expression": "claims.roles"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}],
        },
        "userValidationRules": [{"expression": "!user.username.startsWith('system:')"}],
    });
    let config = write(&folder.path().join("config"), &file(&issuer, "", &fields));
    let authority = administrator(folder.path());
    let flags = [
        format!("--authentication-config={config}"),
        format!("--client-ca-file={}", folder.path().join("ca.crt").display()),
    ];
    let server = Server::start(folder.path(), &flags);
    let now = SystemClock::shared().now().as_second();
    let claims = |sub: &str| json!({"sub": sub, "tenant": "t", "roles": ["dev"], "iat": now, "jti": "7"});
    let token = first.token(&issuer, &claims("ann"));
    server.wait_for_user(&token, "ann@t");
    let extra = json!({"example.com/tenant": ["t"], "authentication.kubernetes.io/credential-id": ["JTI=7"]});
    let expect = json!({"username": "ann@t", "groups": ["dev", "system:authenticated"], "extra": extra});
    assert_eq!(server.user(&token), expect);

    // A review has the reason for which a token is refused.
    let reason = |token: &str| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer = request(&authority, server.port, "POST", path, &review.to_string());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["status"]["authenticated"], Value::Null, "{answer}");
        answer["status"]["error"].as_str().unwrap_or_default().to_owned()
    };
    let changed = |name: &str, claim: Value| {
        let mut claims = claims("ann");
        claims[name] = claim;
        reason(&first.token(&issuer, &claims))
    };
    let rule = "validation expression '!user.username.startsWith('system:')' failed: ";
    for (name, claim, expect) in [
        ("aud", json!("other"), r#"oidc: verify token: oidc: expected audience "shop" got ["other"]"#),
        ("exp", json!(now - 60), "oidc: verify token: oidc: token is expired (Token Expiry: "),
        ("tenant", json!("u"), "oidc: required claim tenant value does not match. Got = u, want = t"),
        ("iat", json!(now - 9000), "failed: too long"),
        ("sub", json!("system:admin"), rule),
    ] {
        let error = changed(name, claim);
        assert!(error.starts_with("[invalid bearer token, oidc: ") && error.contains(expect), "{error}");
    }
    assert_eq!(changed("iss", json!("https://other")), "invalid bearer token");
    let invalid = "[invalid bearer token, oidc: verify token: failed to verify signature: failed to verify id token \
                   signature]";
    assert_eq!(reason(&unknown.token(&issuer, &claims("eve"))), invalid);
    assert_eq!(server.user(&unknown.token(&issuer, &claims("eve"))), "Unauthorized");

    // Another key is asked for when a token names it; known ones aren't asked for again.
    issuer.publish(&[&first, &second]);
    assert_eq!(server.user(&second.token(&issuer, &claims("bob")))["username"], "bob@t");
    let before = issuer.requests();
    assert_eq!(server.user(&token)["username"], "ann@t");
    assert_eq!(issuer.requests(), before);
}

#[test]
fn a_changed_file_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::new("k");
    let issuer = Issuer::start(&[&key]);
    let path = folder.path().join("config");
    let config = write(&path, &file(&issuer, "a:", &json!({})));
    let server = Server::start(folder.path(), &[format!("--authentication-config={config}")]);
    let token = key.token(&issuer, &json!({"sub": "ann"}));
    server.wait_for_user(&token, "a:ann");
    // A file with a mistake, and one that was replaced.
    write(&path, "kind: Pod");
    let other = write(&folder.path().join("other"), &file(&issuer, "b:", &json!({})));
    fs::rename(other, &path).unwrap();
    server.wait_for_user(&token, "b:ann");
    let changed = file(&issuer, "c:", &json!({"claimValidationRules": [{"claim": "sub", "requiredValue": "ann"}]}));
    write(&path, &changed);
    server.wait_for_user(&token, "c:ann");
    assert_eq!(server.user(&key.token(&issuer, &json!({"sub": "bob"}))), "Unauthorized");
}

#[test]
fn flags_describe_an_issuer() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::new("k");
    let issuer = Issuer::start(&[&key]);
    let flags = [
        format!("--oidc-issuer-url={}", issuer.url),
        "--oidc-client-id=shop".into(),
        format!("--oidc-ca-file={}", write(&folder.path().join("issuer.crt"), &issuer.certificate)),
        "--oidc-signing-algs=RS256,ES256".into(),
        "--oidc-groups-claim=roles".into(),
        "--oidc-groups-prefix=g:".into(),
        "--oidc-required-claim=tenant=t".into(),
    ];
    let server = Server::start(folder.path(), &flags);
    let token = |tenant: &str| key.token(&issuer, &json!({"sub": "ann", "roles": "dev", "tenant": tenant}));
    server.wait_for_user(&token("t"), &format!("{}#ann", issuer.url));
    assert_eq!(server.user(&token("t"))["groups"], json!(["g:dev", "system:authenticated"]));
    assert_eq!(server.user(&token("u")), "Unauthorized");
}

#[test]
fn requests_without_credentials_can_be_limited_to_paths() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "anonymous": {"enabled": true, "conditions": [{"path": "/healthz"}]}});
    let config = write(&folder.path().join("config"), &config.to_string());
    let server = Server::start(folder.path(), &[format!("--authentication-config={config}")]);
    wait_for(&format!("https://127.0.0.1:{}/livez", server.port), "Unauthorized");

    let flags = [&*format!("--authentication-config={config}"), "--anonymous-auth=true"];
    let output = Command::new(folder.path().join("with 'quotes'/kube-apiserver")).args(flags).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("--anonymous-auth flag cannot be set"), "{text}");
}
