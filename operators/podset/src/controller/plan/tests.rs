use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    super::view::{PodCondition, PodStatus},
    *,
};

fn labels() -> Labels {
    [("app".to_owned(), "web".to_owned())].into()
}

fn time(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(second).unwrap())
}

/// A pod with the name `name`, created at this second, in this phase; a `+` after the phase stands for ready.
fn pod(name: &str, created: i64, phase: &str) -> PodView {
    let ready = PodCondition { type_: "Ready".into(), status: "True".into() };
    PodView {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some(labels()),
            creation_timestamp: Some(time(created)),
            ..ObjectMeta::default()
        },
        status: Some(PodStatus {
            phase: Some(phase.trim_end_matches('+').into()),
            conditions: phase.ends_with('+').then(|| vec![ready]),
        }),
    }
}

fn plan_of(desired: usize, pods: &[PodView]) -> Plan {
    plan(desired, &labels(), pods.iter().cloned().map(Arc::new).collect())
}

fn names(pods: &[Arc<PodView>]) -> Vec<String> {
    pods.iter().map(|pod| pod.name_any()).collect()
}

// ANCHOR: counted
#[test]
fn pending_and_running_pods_count() {
    let mut leaving = pod("e", 1, "Running+");
    leaving.metadata.deletion_timestamp = Some(time(9));
    let mut new = pod("f", 1, "");
    new.status = None;
    let pods = [
        pod("b", 1, "Running+"),
        pod("a", 1, "Pending"),
        pod("c", 1, "Failed"),
        pod("d", 1, "Succeeded"),
        leaving,
        new,
        pod("g", 1, "Unknown"),
    ];
    let plan = plan_of(5, &pods);
    assert_eq!(names(&plan.active), ["a", "b", "f"]);
    assert_eq!((plan.create, plan.delete.len(), plan.discard.len(), plan.release.len()), (2, 0, 0, 0));
}
// ANCHOR_END: counted

#[test]
fn nothing_is_done_where_all_is_well() {
    let pods = [pod("a", 1, "Running+"), pod("b", 1, "Pending"), pod("c", 1, "Failed")];
    assert!(!plan_of(2, &pods).acts());
    assert!(!plan_of(0, &[]).acts());
}

#[test]
fn scale_down_takes_the_not_ready_then_the_newest_then_by_name() {
    let pods = [
        pod("old-ready", 1, "Running+"),
        pod("new-ready-b", 5, "Running+"),
        pod("new-ready-a", 5, "Running+"),
        pod("old-pending", 1, "Pending"),
        pod("new-running", 9, "Running"),
    ];
    let order = ["new-running", "old-pending", "new-ready-a", "new-ready-b", "old-ready"];
    for desired in 0..=5 {
        let plan = plan_of(desired, &pods);
        assert_eq!(names(&plan.delete), order[..5 - desired], "{desired}");
        assert_eq!(plan.create, 0);
    }
}

#[test]
fn ended_pods_are_replaced_and_the_newest_few_kept() {
    let ended: Vec<PodView> =
        (0..6).map(|at| pod(&format!("p{at}"), at, ["Failed", "Succeeded"][at as usize % 2])).collect();
    let plan = plan_of(2, &ended);
    assert_eq!(plan.create, 2);
    assert_eq!(names(&plan.discard), ["p0", "p1", "p2"]);
}

#[test]
fn a_pod_without_the_labels_is_released() {
    let mut stray = pod("stray", 1, "Running+");
    stray.metadata.labels = None;
    let mut leaving = stray.clone();
    leaving.metadata.deletion_timestamp = Some(time(9));
    let plan = plan_of(1, &[stray, leaving]);
    assert_eq!((plan.create, names(&plan.release)), (1, vec!["stray".to_owned()]));
    assert!(plan.acts());
}

#[test]
fn deletions_and_replacements_need_live_state() {
    let check = |desired: usize, reported: &[&str], grave: bool| {
        let pods = [pod("a", 1, "Running+"), pod("b", 1, "Pending"), pod("c", 1, "Failed")];
        let reported: Vec<_> = reported.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(plan_of(desired, &pods).needs_live_state(&reported), grave, "{desired} {reported:?}");
    };
    // At the start, in progress, and scaled up.
    check(3, &[], false);
    check(3, &["a"], false);
    check(5, &["a", "b"], false);
    // `c` has ended, and `d` has disappeared.
    check(3, &["a", "b", "c"], true);
    check(3, &["d"], true);
    check(1, &["a", "b"], true);
    // The whole status is wrong, but no write is needed.
    check(2, &["c", "d"], false);
}

#[test]
fn batches_double() {
    let check = |missing: usize, expect: &[usize]| assert_eq!(batches(missing).collect::<Vec<_>>(), expect);
    check(0, &[]);
    check(1, &[1]);
    check(5, &[1, 2, 2]);
    check(1000, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 489]);
}
