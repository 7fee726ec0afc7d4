//! The stand-in for kube-apiserver: the embedded API server alone, with the certificates and keys of its flags.

use std::{
    fs, future,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use clap::Parser as _;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::VERSION;
use kubewright_cluster::{Cluster, ClusterBuilder, ListenOptions, ServerCertificate};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    admission, authorization, etcd, features,
    flags::{Flags, Known},
    jwt::{self, Authentication},
    reviewers, tokens,
};
use crate::{audit::AuditOptions, cluster::Signals, shell::Shell};

const KNOWN: Known = Known {
    program: "kube-apiserver",
    all: include_str!("kube-apiserver-flags.txt"),
    used: &[
        ("admission-control-config-file", "File with the configuration of admission plugins, such as PodSecurity"),
        ("anonymous-auth", "Whether requests without credentials are those of system:anonymous [default: true]"),
        ("api-audiences", "Audiences of the tokens of service accounts that are for this server [default: the issuer]"),
        ("authentication-config", "File with the issuers of tokens, and the paths for requests without credentials"),
        ("authentication-token-webhook-cache-ttl", "How long an answer about a token is kept [default: 2m]"),
        ("authentication-token-webhook-config-file", "Kubeconfig with the address of a server that knows tokens"),
        ("authentication-token-webhook-version", "Version of the reviews: v1 or v1beta1 [default: v1beta1]"),
        ("audit-log-compress", "Whether renamed files of the audit log are compressed by gzip [default: false]"),
        ("audit-log-maxage", "Days for which renamed files of the audit log are kept [default: 366]"),
        ("audit-log-maxbackup", "Number of renamed files of the audit log to keep [default: 100]"),
        ("audit-log-maxsize", "Size in megabytes at which the audit log is renamed [default: 100]"),
        ("audit-log-path", "File to append the audit log to; - is standard output"),
        ("audit-policy-file", "Policy that selects what is logged; without one, nothing is"),
        ("audit-webhook-batch-buffer-size", "Number of events that can wait to be sent [default: 10000]"),
        ("audit-webhook-batch-max-size", "Number of events that are sent at once [default: 400]"),
        ("audit-webhook-batch-max-wait", "Longest time for which an event waits for others [default: 30s]"),
        ("audit-webhook-config-file", "Kubeconfig with the address of a server that events are sent to"),
        ("audit-webhook-initial-backoff", "Pause after the first attempt that fails [default: 10s]"),
        ("audit-webhook-mode", "When events are sent: batch or blocking [default: batch]"),
        ("authorization-config", "File with the authorizers in their order, in place of --authorization-mode"),
        (
            "authorization-mode",
            "Authorizers in their order: RBAC, Node, ABAC, Webhook, AlwaysAllow, AlwaysDeny [default: AlwaysAllow]",
        ),
        ("authorization-policy-file", "Policies of ABAC, one object of JSON a line"),
        ("authorization-webhook-cache-authorized-ttl", "How long a request stays allowed [default: 5m]"),
        ("authorization-webhook-cache-unauthorized-ttl", "How long a request stays forbidden [default: 30s]"),
        ("authorization-webhook-config-file", "Kubeconfig with the address of the server of Webhook"),
        ("authorization-webhook-version", "Version of the reviews: v1 or v1beta1 [default: v1beta1]"),
        ("bind-address", "Loopback address to serve on [default: 127.0.0.1]"),
        ("cert-dir", "Directory of apiserver.crt and apiserver.key; generated if they aren't there"),
        ("client-ca-file", "Authorities of clients: the common name is the user, the organizations are the groups"),
        ("disable-admission-plugins", "Plugins to leave out: ServiceAccount, Priority and others"),
        ("enable-admission-plugins", "Plugins to add, of which NodeRestriction isn't on by default"),
        ("etcd-prefix", "Part of the directory of etcd that keeps the objects [default: /registry]"),
        (
            "etcd-servers",
            "Address of the etcd of kubewright envtest, whose directory keeps the objects; otherwise memory",
        ),
        ("feature-gates", "Features of Kubernetes, which can't be changed"),
        ("oidc-ca-file", "Certificates of the issuer's authority [default: those of the system]"),
        ("oidc-client-id", "Audience that the tokens of the issuer must have"),
        ("oidc-groups-claim", "Claim with the groups of a user [default: none]"),
        ("oidc-groups-prefix", "Prefix of the groups"),
        ("oidc-issuer-url", "Issuer of the tokens of users, with https, in place of --authentication-config"),
        ("oidc-required-claim", "Claim that tokens must have: claim=value; may be repeated"),
        ("oidc-signing-algs", "Algorithms of signatures [default: RS256]"),
        ("oidc-username-claim", "Claim with the name of a user [default: sub]"),
        ("oidc-username-prefix", "Prefix of the names, - for none [default: the issuer and #; none for email]"),
        ("runtime-config", "Served versions, which can't be changed"),
        ("secure-port", "Port to serve on [default: 6443]"),
        ("service-account-issuer", "Issuer of the tokens of service accounts"),
        (
            "service-cluster-ip-range",
            "Range of the addresses of services, with IPv4 addresses [default: 127.96.0.0/12]",
        ),
        ("service-account-signing-key-file", "Key that signs the tokens: ECDSA on P-256, or RSA"),
        ("tls-cert-file", "Certificate of the server [default: apiserver.crt in --cert-dir]"),
        ("tls-private-key-file", "Key of the server [default: apiserver.key in --cert-dir]"),
        ("token-auth-file", "Bearer tokens of users: token,name,uid,\"group,group\" a line"),
    ],
    accepted: &[
        "advertise-address",
        "allow-privileged",
        "audit-log-format",
        "audit-log-mode",
        "contention-profiling",
        "delete-collection-workers",
        "log-flush-frequency",
        "logging-format",
        "profiling",
        "service-account-key-file",
        "storage-media-type",
        "v",
        "vmodule",
        "watch-cache",
        "watch-cache-sizes",
    ],
};

/// Runs until a signal arrives.
pub(crate) async fn run(arguments: Vec<String>, clock: SharedClock, shell: &Shell) -> Result<()> {
    let flags = KNOWN.parse(arguments)?;
    if flags.last("help").is_some() {
        shell.result(KNOWN.help().trim_end());
        return Ok(());
    }
    if flags.last("version").is_some() {
        shell.result(&format!("Kubernetes {VERSION}"));
        return Ok(());
    }
    for name in KNOWN.unused(&flags) {
        shell.warning(&format!("--{name} has no effect"));
    }
    let plugins = features::plugins(&flags)?;
    for warning in features::feature_gates(&flags)?.iter().chain(&plugins.warnings).chain(&unused_values(&flags)) {
        shell.warning(warning);
    }
    let mut signals = Signals::listen()?;
    let mut builder = Cluster::builder()
        .clock(clock.clone())
        .api_only()
        .service_account_admission(plugins.service_account)
        .anonymous_auth(
            features::boolean(flags.last("anonymous-auth").unwrap_or("true")).context("read --anonymous-auth")?,
        )
        .authorization_modes(authorization::modes(&flags, &clock).await?)
        .node_restriction(plugins.node_restriction);
    let (with_users, authentication) = users(builder, &flags, &clock, shell).await?;
    builder = with_users;
    if let Some(path) = flags.last("admission-control-config-file") {
        let admission = admission::open(path, |name| plugins.is_off(name))?;
        admission.warnings.iter().for_each(|warning| shell.warning(warning));
        builder = admission.apply(builder);
    }
    for plugin in plugins.off {
        builder = builder.without_admission_plugin(plugin);
    }
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
            Ok(directory) => builder = builder.data_dir(Path::new(&directory).join(data_directory(&flags))),
            Err(error) => {
                shell.warning(&format!("objects end with this program, since {url} can't keep them: {error:#}"))
            }
        }
    }
    let audit = audit_options(&flags)?;
    let mut sending = None;
    // Without a policy, nothing is logged.
    if audit.is_complete()
        && let Some(opened) = audit.open(&clock).await?
    {
        builder = builder.audit_log(opened.log);
        sending = opened.sending;
    }
    let options = options(&flags)?;
    let address = options.address;
    let cluster = builder.start().await.context("start the API server")?;
    for warning in features::versions(&flags, cluster.api().registry())? {
        shell.warning(&warning);
    }
    cluster.listen_with(options).await.with_context(|| format!("listen on {address}"))?;
    tokio::select! {
        biased;
        () = signals.recv() => {}
        () = maintain(authentication, shell) => {}
    }
    cluster.shutdown().await;
    if let Some(sending) = sending {
        sending.finish().await;
    }
    Ok(())
}

/// Adds the users of the flags.
async fn users(
    mut builder: ClusterBuilder,
    flags: &Flags,
    clock: &SharedClock,
    shell: &Shell,
) -> Result<(ClusterBuilder, Option<Authentication>)> {
    let authentication = jwt::open(flags, clock)?;
    if let Some(authentication) = &authentication {
        builder = authentication.apply(builder);
    }
    if let Some(reviewer) = reviewers::tokens(flags, clock).await? {
        builder = builder.token_reviewer(Arc::new(reviewer));
    }
    if let Some(path) = flags.last("token-auth-file") {
        let warn = |what: String| shell.warning(&format!("{path}: {what}"));
        for (token, user) in tokens::parse(&read(path)?, warn).with_context(|| format!("use {path}"))? {
            builder = builder.static_token(token, user);
        }
    }
    Ok((builder, authentication))
}

/// Follows what authentication depends on. Never completes.
async fn maintain(authentication: Option<Authentication>, shell: &Shell) {
    match authentication {
        Some(authentication) => authentication.maintain(shell).await,
        None => future::pending().await,
    }
}

/// Returns the values of used flags that have no effect.
fn unused_values(flags: &Flags) -> Vec<String> {
    let always = [("allow-privileged", "true"), ("audit-log-format", "json")];
    let given = always.iter().filter_map(|&(flag, value)| Some((flag, value, flags.last(flag)?)));
    let unused = given.filter(|(_, value, wanted)| wanted != value);
    let unused = unused.map(|(flag, value, wanted)| format!("--{flag}={wanted} has no effect: it is always {value}"));
    let first = ["service-account-issuer", "service-cluster-ip-range"].into_iter().flat_map(|flag| {
        let others = flags.list(flag).into_iter().skip(1);
        others.map(move |value| format!("--{flag}={value} has no effect: only the first value has"))
    });
    unused.chain(first).collect()
}

/// Returns the name of the directory for the objects, in that of etcd. Servers with different prefixes share an etcd.
fn data_directory(flags: &Flags) -> String {
    let prefix = flags.last("etcd-prefix").unwrap_or_default().trim_matches('/');
    match prefix {
        "" | "registry" => "kubewright".into(),
        prefix => format!("kubewright-{}", utf8_percent_encode(prefix, NON_ALPHANUMERIC)),
    }
}

/// Returns the flags of the audit log.
fn audit_options(flags: &Flags) -> Result<AuditOptions> {
    #[derive(clap::Parser)]
    #[command(name = "kube-apiserver", no_binary_name = true, args_override_self = true)]
    struct Parsed {
        #[command(flatten)]
        audit: AuditOptions,
    }
    let used = KNOWN.used.iter().map(|(name, _)| *name).filter(|name| name.starts_with("audit-"));
    let given = used.filter_map(|name| Some(format!("--{name}={}", flags.last(name)?)));
    Ok(Parsed::try_parse_from(given)?.audit)
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

pub(super) fn read(path: impl AsRef<Path>) -> Result<String> {
    fs::read_to_string(path.as_ref()).with_context(|| format!("read {}", path.as_ref().display()))
}
