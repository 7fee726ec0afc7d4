//! The webhooks as the API server calls them over TLS, in real time.

use std::{fs, net::SocketAddr, process::Stdio};

use cronjob_operator::api::v1::{ConcurrencyPolicy, CronJob};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use kubewright::simulation::env::{TestEnv, eventually};
use kubewright::{prelude::Manager, webhook::WebhookServer};
use serde_json::{Value, json};
use tokio::{process::Command, sync::oneshot, task::JoinHandle};

use crate::fixtures::{DAILY, cronjob, env};

struct Scene {
    env: TestEnv,
    stop: oneshot::Sender<()>,
    manager: JoinHandle<()>,
}

impl Scene {
    async fn new() -> Self {
        Self::on(env().await).await
    }

    /// Starts the operator, and waits until its webhooks answer.
    async fn on(env: TestEnv) -> Self {
        let manager = Manager::new(env.client()).clock(env.clock.clone());
        let manager = cronjob_operator::register(manager).webhook_server(WebhookServer::local().name("cronjob"));
        let (stop, stopped) = oneshot::channel::<()>();
        let manager = tokio::spawn(async move { manager.run_until(async { drop(stopped.await) }).await.unwrap() });
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(env.client());
        eventually("the webhooks are installed", async || {
            configurations.get_opt("cronjob-validating-webhook-configuration").await.unwrap().is_some()
        })
        .await;
        Self { env, stop, manager }
    }

    /// Returns the code, message and fields of the causes.
    fn refusal(result: kube::Result<CronJob>) -> (u16, String, Vec<String>) {
        match result.expect_err("it is refused") {
            kube::Error::Api(status) => {
                let causes = status.details.map(|details| details.causes).unwrap_or_default();
                (status.code, status.message, causes.into_iter().map(|cause| cause.field).collect())
            }
            error => panic!("{error}"),
        }
    }

    async fn create(&self, name: &str, schedule: &str) -> kube::Result<CronJob> {
        let mut made = cronjob(schedule);
        made.metadata.name = Some(name.into());
        self.env.api().create(&PostParams::default(), &made).await
    }

    async fn edit(&self, name: &str, patch: Value) -> kube::Result<CronJob> {
        self.env.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    async fn end(self) {
        drop(self.stop);
        self.manager.await.unwrap();
    }
}

#[tokio::test]
async fn missing_fields_are_stored_with_their_defaults() {
    let scene = Scene::new().await;
    let spec = scene.create("c", DAILY).await.unwrap().spec;
    assert_eq!((spec.concurrency_policy, spec.suspend), (Some(ConcurrencyPolicy::Allow), Some(false)));
    assert_eq!((spec.successful_jobs_history_limit, spec.failed_jobs_history_limit), (Some(3), Some(1)));
    // The type has no fields for the content of the template, which is stored as sent.
    assert_eq!(spec.job_template, cronjob(DAILY).spec.job_template);
    // A removed value is replaced by its default.
    let spec = scene.edit("c", json!({"spec": {"failedJobsHistoryLimit": null, "suspend": true}})).await.unwrap().spec;
    assert_eq!((spec.failed_jobs_history_limit, spec.suspend), (Some(1), Some(true)));
    scene.end().await;
}

#[tokio::test]
async fn a_name_of_53_characters_is_refused_and_one_of_52_is_not() {
    let scene = Scene::new().await;
    scene.create(&"x".repeat(52), DAILY).await.unwrap();
    let (code, message, fields) = Scene::refusal(scene.create(&"x".repeat(53), DAILY).await);
    assert_eq!((code, fields), (422, vec!["metadata.name".to_owned()]));
    assert!(message.contains("must be no more than 52 characters"), "{message}");
    scene.end().await;
}

#[tokio::test]
async fn bad_input_is_refused_with_all_causes_at_once() {
    let scene = Scene::new().await;
    let (code, message, fields) = Scene::refusal(scene.create(&"x".repeat(53), "* * * * * *").await);
    assert_eq!((code, fields), (422, vec!["spec.schedule".to_owned(), "metadata.name".to_owned()]));
    let expected = format!(
        "CronJob.batch.tutorial.kubebuilder.io \"{0}\" is invalid: [spec.schedule: Invalid value: \"* * * * * *\": expected \
         5 fields (minute, hour, day of month, month, day of week), found 6, metadata.name: Invalid value: \"{0}\": must be \
         no more than 52 characters]",
        "x".repeat(53)
    );
    assert!(message.ends_with(&expected), "{message}");
    for schedule in ["60 * * * *", "* * * * 8", "@every 0s", "TZ=Nowhere * * * * *", "", &"*".repeat(100_000)] {
        let (code, message, fields) = Scene::refusal(scene.create("c", schedule).await);
        assert_eq!((code, fields), (422, vec!["spec.schedule".to_owned()]));
        assert!(message.len() < 2000, "{} bytes", message.len());
    }
    scene.end().await;
}

#[tokio::test]
async fn a_bad_update_is_refused_and_a_deletion_is_not() {
    let scene = Scene::new().await;
    scene.create("c", DAILY).await.unwrap();
    let (code, message, _) = Scene::refusal(scene.edit("c", json!({"spec": {"schedule": "tomorrow"}})).await);
    assert_eq!(code, 422, "{message}");
    let (_, message, fields) = Scene::refusal(scene.edit("c", json!({"spec": {"timeZone": "Nowhere"}})).await);
    assert_eq!(fields, ["spec.timeZone"], "{message}");
    scene.edit("c", json!({"spec": {"timeZone": "Europe/Berlin"}})).await.unwrap();
    scene.env.api::<CronJob>().delete("c", &DeleteParams::default()).await.unwrap();
    scene.end().await;
}

/// An invalid object that was stored without webhooks can be labelled and deleted, also in the foreground, but not made
/// worse.
#[tokio::test]
async fn an_object_that_was_invalid_before_can_be_edited_and_released() {
    let env = env().await;
    let name = "x".repeat(53);
    let mut wrong = cronjob("tomorrow");
    wrong.metadata.name = Some(name.clone());
    wrong.metadata.finalizers = Some(vec!["example.com/held".into()]);
    env.create(wrong).await;
    let scene = Scene::on(env).await;
    scene.edit(&name, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    assert_eq!(Scene::refusal(scene.edit(&name, json!({"spec": {"schedule": "never"}})).await).2.len(), 2);
    scene.env.api::<CronJob>().delete(&name, &DeleteParams::foreground()).await.unwrap();
    scene.edit(&name, json!({"metadata": {"finalizers": null}})).await.unwrap();
    scene.end().await;
}

#[tokio::test]
async fn kubectl_apply_prints_both_causes_and_the_warnings() {
    let scene = Scene::new().await;
    let endpoint = scene.env.cluster.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kubeconfig"), endpoint.kubeconfig()).unwrap();
    let apply = async |name: &str, schedule: &str| {
        let mut manifest = cronjob(schedule);
        manifest.metadata.name = Some(name.into());
        let file = folder.path().join("cronjob.yaml");
        fs::write(&file, serde_saphyr::to_string(&manifest).unwrap()).unwrap();
        let mut kubectl = Command::new("kubectl");
        kubectl.args(["apply", "-f"]).arg(file).env("KUBECONFIG", folder.path().join("kubeconfig"));
        // A separate HOME keeps the discovery caches of tests apart.
        let output = kubectl.env("HOME", folder.path()).stdin(Stdio::null()).kill_on_drop(true).output();
        let output = output.await.expect("kubectl runs (cargo xtask test installs it)");
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (succeeded, reported) = apply(&"x".repeat(53), "* * * * * *").await;
    assert!(!succeeded, "{reported}");
    for cause in
        ["spec.schedule: Invalid value: ", "expected 5 fields", "metadata.name: ", "no more than 52 characters"]
    {
        assert!(reported.contains(cause), "{cause} is missing in\n{reported}");
    }
    let (succeeded, reported) = apply("never", "0 0 30 2 *").await;
    assert!(succeeded, "{reported}");
    assert!(reported.contains("Warning: spec.schedule: no date satisfies \"0 0 30 2 *\""), "{reported}");
    scene.end().await;
}
