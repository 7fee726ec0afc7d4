//! Three versions of a kind: a round trip through each loses nothing, and at the end all objects are stored in the
//! newest.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, core::crd::merge_crds};
use kubewright::{
    client::{Client, KindClient},
    conversion::{Migrator, keep, take},
    prelude::*,
    webhook::WebhookServer,
};
use kubewright_cluster::{Cluster, Pods};

use crate::{start, until};

/// The hub.
mod v2 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    // ANCHOR: hub
    #[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "tour.kubewright.dev", version = "v2", kind = "Card", namespaced)]
    pub(crate) struct CardSpec {
        pub(crate) to: String,
        pub(crate) width: u16,
        pub(crate) height: u16,
        #[serde(default)]
        pub(crate) paper: Paper,
        #[serde(default)]
        pub(crate) stamps: Vec<String>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Paper {
        pub(crate) colour: String,
        pub(crate) grams: u16,
    }
    // ANCHOR_END: hub
}

/// A spoke with a derived conversion.
mod v1 {
    use kube::CustomResource;
    use kubewright::conversion::Convert;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::{size, v2};

    // ANCHOR: spoke
    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Convert)]
    #[kube(group = "tour.kubewright.dev", version = "v1", kind = "Card", namespaced)]
    #[convert(hub = v2::CardSpec, kind = Card, hub_kind = v2::Card, hub_only(stamps))]
    pub(crate) struct CardSpec {
        #[convert(renamed = "to")]
        pub(crate) name: String,
        #[convert(split(width, height), with = size)]
        pub(crate) size: String,
        #[serde(default)]
        #[convert(moved = "paper.colour")]
        pub(crate) colour: String,
        #[serde(default)]
        #[convert(default)]
        pub(crate) glitter: bool,
    }
    // ANCHOR_END: spoke
}

// ANCHOR: with
/// Converts `30x20` to a width and a height.
mod size {
    use super::ConversionError;

    pub(super) fn to(size: String) -> Result<(u16, u16), ConversionError> {
        let (width, height) = size.split_once('x').ok_or("use <width>x<height>")?;
        Ok((width.parse()?, height.parse()?))
    }

    pub(super) fn from((width, height): (u16, u16)) -> Result<String, ConversionError> {
        Ok(format!("{width}x{height}"))
    }
}
// ANCHOR_END: with

/// A spoke with a conversion written by hand.
mod v1alpha1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "tour.kubewright.dev", version = "v1alpha1", kind = "Card", namespaced)]
    pub(crate) struct CardSpec {
        /// `Ada, 30x20`
        pub(crate) card: String,
    }
}

// ANCHOR: by_hand
impl Convertible for v1alpha1::Card {
    type Hub = v2::Card;

    fn convert_to(mut self) -> Result<v2::Card, ConversionError> {
        let (to, size) = self.spec.card.rsplit_once(", ").ok_or("spec.card: use <name>, <width>x<height>")?;
        let (width, height) = size::to(size.into())?;
        // What this version can't say, as it was.
        let kept: v2::CardSpec = take(&mut self.metadata, "v2").unwrap_or_default();
        let spec = v2::CardSpec { to: to.into(), width, height, ..kept };
        Ok(v2::Card { metadata: self.metadata, spec })
    }

    fn convert_from(mut hub: v2::Card) -> Result<Self, ConversionError> {
        keep(&mut hub.metadata, "v2", &hub.spec)?;
        let v2::CardSpec { to, width, height, .. } = hub.spec;
        Ok(Self { metadata: hub.metadata, spec: v1alpha1::CardSpec { card: format!("{to}, {width}x{height}") } })
    }
}
// ANCHOR_END: by_hand

fn operator(manager: Manager) -> Manager {
    // ANCHOR: register
    let cards = Hub::<v2::Card>::new().spoke::<v1::Card>().spoke::<v1alpha1::Card>();
    manager.conversion(cards)
    // ANCHOR_END: register
}

/// The definition of all versions, of which this one is stored.
fn definition(stored: &str) -> anyhow::Result<CustomResourceDefinition> {
    Ok(merge_crds(vec![v1alpha1::Card::crd(), v1::Card::crd(), v2::Card::crd()], stored)?)
}

/// The card, in a version.
async fn card<K: Object>(cards: &KindClient<K>) -> anyhow::Result<K> {
    let card = cards.get(&ObjectKey::cluster("card")).await?;
    card.ok_or_else(|| anyhow::anyhow!("the card is there"))
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let cluster = Cluster::builder().pods(Pods::Simulate).start().await?;
    cluster.install([definition("v1")?]).await?;
    let manager = Manager::new(cluster.client()).webhook_server(WebhookServer::local());
    let manager = start(operator(manager));
    let client = Client::new(cluster.client()).namespace("default");
    let definitions = Client::new(cluster.client()).kind::<CustomResourceDefinition>();
    let name = ObjectKey::cluster("cards.tour.kubewright.dev");
    let is_converted = |definition: CustomResourceDefinition| Some(definition.spec.conversion?.strategy == "Webhook");
    let asked = async || definitions.get(&name).await.ok().flatten().and_then(is_converted) == Some(true);
    until("the webhook is asked", asked).await?;

    let paper = v2::Paper { colour: "red".into(), grams: 90 };
    let spec = v2::CardSpec { to: "Ada".into(), width: 30, height: 20, paper, stamps: vec!["a bee".into()] };
    let (first, second) = (client.kind::<v1::Card>(), client.kind::<v2::Card>());
    second.create(&v2::Card::new("card", spec.clone())).await?;
    let mut shown = card(&first).await?;
    anyhow::ensure!(shown.spec.name == "Ada" && shown.spec.size == "30x20" && shown.spec.colour == "red");
    shown.spec.colour = "blue".into();
    first.update(&shown).await?;
    let paper = v2::Paper { colour: "blue".into(), grams: 90 };
    let spec = v2::CardSpec { paper, ..spec };
    anyhow::ensure!(card(&second).await?.spec == spec, "what v1 can't say is as it was");
    anyhow::ensure!(card(&client.kind::<v1alpha1::Card>()).await?.spec.card == "Ada, 30x20");

    cluster.install([definition("v2")?]).await?;
    // ANCHOR: migrate
    let migrated = Migrator::of::<v2::Card>().run(&cluster.client()).await?;
    println!("  {} objects are stored as {}", migrated.objects, migrated.version);
    // ANCHOR_END: migrate
    anyhow::ensure!(migrated.objects == 1 && migrated.removed == ["v1"], "the old version may go");
    anyhow::ensure!(card(&second).await?.spec == spec);
    manager.stop().await?;
    cluster.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the version that is converted by hand: what is derived has its own.
    #[test]
    fn what_was_kept_comes_back() -> anyhow::Result<()> {
        let paper = v2::Paper { colour: "red".into(), grams: 90 };
        let spec = v2::CardSpec { to: "Ada, of London".into(), width: 30, height: 20, paper, stamps: vec![] };
        let hub = v2::Card::new("card", spec);
        let again = v1alpha1::Card::convert_from(hub.clone()).and_then(Convertible::convert_to);
        let again = again.map_err(|error| anyhow::anyhow!("{error}"))?;
        anyhow::ensure!((again.metadata, again.spec) == (hub.metadata, hub.spec));
        Ok(())
    }
}
