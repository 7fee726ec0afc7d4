//! Migration by the cluster: a StorageVersionMigration, which its controller manager executes
//! (<https://kubernetes.io/docs/tasks/manage-kubernetes-objects/storage-version-migration/>).

use std::time::Duration;

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

pub(super) const GROUP: &str = "storagemigration.k8s.io";
pub(super) const PLURAL: &str = "storageversionmigrations";
/// The versions of the group whose objects name a resource by group and plural.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// How long the cluster may take to begin. Its API server may have the kind without a controller that executes it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval at which the status is read.
const INTERVAL: Duration = Duration::from_secs(2);

/// The migration of a kind by the cluster.
pub(super) struct ClusterMigration {
    api: Api<DynamicObject>,
    resource: ApiResource,
    name: String,
}

/// The end of a migration by the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All objects are stored in the storage version.
    Succeeded,
    /// The cluster doesn't execute it, or it failed, with the reason. Objects may be stored in older versions.
    Failed(String),
}

impl ClusterMigration {
    /// Returns the migration of the kind of a definition of this generation, if the cluster has
    /// StorageVersionMigrations, and the client may see it.
    pub(super) async fn of(client: &Client, definition: &str, generation: i64) -> Option<Self> {
        let request = Request::get(format!("/apis/{GROUP}")).body(Vec::new()).ok()?;
        // Whatever the reason is, the objects can be written without the cluster.
        let group = client.request::<APIGroup>(request).await.ok()?;
        let version = VERSIONS.into_iter().find(|version| group.versions.iter().any(|it| it.version == *version))?;
        let kind = GroupVersionKind::gvk(GROUP, version, "StorageVersionMigration");
        let resource = ApiResource::from_gvk_with_plural(&kind, PLURAL);
        let api = Api::all_with(client.clone(), &resource);
        Some(Self { api, resource, name: format!("kubewright-{definition}-{generation}") })
    }

    /// Creates the StorageVersionMigration, unless an earlier run has, waits until it has ended, and deletes it.
    pub(super) async fn run(&self, plural: &str, group: &str) -> Ended {
        let body = json!({"spec": {"resource": {"group": group, "resource": plural}}});
        let migration = DynamicObject::new(&self.name, &self.resource).data(body);
        match self.api.create(&PostParams::default(), &migration).await {
            Ok(_) => tracing::info!(migration = self.name, "the cluster migrates the objects"),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                tracing::info!(migration = self.name, "the cluster already migrates the objects");
            }
            Err(error) => return Ended::Failed(format!("can't create it: {error}")),
        }
        let ended = self.wait().await;
        if let Err(error) = self.api.delete(&self.name, &DeleteParams::default()).await {
            tracing::warn!(migration = self.name, %error, "failed to delete the StorageVersionMigration");
        }
        ended
    }

    async fn wait(&self) -> Ended {
        let mut waiting = Waiting::default();
        loop {
            let read = self.api.get(&self.name).await.map(|migration| migration.data["status"].clone());
            if let Err(error) = &read {
                tracing::debug!(migration = self.name, %error, "failed to read the StorageVersionMigration");
            }
            if let Some(ended) = waiting.observe(read) {
                return ended;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// What is known of a migration that is awaited.
#[derive(Debug, Default)]
struct Waiting {
    has_begun: bool,
    /// How long it was seen not to have begun.
    waited: Duration,
}

impl Waiting {
    /// Takes what an attempt to read the status gave. Returns how the migration has ended, if it has.
    fn observe(&mut self, read: Result<Value, kube::Error>) -> Option<Ended> {
        let status = match read {
            Ok(status) => status,
            Err(kube::Error::Api(status)) if status.code == 404 => return Some(Ended::Failed("it was deleted".into())),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                return Some(Ended::Failed(format!("can't read it: {}", status.message)));
            }
            // The API server may be away for a while, in which the migration neither begins nor ends.
            Err(_) => return None,
        };
        if let Some(ended) = outcome(&status) {
            return Some(ended);
        }
        self.has_begun |= has_begun(&status);
        if self.has_begun {
            return None;
        }
        if self.waited >= PATIENCE {
            return Some(Ended::Failed(format!("no controller has begun it in {} seconds", PATIENCE.as_secs())));
        }
        self.waited += INTERVAL;
        None
    }
}

fn has_begun(status: &Value) -> bool {
    let is_set = |field: &str| status[field].as_str().is_some_and(|text| !text.is_empty());
    is_set("resourceVersion") || status["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty())
}

/// Returns how a migration has ended, if it has.
fn outcome(status: &Value) -> Option<Ended> {
    let conditions = status["conditions"].as_array()?;
    let condition = |name: &str| conditions.iter().find(|it| it["type"] == name && it["status"] == "True");
    if condition("Succeeded").is_some() {
        return Some(Ended::Succeeded);
    }
    let failed = condition("Failed")?;
    let text = |field: &str| failed[field].as_str().unwrap_or_default();
    let reason = if text("message").is_empty() { text("reason") } else { text("message") };
    Some(Ended::Failed(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> kube::Error {
        let status = json!({"status": "Failure", "message": "refused", "reason": "", "code": code});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_migration_that_has_begun_is_awaited_through_an_outage() {
        let running = || Ok(json!({"conditions": [{"type": "Running", "status": "True"}]}));
        let mut waiting = Waiting::default();
        assert_eq!(waiting.observe(running()), None);
        for _ in 0..1000 {
            assert_eq!(waiting.observe(Err(refused(503))), None);
        }
        assert_eq!(waiting.observe(Ok(Value::Null)), None);
        assert_eq!(waiting.observe(running()), None);
    }

    #[test]
    fn a_migration_that_nobody_begins_or_that_cannot_be_read_fails() {
        let mut waiting = Waiting::default();
        let ended = (0..1000).find_map(|_| waiting.observe(Ok(Value::Null)));
        assert_eq!(ended, Some(Ended::Failed("no controller has begun it in 60 seconds".into())));
        for (code, reason) in
            [(403, "can't read it: refused"), (401, "can't read it: refused"), (404, "it was deleted")]
        {
            assert_eq!(Waiting::default().observe(Err(refused(code))), Some(Ended::Failed(reason.into())), "{code}");
        }
    }

    #[test]
    fn conditions_tell_the_end() {
        let status = |conditions: Value| json!({"conditions": conditions});
        assert_eq!(outcome(&Value::Null), None);
        let running = status(json!([{"type": "Running", "status": "True"}]));
        assert_eq!((outcome(&running), has_begun(&running)), (None, true));
        assert!(!has_begun(&status(json!([]))) && has_begun(&json!({"resourceVersion": "7"})));
        let succeeded = json!([{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}]);
        assert_eq!(outcome(&status(succeeded)), Some(Ended::Succeeded));
        let failed = json!([{"type": "Failed", "status": "True", "reason": "R", "message": "no such kind"}]);
        assert_eq!(outcome(&status(failed)), Some(Ended::Failed("no such kind".into())));
    }
}
