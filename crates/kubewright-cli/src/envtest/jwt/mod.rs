//! Users by the tokens of other issuers, as `--authentication-config` and the flags `--oidc-*` describe them
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration>).
//!
//! A token is that of the issuer that it names, whose keys verify it. Service accounts have tokens of this server's own
//! issuers, which can't be among them. Where an issuer's keys are is asked in the background, until it answers, and its
//! keys are asked for when a token needs one.

mod authenticator;
mod client;
mod config;
mod file;
mod flags;
mod key;
mod mapping;
mod provider;
mod token;
mod validate;

use std::{fmt, future, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use futures::future::join_all;
use kubewright_apimachinery::clock::SharedClock;
use kubewright_apiserver::DEFAULT_ISSUER;
use kubewright_cluster::{ClusterBuilder, TokenReviewer, UserInfo};
use parking_lot::RwLock;
use tokio::runtime::Handle;

pub(super) use self::config::without_nulls;
use self::{
    authenticator::Authenticator,
    config::{AnonymousConfig, AuthenticationConfig},
    file::File,
    key::Algorithm,
    token::untrusted_issuer,
};
use super::{api_server::read, flags::Flags};
use crate::shell::Shell;

/// The pause between attempts to reach an issuer.
const PAUSE: Duration = Duration::from_secs(10);

/// The authenticators of issuers, which a change of their file replaces.
pub(super) struct Authenticators {
    current: RwLock<Arc<Vec<Authenticator>>>,
    algorithms: Vec<Algorithm>,
    /// The issuers of the tokens of service accounts.
    own: Vec<String>,
    clock: SharedClock,
}

/// What the flags say about users.
pub(super) struct Authentication {
    authenticators: Arc<Authenticators>,
    /// Which requests without credentials are accepted, unless a flag says so.
    anonymous: Option<AnonymousConfig>,
    file: Option<File>,
}

impl fmt::Debug for Authenticators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticators").field("own", &self.own).finish_non_exhaustive()
    }
}

/// Returns what `--authentication-config` or the flags `--oidc-*` say, if they are there.
///
/// # Errors
/// If the flags exclude each other, or say what Kubernetes refuses.
pub(super) fn open(flags: &Flags, clock: &SharedClock) -> Result<Option<Authentication>> {
    let (path, by_flags) = (flags.last("authentication-config"), flags::are_given(flags));
    if path.is_some() && by_flags {
        bail!("authentication-config file and oidc-* flags are mutually exclusive");
    }
    let (config, algorithms, file) = match path {
        Some(path) => {
            let text = read(path)?;
            let config = AuthenticationConfig::parse(&text).with_context(|| format!("read {path}"))?;
            let file = File::new(path, text, config.anonymous.clone());
            (config, Algorithm::ALL.to_vec(), Some(file))
        }
        None if by_flags => (AuthenticationConfig::of(vec![flags::issuer(flags)?]), flags::algorithms(flags)?, None),
        None => return Ok(None),
    };
    if config.anonymous.is_some() && flags.is_given("anonymous-auth") {
        let why = "--anonymous-auth flag cannot be set when anonymous field is configured in authentication \
                   configuration file";
        bail!("anonymous: Forbidden: {why}");
    }
    let own = match &*flags.list("service-account-issuer") {
        [] => vec![DEFAULT_ISSUER.to_owned()],
        issuers => issuers.iter().map(ToString::to_string).collect(),
    };
    let authenticators = Authenticators { current: RwLock::default(), algorithms, own, clock: clock.clone() };
    authenticators.set(authenticators.build(&config, None).context("invalid authentication configuration")?);
    let authenticators = Arc::new(authenticators);
    Ok(Some(Authentication { authenticators, anonymous: config.anonymous, file }))
}

impl Authentication {
    /// Adds it to an API server.
    pub(super) fn apply(&self, builder: ClusterBuilder) -> ClusterBuilder {
        let builder = builder.token_reviewer(self.authenticators.clone());
        match &self.anonymous {
            Some(AnonymousConfig { enabled: true, conditions }) if !conditions.is_empty() => {
                builder.anonymous_paths(conditions.iter().map(|condition| condition.path.clone()))
            }
            Some(anonymous) => builder.anonymous_auth(anonymous.enabled),
            None => builder,
        }
    }

    /// Asks issuers about their keys until all have answered, and follows changes of the file. Never completes.
    pub(super) async fn maintain(mut self, shell: &Shell) {
        loop {
            let current = self.authenticators.current();
            let discover = async {
                discover(&current, |why| shell.warning(&why)).await;
                future::pending::<()>().await;
            };
            let Some(file) = &mut self.file else { return discover.await };
            tokio::select! {
                biased;
                text = file.changed() => file.reload(&text, &self.authenticators, shell).await,
                () = discover => {}
            }
        }
    }
}

impl Authenticators {
    /// Returns the authenticators of a configuration. `before` is that of anonymous requests at the start, if this is a
    /// later one.
    fn build(
        &self,
        config: &AuthenticationConfig,
        before: Option<&Option<AnonymousConfig>>,
    ) -> Result<Vec<Authenticator>> {
        validate::validate(config, &self.own, before).map_err(|errors| anyhow!(errors))?;
        let build = |jwt| Authenticator::new(jwt, &self.algorithms, &self.clock).map_err(|why| anyhow!(why));
        config.jwt.iter().map(build).collect()
    }

    fn current(&self) -> Arc<Vec<Authenticator>> {
        self.current.read().clone()
    }

    fn set(&self, authenticators: Vec<Authenticator>) {
        *self.current.write() = Arc::new(authenticators);
    }
}

/// Asks issuers about their keys, each until it has answered.
async fn discover(authenticators: &[Authenticator], warn: impl Fn(String)) {
    let each = authenticators.iter().map(async |authenticator| {
        while !authenticator.provider().is_known() {
            match authenticator.provider().discover().await {
                Ok(()) => return,
                Err(why) => warn(format!("the issuer {} can't be used yet: {why}", authenticator.issuer())),
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    join_all(each).await;
}

impl TokenReviewer for Authenticators {
    fn review(&self, token: &str, _audiences: &[String]) -> Result<Option<(UserInfo, Vec<String>)>, String> {
        let Some(issuer) = untrusted_issuer(token) else { return Ok(None) };
        let current = self.current();
        let Some(authenticator) = current.iter().find(|one| one.issuer() == issuer) else { return Ok(None) };
        // Other requests, perhaps of the issuer that is asked for keys, go on in other threads meanwhile.
        let user = tokio::task::block_in_place(|| Handle::current().block_on(authenticator.user(token)))?;
        Ok(Some((user, Vec::new())))
    }
}
