use std::{collections::BTreeSet, iter::successors};

use jiff::{ToSpan, civil};
use kubewright::clock::SystemClock;
use proptest::{prelude::*, sample::select};

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text, None).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Checks the times after `begin` by `next`, and backwards from the last one by `latest`.
fn check_times(text: &str, begin: &str, expect: &[&str]) {
    let schedule = schedule(text);
    let (begin, expect): (_, Vec<_>) = (time(begin), expect.iter().map(|text| time(text)).collect());
    let (mut at, mut found) = (begin, Vec::new());
    for _ in &expect {
        at = schedule.next(begin, at).unwrap_or_else(|| panic!("{text:?} has nothing after {at}"));
        found.push(at);
    }
    assert_eq!(found, expect, "{text:?}");
    let mut back = Vec::new();
    while let Some(latest) = schedule.latest(begin, at) {
        back.insert(0, latest);
        at = latest - 1.second();
    }
    assert_eq!(back, expect, "{text:?} backwards");
}

#[test]
fn schedules_that_robfig_accepts_are_accepted() {
    let begin = "2023-07-12T10:02:30Z"; // A Wednesday.
    let check = |text: &str, expect: &str| {
        assert_eq!(schedule(text).next(time(begin), time(begin)), Some(time(expect)), "{text:?}")
    };
    check("*/1 * * * *", "2023-07-12T10:03:00Z");
    check("* * * * *", "2023-07-12T10:03:00Z");
    check("? ? ? ? ?", "2023-07-12T10:03:00Z");
    check("  5\t* * *   * ", "2023-07-12T10:05:00Z");
    check("02 10 * * *", "2023-07-13T10:02:00Z");
    check("30/10 * * * *", "2023-07-12T10:30:00Z");
    check("1-10/4 * * * *", "2023-07-12T10:05:00Z");
    check("1,,50, * * * *", "2023-07-12T10:50:00Z");
    check("0 9-17 * * MON-fri", "2023-07-12T11:00:00Z");
    check("0 0 1 JAN,Jul *", "2024-01-01T00:00:00Z");
    check("0 0 * * 0", "2023-07-16T00:00:00Z");
    check("*/90 * * * *", "2023-07-12T11:00:00Z");
    check("+5 * * * *", "2023-07-12T10:05:00Z");
    check("*-3 * * * *", "2023-07-12T10:03:00Z");
    check("@yearly", "2024-01-01T00:00:00Z");
    check("@annually", "2024-01-01T00:00:00Z");
    check("@monthly", "2023-08-01T00:00:00Z");
    check("@weekly", "2023-07-16T00:00:00Z");
    check("@daily", "2023-07-13T00:00:00Z");
    check("@midnight", "2023-07-13T00:00:00Z");
    check("@hourly", "2023-07-12T11:00:00Z");
    check("@every 1h30m", "2023-07-12T11:32:30Z");
    check("@every 1500ms", "2023-07-12T10:02:31Z");
    check("TZ=UTC 0 12 * * *", "2023-07-12T12:00:00Z");
    check("TZ= 0 12 * * *", "2023-07-12T12:00:00Z");
    check("CRON_TZ=Asia/Seoul 0 12 * * *", "2023-07-13T03:00:00Z");
    check("CRON_TZ=Asia/Seoul @daily", "2023-07-12T15:00:00Z");
    check("TZ=Asia/Seoul @every 1m", "2023-07-12T10:03:30Z");
}

#[test]
fn a_day_of_month_or_a_day_of_week() {
    let begin = "2023-07-12T00:00:00Z";
    // With both days restricted, one is enough.
    check_times("0 0 13 * 5", begin, &["2023-07-13T00:00:00Z", "2023-07-14T00:00:00Z", "2023-07-21T00:00:00Z"]);
    // With one day unrestricted, the other decides.
    check_times("0 0 * * 5", begin, &["2023-07-14T00:00:00Z", "2023-07-21T00:00:00Z"]);
    check_times("0 0 13 * ?", begin, &["2023-07-13T00:00:00Z", "2023-08-13T00:00:00Z"]);
    // A star with a step is a restriction.
    check_times(
        "0 0 */20 * 5",
        begin,
        &["2023-07-14T00:00:00Z", "2023-07-21T00:00:00Z", "2023-07-28T00:00:00Z", "2023-08-01T00:00:00Z"],
    );
    check_times("0 0 */1 * 5", begin, &["2023-07-14T00:00:00Z", "2023-07-21T00:00:00Z"]);
}

#[test]
fn schedules_that_robfig_refuses_are_refused() {
    let check = |text: &str, part: &str| {
        let error = Schedule::parse(text, None).map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(part), "{text:?}: {error}");
        assert!(error.len() < 300, "{error}");
    };
    check("", "empty");
    check(" ", "found 0");
    check("* * * *", "found 4");
    check("* * * * * *", "found 6");
    check("nonsense", "found 1");
    check("60 * * * *", "minute \"60\": out of range 0 to 59");
    check("* 24 * * *", "hour \"24\": out of range 0 to 23");
    check("* * 0 * *", "day of month \"0\": out of range 1 to 31");
    check("* * 32 * *", "out of range");
    check("* * * 0 *", "month \"0\": out of range 1 to 12");
    check("* * * 13 *", "out of range");
    check("* * * * 7", "day of week \"7\": out of range 0 to 6");
    check("* * * * 5-7", "out of range");
    check("-1 * * * *", "not a number");
    check("5- * * * *", "not a number");
    check("1-2-3 * * * *", "not a number");
    check("1/2/3 * * * *", "not a number");
    check("*/ * * * *", "not a number");
    check("*/0 * * * *", "step must be at least 1");
    check("*/-1 * * * *", "not a number");
    check("10-5 * * * *", "ends before it begins");
    check("** * * * *", "not a number");
    check("1.5 * * * *", "not a number");
    check("99999999999999999999 * * * *", "not a number");
    check("jan * * * *", "not a number");
    check("* * * january *", "not a number");
    check("* * * * L", "not a number");
    check("* * * * 5#2", "not a number");
    check("*/1 * * * *\u{0}", "not a number");
    check("@every", "unknown word");
    check("@Daily", "unknown word");
    check("@reboot", "unknown word");
    check("@daily ", "unknown word");
    check(" @daily", "found 1");
    check("@every 0s", "at least one second");
    check("@every -5m", "at least one second");
    check("@every 999ms", "at least one second");
    check("@every 5", "not a duration");
    check("@every  5m", "not a duration");
    check("TZ=Nowhere 0 0 * * *", "unknown time zone \"Nowhere\"");
    check("CRON_TZ=Nowhere @daily", "unknown time zone");
    check("TZ=../../etc/passwd * * * * *", "unknown time zone");
    check("TZ=UTC", "found 0");
    check("TZ=", "found 0");
    check(&"*".repeat(100_000), "100000 bytes");
    check(&"* ".repeat(500), "found 500");
    check(&format!("{} * * * *", "9".repeat(900)), "…");
    check(&"😀".repeat(200), "found 1");
}

#[test]
fn the_time_zone_of_the_spec_is_for_a_schedule_without_one() {
    let begin = time("2023-07-12T00:00:00Z");
    let schedule = Schedule::parse("0 12 * * *", Some("Europe/Berlin")).unwrap();
    assert_eq!(schedule.next(begin, begin), Some(time("2023-07-12T10:00:00Z")));
    let error = |text: &str, zone: &str| Schedule::parse(text, Some(zone)).map(|_| ()).unwrap_err();
    assert_eq!(error("TZ=UTC 0 12 * * *", "UTC"), ScheduleError::TwoZones);
    assert_eq!(error("0 12 * * *", "Mars/Olympus"), ScheduleError::Zone("Mars/Olympus".into()));
    assert_eq!(error("0 12 * * *", "Local"), ScheduleError::Zone("Local".into()));
}

#[test]
fn a_local_time_that_is_skipped_runs_once() {
    // New York, 10 March 2024: 02:00 to 03:00 doesn't exist.
    check_times(
        "CRON_TZ=America/New_York 30 2 * * *",
        "2024-03-09T00:00:00Z",
        &["2024-03-09T07:30:00Z", "2024-03-10T07:30:00Z", "2024-03-11T06:30:00Z"],
    );
    // The skipped time coincides with another one.
    check_times(
        "CRON_TZ=America/New_York 30 2,3 * * *",
        "2024-03-10T00:00:00Z",
        &["2024-03-10T07:30:00Z", "2024-03-11T06:30:00Z", "2024-03-11T07:30:00Z"],
    );
    check_times(
        "CRON_TZ=America/New_York 0 * * * *",
        "2024-03-10T05:59:00Z",
        &["2024-03-10T06:00:00Z", "2024-03-10T07:00:00Z", "2024-03-10T08:00:00Z"],
    );
    // Half an hour is skipped on Lord Howe.
    check_times(
        "CRON_TZ=Australia/Lord_Howe 15 2 * * *",
        "2024-10-05T00:00:00Z",
        &["2024-10-05T15:45:00Z", "2024-10-06T15:15:00Z"],
    );
    // A whole day is skipped in Samoa: 30 December 2011.
    check_times(
        "CRON_TZ=Pacific/Apia 0 12 * * *",
        "2011-12-29T12:00:00Z",
        &["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"],
    );
    check_times("CRON_TZ=Pacific/Apia 0 12 30 12 *", "2011-12-01T12:00:00Z", &["2011-12-30T22:00:00Z"]);
}

#[test]
fn a_local_time_that_occurs_twice_runs_once() {
    // New York, 3 November 2024: 01:00 to 02:00 occurs twice.
    check_times(
        "CRON_TZ=America/New_York 30 1 * * *",
        "2024-11-02T00:00:00Z",
        &["2024-11-02T05:30:00Z", "2024-11-03T05:30:00Z", "2024-11-04T06:30:00Z"],
    );
    check_times(
        "CRON_TZ=America/New_York */20 1 3 11 *",
        "2024-11-03T00:00:00Z",
        &["2024-11-03T05:00:00Z", "2024-11-03T05:20:00Z", "2024-11-03T05:40:00Z"],
    );
    check_times(
        "CRON_TZ=America/New_York 0 1,2 * * *",
        "2024-11-03T00:00:00Z",
        &["2024-11-03T05:00:00Z", "2024-11-03T07:00:00Z", "2024-11-04T06:00:00Z"],
    );
    // Midnight occurs twice in Havana.
    check_times("CRON_TZ=America/Havana 0 0 3 11 *", "2024-11-01T00:00:00Z", &["2024-11-03T04:00:00Z"]);
    // With an unrestricted hour, both hours count.
    check_times(
        "CRON_TZ=America/New_York 30 * * * *",
        "2024-11-03T05:00:00Z",
        &["2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "2024-11-03T07:30:00Z"],
    );
}

#[test]
fn schedules_that_never_match_are_detected_at_once() {
    let check = |text: &str, never: bool| {
        let schedule = schedule(text);
        assert_eq!(schedule.never_matches(), never, "{text:?}");
        let now = time("2023-07-12T00:00:00Z");
        assert_eq!(schedule.next(now, now).is_none(), never, "{text:?}");
        assert_eq!(schedule.latest(time("1990-01-01T00:00:00Z"), now).is_none(), never, "{text:?}");
    };
    check("0 0 30 2 *", true);
    check("0 0 31 4,6,9,11 ?", true);
    check("0 0 31 2-4 *", false);
    check("0 0 29 2 *", false);
    // The weekday is enough.
    check("0 0 30 2 1", false);
    check(", * * * *", true);
    check("* , * * *", true);
    check("* * , * *", true);
    check("* * * , *", true);
    check("* * * * ,", true);
    check("0 0 , * 1", false);
}

#[test]
fn leap_days_are_found_over_the_longest_gap() {
    check_times("0 0 29 2 *", "2096-01-01T00:00:00Z", &["2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"]);
    let zoned = "CRON_TZ=Africa/Casablanca 0 0 29 2 *";
    let next = schedule(zoned).next(Timestamp::UNIX_EPOCH, time("2096-03-01T00:00:00Z"));
    assert_eq!(next.map(|next| next.to_string()[..7].to_owned()).as_deref(), Some("2104-02"));
}

#[test]
fn every_counts_from_the_anchor() {
    let every = schedule("@every 7m");
    let (anchor, now) = (time("2023-07-12T00:00:00Z"), time("2033-07-12T00:00:00Z"));
    let latest = every.latest(anchor, now).unwrap();
    assert!(latest <= now && now < every.next(anchor, now).unwrap());
    assert_eq!(latest.duration_since(anchor).as_secs() % 420, 0);
    assert_eq!(every.latest(anchor, anchor + 419.seconds()), None);
    assert_eq!(every.latest(anchor, anchor - 1.second()), None);
    assert_eq!(every.next(anchor, anchor - 1.hour()), Some(anchor + 7.minutes()));
    assert_eq!(schedule("@every 2562047h").next(anchor, Timestamp::MAX), None);
}

#[test]
fn the_minimum_and_maximum_times_are_supported() {
    for text in ["* * * * *", "0 0 1 1 *", "@every 1s", "TZ=Asia/Seoul 59 23 31 12 *", "TZ=America/New_York * * * * *"]
    {
        let schedule = schedule(text);
        for at in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            for anchor in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
                assert!(schedule.next(anchor, at).is_none_or(|next| next > at));
                assert!(schedule.latest(anchor, at).is_none_or(|latest| latest <= at && latest > anchor));
            }
        }
    }
}

#[test]
fn ten_years_of_missed_minutes_cost_no_more_than_one() {
    let clock = SystemClock::shared();
    let (anchor, now) = (time("2013-07-12T00:00:00Z"), time("2023-07-12T00:00:30Z"));
    for zone in ["UTC", "America/New_York"] {
        let schedule = Schedule::parse("* * * * *", Some(zone)).unwrap();
        let begun = clock.monotonic();
        for _ in 0..100 {
            assert_eq!(schedule.latest(anchor, now), Some(time("2023-07-12T00:00:00Z")));
        }
        let each = (clock.monotonic() - begun) / 100;
        // A generous limit for a busy machine: iterating over five million minutes would take much longer.
        assert!(each.as_millis() < 50, "{each:?}");
    }
}

/// A field as text, the numbers that it allows, and whether it is unrestricted.
fn field(min: u32, max: u32) -> impl Strategy<Value = (String, BTreeSet<u32>, bool)> {
    let stepped =
        (1..=max).prop_map(move |step| (format!("*/{step}"), (min..=max).step_by(step as usize).collect(), step == 1));
    let listed = proptest::collection::btree_set(min..=max, 1..4).prop_map(|numbers| {
        let texts: Vec<_> = numbers.iter().map(u32::to_string).collect();
        (texts.join(","), numbers, false)
    });
    prop_oneof![Just(("*".to_owned(), (min..=max).collect(), true)), stepped, listed]
}

/// Days with and without clock changes.
const DAYS: [(&str, &str); 9] = [
    ("UTC", "2024-02-28"),
    ("America/New_York", "2024-03-10"),
    ("America/New_York", "2024-11-03"),
    ("Europe/Berlin", "2040-10-28"),
    ("Australia/Lord_Howe", "2024-10-06"),
    ("Australia/Lord_Howe", "2024-04-07"),
    ("America/Havana", "2024-11-03"),
    ("Pacific/Apia", "2011-12-30"),
    ("Africa/Casablanca", "2024-03-10"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Compares the results with an iteration over every minute that a clock could show.
    #[test]
    fn next_and_latest_find_what_a_walk_finds(
        minute in field(0, 59),
        hour in field(0, 23),
        day in field(1, 31),
        month in field(1, 12),
        weekday in field(0, 6),
        (zone_name, around) in select(&DAYS[..]),
    ) {
        let text = format!("CRON_TZ={zone_name} {} {} {} {} {}", minute.0, hour.0, day.0, month.0, weekday.0);
        let schedule = schedule(&text);
        let zone = zone::find(zone_name).unwrap();
        let around: civil::Date = around.parse().unwrap();
        let mut expect = BTreeSet::new();
        let mut at = (around - 4.days()).at(0, 0, 0, 0);
        while at < (around + 4.days()).at(0, 0, 0, 0) {
            let has = |field: &(String, BTreeSet<u32>, bool), number: i8| field.1.contains(&(number as u32));
            let (by_day, by_weekday) = (has(&day, at.day()), has(&weekday, at.weekday().to_sunday_zero_offset()));
            let date = if day.2 || weekday.2 { by_day && by_weekday } else { by_day || by_weekday };
            if date && has(&month, at.month()) && has(&hour, at.hour()) && has(&minute, at.minute()) {
                let ambiguous = zone.to_ambiguous_timestamp(at);
                expect.insert(ambiguous.compatible().unwrap());
                if hour.2 && !matches!(ambiguous.offset(), jiff::tz::AmbiguousOffset::Gap { .. }) {
                    expect.insert(ambiguous.later().unwrap());
                }
            }
            at += 1.minute();
        }
        let bound = |days: i64| zone.to_timestamp((around + days.days()).at(0, 0, 0, 0)).unwrap();
        let (begin, end) = (bound(-2), bound(3));
        expect.retain(|at| *at > begin && *at <= end);
        let expect: Vec<_> = expect.into_iter().collect();

        let forward = successors(schedule.next(begin, begin), |at| schedule.next(begin, *at));
        let forward: Vec<_> = forward.take_while(|at| *at <= end).collect();
        prop_assert_eq!(&forward, &expect, "{}", text);
        let backward = successors(schedule.latest(begin, end), |at| schedule.latest(begin, *at - 1.second()));
        let mut backward: Vec<_> = backward.collect();
        backward.reverse();
        prop_assert_eq!(&backward, &expect, "{} backwards", text);
    }

    /// Any text is parsed or refused quickly, and an error has a short message.
    #[test]
    fn any_text_is_read_or_refused(text in prop_oneof![
        any::<String>(),
        "[0-9*?/,@ a-zA-Z=_.-]{0,60}",
        "(TZ=|CRON_TZ=)?[A-Za-z/]{0,10} ?([0-9*/,?-]{1,6} ){4}[0-9*/,?-]{1,6}",
        "@every -?[0-9.]{0,25}(ns|us|µs|ms|s|m|h|d)?([0-9]{1,3}[smh])?",
    ], zone in proptest::option::of("[A-Za-z/]{0,12}")) {
        match Schedule::parse(&text, zone.as_deref()) {
            Err(error) => prop_assert!(error.to_string().len() < 400),
            Ok(schedule) => {
                let (anchor, now) = (time("2013-07-12T00:00:00Z"), time("2023-07-12T00:00:30Z"));
                let next = schedule.next(anchor, now);
                prop_assert!(next.is_none_or(|next| next > now));
                prop_assert!(schedule.latest(anchor, now).is_none_or(|latest| anchor < latest && latest <= now));
                prop_assert!(matches!(schedule.rule, Rule::Every(_)) || next.is_none() == schedule.never_matches());
            }
        }
    }
}
