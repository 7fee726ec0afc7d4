//! The file of an audit log, which is renamed when it is large.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use kubewright_apimachinery::clock::SharedClock;

/// What the names of compressed files end with.
const COMPRESSED: &str = ".gz";
/// The time in the name of an older file, as kube-apiserver writes it.
const TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// When a log begins a new file, and how long it keeps the older ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// The greatest size of the file in bytes; without a limit if 0.
    pub(super) max_size: u64,
    /// The number of older files that are kept; all if 0.
    pub(super) max_backups: usize,
    /// The age in days after which older files are removed; never if 0.
    pub(super) max_age: u32,
    /// Whether older files are compressed by gzip.
    pub(super) compresses: bool,
}

/// The file of a log. What would make it larger than its limit is written to a new file of the same name; the older one
/// gets the time in its name: `audit-2026-01-31T12-00-00.000.log`.
pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    clock: SharedClock,
    file: File,
    size: u64,
}

impl RotatingFile {
    /// Opens a file, readable only by this user if it has to be created, and tidies up the older ones.
    pub(super) fn open(path: &Path, rotation: Rotation, clock: SharedClock) -> Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        }
        let opened = append(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (size, file) = opened.with_context(|| format!("open the audit log {}", path.display()))?;
        let log = Self { path: path.to_owned(), rotation, clock, file, size };
        log.tidy_older();
        Ok(log)
    }

    fn rotate(&mut self) -> io::Result<()> {
        let time = self.clock.now().strftime(TIME).to_string();
        fs::rename(&self.path, self.path.with_file_name(self.name_of_older(&time)))?;
        self.file = append(&self.path)?;
        self.size = 0;
        self.tidy_older();
        Ok(())
    }

    /// Returns the name of an older file: the time is before the extension.
    fn name_of_older(&self, time: &str) -> String {
        let (stem, extension) = self.name();
        format!("{stem}{time}{extension}")
    }

    /// Returns what is before and behind the time in the names of older files.
    fn name(&self) -> (String, String) {
        let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let extension = text(self.path.extension());
        let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
        (format!("{}-", text(self.path.file_stem())), extension)
    }

    /// Removes older files, those beyond the number and those beyond the age, and compresses the others.
    fn tidy_older(&self) {
        let Rotation { max_backups, max_age, compresses, .. } = self.rotation;
        let oldest = self.clock.now() - SignedDuration::from_hours(24 * i64::from(max_age));
        for (index, (time, path)) in self.older().into_iter().enumerate() {
            let is_beyond = max_backups > 0 && index >= max_backups || max_age > 0 && time < oldest;
            let tidied = if is_beyond {
                fs::remove_file(&path)
            } else if compresses && !path.to_string_lossy().ends_with(COMPRESSED) {
                compress(&path)
            } else {
                Ok(())
            };
            if let Err(error) = tidied {
                tracing::warn!(%error, path = %path.display(), "an older file of the audit log stays as it is");
            }
        }
    }

    /// Returns the older files with their times, the latest first.
    fn older(&self) -> Vec<(Timestamp, PathBuf)> {
        let (stem, extension) = self.name();
        let directory = self.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut older: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name();
                let name = name.to_str()?;
                let time =
                    name.strip_suffix(COMPRESSED).unwrap_or(name).strip_prefix(&stem)?.strip_suffix(&extension)?;
                let time = DateTime::strptime(TIME, time).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
                Some((time, entry.path()))
            })
            .collect();
        older.sort_unstable_by(|one, other| other.cmp(one));
        older
    }
}

impl Write for RotatingFile {
    /// Writes an event, whole. One that is larger than a file is an error.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let (length, max_size) = (u64::try_from(event.len()).unwrap_or(u64::MAX), self.rotation.max_size);
        if max_size > 0 {
            if length > max_size {
                return Err(io::Error::other(format!("an event of {length} bytes is larger than a file of the log")));
            }
            if self.size + length > max_size {
                self.rotate()?;
            }
        }
        self.file.write_all(event)?;
        self.size += length;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Replaces a file by a compressed one.
fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(COMPRESSED);
    // One of an earlier attempt isn't whole.
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(name)?;
    let mut compressed = GzEncoder::new(file, Compression::default());
    io::copy(&mut File::open(path)?, &mut compressed)?;
    compressed.finish()?.sync_all()?;
    fs::remove_file(path)
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use kubewright_apimachinery::clock::VirtualClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_large_file_is_kept_under_another_name_as_long_as_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit.log");
        let clock = VirtualClock::starting_at("2026-01-31T12:00:00Z".parse().unwrap());
        let mut rotation = Rotation { max_size: 10, max_backups: 2, max_age: 1, compresses: false };
        let open_with = |rotation| RotatingFile::open(&path, rotation, clock.clone()).unwrap();
        let open = || open_with(rotation);
        let names = || {
            let entries = fs::read_dir(folder.path().join("logs")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let mut log = open();
        for event in ["aaaa\n", "bbbb\n", "cccc\n"] {
            log.write_all(event.as_bytes()).unwrap();
        }
        let older = "audit-2026-01-31T12-00-00.000.log";
        assert_eq!(names(), [older, "audit.log"]);
        assert_eq!(fs::read_to_string(path.with_file_name(older)).unwrap(), "aaaa\nbbbb\n");
        assert!(log.write_all(b"more than ten bytes").is_err());
        fs::write(path.with_file_name("audit-old.log"), "somebody's").unwrap();
        for _ in 0..3 {
            clock.jump(SignedDuration::from_hours(1));
            log = open();
            log.write_all(b"dddd\neeee\n").unwrap();
        }
        let expect =
            ["audit-2026-01-31T14-00-00.000.log", "audit-2026-01-31T15-00-00.000.log", "audit-old.log", "audit.log"];
        assert_eq!(names(), expect);
        clock.jump(SignedDuration::from_mins(24 * 60 - 30));
        drop(open());
        assert_eq!(names(), &expect[1..]);

        rotation.compresses = true;
        drop(open_with(rotation));
        let compressed = "audit-2026-01-31T15-00-00.000.log.gz";
        assert_eq!(names(), [compressed, "audit-old.log", "audit.log"]);
        let mut text = String::new();
        let file = File::open(path.with_file_name(compressed)).unwrap();
        GzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "dddd\neeee\n");
        clock.jump(SignedDuration::from_hours(1));
        drop(open_with(rotation));
        assert_eq!(names(), ["audit-old.log", "audit.log"]);
    }
}
