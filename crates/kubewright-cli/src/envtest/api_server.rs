//! The stand-in for kube-apiserver: the embedded API server alone, with the certificates and keys of its flags.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::{AdmissionPlugin, Cluster, ClusterBuilder, ListenOptions, ServerCertificate};

use super::{
    etcd,
    flags::{Flags, Known},
};
use crate::{audit, cluster::Signals, shell::Shell};

const KNOWN: Known = Known {
    program: "kube-apiserver",
    used: &[
        ("anonymous-auth", "Whether requests without credentials are those of system:anonymous [default: true]"),
        ("api-audiences", "Audiences of the tokens of service accounts that are for this server [default: the issuer]"),
        ("audit-log-path", "File to append the audit log to; - is standard output"),
        ("audit-policy-file", "Policy that selects what is logged; without one, nothing is"),
        ("authorization-mode", "Authorization: RBAC, Node,RBAC, or AlwaysAllow [default: RBAC]"),
        ("bind-address", "Loopback address to serve on [default: 127.0.0.1]"),
        ("cert-dir", "Directory of apiserver.crt and apiserver.key; generated if they aren't there"),
        ("client-ca-file", "Authorities of clients: the common name is the user, the organizations are the groups"),
        ("disable-admission-plugins", "Plugins to leave out: ServiceAccount, Priority and others"),
        ("enable-admission-plugins", "Plugins to add, of which NodeRestriction isn't on by default"),
        (
            "etcd-servers",
            "Address of the etcd of kubewright envtest, whose directory keeps the objects; otherwise memory",
        ),
        ("secure-port", "Port to serve on [default: 6443]"),
        ("service-account-issuer", "Issuer of the tokens of service accounts"),
        (
            "service-cluster-ip-range",
            "Range of the addresses of services, with IPv4 addresses [default: 127.96.0.0/12]",
        ),
        ("service-account-signing-key-file", "Key that signs the tokens: ECDSA on P-256, or RSA"),
        ("tls-cert-file", "Certificate of the server [default: apiserver.crt in --cert-dir]"),
        ("tls-private-key-file", "Key of the server [default: apiserver.key in --cert-dir]"),
    ],
    accepted: &[
        "advertise-address",
        "allow-privileged",
        "audit-log-format",
        "audit-log-mode",
        "service-account-key-file",
        "v",
    ],
};

/// Runs until a signal arrives.
pub(crate) async fn run(arguments: Vec<String>, clock: SharedClock, shell: &Shell) -> Result<()> {
    let flags = KNOWN.parse(arguments)?;
    if flags.last("help").is_some() {
        shell.result(KNOWN.help().trim_end());
        return Ok(());
    }
    for name in KNOWN.unknown(&flags) {
        shell.warning(&format!("--{name} has no effect"));
    }
    let modes = flags.list("authorization-mode");
    let always_allow = modes.contains(&"AlwaysAllow");
    if !modes.is_empty() && !modes.contains(&"RBAC") && !always_allow {
        bail!("--authorization-mode={} is not supported: use RBAC, Node,RBAC or AlwaysAllow", modes.join(","));
    }
    let mut signals = Signals::listen()?;
    let has_accounts = !flags.list("disable-admission-plugins").contains(&"ServiceAccount");
    let mut builder = Cluster::builder()
        .clock(clock)
        .api_only()
        .service_account_admission(has_accounts)
        .anonymous_auth(flags.last("anonymous-auth") != Some("false"))
        .always_allow(always_allow)
        .node_authorization(modes.contains(&"Node"))
        .node_restriction(is_enabled(&flags, "NodeRestriction"));
    builder = without_plugins(builder, &flags, shell);
    if let Some(issuer) = flags.list("service-account-issuer").first() {
        builder = builder.service_account_issuer(*issuer);
    }
    let audiences = flags.list("api-audiences");
    if !audiences.is_empty() {
        builder = builder.api_audiences(audiences);
    }
    if let Some(path) = flags.last("service-account-signing-key-file") {
        builder = builder.service_account_key(&read(path)?).with_context(|| format!("use {path}"))?;
    }
    // A second range is one of IPv6.
    if let Some(range) = flags.list("service-cluster-ip-range").first() {
        builder = builder.service_range(range.parse().context("read --service-cluster-ip-range")?);
    }
    if let Some(url) = flags.list("etcd-servers").first() {
        match etcd::directory(url).await {
            Ok(directory) => builder = builder.data_dir(Path::new(&directory).join("kubewright")),
            Err(error) => {
                shell.warning(&format!("objects end with this program, since {url} can't keep them: {error:#}"))
            }
        }
    }
    if let (Some(path), Some(policy)) = (flags.last("audit-log-path"), flags.last("audit-policy-file")) {
        builder = builder.audit_log(audit::open(Path::new(path), audit::read_policy(Path::new(policy))?)?);
    }
    let options = options(&flags)?;
    let address = options.address;
    let cluster = builder.start().await.context("start the API server")?;
    cluster.listen_with(options).await.with_context(|| format!("listen on {address}"))?;
    signals.recv().await;
    cluster.shutdown().await;
    Ok(())
}

/// Turns off the admission plugins that a flag names.
fn without_plugins(mut builder: ClusterBuilder, flags: &Flags, shell: &Shell) -> ClusterBuilder {
    for name in flags.list("disable-admission-plugins") {
        match AdmissionPlugin::from_name(name) {
            Some(plugin) => builder = builder.without_admission_plugin(plugin),
            None if name == "ServiceAccount" => {}
            None => shell.warning(&format!("--disable-admission-plugins={name} has no effect")),
        }
    }
    builder
}

/// Returns whether an admission plugin is on that is off by default.
fn is_enabled(flags: &Flags, plugin: &str) -> bool {
    let has = |flag| flags.list(flag).contains(&plugin);
    has("enable-admission-plugins") && !has("disable-admission-plugins")
}

fn options(flags: &Flags) -> Result<ListenOptions> {
    let address = match flags.last("bind-address") {
        None | Some("localhost") => IpAddr::from([127, 0, 0, 1]),
        Some(text) => text.parse().with_context(|| format!("read --bind-address={text}"))?,
    };
    let port = flags.last("secure-port").unwrap_or("6443");
    let port = port.parse().with_context(|| format!("read --secure-port={port}"))?;
    let mut options = ListenOptions::from(SocketAddr::new(address, port));
    if let Some((chain, key)) = certificate(flags) {
        options.certificate = Some(ServerCertificate::new(read(&chain)?, read(&key)?));
    }
    if let Some(path) = flags.last("client-ca-file") {
        options.client_authorities = read(path)?;
    }
    Ok(options)
}

/// Returns the files of the server's certificate and key, unless they have to be generated.
fn certificate(flags: &Flags) -> Option<(PathBuf, PathBuf)> {
    let directory = flags.last("cert-dir").map(Path::new);
    let file = |flag: &str, name: &str| match flags.last(flag) {
        Some(path) => Some(PathBuf::from(path)),
        None => directory.map(|directory| directory.join(name)).filter(|path| path.exists()),
    };
    file("tls-cert-file", "apiserver.crt").zip(file("tls-private-key-file", "apiserver.key"))
}

fn read(path: impl AsRef<Path>) -> Result<String> {
    fs::read_to_string(path.as_ref()).with_context(|| format!("read {}", path.as_ref().display()))
}
