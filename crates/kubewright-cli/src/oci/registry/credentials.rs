//! Credentials for a registry, as stored by `docker login` in its file or its credential helpers.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

/// The credentials. The `Debug` output does not contain secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A user name and a password.
    Password { user: String, password: String },
    /// An identity token, which is exchanged for access tokens.
    Identity(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => f.debug_struct("Password").field("user", user).finish_non_exhaustive(),
            Self::Identity(_) => f.write_str("Identity"),
        }
    }
}

/// The fields of Docker's config.json that are used here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    auths: BTreeMap<String, Entry>,
    creds_store: Option<String>,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    identitytoken: Option<String>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperOutput {
    username: String,
    secret: String,
}

/// The key of Docker Hub in the file.
const DOCKER: &str = "https://index.docker.io/v1/";

/// Finds the credentials for a registry: from the registry's helper, then the default helper, then the file.
pub(crate) fn find(registry: &str) -> Result<Option<Credentials>> {
    let Some(path) = path() else { return Ok(None) };
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    in_file(&path, &text, registry)
}

fn path() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    Some(folder.or_else(|| Some(std::env::home_dir()?.join(".docker")))?.join("config.json"))
}

fn in_file(path: &Path, text: &str, registry: &str) -> Result<Option<Credentials>> {
    let file: File = serde_json::from_str(text).with_context(|| format!("parse {}", path.display()))?;
    let server = if registry == "docker.io" { DOCKER } else { registry };
    if let Some(helper) = file.cred_helpers.get(server) {
        return call_helper(helper, server);
    }
    if let Some(found) = file.creds_store.as_deref().map(|helper| call_helper(helper, server)).transpose()?.flatten() {
        return Ok(Some(found));
    }
    let entry = file.auths.iter().find(|(name, _)| *name == server || host(name) == host(server));
    entry.map_or(Ok(None), |(name, entry)| entry.read().with_context(|| format!("{}: auths of {name}", path.display())))
}

/// Returns the host of a registry or URL.
fn host(server: &str) -> &str {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

impl Entry {
    fn read(&self) -> Result<Option<Credentials>> {
        if let Some(token) = self.identitytoken.as_ref().filter(|token| !token.is_empty()) {
            return Ok(Some(Credentials::Identity(token.clone())));
        }
        let Some(auth) = self.auth.as_ref().filter(|auth| !auth.is_empty()) else { return Ok(None) };
        let decoded = STANDARD.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
        let (user, password) = pair.context("not base64 of name:password: run docker login again")?;
        Ok(Some(Credentials::Password { user: user.into(), password: password.trim_end_matches('\0').into() }))
    }
}

/// Calls a credential helper, with the server as its input and JSON as its output.
fn call_helper(helper: &str, server: &str) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{helper}");
    let child =
        Command::new(&program).arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| {
        format!(
            "start {program}, the credential helper for {server} in Docker's config.json: install it, or remove it from the file"
        )
    })?;
    if let Some(mut input) = child.stdin.take() {
        // A helper that exits without reading its input reports the reason by its exit status.
        let _ = input.write_all(server.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("wait for {program}"))?;
    if !output.status.success() {
        // A helper prints errors, without secrets, to standard output.
        let text = String::from_utf8_lossy(&output.stdout);
        if text.contains("credentials not found") {
            return Ok(None);
        }
        bail!("{program} has no credentials for {server} ({}): {}", output.status, text.trim());
    }
    let Ok(helped) = serde_json::from_slice::<HelperOutput>(&output.stdout) else {
        bail!("{program} returned invalid credentials for {server}");
    };
    Ok(Some(match helped.username.as_str() {
        "<token>" => Credentials::Identity(helped.secret),
        _ => Credentials::Password { user: helped.username, password: helped.secret },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, registry: &str) -> Result<Option<Credentials>, String> {
        in_file(Path::new("config.json"), file, registry).map_err(|error| format!("{error:#}"))
    }

    fn password(user: &str, password: &str) -> Option<Credentials> {
        Some(Credentials::Password { user: user.into(), password: password.into() })
    }

    #[test]
    fn credentials_are_read_from_the_file() {
        let file = r#"{"auths": {
            "ghcr.io": {"auth": "bWU6YTpi"}, "https://index.docker.io/v1/": {"auth": "eW91OmM="},
            "azure.example": {"auth": "MDA6", "identitytoken": "t"}, "empty.example": {}, "bad.example": {"auth": "!"}
        }}"#;
        assert_eq!(check(file, "ghcr.io"), Ok(password("me", "a:b")));
        assert_eq!(check(file, "docker.io"), Ok(password("you", "c")));
        assert_eq!(check(file, "azure.example"), Ok(Some(Credentials::Identity("t".into()))));
        assert_eq!(check(file, "empty.example"), Ok(None));
        assert_eq!(check(file, "other.example"), Ok(None));
        assert!(check(file, "bad.example").unwrap_err().ends_with("run docker login again"));
        assert!(check("[", "ghcr.io").unwrap_err().starts_with("parse config.json"));
    }

    #[test]
    fn a_missing_helper_is_an_error_with_a_hint() {
        let refused = check(r#"{"credHelpers": {"ghcr.io": "no-such-helper"}}"#, "ghcr.io").unwrap_err();
        assert!(
            refused.contains("start docker-credential-no-such-helper") && refused.contains("install it"),
            "{refused}"
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", check(r#"{"auths": {"ghcr.io": {"auth": "bWU6YTpi"}}}"#, "ghcr.io"));
        assert!(shown.contains("me") && !shown.contains("a:b"), "{shown}");
    }
}
