//! The conformance tests.

use k8s_openapi::api::apps::v1::Deployment;
use kubewright::{
    prelude::*,
    simulation::{World, conformance::Subject, conformance_tests},
};
use lolcow_operator::api::v1alpha1::Lolcow;

use crate::{
    fixtures::{GREETING, NAME, cow},
    lolcow_simulation::is_ready,
};

/// A Lolcow whose port the API server chooses, so that there can be several.
struct Cow;

impl Subject for Cow {
    type Child = Deployment;
    type Resource = Lolcow;

    const AT_MOST_ONCE: bool = true;
    const CHILDREN: usize = 1;
    const NAME: &'static str = NAME;
    const REFUSED: &'static str = "DeploymentRefused";

    fn register(manager: Manager) -> Manager {
        lolcow_operator::register(manager)
    }

    fn sample() -> Lolcow {
        cow(None, Some(GREETING))
    }

    fn is_settled(world: &World) -> bool {
        is_ready(world, NAME)
    }
}

conformance_tests!(Cow);
