use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::json;

use super::*;
use crate::{
    api::v1::{Alias, GuestbookSpec},
    controller::{children, config::Texts, plan::plan},
};

fn guestbook(status: Option<GuestbookStatus>) -> Guestbook {
    let spec = GuestbookSpec { size: 2, config_map_name: "words".into(), alias: Alias::Name, image: None };
    let mut guestbook = Guestbook::new("book", spec);
    guestbook.metadata.uid = Some("u-1".into());
    guestbook.metadata.generation = Some(1);
    guestbook.status = status;
    guestbook
}

/// The status with these pods, ready or not. The Service selects `a`.
fn reported(before: Option<GuestbookStatus>, config: &Config, ready: &[bool], problems: &Problems) -> GuestbookStatus {
    let guestbook = guestbook(before);
    let revision = children::revision(&guestbook, &Texts::default());
    let pods = ["a", "b", "c"].iter().zip(ready).map(|(name, ready)| {
        let mut pod: Pod = children::pod(&guestbook, &revision, None, &kubewright::random::Random::seeded(1));
        pod.metadata.name = Some((*name).into());
        pod.metadata.labels = Some(children::pod_labels(&guestbook, name));
        let status = if *ready { "True" } else { "False" };
        pod.status = serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": status}]})).unwrap();
        Arc::new(pod)
    });
    let mut service: Service = children::service(&guestbook, Some("a"));
    kubewright::owner::set_controller_reference(&guestbook, &mut service).unwrap();
    let plan = plan(&guestbook, config, Some(&service), pods.collect());
    status(&guestbook, config, &plan, problems, Timestamp::from_second(1_580_378_520).unwrap())
}

fn found() -> Config {
    Config::Found(Texts::default())
}

fn reasons(status: &GuestbookStatus) -> Vec<String> {
    status.conditions.iter().map(|it| format!("{} {} {}", it.type_, it.status, it.reason)).collect()
}

fn none() -> Problems {
    Problems::default()
}

#[test]
fn a_healthy_guestbook_is_ready() {
    let status = reported(None, &found(), &[true, true], &none());
    assert_eq!((status.active.as_str(), status.standby.as_slice(), status.ready_replicas), ("a", &["b".into()][..], 2));
    let expect = ["Ready True PodsReady", "Configured True Found", "Serving True Active", "Updated True UpToDate"];
    assert_eq!(reasons(&status), expect);
    assert_eq!(warnings(None, &status), []);
    assert_eq!(reported(Some(status.clone()), &found(), &[true, true], &none()), status);
}

#[test]
fn while_the_service_leads_to_a_pod_that_is_not_ready_none_is_active() {
    let status = reported(None, &found(), &[false, false], &none());
    assert_eq!((status.active.as_str(), status.standby.len(), status.ready_replicas), ("", 2, 0));
    let expect =
        ["Ready False PodsNotReady", "Configured True Found", "Serving False NoReadyPod", "Updated True UpToDate"];
    assert_eq!(reasons(&status), expect);
    assert_eq!(warnings(None, &status), []);
    let served = reported(None, &found(), &[true, true], &none());
    assert_eq!(warnings(Some(&served), &status), [Event::warning("NoReadyPod", "no pod is ready to serve")]);
    // A ready standby pod isn't active until the Service selects it.
    assert_eq!(reported(None, &found(), &[false, true], &none()).active, "");
}

#[test]
fn a_missing_config_map_is_reported_once() {
    let status = reported(None, &Config::Missing, &[], &none());
    assert_eq!(reasons(&status)[..2], ["Ready False ConfigMapMissing", "Configured False ConfigMapMissing"]);
    let told_once = warnings(None, &status);
    assert_eq!(told_once.len(), 1, "{told_once:?}");
    assert_eq!(warnings(Some(&status), &status), []);
    let long = reported(None, &Config::Invalid("title"), &[true, true], &none());
    assert_eq!(
        reasons(&long)[..3],
        ["Ready False InvalidConfigMap", "Configured False InvalidConfigMap", "Serving True Active"]
    );
}

#[test]
fn failures_of_children_are_reported_with_the_servers_message() {
    let refused = |message: &str| Problem::Refused(Duration::from_secs(30), message.into());
    let of = |service: Option<Problem>, pods: Option<Problem>| {
        reported(None, &found(), &[true], &Problems { service, pods })
    };
    let pods = of(None, Some(refused("exceeded quota")));
    assert_eq!(reasons(&pods)[0], "Ready False PodRefused");
    assert_eq!(pods.conditions[0].message, "exceeded quota");
    let service = of(Some(refused("forbidden")), None);
    assert_eq!(reasons(&service)[2], "Serving True ServiceRefused");
    assert_eq!(warnings(None, &service), [Event::warning("ServiceRefused", "forbidden")]);
    let taken = of(Some(Problem::Taken("nobody's".into())), None);
    assert_eq!(
        (&reasons(&taken)[0][..], &reasons(&taken)[2][..]),
        ("Ready False NameConflict", "Serving False NameConflict")
    );
    assert_eq!(warnings(None, &taken), [Event::warning("NameConflict", "nobody's")]);
    let slow = of(None, Some(Problem::Slow(Duration::ZERO)));
    assert_eq!(reasons(&slow)[0], "Ready False BackOff");
}
