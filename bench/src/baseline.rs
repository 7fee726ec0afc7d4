//! `kubewright cluster` beside the same command of another build: the same requests of the same client to both, in
//! turns.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::Method;
use kubewright_apimachinery::clock::SharedClock;

use crate::{
    creates::pod,
    kubernetes::{self, PODS, Series, median},
    load::Target,
    process,
    report::{Limit, Outcome},
    sizes::Sizes,
};

const METHOD: &str = "`kubewright cluster --pods simulate` of this build and of another one, as processes of their own on the same two cores; one \
    is idle while the other is measured, in turns, and no controller works when the gets begin, which take turns twenty times a round. The requests and the client are those of `beside-kubernetes`, but no scheduler looks at the pods, \
    and they have no token of a service account. The figure is the quotient of \
    the medians.";

/// The number of parts of a round's gets. They take so little time that the machine's other load would decide which
/// server is faster.
const SHARES: usize = 20;

/// The time without work after which a server counts as idle.
const QUIET: Duration = Duration::from_secs(1);

/// Measures both commands in turns.
pub(crate) async fn compared(
    kubewright: &Path,
    baseline: &Path,
    sizes: &Sizes,
    clock: &SharedClock,
) -> Result<Vec<Outcome>> {
    let mut servers = Vec::new();
    for program in [kubewright, baseline] {
        let (cluster, kubeconfig) = process::cluster(program, &["--pods", "simulate"])?;
        let kubeconfig = fs::read_to_string(kubeconfig).context("read the kubeconfig")?;
        servers.push((cluster, Target::new(&process::config(&kubeconfig).await?, None)?));
    }
    let mut pod = serde_json::to_value(pod()).context("write a pod")?;
    pod["spec"]["schedulerName"] = "another".into();
    pod["spec"]["automountServiceAccountToken"] = false.into();
    let mut series: [Series; 2] = Default::default();
    for round in 0..sizes.rounds {
        let mut order = [0, 1];
        order.rotate_left(round % 2);
        for server in order {
            let (cluster, target) = &mut servers[server];
            let creates = kubernetes::creates(target, pod.clone(), round, sizes.compared, clock).await?;
            process::rest(cluster, QUIET).await?;
            series[server].config_map_creates.push(creates.config_maps);
            series[server].pod_creates.push(creates.pods);
        }
        for _ in 0..SHARES {
            for server in order {
                let gets = kubernetes::gets(&servers[server].1, sizes.compared / SHARES, clock).await?;
                series[server].gets.push(gets);
            }
            order.rotate_left(1);
        }
        for (cluster, target) in &mut servers {
            target.send(Method::DELETE, &format!("{PODS}?gracePeriodSeconds=0"), Bytes::new()).await?;
            process::rest(cluster, QUIET).await?;
        }
    }
    let outcome = |name, rates: fn(&Series) -> &Vec<f64>| {
        let [ours, theirs] = [0, 1].map(|server: usize| median(rates(&series[server]).clone()));
        let details = format!("{ours:.0} a second; the other build {theirs:.0} a second");
        Outcome { name, figure: ours / theirs, unit: "times", limit: Limit::AtLeast(1.0), details, method: METHOD }
    };
    let outcomes = vec![
        outcome("baseline-config-map-creates", |series| &series.config_map_creates),
        outcome("baseline-pod-creates", |series| &series.pod_creates),
        outcome("baseline-gets", |series| &series.gets),
    ];
    for (cluster, _) in servers {
        cluster.end()?;
    }
    Ok(outcomes)
}
