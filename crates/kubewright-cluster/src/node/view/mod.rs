//! The file system as a container sees it: that of the host, with the pod's volumes at their mount paths.
//!
//! A container's process starts in a mount namespace of its own, below a root directory that is put together there: the
//! directories of the host are bound into it, and the volumes onto them. A directory in which a mount path doesn't
//! exist is replaced by one of the pod, with links to what the host's directory contains. If containers are isolated,
//! each file system of the host is mounted there below a layer ([`layers`]) that keeps what the container writes, and
//! the program is the first of a process namespace, or in that of its pod ([`processes`]).
//!
//! So no mount point is created on the host, and no other process sees the mounts, which end with the process. A
//! command of `kubectl exec` enters the namespace of the container, or gets one of its own with the same mounts. The
//! name of the host is the pod's there, in a UTS namespace.
//!
//! `unshare`, `nsenter`, `mount` and a shell do the work, since the namespace has to be entered between the fork and
//! the start of the program: as root directly, otherwise in a user namespace. Whether that works is tried once.

mod layers;
mod layout;
mod processes;

use std::{
    env,
    ffi::OsString,
    fmt::Display,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use rustix::process::{getegid, geteuid};
use tokio::time::sleep;

pub(crate) use self::processes::{SharedProcesses, VisibleProcesses};
use self::{layers::Layers, layout::Layout};

/// The directory of the root directory that contains the host's own root, and directories of the pod.
const OWN: &str = ".kubewright";
/// The directory of the node for the trial of its [`Tools`].
pub(crate) const TRIAL: &str = ".trial";
/// The number of attempts to mount the file systems of a view before it is an error: a mount of the host that ends
/// meanwhile makes one fail.
pub(crate) const TRIALS: u32 = 3;
/// The number of looks at a process that mounts its file systems, and the pause before the next one.
const LOOKS: (u32, Duration) = (10_000, Duration::from_millis(1));
/// The number of links in a path after which Linux gives up.
const LINKS: u32 = 40;
/// Mounts by a table, sets the name of the host, if possible, and executes the rest of the arguments. If the mounts
/// fail, the reason and a mark are beside the table.
const SCRIPT: &str = r#""$0" --all --fstab "$1" 2>"$1.error" || { : >"$1.failed"; exit 125; }
{ [ -z "$2" ] || echo "$2" >/proc/sys/kernel/hostname || hostname "$2" || :; } 2>/dev/null
shift 2; exec "$@""#;

/// A volume, or a part of it, at a path of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The path in the container.
    pub(crate) path: PathBuf,
    /// The path on the host.
    pub(crate) source: PathBuf,
    /// Whether the container can't write.
    pub(crate) read_only: bool,
    pub(crate) propagation: Propagation,
}

/// Where what is mounted in a volume later is seen
/// (<https://kubernetes.io/docs/concepts/storage/volumes/#mount-propagation>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// Only where it is mounted.
    #[default]
    None,
    /// In the container, if the host mounts it.
    HostToContainer,
    /// On the host, too, if the container mounts it.
    Bidirectional,
}

impl Propagation {
    /// Returns the one of this name in a pod.
    pub(crate) fn named(name: Option<&str>) -> Self {
        match name {
            Some("HostToContainer") => Self::HostToContainer,
            Some("Bidirectional") => Self::Bidirectional,
            _ => Self::None,
        }
    }
}

/// The programs that make mount namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tools {
    unshare: PathBuf,
    /// Enters the namespace of a process; `None` if that takes more than the namespace.
    nsenter: Option<PathBuf>,
    mount: PathBuf,
    shell: PathBuf,
    /// The user and group to return to, if mounts need a user namespace.
    user: Option<(u32, u32)>,
    /// Whether mounts can be read-only.
    read_only: bool,
    /// Whether containers have layers of their own above the file systems of the host, and may have processes of their
    /// own.
    isolated: bool,
}

/// The view of one container.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct View {
    tools: Arc<Tools>,
    root: PathBuf,
    table: PathBuf,
    mounts: Vec<Mount>,
    /// `None` if the container shares the file systems of the host.
    layers: Option<Layers>,
    options: ViewOptions,
}

/// What programs see besides files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewOptions {
    /// The name of the host; `None` for the host's own.
    pub(crate) host_name: Option<String>,
    /// Whether only the mounts that aren't read-only themselves, and the file systems of the kernel, can be
    /// written; in a user namespace, which can't make every mount read-only, it has no effect.
    pub(crate) read_only: bool,
    /// The processes that it sees. If containers aren't isolated, they are those of the host.
    pub(crate) processes: VisibleProcesses,
}

impl Tools {
    /// Finds out whether this process can make mount namespaces, and isolate containers if it should. Blocks for some
    /// milliseconds. `folder` is for files of the trial.
    ///
    /// # Errors
    /// Returns the reason why it can't.
    pub(crate) fn find(folder: &Path, isolated: bool) -> Result<Self, String> {
        let [unshare, mount, shell] = ["unshare", "mount", "sh"].map(find_program);
        let (Some(unshare), Some(mount), Some(shell)) = (unshare, mount, shell) else {
            return Err("unshare and mount of util-linux are not installed".into());
        };
        let is_root = geteuid().is_root();
        let nsenter = find_program("nsenter").filter(|_| is_root);
        if isolated && nsenter.is_none() {
            return Err(if is_root {
                "nsenter of util-linux is not installed"
            } else {
                "only root can mount them: run the command with sudo"
            }
            .into());
        }
        let tools = Self { unshare, nsenter, mount, shell, user: None, read_only: true, isolated };
        let user = Some((geteuid().as_raw(), getegid().as_raw()));
        let direct = is_root.then_some((None, true));
        let in_namespaces = [(user, true), (user, false)].into_iter().filter(|_| !isolated);
        let mut why = String::new();
        for (user, read_only) in direct.into_iter().chain(in_namespaces) {
            let nsenter = tools.nsenter.clone().filter(|_| user.is_none());
            let tools = Self { nsenter, user, read_only, ..tools.clone() };
            let tried = (1..TRIALS).fold(tools.try_out(folder), |tried, _| tried.or_else(|_| tools.try_out(folder)));
            match tried {
                Ok(()) => return Ok(tools),
                Err(error) => why = error.to_string().trim().replace('\n', "; "),
            }
        }
        Err(why)
    }

    /// Returns whether mounts can be seen in several namespaces. If one of a view is to be, the directory of the view
    /// has to be on a mount that is private, since the others would be seen on the host, too.
    pub(crate) fn can_propagate(&self) -> bool {
        self.user.is_none()
    }

    fn try_out(&self, folder: &Path) -> io::Result<()> {
        let volume = folder.join("volume");
        fs::create_dir_all(&volume)?;
        fs::write(volume.join("file"), "")?;
        let path = PathBuf::from("/var/run/secrets/kubewright.dev/trial");
        let file = path.join("file").to_string_lossy().into_owned();
        let mount = Mount { path, source: volume, read_only: true, propagation: Propagation::None };
        let options =
            ViewOptions { host_name: Some("trial".into()), read_only: false, processes: VisibleProcesses::Own };
        let view = View::new(Arc::new(self.clone()), &folder.join("view"), vec![mount], options)?;
        if self.isolated && !Path::new("/proc/thread-self/children").exists() {
            return Err(io::Error::other("/proc doesn't tell the children of processes (CONFIG_PROC_CHILDREN)"));
        }
        let write = if self.isolated { "[ $$ = 1 ] && echo >/.kubewright/trial" } else { ":" };
        let argv = [format!("test -e {file} && ! test -e {} && {write}", self.marker())];
        let mut command = view.command(&self.shell, Path::new("/"));
        let output = command.arg("-c").args(argv).env_clear().output()?;
        if output.status.success() {
            return Ok(());
        }
        let why = view.failure().unwrap_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned());
        Err(io::Error::other(if why.is_empty() { format!("a trial ended with {}", output.status) } else { why }))
    }

    /// A path that exists nowhere.
    fn marker(&self) -> &'static str {
        "/.kubewright/host/.kubewright"
    }
}

/// Finds a program of the host, in the `PATH` of this process or where programs usually are.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_absolute() && file.is_file())
}

impl View {
    /// Creates a view in `folder`, which is emptied, and whose parent belongs to the pod: the container finds it at the
    /// same path.
    ///
    /// # Errors
    /// If a file can't be written, or a mount path can't be used.
    pub(crate) fn new(
        tools: Arc<Tools>,
        folder: &Path,
        mut mounts: Vec<Mount>,
        mut options: ViewOptions,
    ) -> io::Result<Self> {
        if !tools.isolated {
            options.processes = VisibleProcesses::Host;
        }
        options.read_only &= tools.user.is_none();
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let root = folder.join("root");
        fs::create_dir_all(&root)?;
        follow_links(&mut mounts);
        let layers = tools.isolated.then(|| Layers::new(&folder.join("layers"))).transpose()?;
        let propagates = tools.can_propagate() && mounts.iter().any(|mount| mount.propagation != Propagation::None);
        let mut layout = Layout::new(&root, layers.as_ref(), &options, propagates)?;
        layout.add(&mounts, folder.parent().unwrap_or(folder), &tools)?;
        let table = folder.join("fstab");
        fs::write(&table, layout.table())?;
        Ok(Self { tools, root, table, mounts, layers, options })
    }

    /// Returns the command that starts a program with this view, to which the program's arguments are added.
    pub(crate) fn command(&self, program: &Path, directory: &Path) -> Command {
        let Tools { unshare, mount, shell, user, .. } = &*self.tools;
        let mut command = self.unshare();
        command.arg("--mount");
        if self.propagates() {
            // The copies of the host's mounts keep their propagation. Those that the container sees are made private
            // one by one.
            command.args(["--propagation", "unchanged"]);
        }
        if self.options.host_name.is_some() {
            command.arg("--uts");
        }
        if user.is_some() {
            command.args(["--user", "--map-root-user"]);
        }
        command.arg(shell).args(["-c", SCRIPT]).arg(mount).arg(&self.table);
        command.arg(self.options.host_name.as_deref().unwrap_or_default()).arg(unshare);
        if let Some((user, group)) = user {
            command.arg("--user").arg(format!("--map-user={user}")).arg(format!("--map-group={group}"));
        }
        command.arg(option("--root=", &self.root)).arg(option("--wd=", directory)).arg("--").arg(program);
        command.current_dir("/");
        command
    }

    /// Returns whether anything that is mounted later is seen elsewhere. A user namespace can't do that.
    fn propagates(&self) -> bool {
        self.tools.can_propagate() && self.mounts.iter().any(|mount| mount.propagation != Propagation::None)
    }

    /// Returns the command that creates namespaces, to which those besides the one of processes are added.
    fn unshare(&self) -> Command {
        let Tools { unshare, nsenter, .. } = &*self.tools;
        match (&self.options.processes, nsenter) {
            (VisibleProcesses::Own, _) => {
                let mut command = Command::new(unshare);
                command.args(["--pid", "--fork", "--kill-child"]);
                command
            }
            (VisibleProcesses::In(namespace), Some(nsenter)) => {
                let mut command = Command::new(nsenter);
                // The child is in the namespace. Unlike `nsenter`, `unshare` leaves signals for the group to the child.
                command.arg(option("--pid=", namespace)).args(["--no-fork", "--"]).arg(unshare);
                command.args(["--fork", "--kill-child"]);
                command
            }
            _ => Command::new(unshare),
        }
    }

    /// Returns the command that starts a program where a process of the container runs ([`Self::entered`]), if that is
    /// possible, and otherwise in another file system with the same mounts.
    pub(crate) fn command_in(&self, process: u32, program: &Path, directory: &Path) -> Command {
        let Some(nsenter) = &self.tools.nsenter else { return self.command(program, directory) };
        // The links of the container are the host's, and can't be followed from outside.
        let directory = followed(directory, &self.mounts);
        let place = format!("/proc/{process}");
        let mut command = Command::new(nsenter);
        command.arg(format!("--mount={place}/ns/mnt"));
        if self.options.host_name.is_some() {
            command.arg(format!("--uts={place}/ns/uts"));
        }
        if self.options.processes != VisibleProcesses::Host {
            command.arg(format!("--pid={place}/ns/pid"));
        }
        let root = PathBuf::from(place).join("root");
        command
            .arg(option("--root=", &root))
            .arg(option("--wd=", &root.join(directory.strip_prefix("/").unwrap_or(&directory))));
        command.arg("--").arg(program).current_dir("/");
        command
    }

    /// Waits until the program that a process has started with this view is in its root directory, or has ended. Before
    /// that, no other one can enter it. Returns the process of the program.
    pub(crate) async fn entered(&self, process: u32) -> u32 {
        let Ok(host) = root_of("self") else { return process };
        if self.tools.nsenter.is_none() {
            return process;
        }
        for _ in 0..LOOKS.0 {
            // It is an error if the process has ended.
            let Ok(root) = root_of(process) else { break };
            if self.options.processes != VisibleProcesses::Host {
                if let Some(child) = child_of(process).filter(|child| root_of(child).is_ok_and(|root| root != host)) {
                    return child;
                }
            } else if root != host {
                break;
            }
            sleep(LOOKS.1).await;
        }
        process
    }

    /// Returns the reason why a command couldn't mount the file systems. If it isn't the container's own fault, a mount
    /// of the host has ended since the view was created, and another view may work.
    pub(crate) fn failure(&self) -> Option<String> {
        let beside = |end: &str| self.table.with_extension(end);
        beside("failed").exists().then(|| fs::read_to_string(beside("error")).unwrap_or_default().trim().to_owned())
    }

    /// Returns whether the container has file systems of its own.
    pub(crate) fn is_isolated(&self) -> bool {
        self.layers.is_some()
    }

    /// Returns the path in the container of a file of the host, which a mount may hide at its own path.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        let plain = followed(path, &self.mounts);
        let is_hidden = self.mounts.iter().any(|mount| plain.starts_with(&mount.path) && mount.path != mount.source);
        match path.strip_prefix("/") {
            Ok(rest) if is_hidden => host_root().join(rest),
            _ => path.to_owned(),
        }
    }

    /// Creates a directory in the layer of the container, unless it or a mount is there. Returns its path on the host,
    /// or `None` if the container doesn't have it in its layer.
    ///
    /// # Errors
    /// If a directory can't be created.
    pub(crate) fn create_directory(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let path = followed(path, &self.mounts);
        let Some(layers) = &self.layers else { return Ok(None) };
        if self.mounts.iter().any(|mount| path.starts_with(&mount.path)) {
            return Ok(None);
        }
        let (existing, missing) = resolve(&path)?;
        let Some(upper) = layers.mirror(&existing)? else { return Ok(None) };
        let made = joined(&upper, &missing);
        fs::create_dir_all(&made)?;
        Ok(Some(made))
    }

    /// Returns the path on the host of a path of the container.
    pub(crate) fn on_host(&self, path: &Path) -> PathBuf {
        let path = absolute(path);
        if let Ok(rest) = path.strip_prefix(host_root()) {
            return Path::new("/").join(rest);
        }
        let path = followed(&path, &self.mounts);
        let mount = self.mounts.iter().rev().find_map(|mount| Some((mount, path.strip_prefix(&mount.path).ok()?)));
        match mount {
            Some((mount, rest)) if rest.as_os_str().is_empty() => mount.source.clone(),
            Some((mount, rest)) => mount.source.join(rest),
            None => self.written(&path).unwrap_or(path),
        }
    }

    /// Returns where a path is on the host that the container has written, replaced or deleted.
    fn written(&self, path: &Path) -> Option<PathBuf> {
        let (existing, missing) = resolve(path).ok()?;
        let upper = joined(&self.layers.as_ref()?.upper(&existing)?, &missing);
        upper.symlink_metadata().is_ok().then_some(upper)
    }
}

/// The path of the host's root in a container.
fn host_root() -> PathBuf {
    Path::new("/").join(OWN).join("host")
}

/// Returns the device and number of the root directory of a process.
fn root_of(process: impl Display) -> io::Result<(u64, u64)> {
    fs::metadata(format!("/proc/{process}/root/")).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns the first child of a process with one thread.
fn child_of(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns an option of a program with a path as its value.
pub(super) fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}

/// Returns an absolute path without `.` and `..`.
fn absolute(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            _ => {}
        }
    }
    plain
}

/// Replaces the paths of mounts by those to which they lead, as a container runtime does, and sorts them: the parents
/// of nested mounts come first.
fn follow_links(mounts: &mut [Mount]) {
    mounts.sort_by_key(|mount| mount.path.components().count());
    for index in 0..mounts.len() {
        let (outer, rest) = mounts.split_at_mut(index);
        if let Some(mount) = rest.first_mut() {
            mount.path = followed(&mount.path, outer);
        }
    }
    mounts.sort_by(|one, other| one.path.cmp(&other.path));
}

/// Returns the path to which an absolute path leads in a container, whose links are the host's, except below mounts.
fn followed(path: &Path, mounts: &[Mount]) -> PathBuf {
    let mut plain = absolute(path);
    let mut checked = PathBuf::from("/");
    let mut links = 0;
    while let Some(next) = plain.strip_prefix(&checked).ok().and_then(|rest| rest.components().next()) {
        let next = checked.join(next);
        if mounts.iter().any(|mount| mount.path == next) {
            break;
        }
        match next.read_link() {
            Ok(target) if links < LINKS => {
                let rest = plain.strip_prefix(&next).unwrap_or(Path::new(""));
                plain = absolute(&joined(&checked.join(target), rest));
                checked = PathBuf::from("/");
                links += 1;
            }
            _ => checked = next,
        }
    }
    plain
}

/// Splits a path into its part that exists on the host, without links, and the rest.
fn resolve(path: &Path) -> io::Result<(PathBuf, PathBuf)> {
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(found) => {
                let rest = path.strip_prefix(existing).map_err(io::Error::other)?;
                return Ok((found, rest.to_owned()));
            }
            Err(error) => existing = existing.parent().ok_or(error)?,
        }
    }
}

fn joined(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// Runs a shell command with mounts, and returns what it prints. Returns `None` where the host has no mount
    /// namespaces.
    fn run(mounts: Vec<Mount>, script: &str) -> Option<String> {
        run_with(mounts, false, script)
    }

    fn run_with(mounts: Vec<Mount>, read_only: bool, script: &str) -> Option<String> {
        // A file system with layers shows the same.
        let layered = run_in(true, mounts.clone(), read_only, script);
        let output = run_in(false, mounts, read_only, script);
        assert!(layered.is_none() || layered == output, "{layered:?}, without layers {output:?}");
        output
    }

    fn run_in(isolated: bool, mounts: Vec<Mount>, read_only: bool, script: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools::find(&folder.path().join("trial"), isolated).ok()?;
        let shell = tools.shell.clone();
        // In a user namespace it has no effect.
        if read_only && tools.user.is_some() {
            return None;
        }
        let options = ViewOptions { host_name: Some("web-0".into()), read_only, processes: VisibleProcesses::Own };
        let view = View::new(Arc::new(tools), &folder.path().join("view"), mounts, options).unwrap();
        let output = view.command(&shell, Path::new("/")).args(["-c", script]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(text(&output.stdout) + &text(&output.stderr))
    }

    fn mount(path: &str, source: &Path) -> Mount {
        Mount { path: path.into(), source: source.to_owned(), read_only: false, propagation: Propagation::None }
    }

    #[test]
    fn volumes_are_at_their_paths_and_nowhere_else() {
        let volume = tempfile::tempdir().unwrap();
        fs::write(volume.path().join("file"), "hello\n").unwrap();
        let file = volume.path().join("file");
        let paths = ["/kubewright-new/deep", "/etc/kubewright/config", "/tmp/kubewright-trial/certs", "/srv"];
        let mut mounts: Vec<_> = paths.iter().map(|path| mount(path, volume.path())).collect();
        mounts.push(mount("/etc/kubewright-file", &file));
        let script = "cat /kubewright-new/deep/file /etc/kubewright/config/file /tmp/kubewright-trial/certs/file \
                      /srv/file /etc/kubewright-file; test -e /etc/passwd && echo there; echo new > /srv/made";
        let Some(output) = run(mounts, script) else { return };
        assert_eq!(output, "hello\n".repeat(5) + "there\n");
        assert_eq!(fs::read_to_string(volume.path().join("made")).unwrap(), "new\n");
        for path in ["/kubewright-new", "/etc/kubewright", "/tmp/kubewright-trial", "/etc/kubewright-file", "/srv/made"]
        {
            assert!(!Path::new(path).exists(), "{path}");
        }
    }

    #[test]
    fn what_a_container_writes_stays_with_it() {
        let shared = tempfile::tempdir().unwrap();
        let seen = shared.path().join("seen");
        let file = Path::new("/tmp/kubewright-view");
        let folder = tempfile::tempdir().unwrap();
        let Ok(tools) = Tools::find(&folder.path().join("trial"), true) else { return };
        fs::write(file, "host\n").unwrap();
        let mounts = vec![mount("/kubewright-new/data", shared.path())];
        let view = View::new(Arc::new(tools), &folder.path().join("view"), mounts, ViewOptions::default()).unwrap();
        let script = format!(
            "cat {0}; echo container >{0}; mv {0} /kubewright-moved; touch /etc/kubewright-made {1} {2}; cat /kubewright-moved",
            file.display(),
            seen.display(),
            folder.path().join("own").display(),
        );
        let output = view.command(&view.tools.shell, Path::new("/")).args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "host\ncontainer\n", "{output:?}");
        assert_eq!(fs::read_to_string(file).unwrap(), "host\n");
        assert!(!Path::new("/kubewright-moved").exists() && !Path::new("/etc/kubewright-made").exists());
        assert!(seen.exists() && folder.path().join("own").exists(), "a volume and the pod's directory are shared");
        let on_host = |path: &str| fs::read_to_string(view.on_host(Path::new(path))).ok();
        assert_eq!(on_host("/kubewright-moved").as_deref(), Some("container\n"));
        assert_eq!((on_host("/etc/kubewright-made").as_deref(), on_host("/tmp/kubewright-view")), (Some(""), None));
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn mounts_that_have_ended_are_told_with_their_error() {
        let folder = tempfile::tempdir().unwrap();
        let Ok(tools) = Tools::find(&folder.path().join("trial"), false) else { return };
        let volume = tempfile::tempdir().unwrap();
        let mounts = vec![mount("/kubewright-new/data", volume.path())];
        let view = View::new(Arc::new(tools), &folder.path().join("view"), mounts, ViewOptions::default()).unwrap();
        let status = || view.command(&view.tools.shell, Path::new("/")).args(["-c", "true"]).status().unwrap();
        assert!(status().success());
        assert_eq!(view.failure(), None);
        volume.close().unwrap();
        assert_eq!(status().code(), Some(125));
        assert!(view.failure().is_some_and(|why| why.contains("mount")), "{:?}", view.failure());
    }

    #[tokio::test]
    async fn a_command_enters_the_container() {
        for isolated in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let Ok(tools) = Tools::find(&folder.path().join("trial"), isolated) else { return };
            if tools.nsenter.is_none() {
                return;
            }
            let options =
                ViewOptions { host_name: Some("web-0".into()), read_only: false, processes: VisibleProcesses::Own };
            let view = View::new(Arc::new(tools), &folder.path().join("view"), Vec::new(), options).unwrap();
            let shell = view.tools.shell.clone();
            let mut command = view.command(&shell, Path::new("/"));
            let script = "trap 'exit 7' USR1; mount -t tmpfs tmpfs /mnt && echo $$ >/mnt/own; cat; wait";
            let mut process = command.args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
            let program = view.entered(process.id()).await;
            assert_eq!(program != process.id(), isolated);
            let script = "until [ -s /mnt/own ]; do sleep 0.01; done; uname -n; pwd; kill -USR1 $(cat /mnt/own)";
            let output = view.command_in(program, &shell, Path::new("/usr")).args(["-c", script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "web-0\n/usr\n", "{output:?}");
            drop(process.stdin.take());
            assert_eq!(process.wait().unwrap().code(), Some(7));
            // It doesn't wait for a process that has ended.
            assert_eq!(view.entered(process.id()).await, process.id());
        }
    }

    #[test]
    fn the_host_has_the_name_of_the_pod() {
        let Some(output) = run(Vec::new(), "uname -n") else { return };
        assert_eq!(output, "web-0\n");
    }

    #[test]
    fn a_read_only_root_has_mounts_that_can_be_written() {
        let volume = tempfile::tempdir().unwrap();
        let mounts = vec![mount("/kubewright-new/data", volume.path()), mount("/etc/kubewright/config", volume.path())];
        let script = "touch /kubewright-new/data/a /etc/kubewright/config/b && echo x >/dev/null && \
                      for dir in / /tmp /usr /etc /etc/kubewright /kubewright-new /.kubewright; do \
                      touch $dir/kubewright-file 2>/dev/null && echo $dir; done";
        let Some(output) = run_with(mounts, true, script) else { return };
        assert_eq!(output, "", "these can be written");
        assert!(volume.path().join("a").exists() && volume.path().join("b").exists());
        assert!(!Path::new("/tmp/kubewright-file").exists());
    }

    #[test]
    fn a_mount_path_leads_into_another_mount() {
        let (host, outer, inner) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (real, link) = (host.path().join("real"), host.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        fs::write(inner.path().join("file"), "inner\n").unwrap();
        let mounts = vec![
            mount(link.join("deep/inner").to_str().unwrap(), inner.path()),
            mount(real.to_str().unwrap(), outer.path()),
        ];
        let script =
            format!("cat {0}/deep/inner/file {1}/deep/inner/file; touch {0}/made", link.display(), real.display());
        let Some(output) = run(mounts.clone(), &script) else { return };
        assert_eq!(output, "inner\n".repeat(2));
        assert!(outer.path().join("made").exists() && !real.join("made").exists());
        let folder = tempfile::tempdir().unwrap();
        let Ok(tools) = Tools::find(&folder.path().join("trial"), false) else { return };
        let view = View::new(Arc::new(tools), &folder.path().join("view"), mounts, ViewOptions::default()).unwrap();
        assert_eq!(view.on_host(&link.join("deep/inner/file")), inner.path().join("file"));
        assert_eq!(view.on_host(&link.join("made")), outer.path().join("made"));
        assert!(view.inside(&link.join("made")).starts_with(host_root()));
    }

    #[test]
    fn mounts_nest_and_refuse_writes() {
        let (outer, inner) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(inner.path().join("file"), "inner\n").unwrap();
        let mut read_only = mount("/kubewright-a/b", inner.path());
        read_only.read_only = true;
        let mounts = vec![read_only, mount("/kubewright-a", outer.path())];
        let script =
            "cat /kubewright-a/b/file; touch /kubewright-a/x; touch /kubewright-a/b/y 2>/dev/null || echo refused";
        let Some(output) = run(mounts, script) else { return };
        assert_eq!(output, "inner\nrefused\n");
        assert!(outer.path().join("x").exists() && !inner.path().join("y").exists());
    }
}
