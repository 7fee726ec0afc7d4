//! `kubewright envtest`: the programs that it writes, and what they do.
//!
//! The suite `envtest` of `cargo xtask clients` runs the tests of a Go project with them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use kubewright_apimachinery::clock::SystemClock;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::cluster::kubewright;

/// The longest wait for a program.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A program that is stopped at the end of the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn programs(folder: &Path) -> std::path::PathBuf {
    let directory = folder.join("with 'quotes'");
    let output = kubewright().arg("envtest").arg(&directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), directory.to_str().unwrap());
    directory
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until a server returns a text.
pub(crate) fn wait_for(url: &str, expect: &str) {
    let clock = SystemClock::shared();
    let deadline = clock.monotonic() + PATIENCE;
    loop {
        let output = Command::new("curl").args(["--silent", "--insecure", "--max-time", "10", url]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        if text.contains(expect) {
            return;
        }
        assert!(clock.monotonic() < deadline, "{url} returns {text:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_programs_start_and_stop_as_envtest_expects() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    let (etcd, server) = (free_port(), free_port());
    let start = |program: &str, flags: &[String]| {
        Running(Command::new(directory.join(program)).args(flags).stderr(Stdio::null()).spawn().unwrap())
    };
    let mut etcd_program = start("etcd", &[format!("--listen-client-urls=http://127.0.0.1:{etcd}")]);
    wait_for(&format!("http://127.0.0.1:{etcd}/health"), r#""health":"true""#);
    let mut api_server =
        start("kube-apiserver", &[format!("--secure-port={server}"), "--authorization-mode=RBAC".into()]);
    wait_for(&format!("https://127.0.0.1:{server}/healthz"), "ok");
    for program in [&mut api_server.0, &mut etcd_program.0] {
        assert!(Command::new("kill").arg(program.id().to_string()).status().unwrap().success());
        let status = program.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

/// Writes an authority of clients and the certificate of an administrator, and returns the arguments of curl that use
/// it.
pub(crate) fn administrator(folder: &Path) -> [String; 4] {
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let mut user = CertificateParams::default();
    user.distinguished_name.push(DnType::CommonName, "admin");
    user.distinguished_name.push(DnType::OrganizationName, "system:masters");
    user.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    write("ca.crt", authority.self_signed(&authority_key).unwrap().pem());
    let issuer = Issuer::new(authority, authority_key);
    let certificate = write("user.crt", user.signed_by(&key, &issuer).unwrap().pem());
    ["--cert".into(), certificate, "--key".into(), write("user.key", key.serialize_pem())]
}

/// Sends a request of a user, and returns the body of the answer.
pub(crate) fn request(credentials: &[String; 4], port: u16, method: &str, path: &str, body: &str) -> String {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--insecure", "--user-agent", "test", "--max-time", "10", "--request", method])
        .args(credentials);
    if !body.is_empty() {
        command.args(["--header", "Content-Type: application/json", "--data", body]);
    }
    let output = command.arg(format!("https://127.0.0.1:{port}{path}")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn flags_change_admission_and_audiences() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, credentials, server) = (programs(folder.path()), administrator(folder.path()), free_port());
    let flags = [
        format!("--secure-port={server}"),
        format!("--client-ca-file={}", folder.path().join("ca.crt").display()),
        "--authorization-mode=RBAC".into(),
        "--disable-admission-plugins=ServiceAccount,Priority".into(),
        "--api-audiences=one,two".into(),
    ];
    let command = Command::new(directory.join("kube-apiserver")).args(&flags).stderr(Stdio::null()).spawn();
    let _api_server = Running(command.unwrap());
    wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
    let post = |path: &str, body: &str| request(&credentials, server, "POST", path, body);
    let pod = r#"{"metadata":{"name":"p"},"spec":{"priority":7,"containers":[{"name":"c","image":"i"}]}}"#;
    let created = post("/api/v1/namespaces/default/pods", pod);
    assert!(created.contains(r#""priority":7"#), "{created}");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(accounts, r#"{"metadata":{"name":"robot"}}"#);
    let token = post(&format!("{accounts}/robot/token"), "{}");
    assert!(token.contains(r#""audiences":["one","two"]"#), "{token}");
}

#[test]
fn admission_plugins_are_configured_by_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, credentials, server) = (programs(folder.path()), administrator(folder.path()), free_port());
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
        {"name": "PodSecurity", "path": "pods.yaml"},
    ]});
    let pods = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "restricted"}, "exemptions": {"namespaces": ["kube-system"]}});
    fs::write(folder.path().join("config.yaml"), config.to_string()).unwrap();
    fs::write(folder.path().join("pods.yaml"), pods.to_string()).unwrap();
    let flags = [
        format!("--secure-port={server}"),
        format!("--client-ca-file={}", folder.path().join("ca.crt").display()),
        "--authorization-mode=RBAC".into(),
        "--disable-admission-plugins=ServiceAccount".into(),
        format!("--admission-control-config-file={}", folder.path().join("config.yaml").display()),
    ];
    let command = Command::new(directory.join("kube-apiserver")).args(&flags).stderr(Stdio::null()).spawn();
    let _api_server = Running(command.unwrap());
    wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    for (namespace, expect) in
        [("default", r#"violates PodSecurity \"restricted:latest\""#), ("kube-system", r#""kind":"Pod""#)]
    {
        let answer = request(&credentials, server, "POST", &format!("/api/v1/namespaces/{namespace}/pods"), pod);
        assert!(answer.contains(expect), "{answer}");
    }
}

#[test]
fn objects_outlive_the_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    let (etcd, server) = (free_port(), free_port());
    let credentials = administrator(folder.path());
    let start = |program: &str, flags: &[String]| {
        Running(Command::new(directory.join(program)).args(flags).stderr(Stdio::null()).spawn().unwrap())
    };
    let data = folder.path().join("data");
    let flags = [format!("--listen-client-urls=http://127.0.0.1:{etcd}"), format!("--data-dir={}", data.display())];
    let _etcd = start("etcd", &flags);
    wait_for(&format!("http://127.0.0.1:{etcd}/health"), r#""health":"true""#);
    let flags = [
        format!("--secure-port={server}"),
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        format!("--client-ca-file={}", folder.path().join("ca.crt").display()),
        "--authorization-mode=RBAC".into(),
    ];
    let curl = |method: &str, path: &str, body: &str| request(&credentials, server, method, path, body);
    let mut api_server = start("kube-apiserver", &flags);
    wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
    let path = "/api/v1/namespaces/default/configmaps";
    let created = curl("POST", path, r#"{"metadata":{"name":"kept"},"data":{"a":"b"}}"#);
    assert!(created.contains(r#""kind":"ConfigMap""#), "{created}");
    api_server.0.kill().unwrap();
    api_server.0.wait().unwrap();
    let _api_server = start("kube-apiserver", &flags);
    wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
    assert_eq!(curl("GET", &format!("{path}/kept"), ""), created);

    let other = free_port();
    let mut flags = flags.to_vec();
    flags.extend([format!("--secure-port={other}"), "--etcd-prefix=/other".into()]);
    let _other = start("kube-apiserver", &flags);
    wait_for(&format!("https://127.0.0.1:{other}/readyz"), "ok");
}

#[test]
fn tokens_and_modes_are_those_of_the_flags() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    let server = free_port();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let tokens = write("tokens.csv", "t1,ann,1,\"system:masters,x\"\nt2,bob,2\n");
    let policies = write("policies", r#"{"user":"bob","namespace":"shop","resource":"configmaps","readonly":true}"#);
    let flags = [
        format!("--secure-port={server}"),
        "--authorization-mode=RBAC,ABAC".into(),
        format!("--authorization-policy-file={policies}"),
        format!("--token-auth-file={tokens}"),
    ];
    let program = Command::new(directory.join("kube-apiserver")).args(flags).stderr(Stdio::null()).spawn();
    let _api_server = Running(program.unwrap());
    wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
    let get = |token: &str, path: &str| {
        let authorization = format!("Authorization: Bearer {token}");
        let mut command = Command::new("curl");
        command.args(["--silent", "--insecure", "--user-agent", "test", "--max-time", "10"]);
        command.args(["--header", &authorization]);
        let output = command.arg(format!("https://127.0.0.1:{server}{path}")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(get("t1", "/api/v1/secrets").contains(r#""kind":"SecretList""#));
    assert!(get("t2", "/api/v1/namespaces/shop/configmaps").contains(r#""kind":"ConfigMapList""#));
    let refused = get("t2", "/api/v1/secrets");
    assert!(refused.contains("at the cluster scope: No policy matched."), "{refused}");
    assert!(get("t3", "/version").contains("Unauthorized"));
}

#[test]
fn wrong_flags_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    let bad_key = folder.path().join("key.pem");
    fs::write(&bad_key, "not a key").unwrap();
    for (program, flags, expect) in [
        ("kube-apiserver", vec!["serve".to_owned()], "\"serve\" is not a flag of kube-apiserver"),
        ("kube-apiserver", vec!["--secure-port=x".into()], "read --secure-port=x"),
        (
            "kube-apiserver",
            vec!["--bind-address=192.0.2.1".into(), "--secure-port=0".into()],
            "is not a loopback address",
        ),
        (
            "kube-apiserver",
            vec!["--authorization-mode=RBAC,Webhook".into()],
            "needs --authorization-webhook-config-file",
        ),
        ("kube-apiserver", vec!["--authorization-mode=rbac".into()], "rbac is no mode of authorization"),
        ("kube-apiserver", vec!["--authorization-mode=Node,Node".into()], "names Node more than once"),
        ("kube-apiserver", vec!["--authorization-mode=ABAC".into()], "ABAC needs --authorization-policy-file"),
        ("kube-apiserver", vec!["--authorization-policy-file=/p".into()], "is for --authorization-mode=ABAC"),
        ("kube-apiserver", vec!["--oidc-issuer-url=https://a".into()], "must be specified together"),
        (
            "kube-apiserver",
            vec!["--oidc-client-id=c".into(), "--authentication-config=/nowhere".into()],
            "authentication-config file and oidc-* flags are mutually exclusive",
        ),
        (
            "kube-apiserver",
            vec!["--oidc-client-id=c".into(), "--oidc-issuer-url=https://kubernetes.default.svc.cluster.local".into()],
            "invalid authentication configuration: jwt[0].issuer.url: Invalid value: \
             \"https://kubernetes.default.svc.cluster.local\": URL must not overlap with disallowed issuers",
        ),
        ("kube-apiserver", vec![format!("--token-auth-file={}", bad_key.display())], "has 1 of at least 3 columns"),
        ("kube-apiserver", vec!["--admission-control-config-file=/nowhere".into()], "read /nowhere"),
        ("kube-apiserver", vec!["--insecure-port=0".into()], "--insecure-port is not a flag of kube-apiserver"),
        ("kube-apiserver", vec!["--anonymous-auth=no".into()], "\"no\" is neither true nor false"),
        ("etcd", vec!["--enable-v2".into()], "--enable-v2 is not a flag of etcd"),
        ("kube-apiserver", vec!["--client-ca-file=/nowhere/ca.crt".into()], "read /nowhere/ca.crt"),
        (
            "kube-apiserver",
            vec![format!("--service-account-signing-key-file={}", bad_key.display())],
            "must be a private key for ECDSA on P-256 or for RSA",
        ),
        ("etcd", vec!["--listen-client-urls=http://192.0.2.1:1".into()], "192.0.2.1:1 is not a loopback address"),
    ] {
        let output = Command::new(directory.join(program)).args(&flags).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expect), "{program} {flags:?}: {text}");
    }
    let output = Command::new(directory.join("etcd")).arg("--help").output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("\n  --unsafe-no-fsync\n"));
}

#[test]
fn programs_of_others_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    fs::write(directory.join("kubectl"), "somebody's").unwrap();
    let before = fs::read(directory.join("etcd")).unwrap();
    fs::write(directory.join("etcd"), [before.as_slice(), b"# older\n"].concat()).unwrap();
    let output = kubewright().arg("envtest").arg(&directory).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("was not written by kubewright envtest"), "{text}");
    assert_eq!(fs::read_to_string(directory.join("kubectl")).unwrap(), "somebody's");
    assert!(fs::read_to_string(directory.join("etcd")).unwrap().ends_with("# older\n"), "nothing is replaced");
}

/// Receives a request of HTTP on a listener, answers it, and returns its head and body.
fn receive(listener: &TcpListener, answer: impl Fn(Value) -> Value) -> (String, Value) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(&stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let answer = answer(body.clone()).to_string();
    let head_of_answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
    (&stream).write_all(format!("{head_of_answer}{answer}").as_bytes()).unwrap();
    (head, body)
}

/// Returns a kubeconfig that names the server at a listener.
fn kubeconfig_of(listener: &TcpListener) -> Value {
    let server = format!("http://{}/audit/x", listener.local_addr().unwrap());
    json!({"clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"})
}

#[test]
fn other_servers_decide_about_tokens_and_requests() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, kubeconfig_of(&listener).to_string()).unwrap();
    let server = free_port();
    let flags = [
        format!("--secure-port={server}"),
        "--authorization-mode=RBAC,Webhook".into(),
        format!("--authorization-webhook-config-file={}", kubeconfig.display()),
        "--authorization-webhook-version=v1".into(),
        "--authorization-webhook-cache-unauthorized-ttl=0s".into(),
        format!("--authentication-token-webhook-config-file={}", kubeconfig.display()),
    ];
    let program = Command::new(directory.join("kube-apiserver")).args(flags).stderr(Stdio::null()).spawn();
    let _api_server = Running(program.unwrap());
    wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
    let answer = |mut review: Value| {
        review["status"] = match review["kind"].as_str() {
            Some("TokenReview") => json!({"authenticated": true, "user": {"username": "ann", "groups": ["g"]}}),
            _ => json!({"allowed": review["spec"]["resourceAttributes"]["resource"] == "pods"}),
        };
        review
    };
    let reviews = thread::scope(|scope| {
        // Tokens are kept, and requests that are allowed.
        let received = scope.spawn(|| [(); 4].map(|()| receive(&listener, answer).1));
        for (resource, expect) in
            [("pods", "PodList"), ("pods", "PodList"), ("secrets", "Forbidden"), ("secrets", "Forbidden")]
        {
            let url = format!("https://127.0.0.1:{server}/api/v1/namespaces/shop/{resource}");
            let arguments = ["--silent", "--insecure", "--max-time", "20", "--header", "Authorization: Bearer t"];
            let output = Command::new("curl").args(arguments).arg(url).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(expect), "{text}");
        }
        received.join().unwrap()
    });
    let [token, pods, secrets, again] = &reviews;
    let audiences = json!(["https://kubernetes.default.svc.cluster.local"]);
    assert_eq!(token["apiVersion"], "authentication.k8s.io/v1beta1");
    assert_eq!(token["spec"], json!({"token": "t", "audiences": audiences}));
    let attributes = json!({"namespace": "shop", "verb": "list", "resource": "pods"});
    let spec = json!({"resourceAttributes": attributes, "user": "ann", "groups": ["g", "system:authenticated"]});
    assert_eq!((&pods["apiVersion"], &pods["spec"]), (&json!("authorization.k8s.io/v1"), &spec));
    assert_eq!(secrets, again);
}

#[test]
fn authorizers_are_those_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let [kubeconfig, tokens, config] = ["kubeconfig", "tokens", "config"].map(|name| folder.path().join(name));
    fs::write(&kubeconfig, kubeconfig_of(&listener).to_string()).unwrap();
    fs::write(&tokens, "t,ann,\n").unwrap();
    let webhook = json!({"timeout": "3s", "subjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "matchConditions": [{"expression": "request.resourceAttributes.resource == 'pods'"},
            {"expression": "request.resourceAttributes.namespace == ''"}],
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig}});
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": [
        {"type": "RBAC", "name": "roles"}, {"type": "Webhook", "name": "other", "webhook": webhook},
    ]});
    fs::write(&config, file.to_string()).unwrap();
    let server = free_port();
    let flags = [
        format!("--secure-port={server}"),
        format!("--authorization-config={}", config.display()),
        format!("--token-auth-file={}", tokens.display()),
    ];
    let program = Command::new(directory.join("kube-apiserver")).args(flags).stderr(Stdio::null()).spawn();
    let _api_server = Running(program.unwrap());
    wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
    let allow = |mut review: Value| {
        review["status"] = json!({"allowed": true});
        review
    };
    thread::scope(|scope| {
        // It isn't asked about requests that don't meet the condition.
        let received = scope.spawn(|| receive(&listener, allow).1);
        for (path, expect) in [
            ("/api/v1/secrets", r#"User \"ann\" cannot list resource \"secrets\""#),
            ("/api/v1/pods", "PodList"),
            ("/metrics", "no such key: resourceAttributes"),
        ] {
            let url = format!("https://127.0.0.1:{server}{path}");
            let arguments = ["--silent", "--insecure", "--max-time", "20", "--header", "Authorization: Bearer t"];
            let output = Command::new("curl").args(arguments).arg(url).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(expect), "{path}: {text}");
        }
        assert_eq!(received.join().unwrap()["spec"]["resourceAttributes"]["resource"], "pods");
    });
}

#[test]
fn audit_events_are_sent_to_a_webhook() {
    let folder = tempfile::tempdir().unwrap();
    let directory = programs(folder.path());
    let write = |name: &str, value: Value| {
        let path = folder.path().join(name);
        fs::write(&path, value.to_string()).unwrap();
        path.display().to_string()
    };
    let policy = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "nonResourceURLs": ["/version"]}]});
    let policy = write("policy.yaml", policy);
    for mode in ["batch", "blocking"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = free_port();
        let flags = [
            format!("--secure-port={server}"),
            "--authorization-mode=RBAC".into(),
            format!("--audit-policy-file={policy}"),
            format!("--audit-webhook-config-file={}", write("kubeconfig", kubeconfig_of(&listener))),
            format!("--audit-webhook-mode={mode}"),
            "--audit-webhook-batch-max-size=2".into(),
        ];
        let program = Command::new(directory.join("kube-apiserver")).args(flags).stderr(Stdio::null()).spawn();
        let mut api_server = Running(program.unwrap());
        wait_for(&format!("https://127.0.0.1:{server}/readyz"), "ok");
        let batches = thread::scope(|scope| {
            let received = scope.spawn(|| [(); 2].map(|()| receive(&listener, |_| json!({}))));
            for _ in 0..if mode == "batch" { 3 } else { 2 } {
                wait_for(&format!("https://127.0.0.1:{server}/version"), "gitVersion");
            }
            // At the end, the event that still waits is sent.
            assert!(Command::new("kill").arg(api_server.0.id().to_string()).status().unwrap().success());
            received.join().unwrap()
        });
        assert!(api_server.0.wait().unwrap().success());
        let batches = batches.map(|(head, body)| {
            assert!(head.starts_with("POST /audit/x?timeout=30s HTTP/1.1\r\n"), "{head}");
            body
        });
        let expect = if mode == "batch" { [2, 1] } else { [1, 1] };
        assert_eq!(batches.each_ref().map(|list| list["items"].as_array().unwrap().len()), expect);
        let [list, _] = &batches;
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("audit.k8s.io/v1")));
        let event = &list["items"][0];
        assert_eq!((&event["kind"], &event["requestURI"]), (&Value::Null, &json!("/version")));
    }
}
