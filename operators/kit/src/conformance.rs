//! The conformance tests for all operators, one function each; [`conformance_tests!`](crate::conformance_tests!)
//! declares them as tests. Panics are tested in the runtime.

use std::time::Duration;

use jiff::SignedDuration;
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, PropagationPolicy},
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    History, Invalid, Subject, TestEnv, assert_only_watches, assert_quiet, eventually, minutes,
    with_a_fault_at_each_write,
};

/// Declares the conformance tests of a [`Subject`]. With `invalid`, the test of invalid specs is included, which
/// requires an [`Invalid`](crate::Invalid) subject. With a list of names, only those tests are declared.
#[macro_export]
macro_rules! conformance_tests {
    ($subject:ty, invalid) => {
        $crate::conformance_tests!($subject);
        $crate::conformance_tests!($subject; an_invalid_spec_is_reported_and_retried_only_after_an_edit);
    };
    ($subject:ty) => {
        $crate::conformance_tests!($subject;
            a_fault_at_any_write_duplicates_nothing
            a_fault_at_any_write_during_deletion_leaves_no_children
            a_fault_at_any_write_during_replacement_leaves_the_children_of_the_new_object
            conflicts_are_retried
            server_errors_are_retried_with_back_off
            deletions_during_an_interrupted_watch_are_noticed
            doubled_and_delayed_events_lead_to_the_same_state
            a_former_leader_with_a_stale_cache_repeats_nothing
            children_of_a_former_owner_are_neither_counted_nor_deleted
            an_object_that_is_being_deleted_creates_no_children
            foreground_deletion_deletes_the_children_first
            a_steady_state_writes_nothing
            two_leaders_converge
            a_refused_child_is_reported_with_the_servers_message_and_retried_slowly
            after_faults_stop_it_converges_and_stays_quiet
        );
    };
    ($subject:ty; $($case:ident)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $case() {
            $crate::conformance::$case::<$subject>().await;
        }
    )+};
}

async fn children<S: Subject>(env: &TestEnv) -> Vec<S::Child> {
    env.list().await
}

async fn has_child<S: Subject>(env: &TestEnv) {
    eventually("there is a child", async || !children::<S>(env).await.is_empty()).await;
}

async fn has_none<S: Subject>(env: &TestEnv) {
    eventually("the children are gone", async || children::<S>(env).await.is_empty()).await;
}

async fn stable_status<S: Subject>(env: &TestEnv) -> Value {
    S::stable_status(&env.get(S::NAME).await)
}

/// Waits until the status is restored.
async fn has_status_again<S: Subject>(env: &TestEnv, before: &Value) {
    eventually(&format!("it is reported again: {before}"), async || stable_status::<S>(env).await == *before).await;
}

/// Waits until the condition `Ready` has a reason, and returns the condition.
async fn ready<S: Subject>(env: &TestEnv, name: &str, reason: &str) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{name} is reported to be {reason}"), async || {
        let resource = serde_json::to_value(env.get::<S::Resource>(name).await).unwrap();
        let conditions = resource["status"]["conditions"].as_array().cloned().unwrap_or_default();
        found = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
        found["reason"] == reason
    })
    .await;
    found
}

fn held<K: Resource>(mut resource: K) -> K {
    resource.meta_mut().finalizers = Some(vec!["example.com/hold".into()]);
    resource
}

fn named<K: Resource>(mut resource: K, name: &str) -> K {
    resource.meta_mut().name = Some(name.into());
    resource
}

fn resource<S: Subject>() -> String {
    S::Resource::plural(&()).into_owned()
}

fn child<S: Subject>() -> String {
    S::Child::plural(&()).into_owned()
}

/// Checks that each event is recorded at most once, and that none is a Warning.
async fn assert_no_warnings<S: Subject>(env: &TestEnv, expect: usize) {
    let mut events = env.events(S::NAME).await;
    assert!(events.iter().all(|event| event.starts_with("Normal")), "{events:?}");
    assert!(events.len() <= expect, "{events:?}");
    events.sort();
    assert!(events.windows(2).all(|two| two[0] != two[1]), "{events:?}");
}

/// Tests a fault at any write in the whole life of the resource.
pub async fn a_fault_at_any_write_duplicates_nothing<S: Subject>() {
    let writes = with_a_fault_at_each_write(S::env, async |env| {
        let mut history = History::of::<S::Child>(env);
        env.create(S::sample()).await;
        S::settled(env).await;
        assert_eq!(history.created(), S::CHILDREN);
        S::finish(env).await;
        assert_eq!(history.created(), S::CHILDREN_AT_END);
        // A crash may lose an event, but must not record one twice.
        assert_no_warnings::<S>(env, S::EVENTS).await;
    })
    .await;
    assert!(writes >= S::WRITES, "{writes} writes");
}

/// Tests a fault at any write while the resource is deleted as soon as it has a child.
pub async fn a_fault_at_any_write_during_deletion_leaves_no_children<S: Subject>() {
    with_a_fault_at_each_write(S::env, async |env| {
        env.create(S::sample()).await;
        has_child::<S>(env).await;
        env.delete::<S::Resource>(S::NAME).await;
        has_none::<S>(env).await;
        assert!(env.list::<S::Resource>().await.is_empty());
    })
    .await;
}

/// Tests a fault at any write while the resource is deleted and created again.
pub async fn a_fault_at_any_write_during_replacement_leaves_the_children_of_the_new_object<S: Subject>() {
    with_a_fault_at_each_write(S::env, async |env| {
        env.create(S::sample()).await;
        has_child::<S>(env).await;
        env.delete::<S::Resource>(S::NAME).await;
        let uid = env.create(S::replacement()).await.uid();
        S::settled(env).await;
        eventually("only its own children are there", async || {
            let children = children::<S>(env).await;
            let own = |child: &S::Child| child.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
            children.len() == S::CHILDREN && children.iter().all(own)
        })
        .await;
    })
    .await;
}

/// Tests conflicts on writes to the resource.
pub async fn conflicts_are_retried<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    let mut history = History::of::<S::Child>(&env);
    let status = format!("{}/status", resource::<S>());
    let reported = faults.on(&[Verb::Patch], &status).times(4).refuse(409, "Conflict");
    let recorded = faults.on(&[Verb::Patch], &resource::<S>()).times(4).refuse(409, "Conflict");
    let operator = env.start(&faults);
    env.create(S::sample()).await;
    S::settled(&env).await;
    S::finish(&env).await;
    assert_eq!((reported.hits(), recorded.hits()), (4, if S::HAS_RECORD { 4 } else { 0 }));
    assert_quiet(&faults).await;
    assert_no_warnings::<S>(&env, S::EVENTS).await;
    assert_eq!(history.created(), S::CHILDREN_AT_END);
    operator.stop().await;
}

/// Tests an API server that is overloaded, failing or slow.
pub async fn server_errors_are_retried_with_back_off<S: Subject>() {
    for code in [429, 500, 503, 504] {
        let (env, faults) = (S::env().await, Faults::new());
        let mut history = History::of::<S::Child>(&env);
        env.create(S::sample()).await;
        sleep(minutes(2)).await;
        faults.on(Verb::WRITES, "*").times(10).retry_after(7).refuse(code, "Trouble");
        let operator = env.start(&faults);
        let begun = env.now();
        S::settled(&env).await;
        assert!(env.now().duration_since(begun) >= SignedDuration::from_secs(7), "{code}: Retry-After is honoured");
        assert_quiet(&faults).await;
        assert_eq!(history.created(), S::CHILDREN);
        operator.stop().await;
    }
}

/// Tests a watch of the children that is interrupted, fails for a while, and then has to list again.
pub async fn deletions_during_an_interrupted_watch_are_noticed<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    let cut = faults.on(&[Verb::Watch], &child::<S>()).cut_after(S::CHILD_EVENTS);
    let refused = faults.on(&[Verb::Watch], &child::<S>()).times(5).refuse(500, "InternalError");
    let expired = faults.on(&[Verb::Watch], &child::<S>()).expire();
    let operator = env.start(&faults);
    env.create(S::sample()).await;
    S::settled(&env).await;
    S::delete_child(&env).await;
    // This may happen before the watch is restored, since the operator reads its own writes live until then.
    let before = stable_status::<S>(&env).await;
    sleep(minutes(5)).await;
    assert_eq!((cut.hits(), refused.hits(), expired.hits()), (1, 5, 1));
    assert_eq!(stable_status::<S>(&env).await, before);
    operator.stop().await;
}

/// Tests events that arrive twice, or late.
pub async fn doubled_and_delayed_events_lead_to_the_same_state<S: Subject>() {
    let faulty: [fn(&Faults); 2] = [
        |faults| drop(faults.on(&[Verb::Watch], "*").always().double()),
        |faults| drop(faults.on(&[Verb::Watch], "*").always().delay(minutes(1))),
    ];
    for fault in faulty {
        let (env, faults) = (S::env().await, Faults::new());
        let mut history = History::of::<S::Child>(&env);
        fault(&faults);
        let operator = env.start(&faults);
        env.create(S::sample()).await;
        S::settled(&env).await;
        S::finish(&env).await;
        sleep(minutes(5)).await;
        assert_quiet(&faults).await;
        assert_eq!(history.created(), S::CHILDREN_AT_END);
        let events = env.events(S::NAME).await;
        assert_eq!(events.len(), S::EVENTS, "{events:?}");
        operator.stop().await;
    }
}

/// Tests a former leader that has listed its objects, receives no further events, and whose reads are delayed.
pub async fn a_former_leader_with_a_stale_cache_repeats_nothing<S: Subject>() {
    let (env, stale, faults) = (S::env().await, Faults::new(), Faults::new());
    let mut history = History::of::<S::Child>(&env);
    env.create(S::sample()).await;
    let first = env.start(&faults);
    S::seen(&env).await;
    first.stop().await;
    let gate = stale.on(&[Verb::Watch], "*").always().hold();
    let slow = stale.on(&[Verb::Get], "*").always().hold();
    let old = env.start(&stale);
    sleep(Duration::from_secs(5)).await;

    let new = env.start(&faults);
    S::settled(&env).await;
    let made = S::CHILDREN + S::delete_child(&env).await;
    let before = stable_status::<S>(&env).await;
    // The former leader still has the old state, and its delayed read now completes.
    slow.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created(), made);
    gate.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created(), made);
    has_status_again::<S>(&env, &before).await;
    old.stop().await;
    new.stop().await;
}

/// Tests a resource that is deleted and created again while a finalizer holds its old children.
pub async fn children_of_a_former_owner_are_neither_counted_nor_deleted<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(S::sample()).await;
    S::settled(&env).await;
    let old: Vec<_> = children::<S>(&env).await.iter().map(ResourceExt::name_any).collect();
    for name in &old {
        env.edit::<S::Child>(name, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    }
    faults.forget();
    env.delete::<S::Resource>(S::NAME).await;
    env.create(S::replacement()).await;
    sleep(minutes(5)).await;
    let written: Vec<_> =
        faults.requests().into_iter().map(|seen| seen.request).filter(|it| it.verb.is_write()).collect();
    let touches =
        |name: &String| written.iter().any(|it| it.resource == child::<S>() && it.name.as_ref() == Some(name));
    assert!(!old.iter().any(touches), "{written:#?}");
    for name in &old {
        env.edit::<S::Child>(name, json!({"metadata": {"finalizers": null}})).await;
    }
    S::settled(&env).await;
    eventually("only the new children are there", async || children::<S>(&env).await.len() == S::CHILDREN).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

/// Tests a resource that is being deleted when it is due, or when its children disappear.
pub async fn an_object_that_is_being_deleted_creates_no_children<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    let mut history = History::of::<S::Child>(&env);
    env.create(held(S::sample())).await;
    let operator = env.start(&faults);
    S::seen(&env).await;
    let made = history.created();
    env.delete::<S::Resource>(S::NAME).await;
    for child in children::<S>(&env).await {
        env.delete::<S::Child>(&child.name_any()).await;
    }
    assert_quiet(&faults).await;
    assert_eq!(history.created(), made);
    operator.stop().await;
}

/// Tests that foreground deletion deletes the children first, even if they were never recorded.
pub async fn foreground_deletion_deletes_the_children_first<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    faults.on(&[Verb::Patch], &resource::<S>()).always().refuse(500, "InternalError");
    let operator = env.start(&faults);
    env.create(S::sample()).await;
    has_child::<S>(&env).await;
    assert_eq!(!children::<S>(&env).await[0].finalizers().is_empty(), S::HAS_RECORD);
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    env.api::<S::Resource>().delete(S::NAME, &foreground).await.unwrap();
    has_none::<S>(&env).await;
    eventually("it is gone", async || env.list::<S::Resource>().await.is_empty()).await;
    operator.stop().await;
}

/// Tests that nothing is written while nothing happens, nor after a restart.
pub async fn a_steady_state_writes_nothing<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(S::sample()).await;
    S::settled(&env).await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = env.start(&faults);
    assert_quiet(&faults).await;
    S::finish(&env).await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = env.start(&faults);
    assert_quiet(&faults).await;
    operator.stop().await;
}

/// Tests an invalid spec.
pub async fn an_invalid_spec_is_reported_and_retried_only_after_an_edit<S: Invalid>() {
    let (env, faults) = (S::env().await, Faults::new());
    let operator = env.start(&faults);
    env.create(S::invalid()).await;
    assert_eq!(ready::<S>(&env, S::NAME, S::REASON).await["observedGeneration"], 1);
    sleep(minutes(1)).await;
    faults.forget();
    sleep(minutes(60)).await;
    assert_only_watches(&faults);
    env.edit::<S::Resource>(S::NAME, S::valid_patch()).await;
    S::settled(&env).await;
    operator.stop().await;
}

/// Tests two operators that both believe to be the leader.
pub async fn two_leaders_converge<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    let mut history = History::of::<S::Child>(&env);
    let (one, two) = (env.start(&faults), env.start(&faults));
    env.create(S::sample()).await;
    for number in 1..10 {
        env.create(named(S::sample(), &format!("{}-{number}", S::NAME))).await;
    }
    sleep(minutes(5)).await;
    S::settled(&env).await;
    if S::AT_MOST_ONCE {
        assert_eq!(history.created(), 10 * S::CHILDREN);
    }
    assert_eq!(children::<S>(&env).await.len(), 10 * S::CHILDREN);
    S::finish(&env).await;
    assert_quiet(&faults).await;
    if S::AT_MOST_ONCE {
        assert_eq!(history.created(), 9 * S::CHILDREN + S::CHILDREN_AT_END);
    }
    one.stop().await;
    two.stop().await;
}

/// Tests an API server that refuses the children.
pub async fn a_refused_child_is_reported_with_the_servers_message_and_retried_slowly<S: Subject>() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let (env, faults) = (S::env().await, Faults::new());
        let message = format!("{} is forbidden: exceeded quota: small", child::<S>());
        let refused = faults.on(S::CREATE_VERBS, &child::<S>()).always().refuse_with(code, reason, &message);
        let operator = env.start(&faults);
        env.create(S::sample()).await;
        env.create(named(S::sample(), "other")).await;
        assert_eq!(ready::<S>(&env, S::NAME, S::REFUSED).await["message"], message);
        // Other resources must not be delayed.
        let since = env.now();
        ready::<S>(&env, "other", S::REFUSED).await;
        assert!(env.now().duration_since(since) < SignedDuration::from_secs(61));
        sleep(minutes(60)).await;
        assert!((20..=600).contains(&refused.hits()), "{}", refused.hits());
        faults.clear();
        S::settled(&env).await;
        let events = env.events(S::NAME).await;
        let warnings = events.iter().filter(|event| event.starts_with(&format!("Warning {}", S::REFUSED)));
        assert_eq!(warnings.count(), 1, "{events:?}");
        operator.stop().await;
    }
}

/// Tests a mixture of faults that stops after some time.
pub async fn after_faults_stop_it_converges_and_stays_quiet<S: Subject>() {
    let (env, faults) = (S::env().await, Faults::new());
    let mut history = History::of::<S::Child>(&env);
    faults.on(Verb::WRITES, "*").skip(1).times(3).lose_response();
    faults.on(Verb::WRITES, "*").times(20).refuse(503, "ServiceUnavailable");
    faults.on(Verb::READS, "*").skip(3).times(20).lose_request();
    let operator = env.start(&faults);
    env.create(S::sample()).await;
    sleep(minutes(20)).await;
    faults.clear();
    let stopped = env.now();
    S::settled(&env).await;
    assert!(env.now().duration_since(stopped) < SignedDuration::from_mins(20));
    assert_quiet(&faults).await;
    assert_eq!(history.created(), S::CHILDREN);
    operator.stop().await;
}
