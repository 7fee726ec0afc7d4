//! The file system as a container sees it: that of the host, with the pod's volumes at their mount paths.
//!
//! A container's process starts in a mount namespace of its own, below a root directory that is put together there: the
//! directories of the host are bound into it, and the volumes onto them. A directory in which a mount path doesn't exist is
//! replaced by one of the pod, with links to what the host's directory contains. So nothing is created on the host and no
//! other process sees the mounts, which end with the process. A command of `kubectl exec` gets a namespace of its own with
//! the same mounts. The name of the host is the pod's there, in a UTS namespace.
//!
//! `unshare`, `mount` and a shell do the work, since the namespace has to be entered between the fork and the start of the
//! program: as root directly, otherwise in a user namespace. Whether that works is tried once.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
    process::Command,
    sync::Arc,
};

use rustix::process::{getegid, geteuid};

/// The directory of the root directory that contains the host's own root, and directories of the pod.
const OWN: &str = ".kubewright";
/// The maximum number of entries of a directory that is replaced.
const ENTRIES: usize = 4096;
/// Mounts by a table, sets the name of the host, if possible, and executes the rest of the arguments.
const SCRIPT: &str = r#""$0" --all --fstab "$1" || exit 125
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
}

/// The programs that make mount namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tools {
    unshare: PathBuf,
    mount: PathBuf,
    shell: PathBuf,
    /// The user and group to return to, if mounts need a user namespace.
    user: Option<(u32, u32)>,
    /// Whether mounts can be read-only.
    read_only: bool,
}

/// The view of one container.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct View {
    tools: Arc<Tools>,
    root: PathBuf,
    table: PathBuf,
    mounts: Vec<Mount>,
    /// The name of the host; `None` for the host's own.
    host_name: Option<String>,
}

impl Tools {
    /// Finds out whether this process can make mount namespaces. Blocks for some milliseconds. `folder` is for files of the
    /// trial.
    ///
    /// # Errors
    /// Returns the reason why it can't.
    pub(crate) fn find(folder: &Path) -> Result<Self, String> {
        let [unshare, mount, shell] = ["unshare", "mount", "sh"].map(find_program);
        let (Some(unshare), Some(mount), Some(shell)) = (unshare, mount, shell) else {
            return Err("unshare and mount of util-linux are not installed".into());
        };
        let user = Some((geteuid().as_raw(), getegid().as_raw()));
        let direct = geteuid().is_root().then_some((None, true));
        let mut why = String::new();
        for (user, read_only) in direct.into_iter().chain([(user, true), (user, false)]) {
            let tools = Self { unshare: unshare.clone(), mount: mount.clone(), shell: shell.clone(), user, read_only };
            match tools.try_out(folder) {
                Ok(()) => return Ok(tools),
                Err(error) => why = error.to_string().trim().replace('\n', "; "),
            }
        }
        Err(why)
    }

    fn try_out(&self, folder: &Path) -> io::Result<()> {
        let volume = folder.join("volume");
        fs::create_dir_all(&volume)?;
        fs::write(volume.join("file"), "")?;
        let path = PathBuf::from("/var/run/secrets/kubewright.dev/trial");
        let file = path.join("file").to_string_lossy().into_owned();
        let mount = Mount { path, source: volume, read_only: true };
        let view = View::new(Arc::new(self.clone()), &folder.join("view"), vec![mount], Some("trial".into()), false)?;
        let argv = [format!("test -e {file} && ! test -e {}", self.marker()).to_owned()];
        let mut command = view.command(&self.shell, Path::new("/"));
        let output = command.arg("-c").args(argv).env_clear().output()?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
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
    /// Creates a view in `folder`, which is emptied. The directory holds what replaces directories of the host. Programs see
    /// `host_name` as the name of the host. With `read_only`, only the mounts that aren't read-only themselves, and the file systems of the kernel, can be
    /// written; in a user namespace, which can't make every mount read-only, it has no effect.
    ///
    /// # Errors
    /// If a file can't be written, or a mount path can't be used.
    pub(crate) fn new(
        tools: Arc<Tools>,
        folder: &Path,
        mut mounts: Vec<Mount>,
        host_name: Option<String>,
        read_only: bool,
    ) -> io::Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let root = folder.join("root");
        fs::create_dir_all(root.join(OWN).join("host"))?;
        for mount in &mut mounts {
            mount.path = absolute(&mount.path);
        }
        // The parents of nested mounts come first.
        mounts.sort_by(|one, other| one.path.cmp(&other.path));
        let read_only = read_only && tools.user.is_none();
        let mut layout = Layout { root: root.clone(), opened: BTreeMap::new(), lines: String::new(), read_only };
        layout.bind_host()?;
        layout.open(&mounts)?;
        for mount in &mounts {
            let target = layout.mount_point(mount, &mounts)?;
            layout.line(&mount.source, &target, mount.read_only && tools.read_only);
        }
        layout.link_entries()?;
        let table = folder.join("fstab");
        fs::write(&table, &layout.lines)?;
        Ok(Self { tools, root, table, mounts, host_name })
    }

    /// Returns the command that starts a program with this view, to which the program's arguments are added.
    pub(crate) fn command(&self, program: &Path, directory: &Path) -> Command {
        let Tools { unshare, mount, shell, user, .. } = &*self.tools;
        let mut command = Command::new(unshare);
        command.arg("--mount");
        if self.host_name.is_some() {
            command.arg("--uts");
        }
        if user.is_some() {
            command.args(["--user", "--map-root-user"]);
        }
        command.arg(shell).args(["-c", SCRIPT]).arg(mount).arg(&self.table);
        command.arg(self.host_name.as_deref().unwrap_or_default()).arg(unshare);
        if let Some((user, group)) = user {
            command.arg("--user").arg(format!("--map-user={user}")).arg(format!("--map-group={group}"));
        }
        let option = |name: &str, value: &Path| {
            let mut option = std::ffi::OsString::from(name);
            option.push(value);
            option
        };
        command.arg(option("--root=", &self.root)).arg(option("--wd=", directory)).arg("--").arg(program);
        command.current_dir("/");
        command
    }

    /// Returns the path in the container of a file of the host, which a mount may hide at its own path.
    pub(crate) fn inside(&self, path: &Path) -> PathBuf {
        let is_hidden = self.mounts.iter().any(|mount| path.starts_with(&mount.path) && mount.path != mount.source);
        match path.strip_prefix("/") {
            Ok(rest) if is_hidden => host_root().join(rest),
            _ => path.to_owned(),
        }
    }

    /// Returns the path on the host of a path of the container.
    pub(crate) fn on_host(&self, path: &Path) -> PathBuf {
        let path = absolute(path);
        if let Ok(rest) = path.strip_prefix(host_root()) {
            return Path::new("/").join(rest);
        }
        let mount = self.mounts.iter().rev().find_map(|mount| Some((mount, path.strip_prefix(&mount.path).ok()?)));
        match mount {
            Some((mount, rest)) if rest.as_os_str().is_empty() => mount.source.clone(),
            Some((mount, rest)) => mount.source.join(rest),
            None => path,
        }
    }
}

/// The path of the host's root in a container.
fn host_root() -> PathBuf {
    Path::new("/").join(OWN).join("host")
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

/// Puts a root directory together.
struct Layout {
    root: PathBuf,
    /// The directories of the host that are replaced, with what replaces them.
    opened: BTreeMap<PathBuf, PathBuf>,
    /// The lines of the table of mounts.
    lines: String,
    /// Whether what isn't a mount of the container is read-only.
    read_only: bool,
}

impl Layout {
    /// Returns a path of the host below the new root.
    fn inside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn line(&mut self, source: &Path, target: &Path, read_only: bool) {
        let escaped = |path: &Path| {
            let text = path.to_string_lossy();
            text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
        };
        let options = if read_only { "rbind,ro" } else { "rbind" };
        // Writing to a string doesn't fail.
        let _ = writeln!(self.lines, "{} {} none {options} 0 0", escaped(source), escaped(target));
    }

    /// Binds the directories of the host.
    fn bind_host(&mut self) -> io::Result<()> {
        if self.read_only {
            let root = self.root.clone();
            self.line(&root, &root, true);
        }
        self.line(Path::new("/"), &self.root.join(OWN).join("host"), self.read_only);
        for entry in fs::read_dir("/")? {
            let entry = entry?;
            let (path, target) = (entry.path(), self.root.join(entry.file_name()));
            let sort = entry.file_type()?;
            if sort.is_symlink() {
                symlink(fs::read_link(&path)?, target)?;
            } else if entry.file_name() != OWN {
                create(&target, sort.is_dir())?;
                let of_kernel = ["/dev", "/proc", "/sys"].iter().any(|own| path == Path::new(own));
                self.line(&path, &target, self.read_only && !of_kernel);
            }
        }
        Ok(())
    }

    /// Creates the directories that replace those of the host in which mount paths are missing.
    fn open(&mut self, mounts: &[Mount]) -> io::Result<()> {
        let top = Path::new("/");
        let mut open = BTreeSet::new();
        let mut parents = Vec::new();
        for mount in mounts.iter().filter(|mount| outer(mount, mounts).is_none()) {
            let (existing, missing) = resolve(&mount.path)?;
            if missing.as_os_str().is_empty() {
                parents.extend(existing.parent().map(Path::to_owned));
            } else if existing != top {
                open.insert(existing);
            }
        }
        parents.extend(open.iter().cloned());
        for path in parents {
            let Some(outermost) = open.iter().find(|dir| path.starts_with(dir)).cloned() else { continue };
            open.extend(path.ancestors().take_while(|dir| dir.starts_with(&outermost)).map(Path::to_owned));
        }
        for (number, dir) in open.into_iter().enumerate() {
            let nested =
                dir.parent().zip(dir.file_name()).and_then(|(parent, name)| Some(self.opened.get(parent)?.join(name)));
            let own = nested.clone().unwrap_or_else(|| self.root.join(OWN).join(number.to_string()));
            fs::create_dir(&own)?;
            fs::set_permissions(&own, fs::Permissions::from_mode(fs::metadata(&dir)?.permissions().mode()))?;
            if nested.is_none() {
                self.line(&own, &self.inside(&dir), self.read_only);
            }
            self.opened.insert(dir, own);
        }
        Ok(())
    }

    /// Creates the mount point of a volume where it is missing, and returns its path below the new root.
    fn mount_point(&self, mount: &Mount, mounts: &[Mount]) -> io::Result<PathBuf> {
        let is_folder = mount.source.is_dir();
        if let Some(outer) = outer(mount, mounts) {
            // As with a container runtime, the mount point is in the outer volume.
            let rest = mount.path.strip_prefix(&outer.path).map_err(io::Error::other)?;
            create(&outer.source.join(rest), is_folder)?;
            let (existing, missing) = resolve(&outer.path)?;
            return Ok(joined(&self.inside(&existing), &missing).join(rest));
        }
        let (existing, missing) = resolve(&mount.path)?;
        if existing == Path::new("/") && missing.as_os_str().is_empty() {
            return Err(io::Error::other("a volume can't be mounted at /"));
        }
        let target = joined(&self.inside(&existing), &missing);
        if missing.as_os_str().is_empty() {
            let parent = existing.parent().and_then(|parent| self.opened.get(parent));
            if let Some((parent, name)) = parent.zip(existing.file_name()) {
                create(&parent.join(name), is_folder)?;
            }
        } else {
            let own = self.opened.get(&existing).cloned().unwrap_or_else(|| self.inside(&existing));
            create(&own.join(missing), is_folder)?;
        }
        Ok(target)
    }

    /// Links what the replaced directories contain, except for mount points.
    fn link_entries(&self) -> io::Result<()> {
        let mut count = 0;
        for (dir, own) in &self.opened {
            for entry in fs::read_dir(dir)? {
                let name = entry?.file_name();
                let link = own.join(&name);
                if link.symlink_metadata().is_ok() {
                    continue;
                }
                count += 1;
                if count > ENTRIES {
                    return Err(io::Error::other(format!("{} has too many entries", dir.display())));
                }
                let host = Path::new("/").join(OWN).join("host");
                symlink(host.join(dir.strip_prefix("/").unwrap_or(dir)).join(&name), link)?;
            }
        }
        Ok(())
    }
}

fn joined(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

/// Returns the innermost mount that another one is in.
fn outer<'a>(mount: &Mount, mounts: &'a [Mount]) -> Option<&'a Mount> {
    mounts.iter().rev().find(|other| other.path != mount.path && mount.path.starts_with(&other.path))
}

/// Creates a directory or an empty file with its parents, unless it exists.
fn create(path: &Path, is_folder: bool) -> io::Result<()> {
    if is_folder {
        return fs::create_dir_all(path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::File::create_new(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell command with mounts, and returns what it prints. Returns `None` where the host has no mount namespaces.
    fn run(mounts: Vec<Mount>, script: &str) -> Option<String> {
        run_with(mounts, false, script)
    }

    fn run_with(mounts: Vec<Mount>, read_only: bool, script: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools::find(&folder.path().join("trial")).ok()?;
        let shell = tools.shell.clone();
        // In a user namespace it has no effect.
        if read_only && tools.user.is_some() {
            return None;
        }
        let name = Some("web-0".into());
        let view = View::new(Arc::new(tools), &folder.path().join("view"), mounts, name, read_only).unwrap();
        let output = view.command(&shell, Path::new("/")).args(["-c", script]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(text(&output.stdout) + &text(&output.stderr))
    }

    fn mount(path: &str, source: &Path) -> Mount {
        Mount { path: path.into(), source: source.to_owned(), read_only: false }
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
