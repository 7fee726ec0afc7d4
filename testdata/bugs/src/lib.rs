//! Small operators with one bug each, as studies and issue trackers describe them, and beside each the fixed one.
//!
//! Each module is an operator with a kind of its own. Its documentation says what happens in production, and
//! [`Bug::sources`] where it did. `register` makes both operators from the same code; what differs depends on `fixed`.
//! `scenario` plays the user.
//!
//! The bugs are those that the runtime can't prevent: it has barriers for an operator's own writes, preconditions and
//! owner references, but an author may go around them, or trust what the cache shows of others.

mod kit;

use futures::future::LocalBoxFuture;
use kubewright::{
    prelude::*,
    simulation::{Scenario, Sim},
};

/// A bug, with the operator that has it and the one that hasn't.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Bug {
    module: &'static str,
    /// The pattern.
    pub pattern: &'static str,
    /// Where it was described.
    pub sources: &'static [&'static str],
    /// Adds the operator with the bug to a manager.
    pub buggy: fn(Manager) -> Manager,
    /// Adds the operator without the bug to a manager.
    pub fixed: fn(Manager) -> Manager,
    /// The version before, where the bug is one of an upgrade.
    pub old: Option<fn(Manager) -> Manager>,
    /// The number of replicas, with leader election if there are several.
    pub replicas: usize,
    /// Plays the user.
    pub scenario: for<'a> fn(&'a Sim) -> LocalBoxFuture<'a, ()>,
}

impl Bug {
    /// Returns the name of its module.
    pub fn name(&self) -> &'static str {
        self.module.rsplit("::").next().unwrap_or_default()
    }

    /// Returns the scenario with the operator that has the bug, or with the fixed one.
    pub fn simulation(&self, fixed: bool) -> Scenario {
        let (operator, user) = (if fixed { self.fixed } else { self.buggy }, self.scenario);
        let scenario = Scenario::new(self.name(), operator, async move |sim: &Sim| user(sim).await);
        let scenario = scenario.replicas(self.replicas);
        self.old.map_or_else(|| scenario.clone(), |old| scenario.clone().upgrade(old))
    }
}

/// Defines the constant `BUG` of a module.
macro_rules! bug {
    ($pattern:literal, [$($source:literal),* $(,)?]) => {
        crate::bug!(@ $pattern, None, 1, [$($source),*]);
    };
    ($pattern:literal, from $old:ident, [$($source:literal),* $(,)?]) => {
        crate::bug!(@ $pattern, Some($old), 1, [$($source),*]);
    };
    ($pattern:literal, replicas $replicas:literal, [$($source:literal),* $(,)?]) => {
        crate::bug!(@ $pattern, None, $replicas, [$($source),*]);
    };
    (@ $pattern:literal, $old:expr, $replicas:literal, [$($source:literal),*]) => {
        pub(crate) const BUG: Bug = Bug {
            module: module_path!(),
            pattern: $pattern,
            sources: &[$($source),*],
            buggy: |manager| register(manager, false),
            fixed: |manager| register(manager, true),
            old: $old,
            replicas: $replicas,
            scenario: |sim| Box::pin(scenario(sim)),
        };
    };
}
use bug;

/// Declares the modules and the bank.
macro_rules! bank {
    ($($module:ident,)*) => {
        $(mod $module;)*

        /// All bugs, by name.
        pub const BUGS: &[Bug] = &[$($module::BUG,)*];
    };
}

bank! {
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
