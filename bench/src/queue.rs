//! The cost of the work queue: per cycle, and with many scheduled keys.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use kubewright::{
    clock::SystemClock,
    metrics::Metrics,
    object::ObjectKey,
    queue::{Backoff, NORMAL_PRIORITY, Now, Queue, SharedQueue, When},
    random::Random,
};
use kubewright_apimachinery::clock::SharedClock;
use tokio::process::Command;

use crate::{
    report::{Limit, Outcome, percentile},
    sizes::Sizes,
};

/// The number of keys that go through the queue in a round.
const KEYS: usize = 1_000;
/// The delay after which a scheduled key is due again.
const PERIOD: Duration = Duration::from_secs(3600);

fn keys(count: usize) -> Vec<ObjectKey> {
    (0..count)
        .map(|number| ObjectKey::namespaced(&format!("team-{}", number % 100), &format!("object-{number}")))
        .collect()
}

fn microseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// Measures cycles and scheduled keys.
pub(crate) async fn both(sizes: &Sizes, clock: &SharedClock) -> Result<Vec<Outcome>> {
    Ok(vec![cycles(sizes, clock).await?, scheduled(sizes, clock)?])
}

/// Adds a thousand keys, then takes each and marks it as done.
async fn cycles(sizes: &Sizes, clock: &SharedClock) -> Result<Outcome> {
    let (keys, count) = (keys(KEYS), sizes.queue_rounds);
    let mut queue = Queue::new(Backoff::default());
    let mut taken = 0;
    let mut bare = rounds(count, clock, || {
        let now = Now { monotonic: clock.monotonic(), wall: Timestamp::UNIX_EPOCH };
        for key in &keys {
            queue.add(key.clone(), NORMAL_PRIORITY, When::Now, now);
        }
        while let Some(next) = queue.take(now) {
            queue.done(&next.key);
            taken += 1;
        }
    });
    let shared = SharedQueue::new(SystemClock::shared(), Metrics::new(SystemClock::shared()).queue("bench"));
    let mut shared = rounds(count, clock, || {
        for key in &keys {
            shared.add(key.clone(), NORMAL_PRIORITY, When::Now);
        }
        while let Some(next) = shared.with(|queue, now| queue.take(now)) {
            shared.with(|queue, _| queue.done(&next.key));
            taken += 1;
        }
    });
    ensure!(taken == 2 * (count + count / 10) * KEYS, "{taken} keys were taken");
    let figure = microseconds(percentile(&mut bare, 50));
    Ok(Outcome {
        name: "queue",
        figure,
        unit: "µs",
        limit: Limit::AtMost(300.0),
        details: format!(
            "p99 {:.0} µs; with lock, clock, notification and metrics, as in a controller, {:.0} µs, p99 {:.0} µs; controller-runtime's priority \
             queue on a laptop, as published by its authors: 1,049 µs, its prototype 300 µs; {}",
            microseconds(percentile(&mut bare, 99)),
            microseconds(percentile(&mut shared, 50)),
            microseconds(percentile(&mut shared, 99)),
            in_go(sizes).await,
        ),
        method: "One thread adds 1,000 keys (namespace and name) to the queue, then takes each and marks it as done; 1,000 rounds \
                 after 100 for warming up. The figure is the median round. It is the queue of the controllers. The Go queues \
                 (`bench/peers/queue-go`) do the same with their locks and goroutines, controller-runtime's with its metrics: \
                 compare them with the queue with lock, clock, notification and metrics.",
    })
}

/// Returns the results of Go's queues, or the reason why there are none: the other results don't need Go or its
/// modules.
async fn in_go(sizes: &Sizes) -> String {
    if sizes.smoke {
        return "Go's queues are not part of a smoke run".to_owned();
    }
    match go_peers().await {
        Ok(peers) => format!("in Go here: {}", peers.join(", ")),
        Err(error) => format!("Go's queues were not measured here: {error:#}"),
    }
}

async fn go_peers() -> Result<Vec<String>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/queue-go");
    let program = std::env::current_exe().context("find this program")?.with_file_name("queue-go");
    let mut build = Command::new("go");
    output(build.args(["build", "-o"]).arg(&program).arg(".").current_dir(sources)).await?;
    let told = output(&mut Command::new(program)).await?;
    let peers = told.lines().map(|line| {
        let [module, version, median] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("the peer printed {line:?}")
        };
        let median: f64 = median.parse().with_context(|| format!("read the peer's {line:?}"))?;
        Ok(format!("{module} {version} {median:.0} µs"))
    });
    peers.collect()
}

/// Returns the standard output of a program that succeeds. There is a timeout, since downloading modules hangs without
/// a network.
async fn output(command: &mut Command) -> Result<String> {
    const PATIENCE: Duration = Duration::from_secs(300);
    let name = command.as_std().get_program().display().to_string();
    let output = tokio::time::timeout(PATIENCE, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = output.with_context(|| format!("{name} took too long"))?.with_context(|| format!("run {name}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}", errors.trim().lines().last().unwrap_or("it failed"));
    String::from_utf8(output.stdout).with_context(|| format!("read what {name} printed"))
}

/// Returns the time of each round.
fn rounds(count: usize, clock: &SharedClock, mut round: impl FnMut()) -> Vec<Duration> {
    (0..count / 10).for_each(|_| round());
    let mut timed = || {
        let begun = clock.monotonic();
        round();
        clock.monotonic().saturating_sub(begun)
    };
    (0..count).map(|_| timed()).collect()
}

/// Schedules ever more keys, and takes, completes and reschedules the next one that is due.
fn scheduled(sizes: &Sizes, clock: &SharedClock) -> Result<Outcome> {
    let spans = sizes
        .scheduled_keys
        .iter()
        .map(|size| step(*size, sizes.scheduled_steps, clock))
        .collect::<Result<Vec<_>>>()?;
    let growth = spans.windows(2).map(|pair| pair[1] / pair[0]).fold(0.0, f64::max);
    let told: Vec<_> =
        sizes.scheduled_keys.iter().zip(&spans).map(|(size, span)| format!("{span:.2} µs with {size}")).collect();
    Ok(Outcome {
        name: "queue-scheduled",
        figure: growth,
        unit: "times",
        limit: Limit::AtMost(3.0),
        details: format!("a step takes {}", told.join(", ")),
        method: "1,000 to 1,000,000 keys wait for times within the next hour, in random order. A step advances the time until the \
                 next key is due, takes it, marks it as done, and schedules it an hour later; 200,000 steps each. The figure is \
                 the maximum growth of a step when there are ten times as many keys. Linear growth would be 10; the growth here is \
                 that of the logarithm and of cache misses.",
    })
}

/// Returns the duration of a step in microseconds.
fn step(size: usize, steps: usize, clock: &SharedClock) -> Result<f64> {
    let random = Random::seeded(1);
    let mut queue = Queue::new(Backoff::default());
    let mut now = Now { monotonic: Duration::ZERO, wall: Timestamp::UNIX_EPOCH };
    for key in keys(size) {
        queue.add(key, NORMAL_PRIORITY, When::After(PERIOD.mul_f64(random.fraction())), now);
    }
    let begun = clock.monotonic();
    for _ in 0..steps {
        now.monotonic += queue.next_wake(now).unwrap_or_default();
        let Some(next) = queue.take(now) else { continue };
        queue.done(&next.key);
        queue.add(next.key, NORMAL_PRIORITY, When::After(PERIOD), now);
    }
    let took = clock.monotonic().saturating_sub(begun);
    ensure!(now.monotonic > Duration::ZERO && queue.working() == 0, "the keys were not taken in turn");
    Ok(microseconds(took) / steps as f64)
}
