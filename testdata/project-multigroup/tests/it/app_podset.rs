//! Tests of the controller of `PodSet`.

use kubewright::{object::KindName, prelude::*};

use crate::start;
use podset_operator::api::app::v1alpha1::PodSet;

#[tokio::test]
async fn the_controller_is_registered() -> anyhow::Result<()> {
    let cluster = start(Vec::new()).await?;
    let manager = Manager::new(cluster.client());
    let operator = ::project_multigroup::register(manager).describe();
    let kind = KindName::of::<PodSet>();
    let mut uses = operator.controllers.iter().flat_map(|it| &it.uses);
    assert!(uses.any(|used| used.kind == kind));
    cluster.shutdown().await;
    Ok(())
}
