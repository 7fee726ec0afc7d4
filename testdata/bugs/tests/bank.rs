//! Each bug is found, and the fixed operator isn't blamed.
//!
//! With the environment variable `KUBEWRIGHT_EXHAUSTIVE`, as in `cargo xtask test --all`, the fixed operators make
//! sixteen runs, some with several faults; without it, eight. Both run with the faults that show the bug, too.

use bug_bank::BUGS;
use kubewright::simulation::{Budget, Settings, story};

/// The most faults of a shrunk failure.
const MOST_FAULTS: usize = 5;
/// The number of runs in which each bug has to be found: those of some ten seconds on one core.
const RUNS: usize = 200;

fn check(name: &str) {
    let bug = BUGS.iter().find(|bug| bug.name() == name).expect("the bank has the bug");
    let search = bug.simulation(false).search(&Budget::default().runs(RUNS)).unwrap();
    let failure = search.failures.first().unwrap_or_else(|| panic!("the bug isn't found in {} runs", search.runs));
    assert!(failure.schedule.injections.len() <= MOST_FAULTS, "{}", failure.schedule);

    let fixed = bug.simulation(true);
    let mut settings = Settings::default();
    settings.replay = Some(failure.schedule.clone());
    let replayed = settings.search(&fixed).unwrap();
    assert_eq!(replayed.failures.first().map(|it| story::text(name, it)), None, "with the faults that show the bug");
    let is_exhaustive = std::env::var_os("KUBEWRIGHT_EXHAUSTIVE").is_some_and(|value| !value.is_empty());
    let budget = if is_exhaustive { Budget::default().runs(16).combinations() } else { Budget::default().runs(8) };
    let blamed = fixed.search(&budget).unwrap();
    assert_eq!(blamed.failures.first().map(|it| story::text(name, it)), None, "the fixed operator");
}

/// What the oracle of writes from an older state finds needs no condition of the author.
#[test]
fn a_lost_update_is_found_without_a_condition() {
    let bug = BUGS.iter().find(|bug| bug.name() == "lost_update_of_shared_map").expect("the bank has the bug");
    let scenario = bug.simulation(false).omit("finally", "the oracle finds it");
    let search = scenario.search(&Budget::default().runs(RUNS)).unwrap();
    let found: Vec<_> = search.failures.iter().flat_map(|failure| &failure.outcome.findings).collect();
    assert!(found.iter().any(|finding| finding.oracle == "stale-write"), "{found:?}");
    assert!(found.iter().any(|finding| finding.message.ends_with("and takes back data.members")), "{found:?}");
}

macro_rules! bugs {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn each_bug_has_a_test() {
            let names: Vec<_> = BUGS.iter().map(|bug| bug.name()).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

bugs! {
    adopts_by_label,
    autoscaler_overruled,
    claim_leaks_on_scale_down,
    cleanup_ignores_errors,
    cleanup_needs_what_is_gone,
    clock_goes_back,
    conditions_flap,
    controllers_fight,
    deletion_missed_while_down,
    environment_in_random_order,
    event_on_each_run,
    existing_object_taken_over,
    failed_pods_replaced_at_once,
    finalizer_added_last,
    finalizer_removed_first,
    foreign_finalizers_removed,
    generated_name_forgotten,
    generation_observed_first,
    hour_comes_twice,
    job_is_immutable,
    joined_names_collide,
    key_overwritten_by_stale_read,
    label_is_never_removed,
    lost_update_of_shared_map,
    named_by_count,
    namespaces_collide,
    owner_in_another_namespace,
    owner_remembered_by_name,
    panics_on_zero,
    password_generated_again,
    port_taken_twice,
    progress_in_memory,
    recreates_while_terminating,
    renamed_child_left_behind,
    requeues_at_once_when_refused,
    right_isnt_declared,
    secret_isnt_watched,
    shared_child_has_one_owner,
    stale_spec_deletes_claim,
    status_counts_children,
    status_has_a_heartbeat,
    switched_before_there,
    task_on_each_replica,
    terminating_pod_unseen,
    truncated_names_collide,
    upgrade_changes_selector,
    upgrade_forgets_children,
    waits_in_the_worker,
}
