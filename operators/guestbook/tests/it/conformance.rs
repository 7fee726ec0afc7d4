//! The conformance tests.

use guestbook_operator::api::v1::Guestbook;
use k8s_openapi::api::core::v1::Pod;
use kubewright::{
    prelude::*,
    simulation::{World, conformance::Subject, conformance_tests},
};

use crate::fixtures::book;

/// A Guestbook of three pods, one of them active.
struct Three;

impl Subject for Three {
    type Child = Pod;
    type Resource = Guestbook;

    const CHILDREN: usize = 3;
    const NAME: &'static str = "book";
    const PREREQUISITES: &'static str =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: words}, data: {title: Ours}}";
    const REFUSED: &'static str = "PodRefused";

    fn register(manager: Manager) -> Manager {
        guestbook_operator::register(manager)
    }

    fn sample() -> Guestbook {
        book(3)
    }

    fn is_settled(world: &World) -> bool {
        let status = world.get::<Guestbook>(Self::NAME).and_then(|book| book.status).unwrap_or_default();
        status.ready_replicas == 3 && status.standby.len() == 2 && !status.active.is_empty()
    }
}

conformance_tests!(Three);
