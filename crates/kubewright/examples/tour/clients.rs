//! A client outside of a reconcile. In a reconcile `ctx.client()` is the same client, with its writes tracked.

use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v1::Scale,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, ValidationDirective},
    core::GroupVersionKind,
};
use kubewright::{
    client::{Client, Impersonation},
    prelude::*,
};
use serde_json::json;

use crate::cluster;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: busybox}]}
";

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let client = Client::new(cluster.client()).field_owner("tour").namespace("default");
    let key = ObjectKey::cluster; // the client's namespace is added

    // A kind that is known at compile time.
    let maps = client.kind::<ConfigMap>();
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a", "labels": {"tour": "yes"}}}))?;
    let mut map = maps.create(&map).await?;
    map.data = Some([("x".into(), "1".into())].into());
    let stale = map.clone();
    maps.update(&map).await?;
    anyhow::ensure!(maps.update(&stale).await.is_err_and(|error| error.is_conflict()), "it has changed meanwhile");
    maps.patch(&key("a"), &Patch::Merge(json!({"data": {"y": "2"}}))).await?;

    // A kind that is known only at run time; metadata only; a subresource.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let mut applied = DynamicObject::new("b", &resource).data(json!({"data": {"x": "1"}}));
    applied.metadata.labels = Some([("tour".into(), "yes".into())].into());
    client.dynamic(&resource).apply(&applied).await?;
    let ours = ListParams::default().labels("tour=yes").limit(1);
    anyhow::ensure!(client.metadata::<ConfigMap>().list(&ours).await?.len() == 2, "two pages of one");
    cluster.apply_yaml(WEB).await?;
    let scale = client.kind::<Deployment>().subresource("scale");
    let scaled: Scale = scale.patch(&key("web"), &Patch::Merge(json!({"spec": {"replicas": 3}}))).await?;
    anyhow::ensure!(scaled.spec.and_then(|spec| spec.replicas) == Some(3), "it is scaled");

    // Wrappers: dry run, strict field validation, an interceptor.
    client.clone().dry_run().kind::<ConfigMap>().delete(&key("a")).await?;
    anyhow::ensure!(maps.get(&key("a")).await?.is_some(), "it was only a rehearsal");
    let odd = DynamicObject::new("odd", &resource).data(json!({"dta": {}}));
    let strict = client.clone().field_validation(ValidationDirective::Strict);
    anyhow::ensure!(strict.dynamic(&resource).create(&odd).await.is_err(), "there is no field dta");
    let careful = client.clone().intercept(|next| async move {
        if next.call().verb() == Verb::Delete {
            return next.refuse(403, "Forbidden", "nothing is deleted today");
        }
        next.send().await
    });
    let refused = careful.kind::<Pod>().delete(&key("web")).await;
    anyhow::ensure!(refused.is_err_and(|error| error.is_forbidden()), "the hook has answered");

    let guest = client.clone().user_agent("tour/1").impersonate(Impersonation::user("guest"));
    let refused = guest.kind::<ConfigMap>().get(&key("a")).await;
    anyhow::ensure!(refused.is_err_and(|error| error.is_forbidden()), "the guest has no role");

    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("tour=yes")).await?;
    anyhow::ensure!(maps.get(&key("b")).await?.is_none(), "all are gone");
    cluster.shutdown().await;
    Ok(())
}
