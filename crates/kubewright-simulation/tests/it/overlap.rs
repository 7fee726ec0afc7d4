//! Faults that an operator meets when it isn't alone, or when the API server is away: each does what its name says.

use std::collections::BTreeSet;

use kubewright_simulation::{
    Fault, Outcome, Point, Scenario, Schedule, Settings,
    fault::{EventFault, ProcessFault, UserFault},
    history::Entry,
};

use crate::machine::{Behavior, notes_its_instance, notes_labels_and_deletes, register};

fn fixed() -> Scenario {
    Scenario::new("fixed", |manager| register(manager, Behavior::Fixed), notes_labels_and_deletes)
}

/// Runs a scenario with one fault, compared with a run without it.
fn findings(scenario: &Scenario, point: Point, fault: Fault) -> Vec<String> {
    let mut settings = Settings::default();
    settings.replay = Some(Schedule::calm(0).with(point, fault));
    let search = settings.search(scenario).unwrap();
    assert_eq!(search.unreached, 0, "{fault} happens");
    let findings = search.failures.into_iter().flat_map(|failure| failure.outcome.findings);
    findings.map(|finding| finding.to_string()).collect()
}

/// Runs the fixed operator with one fault, for which it isn't blamed.
fn run(point: Point, fault: Fault) -> Outcome {
    assert_eq!(findings(&fixed(), point, fault), [""; 0], "{fault}");
    fixed().run(&Schedule::calm(0).with(point, fault)).unwrap()
}

/// Returns the times of the records that contain a text, in seconds.
fn times(outcome: &Outcome, text: &str) -> Vec<u64> {
    let records = outcome.history.records().iter().filter(|record| record.to_string().contains(text));
    records.map(|record| record.at / 1000).collect()
}

/// Returns the number of the request that makes a write.
fn request_of_write(scenario: &Scenario, nth: usize) -> Point {
    let calm = scenario.run(&Schedule::calm(0)).unwrap();
    let number = calm.history.records().iter().find_map(|record| match &record.entry {
        Entry::Request(request) if request.write == Some(nth) => Some(request.number),
        _ => None,
    });
    Point::Request(number.unwrap())
}

#[test]
fn an_event_arrives_twice() {
    let calm = fixed().run(&Schedule::calm(0)).unwrap();
    let events = |outcome: &Outcome| {
        let events = outcome.history.records().iter().filter_map(|record| match &record.entry {
            Entry::Event { event, object, version, .. } if event != "BOOKMARK" => {
                Some((object.clone(), version.clone()))
            }
            _ => None,
        });
        events.collect::<Vec<_>>()
    };
    let outcome = run(Point::Event(0), Fault::Event(EventFault::Doubled));
    let (calm, doubled) = (events(&calm), events(&outcome));
    assert_eq!((&doubled[0], &doubled[1]), (&calm[0], &calm[0]));
}

#[test]
fn two_processes_work_at_the_same_time() {
    let point = request_of_write(&fixed(), 0);
    let outcome = run(point, Fault::Process(ProcessFault::Overlapped));
    let (start, end) = (times(&outcome, "process 1 starts")[0], times(&outcome, "process 0 is stopped")[0]);
    assert_eq!(end - start, 300);
    let of_process = |process: u64| {
        let requests = outcome.history.records().iter().filter(|record| (start..end).contains(&(record.at / 1000)));
        requests.filter(|it| matches!(&it.entry, Entry::Request(request) if request.process == process)).count()
    };
    assert!(of_process(0) > 1 && of_process(1) > 1, "{} {}", of_process(0), of_process(1));
}

#[test]
fn a_process_goes_on_beside_the_one_that_was_started_meanwhile() {
    let scenario = fixed().unconditional();
    let displaced = Fault::Process(ProcessFault::Displaced);
    assert_eq!(findings(&scenario, Point::Request(2), displaced), [""; 0]);
    let outcome = scenario.run(&Schedule::calm(0).with(Point::Request(2), displaced)).unwrap();
    let fault = times(&outcome, "fault  ")[0];
    let [starts, stops] = ["process 1 starts", "process 0 is stopped"].map(|what| times(&outcome, what)[0]);
    // The request at which it was paused may have reached its deadline meanwhile.
    let (mut of_first, mut answered) = (BTreeSet::new(), None);
    for record in outcome.history.records() {
        match &record.entry {
            Entry::Request(request) if request.process == 0 => _ = of_first.insert(request.number),
            Entry::Response { request, code: Some(200) } if of_first.contains(request) && record.at / 1000 > fault => {
                answered = answered.or(Some(record.at / 1000));
            }
            _ => {}
        }
    }
    assert_eq!([starts - fault, answered.expect("it goes on") - fault, stops - fault], [0, 300, 600]);
}

#[test]
fn the_api_server_is_away_for_five_minutes() {
    let away = Fault::Process(ProcessFault::ServerUnavailable);
    let outcome = run(request_of_write(&fixed(), 0), away);
    assert!((5..100).contains(&times(&outcome, "receives 503").len()), "{:?}", times(&outcome, "receives 503"));
    let (fault, created) = (times(&outcome, "fault  ")[0], times(&outcome, "ConfigMap default/build: Added")[0]);
    assert!((300..1000).contains(&(created - fault)), "{created} - {fault}");
}

#[test]
fn an_operator_that_insists_while_the_api_server_is_away_is_found() {
    let away = Fault::Process(ProcessFault::ServerUnavailable);
    let scenario = Scenario::new("insists", |manager| register(manager, Behavior::Insists), notes_its_instance);
    let expected =
        "hot-loop: get machines default/build more than 100 times in five minutes in which the API server answers 503";
    assert_eq!(findings(&scenario, request_of_write(&fixed(), 0), away), [expected]);
}

#[test]
fn a_user_wipes_the_status() {
    let wiped = Fault::User(UserFault::StatusWiped);
    let outcome = run(Point::Step(1), wiped);
    let statuses = outcome.history.records().iter().filter_map(|record| match &record.entry {
        Entry::Change { kind, object, .. } if kind == "Machine" => Some(object["status"]["instance"].is_string()),
        _ => None,
    });
    let mut changes: Vec<_> = statuses.collect();
    changes.dedup();
    assert_eq!(changes, [false, true, false, true], "it is noted again");
    let forgets = Scenario::new("forgets", |manager| register(manager, Behavior::Forgets), notes_labels_and_deletes);
    assert_eq!(findings(&forgets, Point::Step(1), wiped), [""; 0], "it may be where an operator remembers");
    let forgets = forgets.unconditional();
    let found = findings(&forgets, Point::Step(1), wiped);
    let twice =
        "created-twice: there are 2 configmaps of Machine build in namespace \"default\"; without faults at most 1";
    assert_eq!(found, [twice], "unless the author says that it isn't");
}

#[test]
fn finalizers_hold_the_object_and_its_children() {
    let gone = |outcome: &Outcome, what: &str| times(outcome, &format!("{what} default/build: Deleted"))[0];
    let deleted = |outcome: &Outcome| times(outcome, "deletes Machine build")[0];
    let outcome = run(Point::Step(1), Fault::User(UserFault::Held));
    let time = gone(&outcome, "Machine") - deleted(&outcome);
    assert!((600..640).contains(&time), "{time}");
    let outcome = run(Point::Step(1), Fault::User(UserFault::ChildrenHeld));
    let (machine, map) = (gone(&outcome, "Machine"), gone(&outcome, "ConfigMap"));
    assert_eq!(machine - deleted(&outcome), 0);
    assert!((600..640).contains(&(map - machine)), "{map} - {machine}");
}

#[test]
fn children_go_first_in_a_deletion_in_the_foreground() {
    let order = |outcome: &Outcome| -> Vec<String> {
        let changes = outcome.history.records().iter().filter_map(|record| match &record.entry {
            Entry::Change { change, kind, name, .. } if change == "Deleted" && name == "default/build" => Some(kind),
            _ => None,
        });
        changes.cloned().collect()
    };
    let foreground = Fault::User(UserFault::DeletedInForeground);
    assert_eq!(order(&run(Point::Step(2), foreground)), ["ConfigMap", "Machine"]);
    let background = fixed().run(&Schedule::calm(0)).unwrap();
    assert_eq!(order(&background), ["Machine", "ConfigMap"]);
}

#[test]
fn children_stay_if_the_deletion_orphans_them() {
    let outcome = run(Point::Step(2), Fault::User(UserFault::ChildrenOrphaned));
    let changes = outcome.history.records().iter().filter_map(|record| match &record.entry {
        Entry::Change { change, kind, name, object } if kind == "ConfigMap" && name == "default/build" => {
            Some((change.as_str(), object["metadata"]["ownerReferences"].is_array()))
        }
        _ => None,
    });
    assert_eq!(changes.collect::<Vec<_>>(), [("Added", true), ("Modified", false)]);
    assert_eq!(times(&outcome, "Machine default/build: Deleted").len(), 1);
}

#[test]
fn members_of_a_group_leave_and_join() {
    let scenario = fixed().shards(2);
    let point = request_of_write(&scenario, 0);
    let run = |fault| {
        assert_eq!(findings(&scenario, point, Fault::Process(fault)), [""; 0], "{fault}");
        let outcome = scenario.run(&Schedule::calm(0).with(point, Fault::Process(fault))).unwrap();
        let fault = times(&outcome, "fault       at ")[0];
        let [starts, stops] = ["process 2 starts", "process 2 is stopped"].map(|what| times(&outcome, what));
        (outcome, starts[0] - fault, stops.first().map(|time| time - fault))
    };
    let (outcome, starts, stops) = run(ProcessFault::MemberLeft);
    assert_eq!((starts, stops), (300, None));
    let noted = times(&outcome, "Machine default/build: Modified")[0] - times(&outcome, "fault       at ")[0];
    assert!((10..300).contains(&noted), "the other member does it, after {noted} s");
    let (_, starts, stops) = run(ProcessFault::MemberJoined);
    assert_eq!((starts, stops), (0, Some(300)));
}
