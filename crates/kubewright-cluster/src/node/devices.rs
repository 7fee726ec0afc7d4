//! Local volumes that are block devices, which the node formats and mounts
//! (<https://kubernetes.io/docs/concepts/storage/volumes/#local>).
//!
//! A device is mounted once for all pods that use it, in the directory of the node, and unmounted when the last of them
//! is gone. One that has a file system or partitions isn't formatted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use parking_lot::Mutex;

use super::{mounts, view::find_program};

/// The directory of the node with the mounted devices. No pod has this UID.
const FOLDER: &str = ".devices";
/// The type of file systems that devices are formatted with by default.
const TYPE: &str = "ext4";
/// The exit code of `blkid` for a device without known content.
const UNKNOWN: i32 = 2;
/// The exit code of `fsck` for errors that it couldn't repair.
const UNREPAIRED: i32 = 4;

/// A local volume that is a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    /// The path of the device.
    pub(crate) path: PathBuf,
    /// The name of the volume.
    pub(crate) volume: String,
    /// The type of the file system that it is to have; empty for the default one.
    pub(crate) fs_type: String,
    /// The options of the mount.
    pub(crate) options: Vec<String>,
}

/// The devices that a node has mounted.
#[derive(Debug)]
pub(crate) struct Devices {
    folder: PathBuf,
    /// The UIDs of the pods that use each device, by its mount point.
    users: Mutex<BTreeMap<PathBuf, BTreeSet<String>>>,
}

impl Devices {
    /// Creates the record of a node with this directory.
    pub(crate) fn new(directory: &Path) -> Self {
        Self { folder: directory.join(FOLDER), users: Mutex::default() }
    }

    /// Mounts a device for a pod, after it is formatted if it is empty, unless it is mounted. Returns the mount point.
    /// Blocks.
    ///
    /// # Errors
    /// If the device can't be formatted, checked or mounted.
    pub(crate) fn mount(&self, uid: &str, device: &Device) -> io::Result<PathBuf> {
        let point = self.folder.join(&device.volume);
        let mut users = self.users.lock();
        if !users.contains_key(&point) {
            fs::create_dir_all(&point)?;
            let mounted = mount(device, &point);
            mounted.inspect_err(|_| drop(fs::remove_dir(&point)))?;
        }
        users.entry(point.clone()).or_default().insert(uid.to_owned());
        Ok(point)
    }

    /// Unmounts the devices that only this pod has used. Blocks.
    ///
    /// # Errors
    /// If a device can't be unmounted.
    pub(crate) fn release(&self, uid: &str) -> io::Result<()> {
        let mut users = self.users.lock();
        let mut unused = Vec::new();
        users.retain(|point, pods| {
            if pods.remove(uid) && pods.is_empty() {
                unused.push(point.clone());
            }
            !pods.is_empty()
        });
        unused.iter().try_for_each(|point| mounts::detach(point).and_then(|()| fs::remove_dir(point)))
    }
}

fn mount(device: &Device, point: &Path) -> io::Result<()> {
    let Device { path, fs_type, options, .. } = device;
    let wanted = if fs_type.is_empty() { TYPE } else { fs_type.as_str() };
    let read_only = options.iter().any(|option| option == "ro");
    if is_empty(path)? {
        if read_only {
            return Err(io::Error::other(format!("cannot mount unformatted disk {} read-only", path.display())));
        }
        let program = format!("mkfs.{wanted}");
        let arguments: &[&str] = match wanted {
            "ext3" | "ext4" => &["-F", "-m0"],
            "xfs" => &["-f"],
            _ => &[],
        };
        succeeded(&program, run(&program, arguments, path)?)?;
    } else if !read_only {
        let output = run("fsck", &["-a"], path)?;
        if output.status.code() == Some(UNREPAIRED) {
            return succeeded("fsck", output);
        }
    }
    let options = [options.join(","), "defaults".into()].into_iter().filter(|option| !option.is_empty());
    let options = options.collect::<Vec<_>>().join(",");
    let mut command = Command::new(program("mount")?);
    command.args(["-t", wanted, "-o", &options]).arg(path).arg(point);
    succeeded("mount", command.output()?)
}

/// Returns whether a device has neither a file system nor partitions.
fn is_empty(device: &Path) -> io::Result<bool> {
    let output = run("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"], device)?;
    if output.status.code() == Some(UNKNOWN) {
        return Ok(true);
    }
    succeeded("blkid", output).map(|()| false)
}

fn program(name: &str) -> io::Result<PathBuf> {
    find_program(name)
        .ok_or_else(|| io::Error::other(format!("{name} is not installed, which local block devices need")))
}

fn run(name: &str, arguments: &[&str], device: &Path) -> io::Result<Output> {
    Command::new(program(name)?).args(arguments).arg(device).output()
}

/// Returns what a program said if it has failed.
fn succeeded(name: &str, output: Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(io::Error::other(format!("{name} failed with {}: {}", output.status, String::from_utf8_lossy(&said).trim())))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A device whose content is a file.
    struct Loop(PathBuf);

    impl Loop {
        /// Returns `None` where there are no such devices.
        fn new(file: &Path) -> Option<Self> {
            let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
            let path = String::from_utf8(output.stdout).expect("a path").trim().to_owned();
            output.status.success().then(|| Self(path.into()))
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ended = Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    #[test]
    fn a_device_is_formatted_once_and_mounted_while_a_pod_uses_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("disk");
        fs::File::create(&file).and_then(|file| file.set_len(16 << 20)).expect("a file");
        let Some(disk) = Loop::new(&file) else { return };
        let device = Device { path: disk.0.clone(), volume: "v".into(), ..Device::default() };
        let devices = Devices::new(folder.path());
        let point = devices.mount("one", &device).expect("mounted");
        assert!(point.join("lost+found").exists());
        fs::write(point.join("file"), "content").expect("written");
        assert_eq!(devices.mount("two", &device).expect("mounted already"), point);
        devices.release("one").expect("released");
        assert!(point.join("file").exists(), "the other pod uses it");
        devices.release("two").expect("released");
        assert!(!point.exists());
        let point = devices.mount("one", &device).expect("mounted again");
        assert_eq!(fs::read_to_string(point.join("file")).expect("there"), "content");
        mounts::remove_tree(folder.path().join(FOLDER).as_path()).expect("unmounted");
    }
}
