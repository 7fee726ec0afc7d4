//! Kinds known only at run time: each definition with a label gets a controller, which goes with it.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kubewright::{
    manager::{Controllers, ManagerError},
    prelude::*,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::{cluster, start, until};

const LABEL: &str = "tour.kubewright.dev/reconciled";

/// Adds and removes controllers as definitions come and go.
struct Definitions {
    controllers: Controllers,
    brewer: Brewer,
}

impl Reconciler<CustomResourceDefinition> for Definitions {
    const FINALIZER: Option<&'static str> = Some("tour.kubewright.dev/controller");

    type Error = ManagerError;

    async fn reconcile(
        &self,
        definition: &CustomResourceDefinition,
        ctx: &Context<CustomResourceDefinition>,
    ) -> Result<Action, ManagerError> {
        let name = ctx.key().name();
        if definition.labels().contains_key(LABEL) && !self.controllers.contains(name) {
            let spec = &definition.spec;
            let kind = GroupVersionKind::gvk(&spec.group, &spec.versions[0].name, &spec.names.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
            let controller = Controller::<DynamicObject>::new_with(self.brewer.clone(), resource);
            self.controllers.add(controller.name(name)).await?;
        }
        Ok(Action::await_change())
    }

    async fn cleanup(
        &self,
        _: &CustomResourceDefinition,
        ctx: &Context<CustomResourceDefinition>,
    ) -> Result<Action, ManagerError> {
        // Its queue, watches, cached objects and metrics go with it.
        self.controllers.remove(ctx.key().name()).await;
        Ok(Action::await_change())
    }
}

/// Reconciles objects of any kind.
#[derive(Clone, Default)]
struct Brewer(Arc<Mutex<Vec<String>>>);

impl Reconciler<DynamicObject> for Brewer {
    type Error = ClientError;

    async fn reconcile(&self, drink: &DynamicObject, ctx: &Context<DynamicObject>) -> Result<Action, ClientError> {
        ctx.set_dynamic_status(json!({"is": drink.data["spec"]["wants"]})).await?;
        self.0.lock().push(drink.name_any());
        Ok(Action::await_change())
    }
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let manager = Manager::new(cluster.client());
    let (controllers, brewer) = (manager.controllers(), Brewer::default());
    let definitions = Definitions { controllers: controllers.clone(), brewer: brewer.clone() };
    let manager = start(manager.controller(Controller::<CustomResourceDefinition>::new(definitions)));

    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
    });
    let teas = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "teas.tour.kubewright.dev", "labels": {LABEL: "yes"}},
        "spec": {
            "group": "tour.kubewright.dev", "scope": "Namespaced", "names": {"kind": "Tea", "plural": "teas"}, "versions": [version],
        },
    });
    cluster.apply_yaml(&teas.to_string()).await?;
    until("the kind has a controller", async || controllers.names() == ["teas.tour.kubewright.dev"]).await?;
    cluster
        .apply_yaml("{apiVersion: tour.kubewright.dev/v1, kind: Tea, metadata: {name: assam}, spec: {wants: milk}}")
        .await?;
    until("the tea is reconciled", async || brewer.0.lock().contains(&"assam".to_owned())).await?;

    let definitions: kube::Api<CustomResourceDefinition> = kube::Api::all(cluster.client());
    definitions.delete("teas.tour.kubewright.dev", &Default::default()).await?;
    until("the controller is gone", async || controllers.names().is_empty()).await?;
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}
