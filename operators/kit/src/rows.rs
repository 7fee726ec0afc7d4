//! Rows 1 to 16, one function each; [`rows!`](crate::rows!) makes tests of them. Row 15, panics, is the runtime's own.

use std::time::Duration;

use jiff::SignedDuration;
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, PropagationPolicy},
};
use kubewright_cluster::faults::{Faults, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{History, Invalid, Operator, Subject, World, assert_quiet, eventually, go_wrong_everywhere, minutes};

/// Makes tests of the rows for a [`Subject`], in the module that says so. With `invalid`, also row 11, for one that is
/// [`Invalid`](crate::Invalid); or only of the rows that are listed.
#[macro_export]
macro_rules! rows {
    ($subject:ty, invalid) => {
        $crate::rows!($subject);
        $crate::rows!($subject; row_11_an_invalid_spec_is_told_not_retried_and_an_edit_wakes);
    };
    ($subject:ty) => {
        $crate::rows!($subject;
            row_01_mishap_at_any_write_converges_and_doubles_nothing
            row_01_mishap_at_any_write_while_it_is_deleted_leaves_nothing
            row_01_mishap_at_any_write_while_it_is_replaced_leaves_the_new_ones_children
            row_02_lost_answers_to_creates_make_no_child_too_many
            row_03_conflicts_are_retried
            row_04_a_server_in_trouble_is_waited_for
            row_05_deletions_during_a_dropped_watch_are_noticed
            row_06_doubled_and_delayed_events_lead_to_the_same
            row_07_and_13_a_leader_with_a_stale_cache_does_nothing_again
            row_08_the_children_of_an_earlier_one_are_neither_counted_nor_deleted
            row_09_one_that_is_being_deleted_makes_nothing
            row_09_foreground_deletion_takes_the_children_along
            row_10_a_steady_state_writes_nothing
            row_12_a_wiped_status_is_rebuilt_and_nothing_done_again
            row_12_a_status_written_by_hand_is_corrected
            row_13_two_leaders_settle
            row_14_a_refused_child_is_told_in_the_servers_words_and_tried_again_slowly
            row_16_when_faults_stop_it_converges_soon_and_for_good
        );
    };
    ($subject:ty; $($row:ident)+) => {$(
        #[tokio::test(start_paused = true)]
        async fn $row() {
            $crate::rows::$row::<$subject>().await;
        }
    )+};
}

async fn children<S: Subject>(world: &World) -> Vec<S::Child> {
    world.list().await
}

async fn has_child<S: Subject>(world: &World) {
    eventually("there is a child", async || !children::<S>(world).await.is_empty()).await;
}

async fn has_none<S: Subject>(world: &World) {
    eventually("the children are gone", async || children::<S>(world).await.is_empty()).await;
}

async fn told<S: Subject>(world: &World) -> Value {
    S::told(&world.get(S::NAME).await)
}

/// Waits until it is told again as it was before.
async fn is_told_again<S: Subject>(world: &World, before: &Value) {
    eventually(&format!("it is told again: {before}"), async || told::<S>(world).await == *before).await;
}

/// The message of the condition `Ready`, once it has this reason.
async fn ready<S: Subject>(world: &World, name: &str, reason: &str) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{name} is told to be {reason}"), async || {
        let resource = serde_json::to_value(world.get::<S::Resource>(name).await).unwrap();
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

/// Events are recorded at most once each, and tell no trouble.
async fn assert_calm<S: Subject>(world: &World, expect: usize) {
    let mut events = world.events(S::NAME).await;
    assert!(events.iter().all(|event| event.starts_with("Normal")), "{events:?}");
    assert!(events.len() <= expect, "{events:?}");
    events.sort();
    assert!(events.windows(2).all(|two| two[0] != two[1]), "{events:?}");
}

/// Row 1: any write goes wrong during its whole life.
pub async fn row_01_mishap_at_any_write_converges_and_doubles_nothing<S: Subject>() {
    let writes = go_wrong_everywhere(S::world, async |world| {
        let mut history = History::of::<S::Child>(world);
        world.create(S::sample()).await;
        S::settled(world).await;
        assert_eq!(history.created(), S::MADE);
        S::finish(world).await;
        assert_eq!(history.created(), S::MADE_AT_END);
        // An event may be lost with the operator, but is not told twice.
        assert_calm::<S>(world, S::EVENTS).await;
    })
    .await;
    assert!(writes >= S::WRITES, "{writes} writes");
}

/// Row 1: any write goes wrong while the resource is deleted as soon as it has a child.
pub async fn row_01_mishap_at_any_write_while_it_is_deleted_leaves_nothing<S: Subject>() {
    go_wrong_everywhere(S::world, async |world| {
        world.create(S::sample()).await;
        has_child::<S>(world).await;
        world.delete::<S::Resource>(S::NAME).await;
        has_none::<S>(world).await;
        assert!(world.list::<S::Resource>().await.is_empty());
    })
    .await;
}

/// Row 1: any write goes wrong while the resource is deleted and made again.
pub async fn row_01_mishap_at_any_write_while_it_is_replaced_leaves_the_new_ones_children<S: Subject>() {
    go_wrong_everywhere(S::world, async |world| {
        world.create(S::sample()).await;
        has_child::<S>(world).await;
        world.delete::<S::Resource>(S::NAME).await;
        let uid = world.create(S::again()).await.uid();
        S::settled(world).await;
        eventually("only its own children are there", async || {
            let children = children::<S>(world).await;
            let own = |child: &S::Child| child.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
            children.len() == S::MADE && children.iter().all(own)
        })
        .await;
    })
    .await;
}

/// Row 2: a child whose creation was not answered is found again.
pub async fn row_02_lost_answers_to_creates_make_no_child_too_many<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let mut history = History::of::<S::Child>(&world);
    let times = S::MADE.min(3);
    let lost = faults.on(S::MAKES, &child::<S>()).times(times).lose_answer();
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    S::settled(&world).await;
    assert_quiet(&faults).await;
    assert_eq!((lost.hits(), history.created()), (times, S::MADE));
    operator.stop().await;
}

/// Row 3: conflicts on what is written to the resource.
pub async fn row_03_conflicts_are_retried<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let mut history = History::of::<S::Child>(&world);
    let status = format!("{}/status", resource::<S>());
    let told = faults.on(&[Verb::Patch], &status).times(4).refuse(409, "Conflict");
    let recorded = faults.on(&[Verb::Patch], &resource::<S>()).times(4).refuse(409, "Conflict");
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    S::settled(&world).await;
    S::finish(&world).await;
    assert_eq!((told.hits(), recorded.hits()), (4, if S::RECORDS { 4 } else { 0 }));
    assert_quiet(&faults).await;
    assert_calm::<S>(&world, S::EVENTS).await;
    assert_eq!(history.created(), S::MADE_AT_END);
    operator.stop().await;
}

/// Row 4: the API server is overloaded, broken or slow.
pub async fn row_04_a_server_in_trouble_is_waited_for<S: Subject>() {
    for code in [429, 500, 503, 504] {
        let (world, faults) = (S::world().await, Faults::new());
        let mut history = History::of::<S::Child>(&world);
        world.create(S::sample()).await;
        sleep(minutes(2)).await;
        faults.on(Verb::WRITES, "*").times(10).retry_after(7).refuse(code, "Trouble");
        let operator = world.start(&faults);
        let begun = world.now();
        S::settled(&world).await;
        assert!(world.now().duration_since(begun) >= SignedDuration::from_secs(7), "{code}: Retry-After is honoured");
        assert_quiet(&faults).await;
        assert_eq!(history.created(), S::MADE);
        operator.stop().await;
    }
}

/// Row 5: the watch of the children breaks once they are there, doesn't begin again for a while, and is then told to list
/// anew.
pub async fn row_05_deletions_during_a_dropped_watch_are_noticed<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let cut = faults.on(&[Verb::Watch], &child::<S>()).cut_after(S::WATCHED);
    let refused = faults.on(&[Verb::Watch], &child::<S>()).times(5).refuse(500, "InternalError");
    let expired = faults.on(&[Verb::Watch], &child::<S>()).expire();
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    S::settled(&world).await;
    S::disturb(&world).await;
    // It may be answered before the watch is back, since what the operator wrote itself is read past the cache until then.
    let before = told::<S>(&world).await;
    sleep(minutes(5)).await;
    assert_eq!((cut.hits(), refused.hits(), expired.hits()), (1, 5, 1));
    assert_eq!(told::<S>(&world).await, before);
    operator.stop().await;
}

/// Row 6: events arrive twice, or late.
pub async fn row_06_doubled_and_delayed_events_lead_to_the_same<S: Subject>() {
    let faulty: [fn(&Faults); 2] = [
        |faults| drop(faults.on(&[Verb::Watch], "*").always().double()),
        |faults| drop(faults.on(&[Verb::Watch], "*").always().delay(minutes(1))),
    ];
    for fault in faulty {
        let (world, faults) = (S::world().await, Faults::new());
        let mut history = History::of::<S::Child>(&world);
        fault(&faults);
        let operator = world.start(&faults);
        world.create(S::sample()).await;
        S::settled(&world).await;
        S::finish(&world).await;
        sleep(minutes(5)).await;
        assert_quiet(&faults).await;
        assert_eq!(history.created(), S::MADE_AT_END);
        let events = world.events(S::NAME).await;
        assert_eq!(events.len(), S::EVENTS, "{events:?}");
        operator.stop().await;
    }
}

/// Rows 7 and 13: an old leader listed what there was, sees nothing more, and its questions are answered late.
pub async fn row_07_and_13_a_leader_with_a_stale_cache_does_nothing_again<S: Subject>() {
    let (world, stale, faults) = (S::world().await, Faults::new(), Faults::new());
    let mut history = History::of::<S::Child>(&world);
    world.create(S::sample()).await;
    let first = world.start(&faults);
    S::seen(&world).await;
    first.stop().await;
    let gate = stale.on(&[Verb::Watch], "*").always().hold();
    let slow = stale.on(&[Verb::Get], "*").always().hold();
    let old = world.start(&stale);
    sleep(Duration::from_secs(5)).await;

    let new = world.start(&faults);
    S::settled(&world).await;
    let made = S::MADE + S::disturb(&world).await;
    let before = told::<S>(&world).await;
    // It still believes in what it saw, and now its question arrives.
    slow.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created(), made);
    gate.open();
    sleep(minutes(10)).await;
    assert_eq!(history.created(), made);
    is_told_again::<S>(&world, &before).await;
    old.stop().await;
    new.stop().await;
}

/// Row 8: it is deleted and made again, and something holds its old children.
pub async fn row_08_the_children_of_an_earlier_one_are_neither_counted_nor_deleted<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    S::settled(&world).await;
    let old: Vec<_> = children::<S>(&world).await.iter().map(ResourceExt::name_any).collect();
    for name in &old {
        world.edit::<S::Child>(name, json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    }
    faults.forget();
    world.delete::<S::Resource>(S::NAME).await;
    world.create(S::again()).await;
    sleep(minutes(5)).await;
    let written: Vec<_> = faults.seen().into_iter().map(|seen| seen.request).filter(|it| it.verb.is_write()).collect();
    let touches =
        |name: &String| written.iter().any(|it| it.resource == child::<S>() && it.name.as_ref() == Some(name));
    assert!(!old.iter().any(touches), "{written:#?}");
    for name in &old {
        world.edit::<S::Child>(name, json!({"metadata": {"finalizers": null}})).await;
    }
    S::settled(&world).await;
    eventually("only the new children are there", async || children::<S>(&world).await.len() == S::MADE).await;
    assert_quiet(&faults).await;
    operator.stop().await;
}

/// Row 9: it is being deleted when its time comes, or when its children go.
pub async fn row_09_one_that_is_being_deleted_makes_nothing<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let mut history = History::of::<S::Child>(&world);
    world.create(held(S::sample())).await;
    let operator = world.start(&faults);
    S::seen(&world).await;
    let made = history.created();
    world.delete::<S::Resource>(S::NAME).await;
    for child in children::<S>(&world).await {
        world.delete::<S::Child>(&child.name_any()).await;
    }
    assert_quiet(&faults).await;
    assert_eq!(history.created(), made);
    operator.stop().await;
}

/// Row 9: with foreground deletion the children go first, though the record of them was never written.
pub async fn row_09_foreground_deletion_takes_the_children_along<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    faults.on(&[Verb::Patch], &resource::<S>()).always().refuse(500, "InternalError");
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    has_child::<S>(&world).await;
    assert_eq!(!children::<S>(&world).await[0].finalizers().is_empty(), S::RECORDS);
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    world.api::<S::Resource>().delete(S::NAME, &foreground).await.unwrap();
    has_none::<S>(&world).await;
    eventually("it is gone", async || world.list::<S::Resource>().await.is_empty()).await;
    operator.stop().await;
}

/// Row 10: nothing is written while nothing happens, nor after a restart.
pub async fn row_10_a_steady_state_writes_nothing<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    S::settled(&world).await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = world.start(&faults);
    assert_quiet(&faults).await;
    S::finish(&world).await;
    assert_quiet(&faults).await;
    operator.stop().await;
    let operator = world.start(&faults);
    assert_quiet(&faults).await;
    operator.stop().await;
}

/// Row 11: the spec is invalid for good.
pub async fn row_11_an_invalid_spec_is_told_not_retried_and_an_edit_wakes<S: Invalid>() {
    let (world, faults) = (S::world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(S::invalid()).await;
    assert_eq!(ready::<S>(&world, S::NAME, S::REASON).await["observedGeneration"], 1);
    sleep(minutes(1)).await;
    faults.forget();
    sleep(minutes(60)).await;
    let requests: Vec<_> = faults.seen().into_iter().filter(|seen| seen.request.verb != Verb::Watch).collect();
    assert!(requests.is_empty(), "{requests:?}");
    world.edit::<S::Resource>(S::NAME, S::mend()).await;
    S::settled(&world).await;
    operator.stop().await;
}

async fn wipe<S: Subject>(world: &World) {
    world.edit_status::<S::Resource>(S::NAME, Value::Null).await;
}

/// Row 12: the status is lost, also while the operator is down.
pub async fn row_12_a_wiped_status_is_rebuilt_and_nothing_done_again<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let mut history = History::of::<S::Child>(&world);
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    S::settled(&world).await;
    let operator = loses_its_status::<S>(&world, &faults, operator).await;
    assert_eq!(history.created(), S::MADE);
    S::finish(&world).await;
    let operator = loses_its_status::<S>(&world, &faults, operator).await;
    assert_eq!(history.created(), S::MADE_AT_END);
    operator.stop().await;
}

/// While the operator runs, and while it doesn't; gives the operator that runs then.
async fn loses_its_status<S: Subject>(world: &World, faults: &Faults, operator: Operator) -> Operator {
    let before = told::<S>(world).await;
    wipe::<S>(world).await;
    is_told_again::<S>(world, &before).await;
    operator.stop().await;
    wipe::<S>(world).await;
    let operator = world.start(faults);
    is_told_again::<S>(world, &before).await;
    assert_quiet(faults).await;
    operator
}

/// Row 12: someone writes a wrong status.
pub async fn row_12_a_status_written_by_hand_is_corrected<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    S::settled(&world).await;
    let before = told::<S>(&world).await;
    world.edit_status::<S::Resource>(S::NAME, S::lie()).await;
    is_told_again::<S>(&world, &before).await;
    operator.stop().await;
}

/// Row 13: two operators believe that they lead.
pub async fn row_13_two_leaders_settle<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let mut history = History::of::<S::Child>(&world);
    let (one, two) = (world.start(&faults), world.start(&faults));
    world.create(S::sample()).await;
    for number in 1..10 {
        world.create(named(S::sample(), &format!("{}-{number}", S::NAME))).await;
    }
    sleep(minutes(5)).await;
    S::settled(&world).await;
    if S::ONCE {
        assert_eq!(history.created(), 10 * S::MADE);
    }
    assert_eq!(children::<S>(&world).await.len(), 10 * S::MADE);
    S::finish(&world).await;
    assert_quiet(&faults).await;
    if S::ONCE {
        assert_eq!(history.created(), 9 * S::MADE + S::MADE_AT_END);
    }
    one.stop().await;
    two.stop().await;
}

/// Row 14: the API server refuses the children.
pub async fn row_14_a_refused_child_is_told_in_the_servers_words_and_tried_again_slowly<S: Subject>() {
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let (world, faults) = (S::world().await, Faults::new());
        let message = format!("{} is forbidden: exceeded quota: small", child::<S>());
        let refused = faults.on(S::MAKES, &child::<S>()).always().refuse_with(code, reason, &message);
        let operator = world.start(&faults);
        world.create(S::sample()).await;
        world.create(named(S::sample(), "other")).await;
        assert_eq!(ready::<S>(&world, S::NAME, S::REFUSED).await["message"], message);
        // Another one isn't held up.
        let since = world.now();
        ready::<S>(&world, "other", S::REFUSED).await;
        assert!(world.now().duration_since(since) < SignedDuration::from_secs(61));
        sleep(minutes(60)).await;
        assert!((20..=600).contains(&refused.hits()), "{}", refused.hits());
        faults.clear();
        S::settled(&world).await;
        let events = world.events(S::NAME).await;
        let warnings = events.iter().filter(|event| event.starts_with(&format!("Warning {}", S::REFUSED)));
        assert_eq!(warnings.count(), 1, "{events:?}");
        operator.stop().await;
    }
}

/// Row 16: all kinds of trouble, and then none.
pub async fn row_16_when_faults_stop_it_converges_soon_and_for_good<S: Subject>() {
    let (world, faults) = (S::world().await, Faults::new());
    let mut history = History::of::<S::Child>(&world);
    faults.on(Verb::WRITES, "*").skip(1).times(3).lose_answer();
    faults.on(Verb::WRITES, "*").times(20).refuse(503, "ServiceUnavailable");
    faults.on(Verb::READS, "*").skip(3).times(20).lose_request();
    let operator = world.start(&faults);
    world.create(S::sample()).await;
    sleep(minutes(20)).await;
    faults.clear();
    let stopped = world.now();
    S::settled(&world).await;
    assert!(world.now().duration_since(stopped) < SignedDuration::from_mins(20));
    assert_quiet(&faults).await;
    assert_eq!(history.created(), S::MADE);
    operator.stop().await;
}
