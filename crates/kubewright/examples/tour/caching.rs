//! Options of the cache: label selectors, dropped fields, metadata only, and a kind that is known only at run time and
//! is defined later.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    api::{ApiResource, PartialObjectMeta},
    core::{Expression, GroupVersionKind},
};
use kubewright::{
    cache::{CacheOptions, KindOptions},
    prelude::*,
};
use parking_lot::Mutex;

use crate::{Greeting, cluster, greet, start, until};

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.tour.kubewright.dev}
spec:
  group: tour.kubewright.dev
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("tour.kubewright.dev", "v1", "Widget"))
}

/// Records what it reads.
#[derive(Clone, Default)]
struct Reader(Arc<Mutex<Option<String>>>);

impl Reconciler<Greeting> for Reader {
    type Error = ClientError;

    async fn reconcile(&self, _: &Greeting, ctx: &Context<Greeting>) -> Result<Action, ClientError> {
        let maps = ctx.list::<ConfigMap>(&Default::default())?;
        let maps = maps.iter().flat_map(|map| map.data.iter().flatten().map(|(key, value)| format!("{key}={value}")));
        // The API server sends only their metadata.
        let secrets = ctx.list::<PartialObjectMeta<Secret>>(&Default::default())?;
        let widgets = ctx.dynamic(&widgets()).cached()?.list(ctx.key().namespace(), &Default::default());
        let colours =
            widgets.iter().map(|widget| widget.data["spec"]["colour"].as_str().unwrap_or_default().to_owned());
        let found = [maps.collect(), secrets.iter().map(|it| it.name_any()).collect(), colours.collect::<Vec<_>>()];
        *self.0.lock() = Some(found.map(|names: Vec<String>| names.join(",")).join(" "));
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let ours = Expression::Equal("tour".into(), "yes".into());
    // ANCHOR: options
    let options = CacheOptions::new()
        .kind::<ConfigMap>(KindOptions::new().labels(ours.clone().into()).without(["data", "ballast"]))
        .kind::<Secret>(KindOptions::new().labels(ours.into()));
    // ANCHOR_END: options
    let reader = Reader::default();
    let wake = |key: &ObjectKey| vec![key.sibling("hello")];
    let controller = Controller::<Greeting>::new(reader.clone())
        .reads::<ConfigMap>()
        .watches(move |secret: &PartialObjectMeta<Secret>, _| wake(&ObjectKey::of(secret)))
        .dynamic(&widgets(), |kind| kind.watches(move |widget, _| wake(&ObjectKey::of(widget))));
    let manager = start(Manager::new(cluster.client()).cache(options).controller(controller));
    cluster
        .apply_yaml(
            "
{apiVersion: v1, kind: ConfigMap, metadata: {name: ours, labels: {tour: 'yes'}}, data: {tone: warm, ballast: much}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs}, data: {tone: cold}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, labels: {tour: 'yes'}}, stringData: {key: hidden}}",
        )
        .await?;
    greet(&cluster, &["ada"]).await?;

    // `/readyz` names the missing kind, and the controller waits for it.
    anyhow::ensure!(reader.0.lock().is_none(), "nothing runs on half of what it reads");
    cluster.apply_yaml(WIDGETS).await?;
    until("it begins when widgets are known", async || reader.0.lock().is_some()).await?;
    let widget = "{apiVersion: tour.kubewright.dev/v1, kind: Widget, metadata: {name: w}, spec: {colour: red}}";
    until("a widget is accepted", async || cluster.apply_yaml(widget).await.is_ok()).await?;
    let found = || reader.0.lock().clone().unwrap_or_default();
    until("a widget wakes it", async || found() == "tone=warm key red").await?;
    println!("  config map, secret and widget as they are cached: {}", found());
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
