//! Who we are at a registry: what `docker login` has kept, in its file or with its helpers.

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

/// What a registry, or who gives tokens for it, is told of us. Its `Debug` tells no secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A name and a password.
    Password { user: String, password: String },
    /// What tokens are had for.
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

/// Docker's file, as far as it matters here.
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
struct Helped {
    username: String,
    secret: String,
}

/// Docker's own registry has this name in its file.
const DOCKER: &str = "https://index.docker.io/v1/";

/// What is kept for a registry, if anything is. A helper of its own goes before that of all, and that before the file.
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
    let file: File = serde_json::from_str(text).with_context(|| format!("understand {}", path.display()))?;
    let server = if registry == "docker.io" { DOCKER } else { registry };
    if let Some(helper) = file.cred_helpers.get(server) {
        return ask(helper, server);
    }
    if let Some(found) = file.creds_store.as_deref().map(|helper| ask(helper, server)).transpose()?.flatten() {
        return Ok(Some(found));
    }
    let entry = file.auths.iter().find(|(name, _)| *name == server || host(name) == host(server));
    entry.map_or(Ok(None), |(name, entry)| entry.read().with_context(|| format!("{}: auths of {name}", path.display())))
}

/// The host of what may be a whole address.
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
        let (user, password) = pair.context("it isn't base64 of name:password: run docker login again")?;
        Ok(Some(Credentials::Password { user: user.into(), password: password.trim_end_matches('\0').into() }))
    }
}

/// Asks a helper by Docker's protocol: the server to its input, an answer in JSON from its output.
fn ask(helper: &str, server: &str) -> Result<Option<Credentials>> {
    let program = format!("docker-credential-{helper}");
    let child =
        Command::new(&program).arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.with_context(|| {
        format!(
            "start {program}, which Docker's config.json names for {server}: install it, or take its name out there"
        )
    })?;
    if let Some(mut input) = child.stdin.take() {
        // One that ends without reading says why by how it ends.
        let _ = input.write_all(server.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("wait for {program}"))?;
    if !output.status.success() {
        // What it says of a failure goes to its output; of secrets there is none in it.
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("credentials not found") {
            return Ok(None);
        }
        bail!("{program} has no credentials for {server} ({}): {}", output.status, said.trim());
    }
    let Ok(helped) = serde_json::from_slice::<Helped>(&output.stdout) else {
        bail!("{program} answers what is no credentials for {server}");
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
    fn the_file_tells_who_we_are() {
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
        assert!(check("[", "ghcr.io").unwrap_err().starts_with("understand config.json"));
    }

    #[test]
    fn a_helper_that_is_missing_is_told_of() {
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
