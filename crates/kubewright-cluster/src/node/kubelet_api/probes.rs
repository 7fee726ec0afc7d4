//! The numbers and durations of the probes of containers, `/metrics/probes`. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kubewright_apimachinery::status::Status;

use super::metrics::{add_histogram, add_sample, family, histogram, write};
use crate::node::probe_counts::{BOUNDS, Counts, Probed};

/// Returns the text of `/metrics/probes` for a node that has been started at a time.
///
/// # Errors
/// If a metric has no name, which a test excludes.
pub(super) fn text_of(probes: &BTreeMap<Probed, Counts>, started: Timestamp) -> Result<String, Status> {
    let mut durations = histogram("prober_probe_duration_seconds", "[ALPHA] Duration in seconds for a probe response.");
    let mut total = family(
        "prober_probe_total",
        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
    );
    for (Probed { container, namespace, pod, uid, kind }, counts) in probes {
        let labels = [("container", &**container), ("namespace", namespace), ("pod", pod)];
        if counts.durations.0 > 0 {
            let labels: Vec<_> = labels.into_iter().chain([("probe_type", *kind)]).collect();
            add_histogram(&mut durations, &labels, BOUNDS.into_iter().zip(counts.buckets), counts.durations);
        }
        for (result, count) in &counts.results {
            let more = [("pod_uid", &**uid), ("probe_type", kind), ("result", result)];
            let labels: Vec<_> = labels.into_iter().chain(more).collect();
            add_sample(&mut total, &labels, *count as f64, 0);
        }
    }
    let mut start =
        family("process_start_time_seconds", "[ALPHA] Start time of the process since unix epoch in seconds.");
    add_sample(&mut start, &[], started.as_duration().as_secs_f64(), 0);
    write(vec![durations, total, start])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::{
        pod::probe::{ProbeResult, ProbeType},
        probe_counts::{ProbeCounts, name_of},
    };

    #[test]
    fn probes_are_counted_by_result() {
        let probed = |kind| Probed {
            container: "main".into(),
            namespace: "default".into(),
            pod: "web".into(),
            uid: "u".into(),
            kind: name_of(kind),
        };
        let counts = ProbeCounts::default();
        let add = |kind, result, millis| counts.add(probed(kind), &result, Duration::from_millis(millis));
        add(ProbeType::Liveness, ProbeResult::Success, 20);
        add(ProbeType::Liveness, ProbeResult::Warning("w".into()), 300);
        add(ProbeType::Liveness, ProbeResult::Failure("f".into()), 20);
        add(ProbeType::Readiness, ProbeResult::Unknown("u".into()), 20_000);
        let text = text_of(&counts.all(), Timestamp::UNIX_EPOCH).expect("text");
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let total = |kind: &str, result: &str, count: u32| {
            format!(
                "prober_probe_total{{container=\"main\",namespace=\"default\",pod=\"web\",pod_uid=\"u\",probe_type=\"{kind}\",\
                 result=\"{result}\"}} {count}"
            )
        };
        for line in
            [total("Liveness", "failed", 1), total("Liveness", "successful", 2), total("Readiness", "unknown", 1)]
        {
            assert!(samples.contains(&&*line), "{line} in {text}");
        }
        let bucket = |kind: &str, bound: &str, count: u32| {
            format!(
                "prober_probe_duration_seconds_bucket{{container=\"main\",namespace=\"default\",pod=\"web\",\
                 probe_type=\"{kind}\",le=\"{bound}\"}} {count}"
            )
        };
        for line in [
            bucket("Liveness", "0.01", 0),
            bucket("Liveness", "0.025", 1),
            bucket("Liveness", "0.5", 2),
            bucket("Liveness", "+Inf", 2),
            bucket("Readiness", "10", 0),
            bucket("Readiness", "+Inf", 1),
        ] {
            assert!(samples.contains(&&*line), "{line} in {text}");
        }
        assert!(text.ends_with("process_start_time_seconds 0\n"), "{text}");
        counts.forget("u");
        assert!(!text_of(&counts.all(), Timestamp::UNIX_EPOCH).expect("text").contains("prober"));
    }
}
