//! Where a lease is read and written: the requests of everything here that keeps one, and what is told of them.

use std::{fmt::Display, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Error, api::PostParams};
use kubewright_apimachinery::{clock::SharedClock, random::Random};
use tokio::time::timeout;

use super::{
    LeaderOptions,
    candidate::{Action, Candidate},
};
use crate::client::{advice, explain};

/// The most that is added to a wait, as a part of it.
const JITTER: f64 = 0.2;

/// Why a try to get or keep the lease came to nothing.
pub(crate) struct Setback {
    why: String,
    /// Whether something is wrong, and not just another faster.
    is_trouble: bool,
}

impl Setback {
    pub(crate) fn new(what: &str, error: &Error) -> Self {
        match error {
            Error::Api(status) if status.code == 409 => {
                Self { why: "another candidate was faster".into(), is_trouble: false }
            }
            error => {
                let advice = advice(error, "get, create and update on leases, and with sharding list and delete");
                let advice =
                    advice.filter(|_| !is_missing(error)).map(|advice| format!(": {advice}")).unwrap_or_default();
                Self { why: format!("{what}: {}{advice}", explain(error)), is_trouble: true }
            }
        }
    }

    pub(crate) fn trouble(why: &str) -> Self {
        Self { why: why.into(), is_trouble: true }
    }

    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    pub(crate) fn no_answer(limit: Duration) -> Self {
        Self { why: format!("no answer within {limit:?}"), is_trouble: true }
    }
}

/// Whether the namespace isn't there: no definition is missing then.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// See the [module](self).
pub(crate) struct Desk {
    /// What is told begins with this.
    what: &'static str,
    leases: Api<Lease>,
    namespace: String,
    name: String,
    clock: SharedClock,
    random: Random,
    /// What was told last, so that it isn't told every two seconds.
    told: String,
}

impl Desk {
    pub(crate) fn new(
        what: &'static str,
        client: Client,
        options: &LeaderOptions,
        clock: SharedClock,
        random: Random,
    ) -> Self {
        let LeaderOptions { namespace, name, .. } = options;
        let leases = Api::namespaced(client, namespace);
        Self { what, leases, namespace: namespace.clone(), name: name.clone(), clock, random, told: String::new() }
    }

    pub(crate) fn leases(&self) -> &Api<Lease> {
        &self.leases
    }

    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.now()
    }

    /// How long the candidate may yet believe to hold the lease.
    pub(crate) fn remaining(&self, candidate: &Candidate) -> Option<Duration> {
        let remaining = candidate.fence()?.saturating_sub(self.monotonic());
        (!remaining.is_zero()).then_some(remaining)
    }

    pub(crate) async fn read(&self) -> Result<Option<Lease>, Setback> {
        self.leases.get_opt(&self.name).await.map_err(|error| Setback::new("can't read the lease", &error))
    }

    /// Does what was decided; returns the lease that was written.
    pub(crate) async fn write(&self, action: Action) -> Result<Option<Lease>, Setback> {
        let parameters = PostParams::default();
        let written = match action {
            Action::Wait => return Ok(None),
            Action::Create(lease) => self.leases.create(&parameters, &lease).await,
            Action::Update(lease) => self.leases.replace(&self.name, &parameters, &lease).await,
        };
        written.map(Some).map_err(|error| Setback::new("can't write the lease", &error))
    }

    /// How long to wait before the next try.
    pub(crate) fn pause(&self, period: Duration) -> Duration {
        period.mul_f64(1.0 + JITTER * self.random.fraction())
    }

    /// Gives the lease up, if it is the candidate's, as long as it may believe that it is.
    pub(crate) async fn release(&self, candidate: &mut Candidate) {
        let Some(limit) = self.remaining(candidate) else { return };
        let done = timeout(limit, async {
            // A renewal that was cut off may have taken effect: then the lease is another than we know.
            while let Some(lease) = candidate.release(self.wall()) {
                match self.leases.replace(&self.name, &PostParams::default(), &lease).await {
                    Err(Error::Api(status)) if status.reason == "Conflict" => {
                        let lease = self.leases.get_opt(&self.name).await?;
                        candidate.observe(lease, self.monotonic());
                    }
                    result => return result.map(drop),
                }
            }
            Ok(())
        });
        let (what, lease) = (self.what, self.lease());
        match done.await {
            Ok(Ok(())) => tracing::info!(lease, "{what}: the lease is released"),
            Ok(Err(error)) => {
                tracing::warn!(lease, error = explain(&error), "{what}: the lease is not released but left to expire")
            }
            Err(_) => tracing::warn!(lease, "{what}: the lease is not released but left to expire"),
        }
    }

    pub(crate) fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Tells something, once.
    pub(crate) fn tell(&mut self, news: impl Display) {
        if self.is_news(&news) {
            tracing::info!(lease = self.lease(), "{}: {news}", self.what);
        }
    }

    /// Tells why something didn't work, once.
    pub(crate) fn complain(&mut self, Setback { why, is_trouble }: Setback) {
        match is_trouble {
            true if self.is_news(&why) => {
                tracing::warn!(lease = self.lease(), "{}: {why}; trying again", self.what);
            }
            true => {}
            false => self.tell(why),
        }
    }

    fn is_news(&mut self, news: &impl Display) -> bool {
        let news = news.to_string();
        let is_news = news != self.told;
        self.told = news;
        is_news
    }
}
