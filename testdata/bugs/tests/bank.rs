//! Each bug is found, and the mended operator isn't blamed.
//!
//! The faults of the table are the first ones that the search has found. With the environment variable `KUBEWRIGHT_BUG_SEARCH` the search
//! itself runs, and the mended operators run with every fault that it knows, which takes half an hour.

use bug_bank::{
    BUGS,
    trial::Fault::{self, ChildrenBehind, ClockBack, CrashAfter, CrashBefore, LostRequest, ParentsBehind, PodsFail},
};

fn check(name: &str, fault: Option<Fault>) {
    let bug = BUGS.iter().find(|bug| bug.name() == name).expect("the bank has the bug");
    let mended = bug.run(true, None).unwrap();
    assert_eq!(mended.findings, Vec::<String>::new(), "the mended operator without a fault");
    let mended = bug.run(true, fault).unwrap();
    assert_eq!(mended.findings, Vec::<String>::new(), "the mended operator");
    assert_ne!(bug.run(false, fault).unwrap().findings, Vec::<String>::new(), "the bug isn't found");
    if std::env::var_os("KUBEWRIGHT_BUG_SEARCH").is_some_and(|value| !value.is_empty()) {
        assert_ne!(bug.search(false).unwrap().findings, Vec::<String>::new(), "the search finds nothing");
        let blamed = bug.search(true).unwrap();
        assert_eq!(blamed.findings, Vec::<String>::new(), "the mended operator with {:?}", blamed.fault);
    }
}

macro_rules! bugs {
    ($($name:ident: $fault:expr,)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), $fault);
        })*

        #[test]
        fn each_bug_has_a_test() {
            let names: Vec<_> = BUGS.iter().map(|bug| bug.name()).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

bugs! {
    adopts_by_label: None,
    autoscaler_overruled: None,
    claim_leaks_on_scale_down: Some(CrashAfter(4)),
    cleanup_ignores_errors: Some(LostRequest(2)),
    cleanup_needs_what_is_gone: None,
    clock_goes_back: Some(ClockBack(0)),
    conditions_flap: None,
    controllers_fight: None,
    deletion_missed_while_down: Some(CrashBefore(1)),
    environment_in_random_order: None,
    event_on_each_run: None,
    existing_object_taken_over: None,
    failed_pods_replaced_at_once: Some(PodsFail(0)),
    finalizer_added_last: Some(CrashAfter(0)),
    finalizer_removed_first: Some(CrashAfter(2)),
    foreign_finalizers_removed: None,
    generated_name_forgotten: Some(CrashAfter(0)),
    generation_observed_first: Some(CrashAfter(0)),
    hour_comes_twice: None,
    job_is_immutable: None,
    joined_names_collide: None,
    key_overwritten_by_stale_read: Some(ChildrenBehind(0)),
    label_is_never_removed: None,
    lost_update_of_shared_map: None,
    named_by_count: None,
    namespaces_collide: None,
    owner_in_another_namespace: None,
    owner_remembered_by_name: None,
    panics_on_zero: None,
    password_generated_again: Some(CrashAfter(1)),
    port_taken_twice: None,
    progress_in_memory: Some(CrashAfter(0)),
    recreates_while_terminating: None,
    renamed_child_left_behind: None,
    requeues_at_once_when_refused: None,
    right_isnt_declared: None,
    secret_isnt_watched: None,
    shared_child_has_one_owner: None,
    stale_spec_deletes_claim: Some(ParentsBehind(2)),
    status_counts_children: Some(CrashAfter(0)),
    status_has_a_heartbeat: None,
    switched_before_there: Some(CrashAfter(0)),
    task_on_each_replica: None,
    terminating_pod_unseen: Some(CrashAfter(4)),
    truncated_names_collide: None,
    upgrade_changes_selector: None,
    upgrade_forgets_children: None,
    waits_in_the_worker: None,
}

#[test]
fn a_run_can_be_repeated() {
    for bug in BUGS.iter().step_by(8) {
        let fault = Some(CrashAfter(1));
        assert_eq!(bug.run(false, fault).unwrap(), bug.run(false, fault).unwrap(), "{}", bug.name());
    }
}
