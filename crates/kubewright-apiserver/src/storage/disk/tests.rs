use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write as _},
    process::{Command, Stdio},
    thread,
};

use kubewright_apimachinery::random::Random;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::storage::{Limits, Mutation, Store};

/// Set for the process that is killed: its data directory.
const VICTIM: &str = "KUBEWRIGHT_TEST_VICTIM";
/// Set by `cargo xtask test --all`.
const EXHAUSTIVE: &str = "KUBEWRIGHT_EXHAUSTIVE";
const NEVER: u64 = u64::MAX;

fn open_with(path: &Path, compact_at: u64, durability: Durability) -> Result<Store, DataDirError> {
    Store::open(Limits::default(), DiskOptions { path: path.to_owned(), compact_at, durability })
}

fn open(path: &Path) -> Store {
    open_with(path, NEVER, Durability::Process).unwrap()
}

fn change(store: &Store, name: &str, mutation: Mutation) -> Result<u64, WriteError> {
    let mut mutation = Some(mutation);
    let decide = |_: Option<&_>| Ok::<_, WriteError>(mutation.take().unwrap_or(Mutation::Keep));
    let committed = store.transact(&"/pods".into(), &Key::new("ns", name), decide, |_, _| {})?;
    Ok(committed.object.map_or(0, |object| object.revision()))
}

fn try_put(store: &Store, name: &str, data: &Value) -> Result<u64, WriteError> {
    change(store, name, Mutation::Put(json!({"metadata": {"name": name}, "data": data})))
}

fn put(store: &Store, name: &str, data: impl Into<Value>) -> u64 {
    try_put(store, name, &data.into()).unwrap()
}

fn remove(store: &Store, name: &str) -> u64 {
    change(store, name, Mutation::Remove(json!({"metadata": {"name": name}}))).unwrap()
}

/// The revision and data of each object.
type Content = BTreeMap<String, (u64, Value)>;

fn content(store: &Store) -> Content {
    let objects = store.snapshot("/pods").objects;
    let entry = |(key, object): (&Key, &Arc<Stored>)| {
        let value = object.value();
        assert_eq!(value["metadata"]["resourceVersion"], object.revision().to_string());
        (key.name.to_string(), (object.revision(), value["data"].clone()))
    };
    objects.iter().map(entry).collect()
}

fn wait_for_compaction(store: &Store) {
    if let crate::storage::Writer::Disk(log) = &mut *store.writer.lock() {
        log.wait_for_compaction();
    }
}

fn log_of(path: &Path) -> PathBuf {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("log-")).max().unwrap()
}

#[test]
fn objects_revisions_and_watches_continue() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("data");
    let store = open(&path);
    assert!(store.is_new());
    let first = put(&store, "a", 1);
    put(&store, "b", json!({"text": "\u{e4}\u{1f600}\n", "number": 0.1}));
    put(&store, "a", 2);
    let last = remove(&store, "b");
    let expect = content(&store);
    drop(store);
    let store = open(&path);
    assert_eq!((content(&store), store.revision()), (expect, last));
    let mut cursor = store.cursor(&"/pods".into(), first);
    let seen: Vec<_> = cursor.read(&store, 10).unwrap().iter().map(|event| event.object.change().as_str()).collect();
    assert_eq!(seen, ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(put(&store, "c", 3), last + 1);
}

#[test]
fn a_forgotten_history_stays_forgotten() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path());
    let first = put(&store, "a", 1);
    let second = put(&store, "a", 2);
    store.forget_history().unwrap();
    drop(store);
    let store = open(directory.path());
    assert!(store.cursor(&"/pods".into(), first).read(&store, 10).is_err());
    assert!(store.cursor(&"/pods".into(), second).read(&store, 10).is_ok());
}

#[test]
fn a_long_log_is_replaced_by_a_snapshot() {
    let directory = TempDir::new().unwrap();
    let size =
        || fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    let store = open_with(directory.path(), 4096, Durability::Process).unwrap();
    for number in 0..1000 {
        put(&store, &format!("a{}", number % 10), number);
        wait_for_compaction(&store);
    }
    let expect = content(&store);
    assert!(size() < 4 * 4096, "{} bytes", size());
    drop(store);
    let store = open(directory.path());
    assert_eq!(content(&store), expect);
    assert!(store.cursor(&"/pods".into(), 2).read(&store, 10).is_err(), "the history is gone");
}

#[test]
fn logs_are_read_when_their_snapshot_was_never_completed() {
    let directory = TempDir::new().unwrap();
    let store = open_with(directory.path(), 4096, Durability::Process).unwrap();
    let snapshots = || {
        let names = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("snapshot-")).count()
    };
    while snapshots() == 0 {
        put(&store, "a", "x");
        wait_for_compaction(&store);
    }
    let base = store.revision();
    let kept = TempDir::new().unwrap();
    // What is there when the process is killed while the next snapshot is written.
    if let crate::storage::Writer::Disk(log) = &mut *store.writer.lock() {
        let (file, length) = log.directory.create(FileKind::Log, base, |file| Ok(file.metadata()?.len())).unwrap();
        (log.file, log.length) = (Arc::new(file), length);
    }
    put(&store, "b", 1);
    let expect = content(&store);
    copy(directory.path(), kept.path());
    fs::write(kept.path().join(format!("snapshot-{base:020}.tmp")), "kubewright snap").unwrap();
    let store = open(kept.path());
    assert_eq!(content(&store), expect);
    assert!(!kept.path().join(format!("snapshot-{base:020}.tmp")).exists());
}

#[test]
fn a_revision_is_not_used_twice_after_a_failure_of_the_machine() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path());
    let last = put(&store, "a", 1);
    let kept = TempDir::new().unwrap();
    copy(directory.path(), kept.path());
    // The last server was not closed, and the machine has been started since.
    let mut buffer = Vec::new();
    Record::Opened("another start").encode(&mut buffer).unwrap();
    fs::OpenOptions::new().append(true).open(log_of(kept.path())).unwrap().write_all(&buffer).unwrap();
    let store = open(kept.path());
    assert!(store.revision() > last + 100_000);
    assert!(store.cursor(&"/pods".into(), last).read(&store, 10).is_err(), "what was watched may have been lost");
    let next = put(&store, "b", 1);
    drop(store);
    let store = open(kept.path());
    assert_eq!((store.revision(), content(&store).len()), (next, 2), "a closed directory continues");
}

#[test]
fn a_directory_has_one_server() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path());
    let error = open_with(directory.path(), NEVER, Durability::Process).unwrap_err();
    assert!(error.to_string().ends_with(&format!("is in use by process {}", std::process::id())), "{error}");
    store.close();
    assert!(try_put(&store, "a", &json!(1)).unwrap_err().to_string().contains("closed"));
    open(directory.path());
}

#[cfg(unix)]
#[test]
fn only_the_user_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("a/b");
    let store = open_with(&path, 1, Durability::Process).unwrap();
    put(&store, "a", 1);
    wait_for_compaction(&store);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 3, "{files:?}");
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
}

#[test]
fn a_newer_directory_is_refused() {
    let directory = TempDir::new().unwrap();
    drop(open(directory.path()));
    let log = log_of(directory.path());
    fs::write(&log, "kubewright log 1 format 2\nwhatever").unwrap();
    let error = open_with(directory.path(), NEVER, Durability::Process).unwrap_err();
    assert!(error.to_string().contains("newer version of Kubewright: it has format 2"), "{error}");
    assert_eq!(fs::read_to_string(&log).unwrap(), "kubewright log 1 format 2\nwhatever", "unchanged");
}

#[test]
fn a_change_that_cannot_be_written_is_not_made() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path());
    let revision = put(&store, "a", 1);
    let replace = |file: File| match &mut *store.writer.lock() {
        crate::storage::Writer::Disk(log) => std::mem::replace(&mut log.file, Arc::new(file)),
        _ => unreachable!(),
    };
    replace(File::open(log_of(directory.path())).unwrap());
    let error = try_put(&store, "a", &json!(2)).unwrap_err();
    assert!(error.to_string().contains("can't be stored: failed to write"), "{error}");
    assert_eq!((store.revision(), content(&store)["a"].1.clone()), (revision, json!(1)));
    // The file couldn't be shortened, so nothing is appended to it again.
    replace(File::options().append(true).open(log_of(directory.path())).unwrap());
    assert!(try_put(&store, "a", &json!(2)).is_err());
}

#[tokio::test]
async fn changes_on_the_disk_are_waited_for() {
    let directory = TempDir::new().unwrap();
    let store = Arc::new(open_with(directory.path(), 4096, Durability::Machine).unwrap());
    let write = |task: u64| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0..50 {
                put(&store, &format!("a{task}"), number);
                store.synced().await.unwrap();
            }
        })
    };
    for task in (0..8).map(write).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(content(&store).len(), 8);
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "lock" {
            fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

/// A directory with a snapshot and a log, and the content at each revision of the log.
fn directory_with_both() -> (TempDir, BTreeMap<u64, Content>) {
    let directory = TempDir::new().unwrap();
    let store = open_with(directory.path(), 600, Durability::Process).unwrap();
    let names = || fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name());
    let mut number = 0;
    while !names().any(|name| name.to_string_lossy().starts_with("snapshot-")) {
        number += 1;
        put(&store, &format!("a{}", number % 3), number);
        wait_for_compaction(&store);
    }
    drop(store);
    let store = open(directory.path());
    let mut states = BTreeMap::from([(store.revision(), content(&store))]);
    for number in 0..4 {
        put(&store, &format!("b{number}"), "x".repeat(20 * number));
        states.insert(store.revision(), content(&store));
        remove(&store, &format!("b{}", number / 2 * 2));
        put(&store, &format!("b{}", number / 2 * 2), number);
        states.insert(store.revision() - 1, Content::new());
        states.insert(store.revision(), content(&store));
    }
    drop(store);
    (directory, states)
}

/// The places of a file that are damaged: all, or about two hundred.
fn places(length: usize) -> impl Iterator<Item = usize> {
    let all = std::env::var_os(EXHAUSTIVE).is_some_and(|value| !value.is_empty());
    (0..length).step_by(if all { 1 } else { (length / 200).max(1) })
}

#[test]
fn damage_is_reported_with_its_place() {
    let (directory, _) = directory_with_both();
    let files = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files.filter(|path| !path.ends_with("lock")).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        for place in places(bytes.len()) {
            let (copied, mut flipped) = (TempDir::new().unwrap(), bytes.clone());
            copy(directory.path(), copied.path());
            let name = copied.path().join(file.file_name().unwrap());
            flipped[place] ^= 1 << (place % 8);
            fs::write(&name, &flipped).unwrap();
            match open_with(copied.path(), NEVER, Durability::Process).unwrap_err() {
                DataDirError::Damaged { path, offset, expected } => {
                    assert_eq!(path, name, "{expected}");
                    assert!(offset <= place as u64 && place as u64 - offset < 400, "{place}: {offset}, {expected}");
                }
                DataDirError::Newer { path, .. } => assert!(path == name && place < 60, "{place}"),
                other => panic!("{place}: {other}"),
            }
            assert_eq!(fs::read(&name).unwrap(), flipped, "unchanged");
        }
    }
}

#[test]
fn a_log_may_end_anywhere_and_a_snapshot_may_not() {
    let (directory, states) = directory_with_both();
    let files = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    for file in files.filter(|path| !path.ends_with("lock")) {
        let is_log = file == log_of(directory.path());
        let bytes = fs::read(&file).unwrap();
        let line = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for place in places(bytes.len()) {
            let copied = TempDir::new().unwrap();
            copy(directory.path(), copied.path());
            let name = copied.path().join(file.file_name().unwrap());
            fs::write(&name, &bytes[..place]).unwrap();
            let opened = open_with(copied.path(), NEVER, Durability::Process);
            if !is_log || place < line {
                assert!(matches!(opened, Err(DataDirError::Damaged { path, .. }) if path == name), "cut at {place}");
                continue;
            }
            let store = opened.unwrap();
            let expect = &states[&store.revision()];
            assert!(expect.is_empty() || content(&store) == *expect, "cut at {place}");
            let next = put(&store, "c", 1);
            let expect = content(&store);
            drop(store);
            let store = open(copied.path());
            assert_eq!((store.revision(), content(&store)), (next, expect), "cut at {place}");
        }
    }
}

/// The number of threads that write in the process that is killed, each to objects of its own.
const WRITERS: usize = 4;
const WRITES: usize = 10_000;

/// Writes until it is killed, and prints each change after it was acknowledged: thread, number, name, revision, and
/// whether the object was stored.
fn victim(path: &Path) {
    let store = open_with(path, 100_000, Durability::Process).unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                let random = Random::from_entropy();
                for number in 1..=WRITES / WRITERS {
                    let name = format!("{writer}-{}", random.u64() % 50);
                    let stored =
                        !random.u64().is_multiple_of(3) || store.get("/pods", &Key::new("ns", &name)).is_none();
                    let revision = if stored { put(store, &name, number) } else { remove(store, &name) };
                    let line = format!("\n={writer} {number} {name} {revision} {stored}=\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
    std::io::stdout().flush().unwrap();
}

/// What a killed process has acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// The revision and data of each object; `None` if it was removed.
    objects: BTreeMap<String, (u64, Option<usize>)>,
    /// The number of the last change of each thread.
    last: [usize; WRITERS],
    revision: u64,
}

impl Acknowledged {
    fn read(&mut self, line: &str) -> Option<()> {
        let fields: Vec<_> = line.trim_end().strip_prefix('=')?.strip_suffix('=')?.split(' ').collect();
        let [writer, number, name, revision, stored] = fields[..] else { return None };
        let (number, revision) = (number.parse().unwrap(), revision.parse().unwrap());
        self.last[writer.parse::<usize>().unwrap()] = number;
        self.objects.insert(name.to_owned(), (revision, (stored == "true").then_some(number)));
        self.revision = self.revision.max(revision);
        Some(())
    }

    /// Checks that every acknowledged change is there, and at most one more of each thread.
    fn check(&self, store: &Store) {
        let mut more = [0; WRITERS];
        let found = content(store);
        let names: std::collections::BTreeSet<_> = self.objects.keys().chain(found.keys()).collect();
        for name in names {
            let writer: usize = name.split('-').next().unwrap().parse().unwrap();
            let found = found.get(name).map(|(revision, data)| (*revision, data.as_u64().unwrap() as usize));
            let acknowledged = self.objects.get(name).and_then(|(revision, data)| Some((*revision, (*data)?)));
            if found != acknowledged {
                more[writer] += 1;
                if let Some((revision, number)) = found {
                    assert!(revision > self.objects.get(name).map_or(0, |(revision, _)| *revision), "{name} came back");
                    assert_eq!(number, self.last[writer] + 1, "{name} has an older state");
                }
            }
        }
        assert!(more.iter().all(|count| *count <= 1), "changes are missing: {more:?}");
        assert!(store.revision() >= self.revision);
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_has_acknowledged() {
    if let Some(path) = std::env::var_os(VICTIM) {
        return victim(Path::new(&path));
    }
    let all = std::env::var_os(EXHAUSTIVE).is_some_and(|value| !value.is_empty());
    let name = thread::current().name().unwrap().to_owned();
    for round in 0..if all { 100 } else { 5 } {
        let directory = TempDir::new().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&name, "--exact", "--nocapture"])
            .env(VICTIM, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut acknowledged = Acknowledged::default();
        let kill_after = Random::from_entropy().u64() as usize % WRITES;
        let (mut count, mut line) = (0, String::new());
        while lines.read_line(&mut line).unwrap() > 0 {
            if acknowledged.read(&line).is_some() {
                count += 1;
                if count == kill_after {
                    child.kill().unwrap();
                }
            }
            line.clear();
        }
        child.wait().unwrap();
        assert!(count >= kill_after, "round {round}: {count} of {kill_after}");
        let store = open(directory.path());
        acknowledged.check(&store);
        let next = put(&store, "0-0", 0);
        assert!(next > acknowledged.revision, "round {round}");
    }
}
