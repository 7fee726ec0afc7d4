//! The local storage that a pod uses, and its limits: the node evicts a pod that uses more
//! (<https://kubernetes.io/docs/concepts/storage/ephemeral-storage/>).
//!
//! The files of a container are those in its own directories, and its logs. What it writes elsewhere on the host isn't
//! counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use crate::{
    controllers::scheduler::fit,
    node::volume,
    quantity::{PARTS, quantity},
};

/// The time between two measurements: the period of the kubelet's eviction manager.
pub(super) const MEASURED_EVERY: Duration = Duration::from_secs(10);
/// The maximum number of files and directories that a measurement of one volume or container looks at.
const ENTRIES: usize = 1 << 20;
/// The least priority of pods that are never evicted, that of `system-cluster-critical`.
const CRITICAL: i32 = 2_000_000_000;
/// The name of the resource.
const RESOURCE: &str = "ephemeral-storage";
/// The length of the random part of a log's name, with the dash before it.
const LOG_SUFFIX: usize = 6;

/// The limits of a pod.
#[derive(Debug)]
pub(super) struct StorageLimits {
    /// All volumes that count as local storage, by name.
    volumes: BTreeMap<String, LocalVolume>,
    /// All containers, with the limits of main containers, by name.
    containers: BTreeMap<String, Option<Limit>>,
    /// The limit of the whole pod.
    pod: Option<Limit>,
}

/// A volume whose files are the pod's own.
#[derive(Debug)]
struct LocalVolume {
    limit: Option<Limit>,
    /// Whether it is in memory, which doesn't count as local storage of the pod.
    in_memory: bool,
}

/// A limit.
#[derive(Clone, Debug)]
struct Limit {
    /// As written.
    text: String,
    /// In billionths of a byte.
    amount: i128,
}

/// What a pod uses in bytes, by the names of volumes and containers.
#[derive(Debug, Default)]
struct Used {
    volumes: BTreeMap<String, u64>,
    containers: BTreeMap<String, u64>,
}

impl Limit {
    fn read(text: &str) -> Option<Self> {
        Some(Self { text: text.to_owned(), amount: quantity(text)? })
    }

    fn is_exceeded(&self, bytes: u64) -> bool {
        i128::from(bytes) * PARTS > self.amount
    }
}

impl StorageLimits {
    /// Returns the limits of a pod; `None` if it has none, or is never evicted.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref().filter(|spec| spec.priority.is_none_or(|priority| priority < CRITICAL))?;
        let volumes: BTreeMap<_, _> = spec.volumes.iter().flatten().filter_map(local_volume).collect();
        let limit = |container: &Container| {
            let limit = Limit::read(&container.resources.as_ref()?.limits.as_ref()?.get(RESOURCE)?.0)?;
            Some(limit).filter(|limit| limit.amount != 0)
        };
        let main = spec.containers.iter().map(|container| (container.name.clone(), limit(container)));
        let init = spec.init_containers.iter().flatten().map(|container| (container.name.clone(), None));
        let containers: BTreeMap<_, _> = main.chain(init).collect();
        let pod = serde_json::to_value(pod).ok().and_then(|pod| fit::limits(&pod).get(RESOURCE).copied());
        let pod = pod.map(|amount| Limit { text: written(amount, spec), amount });
        let limits = Self { volumes, containers, pod };
        let has_any = limits.pod.is_some() || limits.volumes.values().any(|volume| volume.limit.is_some());
        has_any.then_some(limits)
    }

    /// Measures what a pod uses, and returns the message about a limit that it exceeds. Blocks.
    pub(super) fn measure(&self, pod_directory: &Path, memory: Option<&Path>) -> Option<String> {
        let is_counted = |volume: &LocalVolume| volume.limit.is_some() || (self.pod.is_some() && !volume.in_memory);
        let volumes = self.volumes.iter().filter(|(_, volume)| is_counted(volume)).map(|(name, volume)| {
            let path = volume::directory(pod_directory, memory, name, volume.in_memory);
            (name.clone(), bytes_below(&path))
        });
        let mut used = Used { volumes: volumes.collect(), containers: BTreeMap::new() };
        if self.pod.is_some() {
            let logs = logs(pod_directory);
            for name in self.containers.keys() {
                let own = [pod_directory.join(name), pod_directory.join(format!(".view-{name}"))];
                let files = own.iter().map(|path| bytes_below(path)).sum::<u64>();
                let logs = logs.get(name).copied().unwrap_or_default();
                used.containers.insert(name.clone(), files.saturating_add(logs));
            }
        }
        self.exceeded(&used)
    }

    /// Returns the message about the first limit that is exceeded: those of volumes, of the pod, of containers.
    fn exceeded(&self, used: &Used) -> Option<String> {
        let bytes = |of: &BTreeMap<String, u64>, name: &String| of.get(name).copied().unwrap_or_default();
        for (name, volume) in &self.volumes {
            if let Some(limit) = volume.limit.as_ref().filter(|limit| limit.is_exceeded(bytes(&used.volumes, name))) {
                return Some(format!("Usage of EmptyDir volume {name:?} exceeds the limit {:?}. ", limit.text));
            }
        }
        let volumes = self.volumes.iter().filter(|(_, volume)| !volume.in_memory);
        let volumes = volumes.map(|(name, _)| bytes(&used.volumes, name));
        let total = volumes.chain(used.containers.values().copied()).fold(0, u64::saturating_add);
        if let Some(limit) = self.pod.as_ref().filter(|limit| limit.is_exceeded(total)) {
            let text = &limit.text;
            return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {text}. "));
        }
        self.containers.iter().find_map(|(name, limit)| {
            let limit = limit.as_ref().filter(|limit| limit.is_exceeded(bytes(&used.containers, name)))?;
            Some(format!("Container {name} exceeded its local ephemeral storage limit {:?}. ", limit.text))
        })
    }
}

/// Returns a volume that counts as local storage, with its name.
fn local_volume(volume: &Volume) -> Option<(String, LocalVolume)> {
    let found = match &volume.empty_dir {
        Some(empty) => LocalVolume {
            limit: empty.size_limit.as_ref().and_then(|limit| Limit::read(&limit.0)).filter(|limit| limit.amount > 0),
            in_memory: empty.medium.as_deref() == Some("Memory"),
        },
        None => volume.config_map.as_ref().map(|_| LocalVolume { limit: None, in_memory: false })?,
    };
    Some((volume.name.clone(), found))
}

/// Returns the bytes of all logs in a pod's directory, by container.
fn logs(pod_directory: &Path) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::<String, u64>::new();
    for entry in fs::read_dir(pod_directory).into_iter().flatten().flatten().take(ENTRIES) {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some((run, _)) = name.strip_suffix(".log").and_then(|name| name.rsplit_once('.')) else { continue };
        let container = run.len().checked_sub(LOG_SUFFIX).and_then(|length| run.get(..length));
        if let (Some(container), Ok(metadata)) = (container, entry.metadata()) {
            let sum = sums.entry(container.to_owned()).or_default();
            *sum = sum.saturating_add(occupied(&metadata));
        }
    }
    sums
}

fn occupied(metadata: &fs::Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}

/// Returns the bytes that the files below a directory occupy on its file system. A file with several names counts once.
fn bytes_below(path: &Path) -> u64 {
    let Ok(top) = path.symlink_metadata() else { return 0 };
    let (mut sum, mut seen) = (0u64, BTreeSet::new());
    let mut folders: Vec<PathBuf> = top.is_dir().then(|| path.to_owned()).into_iter().collect();
    let mut left = ENTRIES;
    while let Some(folder) = folders.pop() {
        // Entries that disappear in the meantime occupy nothing.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if left == 0 {
                return sum;
            }
            left -= 1;
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != top.dev() {
                continue;
            }
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.is_file() && (metadata.nlink() < 2 || seen.insert(metadata.ino())) {
                sum = sum.saturating_add(occupied(&metadata));
            }
        }
    }
    sum
}

/// Writes the limit of a pod in the notation of its containers' limits.
fn written(amount: i128, spec: &PodSpec) -> String {
    let limits = spec.containers.iter().filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    let is_binary = limits.filter_map(|limits| limits.get(RESOURCE)).any(|limit| limit.0.ends_with('i'));
    let thousandths = i64::try_from(amount / (PARTS / 1000)).unwrap_or(i64::MAX);
    kubewright_apiserver::milli_quantity(thousandths, is_binary)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limits(spec: Value) -> Option<StorageLimits> {
        let pod = json!({"metadata": {"name": "web"}, "spec": spec});
        StorageLimits::of(&serde_json::from_value(pod).expect("a pod"))
    }

    fn container(name: &str, limit: &str) -> Value {
        json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}})
    }

    /// Checks the message about a pod with these files in its directory.
    #[track_caller]
    fn check(spec: Value, files: &[(&str, usize)], expect: Option<&str>) {
        let (pod, memory) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        for (path, kilobytes) in files {
            let path = match path.strip_prefix("memory/") {
                Some(path) => memory.path().join(path),
                None => pod.path().join(path),
            };
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, vec![1; kilobytes << 10]).expect("a file");
        }
        let limits = limits(spec).expect("limits");
        assert_eq!(limits.measure(pod.path(), Some(memory.path())).as_deref(), expect);
    }

    #[test]
    fn an_empty_directory_has_its_own_limit() {
        let spec = |medium| {
            let empty = json!({"sizeLimit": "1Mi", "medium": medium});
            json!({"containers": [{"name": "main"}], "volumes": [{"name": "cache", "emptyDir": empty}]})
        };
        let message = "Usage of EmptyDir volume \"cache\" exceeds the limit \"1Mi\". ";
        check(spec(""), &[(".volumes/cache/a/b", 600), (".volumes/cache/c", 600), ("main/x", 2000)], Some(message));
        check(spec(""), &[(".volumes/cache/a", 900), ("memory/cache/c", 1600)], None);
        check(spec("Memory"), &[("memory/cache/c", 1600)], Some(message));
    }

    #[test]
    fn a_container_uses_its_files_and_logs() {
        let spec = json!({"containers": [container("main", "1Mi"), container("side", "3Mi")],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]});
        let message = "Container main exceeded its local ephemeral storage limit \"1Mi\". ";
        let logs = [("main-abcde.0.log", 500), ("main-fghij.0.log", 400), ("main-side-abcde.0.log", 2000)];
        check(spec.clone(), &logs, None);
        check(spec.clone(), &[&logs[..], &[("main/file", 200)]].concat(), Some(message));
        check(spec.clone(), &[("main/file", 800), (".view-main/file", 300)], Some(message));
        let message = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ";
        check(spec.clone(), &[("main/file", 800), ("side/file", 2000), (".volumes/v/a", 1500)], Some(message));
        check(spec, &[("main/file", 800), ("memory/m/a", 5000)], None);
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a"), vec![1; 8192]).expect("a file");
        fs::hard_link(folder.path().join("a"), folder.path().join("b")).expect("a link");
        std::os::unix::fs::symlink("/", folder.path().join("c")).expect("a link");
        assert_eq!(bytes_below(folder.path()), 8192);
        assert_eq!(bytes_below(&folder.path().join("c")), 0);
    }

    #[test]
    fn pods_without_limits_and_critical_ones_are_not_measured() {
        assert!(
            limits(json!({"containers": [{"name": "main"}], "volumes": [{"name": "v", "emptyDir": {}}]})).is_none()
        );
        assert!(limits(json!({"containers": [container("main", "1Mi")]})).is_some());
        assert!(limits(json!({"priority": 2_000_000_000, "containers": [container("main", "1Mi")]})).is_none());
    }
}
