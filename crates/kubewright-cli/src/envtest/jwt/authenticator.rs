//! The users of the tokens of one issuer.

use kubewright_apimachinery::clock::SharedClock;
use kubewright_cluster::UserInfo;

use super::{client::Client, config::JwtConfig, key::Algorithm, mapping::Mappings, provider::Provider, token::Token};

/// Identifies the users of the tokens of one issuer.
pub(super) struct Authenticator {
    issuer: String,
    audiences: Vec<String>,
    algorithms: Vec<Algorithm>,
    provider: Provider,
    mappings: Mappings,
    clock: SharedClock,
}

impl Authenticator {
    /// Returns the authenticator of a valid configuration.
    ///
    /// # Errors
    /// If the certificates of the issuer's authority can't be used.
    pub(super) fn new(config: &JwtConfig, algorithms: &[Algorithm], clock: &SharedClock) -> Result<Self, String> {
        let issuer = &config.issuer;
        let client = Client::new(&issuer.certificate_authority, clock)?;
        Ok(Self {
            issuer: issuer.url.clone(),
            audiences: issuer.audiences.clone(),
            algorithms: algorithms.to_vec(),
            provider: Provider::new(&issuer.url, &issuer.discovery_url, client, clock),
            mappings: Mappings::new(config),
            clock: clock.clone(),
        })
    }

    /// Returns the URL of the issuer, which its tokens name.
    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the issuer.
    pub(super) fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns the user of a token that names the issuer.
    ///
    /// # Errors
    /// Returns kube-apiserver's message if the token isn't valid, or has no user.
    pub(super) async fn user(&self, token: &str) -> Result<UserInfo, String> {
        if !self.provider.is_known() {
            return Err("oidc: authenticator not initialized".to_owned());
        }
        let token = self.verified(token).await.map_err(|why| format!("oidc: verify token: {why}"))?;
        self.mappings.user(&token.claims).await
    }

    async fn verified<'t>(&self, token: &'t str) -> Result<Token<'t>, String> {
        let token = Token::parse(token)?;
        let algorithm = token.check(&self.audiences, self.clock.now(), &self.algorithms)?;
        self.provider.verify(&token, algorithm).await?;
        token.check_audiences(&self.audiences)?;
        Ok(token)
    }
}
