//! The volumes of a pod: their content, and the paths at which a container finds them.
//!
//! A volume is a directory of the pod. A container finds it at its mount path if the host has mount namespaces
//! ([`view`](super::view)). In any case it has a link to it below its own root directory, whose path is in the
//! environment variable `KUBEWRIGHT_ROOT`: `$KUBEWRIGHT_ROOT/etc/config` also works on a real cluster, where the
//! variable is empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::Permissions,
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink},
    path::{Component, Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeMount};
use serde_json::Value;

use super::{
    devices::{Device, Devices},
    environment::{Reference, downward},
    host_path,
    identity::VolumeOwner,
    mounts,
    object::Capacity,
    resource,
    tokens::TokenRequest,
    volume_files::{self, VolumeFile},
};

/// The environment variable with the root directory of a container's volumes.
pub(crate) const ROOT: &str = "KUBEWRIGHT_ROOT";
/// The directory of a pod's volumes. No container can have this name.
const FOLDER: &str = ".volumes";
/// The default mode of files.
const MODE: i32 = 0o644;

/// The content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// An empty directory.
    Empty,
    /// An empty directory in memory, if the host has a place for it, of at most so many bytes if it is a file system of
    /// its own.
    Memory(u64),
    /// An existing directory of the host, and whether no container may write it.
    Local(PathBuf, bool),
    /// A block device of the host, and whether no container may write it.
    Device(Box<Device>, bool),
    /// A block device of the host, which containers use as it is (`volumeMode: Block`).
    RawDevice(PathBuf),
    /// A directory or file of the host, with the type that says whether it is created and what it is.
    HostPath(PathBuf, String),
    /// A directory of the host that is created if it is missing, but not its parents.
    Folder(PathBuf),
    /// Files by their paths, with their modes.
    Files(volume_files::Files),
}

/// What the files of volumes are made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The objects, as far as they exist.
    pub(crate) objects: BTreeMap<Reference, Value>,
    /// The tokens.
    pub(crate) tokens: BTreeMap<TokenRequest, String>,
}

/// Collects a volume's files.
struct Files<'a> {
    pod: &'a Pod,
    container: &'a Container,
    found: &'a Sources,
    node: Capacity,
    mode: i32,
    owner: VolumeOwner,
    files: volume_files::Files,
}

/// Returns the volumes that a container mounts, or uses as devices.
pub(crate) fn mounted<'a>(pod: &'a Pod, container: &Container) -> impl Iterator<Item = &'a Volume> {
    let mounts = container.volume_mounts.iter().flatten().map(|mount| &mount.name);
    let devices = container.volume_devices.iter().flatten().map(|device| &device.name);
    let names: BTreeSet<_> = mounts.chain(devices).cloned().collect();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(move |volume| names.contains(&volume.name))
}

/// Returns whether a volume of a pod has files of an object.
pub(crate) fn uses(pod: &Pod, reference: &Reference) -> bool {
    pod.spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
        .any(|volume| of_volume(pod, volume).contains(reference))
}

/// Returns the ConfigMaps, Secrets and claims of a container's volumes.
pub(crate) fn references(pod: &Pod, container: &Container) -> BTreeSet<Reference> {
    mounted(pod, container).flat_map(|volume| of_volume(pod, volume)).collect()
}

/// Returns the tokens of a container's volumes.
pub(crate) fn tokens(pod: &Pod, container: &Container) -> BTreeSet<TokenRequest> {
    let projected = mounted(pod, container).filter_map(|volume| volume.projected.as_ref());
    let sources = projected.flat_map(|projected| projected.sources.iter().flatten());
    sources.filter_map(|source| source.service_account_token.as_ref().map(TokenRequest::of)).collect()
}

/// Returns the name of a volume's claim. That of an ephemeral volume is made of the names of the pod and the volume.
fn claim_of(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name))
}

fn of_volume(pod: &Pod, volume: &Volume) -> BTreeSet<Reference> {
    let mut references = BTreeSet::new();
    references.extend(volume.config_map.iter().map(|source| Reference::ConfigMap(source.name.clone())));
    references.extend(claim_of(pod, volume).map(Reference::Claim));
    references.extend(volume.secret.iter().filter_map(|source| source.secret_name.clone().map(Reference::Secret)));
    for source in volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten()) {
        references.extend(source.config_map.iter().map(|source| Reference::ConfigMap(source.name.clone())));
        references.extend(source.secret.iter().map(|source| Reference::Secret(source.name.clone())));
    }
    references
}

/// Returns the content of a volume, or a message with the reason why it isn't available. Its files will belong to
/// `owner`.
pub(crate) fn content(
    pod: &Pod,
    container: &Container,
    volume: &Volume,
    found: &Sources,
    node: Capacity,
    owner: VolumeOwner,
) -> Result<Content, String> {
    let mut files = Files { pod, container, found, node, mode: MODE, owner, files: BTreeMap::new() };
    if let Some(empty) = &volume.empty_dir {
        let is_memory = empty.medium.as_deref() == Some("Memory");
        return Ok(if is_memory {
            Content::Memory(resource::size_in_memory(pod, empty, node))
        } else {
            Content::Empty
        });
    }
    if let Some(host) = &volume.host_path {
        return Ok(Content::HostPath(host.path.clone().into(), host.type_.clone().unwrap_or_default()));
    }
    if let Some(claim) = claim_of(pod, volume) {
        let read_only = volume.persistent_volume_claim.as_ref().is_some_and(|source| source.read_only == Some(true));
        return persistent(&claim, read_only, &found.objects);
    }
    if let Some(source) = &volume.config_map {
        files.mode = source.default_mode.unwrap_or(MODE);
        files.object(Reference::ConfigMap(source.name.clone()), source.items.as_deref(), source.optional)?;
    } else if let Some(source) = &volume.secret {
        files.mode = source.default_mode.unwrap_or(MODE);
        let name = source.secret_name.clone().unwrap_or_default();
        files.object(Reference::Secret(name), source.items.as_deref(), source.optional)?;
    } else if let Some(source) = &volume.downward_api {
        files.mode = source.default_mode.unwrap_or(MODE);
        files.downward(source.items.as_deref().unwrap_or_default())?;
    } else if let Some(projected) = &volume.projected {
        files.mode = projected.default_mode.unwrap_or(MODE);
        for source in projected.sources.iter().flatten() {
            if let Some(source) = &source.config_map {
                files.object(Reference::ConfigMap(source.name.clone()), source.items.as_deref(), source.optional)?;
            } else if let Some(source) = &source.secret {
                files.object(Reference::Secret(source.name.clone()), source.items.as_deref(), source.optional)?;
            } else if let Some(source) = &source.downward_api {
                files.downward(source.items.as_deref().unwrap_or_default())?;
            } else if let Some(source) = &source.service_account_token {
                let token = found.tokens.get(&TokenRequest::of(source)).ok_or("the token is missing")?;
                files.token(&source.path, token);
            } else {
                return Err("this node projects ConfigMaps, Secrets, tokens and the downward API only".into());
            }
        }
    } else {
        let source = serde_json::to_value(volume).unwrap_or_default();
        let mut sorts = source.as_object().into_iter().flatten().map(|(sort, _)| sort).filter(|sort| *sort != "name");
        let sort = sorts.next().cloned().unwrap_or_default();
        return Err(format!("this node has no volumes of the type {sort}"));
    }
    Ok(Content::Files(files.files))
}

/// Returns the content of a persistent volume.
fn persistent(claim: &str, read_only: bool, found: &BTreeMap<Reference, Value>) -> Result<Content, String> {
    let reference = Reference::Claim(claim.into());
    let volume = found.get(&reference).ok_or_else(|| format!("{reference} is not bound"))?;
    let (host, local) = (&volume["spec"]["hostPath"], &volume["spec"]["local"]);
    let path = |source: &Value| source["path"].as_str().map(PathBuf::from);
    let is_device = |path: &Path| path.metadata().is_ok_and(|found| found.file_type().is_block_device());
    let is_raw = volume["spec"]["volumeMode"] == "Block";
    match (path(host), path(local)) {
        (None, Some(path)) if is_raw && is_device(&path) => Ok(Content::RawDevice(path)),
        (None, Some(path)) if is_raw => Err(format!("the local volume {} is no block device", path.display())),
        _ if is_raw => Err("this node has block devices as volumes of the type local only".into()),
        (Some(path), _) if host["type"] == "DirectoryOrCreate" => Ok(Content::Folder(path)),
        (Some(path), _) => Ok(Content::HostPath(path, host["type"].as_str().unwrap_or_default().to_owned())),
        (None, Some(path)) if is_device(&path) => {
            let options = volume["spec"]["mountOptions"].as_array().into_iter().flatten();
            let device = Device {
                path,
                volume: volume["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                fs_type: local["fsType"].as_str().unwrap_or_default().to_owned(),
                options: options.filter_map(Value::as_str).map(str::to_owned).collect(),
            };
            Ok(Content::Device(Box::new(device), read_only))
        }
        (None, Some(path)) => Ok(Content::Local(path, read_only)),
        (None, None) => Err("this node has persistent volumes of the types hostPath and local only".into()),
    }
}

impl Files<'_> {
    fn add(&mut self, path: &str, mode: Option<i32>, bytes: Vec<u8>) {
        let mut mode = u32::try_from(mode.unwrap_or(self.mode)).unwrap_or_default() & 0o777;
        if self.owner.group.is_some() {
            mode |= 0o440;
        }
        let owner = VolumeOwner { user: None, ..self.owner };
        self.files.insert(inside(path), VolumeFile { bytes, mode, owner });
    }

    /// Adds a token, which is readable by nobody else if the pod has one user or a group.
    fn token(&mut self, path: &str, token: &str) {
        let mode = (self.owner != VolumeOwner::default()).then_some(0o600);
        self.add(path, mode, token.as_bytes().to_vec());
        if let Some(file) = self.files.get_mut(&inside(path)) {
            file.owner = self.owner;
        }
    }

    /// Adds the keys of a ConfigMap or Secret: all of them, or those that are listed.
    fn object(
        &mut self,
        reference: Reference,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<(), String> {
        let optional = optional == Some(true);
        let Some(object) = self.found.objects.get(&reference) else {
            return if optional { Ok(()) } else { Err(format!("{reference} not found")) };
        };
        let data = bytes(object, &reference);
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            data.into_iter().for_each(|(key, value)| self.add(&key, None, value));
            return Ok(());
        };
        for item in items {
            match data.get(&item.key) {
                Some(value) => self.add(&item.path, item.mode, value.clone()),
                None if optional => {}
                None => return Err(format!("{reference} references non-existent key: {}", item.key)),
            }
        }
        Ok(())
    }

    fn downward(&mut self, items: &[DownwardAPIVolumeFile]) -> Result<(), String> {
        for item in items {
            let value = if let Some(field) = &item.field_ref {
                let map = match field.field_path.as_str() {
                    "metadata.labels" => Some(&self.pod.metadata.labels),
                    "metadata.annotations" => Some(&self.pod.metadata.annotations),
                    _ => None,
                };
                match map {
                    Some(map) => {
                        let lines = map.iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
                        lines.collect::<Vec<_>>().join("\n")
                    }
                    None => downward(self.pod, &field.field_path).map_err(|error| error.to_string())?,
                }
            } else if let Some(field) = &item.resource_field_ref {
                resource::value(self.pod, self.container, field, self.node)
                    .ok_or_else(|| format!("unsupported container resource: {}", field.resource))?
            } else {
                continue;
            };
            self.add(&item.path, item.mode, value.into_bytes());
        }
        Ok(())
    }
}

/// Returns the data of a ConfigMap or Secret. Data that can't be decoded is omitted, since the API server validates it.
fn bytes(object: &Value, reference: &Reference) -> BTreeMap<String, Vec<u8>> {
    let texts = |field: &str| object[field].as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let decoded = |(key, value): (&String, &Value)| Some((key.clone(), STANDARD.decode(text(value)).ok()?));
    match reference {
        Reference::ConfigMap(_) => {
            let plain = texts("data").map(|(key, value)| (key.clone(), text(value).into_bytes()));
            plain.chain(texts("binaryData").filter_map(decoded)).collect()
        }
        Reference::Secret(_) => texts("data").filter_map(decoded).collect(),
        Reference::Claim(_) => BTreeMap::new(),
    }
}

/// Creates the directory of a container's own files, with links to its volumes. The parents of the pod's directory are
/// not created, so that the directory of a removed node doesn't reappear.
pub(crate) fn root(pod_directory: &Path, container: &str) -> io::Result<PathBuf> {
    let mut path = pod_directory.to_owned();
    for part in ["", ".root", container] {
        path.push(part);
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(path)
}

/// Returns a relative path without `..` components.
pub(crate) fn inside(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// Returns the path of the link to a mount below a container's root; `None` if the mount is at its own path on the
/// host.
pub(crate) fn place(mount: &VolumeMount, content: &Content) -> Option<PathBuf> {
    let literal = mount.sub_path.is_none()
        && mount.sub_path_expr.is_none()
        && matches!(content, Content::Local(path, _) | Content::HostPath(path, _) if *path == Path::new(&mount.mount_path));
    (!literal).then(|| inside(&mount.mount_path))
}

/// Checks that a container uses a volume as its `volumeMode` says.
///
/// # Errors
/// Returns the kubelet's message if it doesn't.
pub(crate) fn check_mode(container: &Container, volume: &Volume, content: &Content) -> Result<(), String> {
    let is_raw = matches!(content, Content::RawDevice(_));
    let is_mounted = container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name);
    let is_device = container.volume_devices.iter().flatten().any(|device| device.name == volume.name);
    let (mode, field) = match is_raw {
        true if is_mounted => ("Block", "volumeMounts"),
        false if is_device => ("Filesystem", "volumeDevices"),
        _ => return Ok(()),
    };
    Err(format!("volume {} has volumeMode {mode}, but is specified in {field}", volume.name))
}

/// Where the volumes of a pod are, and the group that their directories belong to.
#[derive(Clone, Debug)]
pub(crate) struct VolumePlace<'a> {
    /// The pod's directory.
    pub(crate) pod_directory: &'a Path,
    /// The pod's directory in memory, if the host has a place for it.
    pub(crate) memory: Option<&'a Path>,
    /// Whether a directory in memory is a file system of its own, which the node mounts.
    pub(crate) mounts: bool,
    /// What mounts block devices, and the pod's UID; `None` if the node doesn't mount any.
    pub(crate) devices: Option<(&'a Devices, &'a str)>,
    /// The group, `fsGroup`.
    pub(crate) group: Option<u32>,
    /// Whether the group of a directory that it owns already isn't set again, as by
    /// `fsGroupChangePolicy: OnRootMismatch`.
    pub(crate) only_on_mismatch: bool,
}

/// The permissions of directories in which each user of the pod can write, as in Kubernetes.
const FOR_ALL: u32 = 0o777;
/// The permissions of directories in memory, those of a new `tmpfs`: a file can be removed by its owner only.
const FOR_ALL_IN_MEMORY: u32 = 0o1777;

/// Creates a directory with these permissions if it is missing, and returns whether it was.
fn create(path: &Path, mode: u32) -> io::Result<bool> {
    match std::fs::create_dir(path) {
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(mode)).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Lets a group own a directory and what is in it, and read and write it. New entries will belong to the group, too.
fn own(path: &Path, group: u32) -> io::Result<()> {
    let found = path.symlink_metadata()?;
    lchown(path, None, Some(group))?;
    if found.is_symlink() {
        return Ok(());
    }
    let added = if found.is_dir() { 0o2770 } else { 0o660 };
    std::fs::set_permissions(path, Permissions::from_mode(found.mode() | added))?;
    if found.is_dir() {
        for entry in std::fs::read_dir(path)? {
            own(&entry?.path(), group)?;
        }
    }
    Ok(())
}

impl VolumePlace<'_> {
    /// Like [`Self::own`], for a volume that outlives the pod: once for each pod, since its containers may have changed
    /// permissions since then.
    fn own_once(&self, name: &str, path: &Path) -> io::Result<()> {
        // No volume's name begins with a dot.
        let mark = self.pod_directory.join(FOLDER).join(format!(".{name}"));
        if self.group.is_none() || mark.exists() {
            return Ok(());
        }
        self.own(path)?;
        std::fs::write(mark, "")
    }

    /// Lets the group own a directory that the pod writes. The path may be a link to it.
    fn own(&self, path: &Path) -> io::Result<()> {
        let Some(group) = self.group else { return Ok(()) };
        let found = path.metadata()?;
        if self.only_on_mismatch && found.gid() == group && found.mode() & 0o2770 == 0o2770 {
            return Ok(());
        }
        own(&path.canonicalize()?, group)
    }
}

/// Returns the directory of a volume that belongs to the pod.
pub(crate) fn directory(pod_directory: &Path, memory: Option<&Path>, name: &str, in_memory: bool) -> PathBuf {
    match memory.filter(|_| in_memory) {
        Some(memory) => memory.join(name),
        None => pod_directory.join(FOLDER).join(name),
    }
}

/// Writes a volume of a pod. Blocks until its files are written.
pub(crate) fn make(place: &VolumePlace<'_>, name: &str, content: &Content) -> io::Result<PathBuf> {
    let folder = place.pod_directory.join(FOLDER);
    match std::fs::create_dir(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let volume = directory(place.pod_directory, place.memory, name, matches!(content, Content::Memory(_)));
    match content {
        Content::Local(path, read_only) => {
            check_local(path)?;
            return if *read_only { Ok(path.clone()) } else { place.own_once(name, path).map(|()| path.clone()) };
        }
        Content::Device(device, read_only) => {
            let Some((devices, uid)) = place.devices else {
                let why = "is a block device, which a node mounts with --isolate-containers only";
                return Err(io::Error::other(format!("the local volume {} {why}", device.path.display())));
            };
            let point = devices.mount(uid, device)?;
            if !*read_only {
                place.own_once(name, &point)?;
            }
            return Ok(point);
        }
        Content::RawDevice(path) => return Ok(path.clone()),
        Content::HostPath(path, kind) => return host_path::ensure(path, kind).map(|()| path.clone()),
        Content::Folder(path) => {
            // As volumes of hosts in Kubernetes, a directory with files keeps its permissions.
            if create(path, FOR_ALL)? {
                place.own(path)?;
            }
            return Ok(path.clone());
        }
        Content::Empty | Content::Memory(_) => {
            if let Some(parent) = volume.parent() {
                std::fs::create_dir_all(parent)?;
            }
            // Only the node's user reaches the directories above.
            let is_new = match content {
                Content::Memory(size) => {
                    let is_new = create(&volume, FOR_ALL_IN_MEMORY)?;
                    (place.mounts && mounts::mount_memory(&volume, *size)?) || is_new
                }
                _ => create(&volume, FOR_ALL)?,
            };
            if is_new {
                place.own(&volume)?;
            }
        }
        Content::Files(files) => volume_files::replace(&volume, files)?,
    }
    Ok(volume)
}

/// Checks that the path of a local volume is a directory.
fn check_local(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other(format!("the local volume {} is no directory", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::Error::other(format!("path {:?} does not exist", path.display().to_string())))
        }
        Err(error) => Err(error),
    }
}

/// Returns the path on the host of a volume, or of the part that a mount shows. A part of a volume with files is a
/// copy, which doesn't follow changes: `copy` is its path. A missing directory in another volume is created with the
/// permissions of the volume.
pub(crate) fn part_of(volume: &Path, content: &Content, part: Option<&str>, copy: &Path) -> io::Result<PathBuf> {
    let Some(part) = part.map(inside).filter(|part| !part.as_os_str().is_empty()) else { return Ok(volume.to_owned()) };
    let Content::Files(files) = content else {
        let mut target = volume.to_owned();
        let (base, mode) = (volume.canonicalize()?, volume.metadata()?.permissions());
        for step in &part {
            target.push(step);
            if !target.exists() {
                std::fs::create_dir(&target)?;
                std::fs::set_permissions(&target, mode.clone())?;
            } else if !target.canonicalize()?.starts_with(&base) {
                return Err(io::Error::other(format!("{} leads out of the volume", target.display())));
            }
        }
        return Ok(target);
    };
    match std::fs::remove_dir_all(copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => std::fs::create_dir_all(copy)?,
    }
    if let Some(file) = files.get(&part) {
        let path = copy.join(part.file_name().unwrap_or_default());
        volume_files::write_file(&path, file)?;
        return Ok(path);
    }
    let below = files.iter().filter_map(|(path, file)| Some((path.strip_prefix(&part).ok()?.to_owned(), file.clone())));
    volume_files::write(copy, &below.collect())?;
    Ok(copy.to_owned())
}

/// Links a volume, or a part of it, below a container's root directory.
pub(crate) fn link(root: &Path, place: &Path, target: &Path) -> io::Result<()> {
    let link = root.join(place);
    // The previous run has left a link.
    if link.is_symlink() {
        std::fs::remove_file(&link)?;
    }
    if let Some(parent) = link.parent() {
        std::fs::create_dir_all(parent)?;
    }
    symlink(target, link)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the files of a volume, as text with their modes, or the message.
    fn check(volume: Value, expect: Result<&[&str], &str>) {
        let mut volume = volume;
        volume["name"] = json!("v");
        let pod = json!({
            "metadata": {"name": "web", "labels": {"app": "cow", "b": "x\"y"}},
            "spec": {"containers": [{"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "resources": {"limits": {"memory": "1Mi"}}}], "volumes": [volume]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let container = pod.spec.as_ref().map(|spec| spec.containers[0].clone()).expect("a container");
        let known = BTreeMap::from([
            (Reference::ConfigMap("settings".into()), json!({"data": {"a": "1"}, "binaryData": {"b": "AAE="}})),
            (Reference::Secret("keys".into()), json!({"data": {"token": "czNjcmV0"}})),
            (
                Reference::Claim("data".into()),
                json!({"spec": {"hostPath": {"path": "/f", "type": "DirectoryOrCreate"}}}),
            ),
            (Reference::Claim("host".into()), json!({"spec": {"hostPath": {"path": "/h", "type": "Directory"}}})),
            (Reference::Claim("local".into()), json!({"spec": {"local": {"path": "/l"}}})),
            (Reference::Claim("raw".into()), json!({"spec": {"local": {"path": "/l"}, "volumeMode": "Block"}})),
            (Reference::Claim("remote".into()), json!({"spec": {"nfs": {"server": "s"}}})),
        ]);
        let wanted = references(&pod, &container);
        let found = known.into_iter().filter(|(reference, _)| wanted.contains(reference)).collect();
        let volume = mounted(&pod, &container).next().expect("the volume");
        let result = match content(
            &pod,
            &container,
            volume,
            &Sources { objects: found, ..Sources::default() },
            Capacity::simulated(),
            VolumeOwner::default(),
        ) {
            Ok(Content::Files(files)) => {
                let line = |(path, VolumeFile { bytes, mode, .. }): (PathBuf, VolumeFile)| {
                    format!("{} {mode:o} {}", path.display(), String::from_utf8_lossy(&bytes))
                };
                Ok(files.into_iter().map(line).collect::<Vec<_>>())
            }
            Ok(other) => Ok(vec![format!("{other:?}")]),
            Err(why) => Err(why),
        };
        let expect = expect.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        assert_eq!(result, expect.map_err(str::to_owned));
    }

    #[test]
    fn volumes_have_the_content_of_their_sources() {
        check(json!({"emptyDir": {}}), Ok(&["Empty"]));
        check(json!({"emptyDir": {"medium": "Memory"}}), Ok(&["Memory(1048576)"]));
        check(json!({"hostPath": {"path": "/srv"}}), Ok(&["HostPath(\"/srv\", \"\")"]));
        check(json!({"persistentVolumeClaim": {"claimName": "data"}}), Ok(&["Folder(\"/f\")"]));
        check(json!({"persistentVolumeClaim": {"claimName": "local"}}), Ok(&["Local(\"/l\", false)"]));
        check(json!({"persistentVolumeClaim": {"claimName": "local", "readOnly": true}}), Ok(&["Local(\"/l\", true)"]));
        check(json!({"persistentVolumeClaim": {"claimName": "host"}}), Ok(&["HostPath(\"/h\", \"Directory\")"]));
        check(json!({"persistentVolumeClaim": {"claimName": "raw"}}), Err("the local volume /l is no block device"));
        check(json!({"configMap": {"name": "settings"}}), Ok(&["a 644 1", "b 644 \0\u{1}"]));
        let items = json!([{"key": "a", "path": "x/y", "mode": 256}]);
        check(json!({"configMap": {"name": "settings", "items": items}}), Ok(&["x/y 400 1"]));
        check(json!({"secret": {"secretName": "keys", "defaultMode": 256}}), Ok(&["token 400 s3cret"]));
        let field = |path: &str| json!({"path": path.replace('.', "-"), "fieldRef": {"fieldPath": path}});
        let memory = json!({"path": "m", "resourceFieldRef": {"resource": "limits.memory", "divisor": "1Ki"}});
        check(
            json!({"downwardAPI": {"items": [field("metadata.name"), field("metadata.labels"), memory]}}),
            Ok(&["m 644 1024", "metadata-labels 644 app=\"cow\"\nb=\"x\\\"y\"", "metadata-name 644 web"]),
        );
        let sources = json!([{"configMap": {"name": "settings"}}, {"secret": {"name": "keys"}},
            {"configMap": {"name": "gone", "optional": true}}]);
        check(json!({"projected": {"sources": sources}}), Ok(&["a 644 1", "b 644 \0\u{1}", "token 644 s3cret"]));
    }

    #[test]
    fn a_missing_source_is_named() {
        check(json!({"configMap": {"name": "gone"}}), Err("configmap \"gone\" not found"));
        check(json!({"secret": {"secretName": "gone"}}), Err("secret \"gone\" not found"));
        let items = json!([{"key": "z", "path": "z"}]);
        let missing = "configmap \"settings\" references non-existent key: z";
        check(json!({"configMap": {"name": "settings", "items": items}}), Err(missing));
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        check(claim("gone"), Err("persistentvolumeclaim \"gone\" is not bound"));
        check(claim("remote"), Err("this node has persistent volumes of the types hostPath and local only"));
        check(json!({"nfs": {"server": "s", "path": "/"}}), Err("this node has no volumes of the type nfs"));
    }

    #[test]
    fn an_empty_directory_is_writable_for_each_user() {
        let pod = tempfile::tempdir().expect("a folder");
        let memory = pod.path().join("memory");
        let place = |memory| VolumePlace {
            pod_directory: pod.path(),
            memory,
            mounts: false,
            devices: None,
            group: None,
            only_on_mismatch: false,
        };
        for (content, parent, expect) in
            [(Content::Empty, pod.path().join(FOLDER), 0o777), (Content::Memory(1), memory.clone(), 0o1777)]
        {
            let volume = make(&place(Some(&memory)), "v", &content).expect("made");
            assert_eq!(volume.parent(), Some(&*parent));
            let mode = std::fs::metadata(volume).expect("it exists").permissions().mode();
            assert_eq!(mode & 0o7777, expect);
        }
        let elsewhere = make(&place(None), "w", &Content::Memory(1)).expect("made");
        assert_eq!(elsewhere, pod.path().join(FOLDER).join("w"));
    }

    #[test]
    fn a_local_volume_has_to_be_there_and_belongs_to_the_group() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = std::fs::metadata(folder.path()).expect("it exists").gid();
        let place = VolumePlace {
            pod_directory: folder.path(),
            memory: None,
            mounts: false,
            devices: None,
            group: Some(group),
            only_on_mismatch: false,
        };
        let at = |name: &str| folder.path().join(name);
        for name in ["written", "read"] {
            std::fs::create_dir(at(name)).expect("created");
            make(&place, name, &Content::Local(at(name), name == "read")).expect("made");
        }
        std::fs::create_dir(at("target")).expect("created");
        symlink(at("target"), at("link")).expect("linked");
        make(&place, "link", &Content::Local(at("link"), false)).expect("made");
        let set_group_id = |name: &str| std::fs::metadata(at(name)).expect("it exists").mode() & 0o2000 != 0;
        assert!(set_group_id("written") && !set_group_id("read") && set_group_id("target"));
        // A restarted container finds the permissions that it has set.
        std::fs::set_permissions(at("written"), Permissions::from_mode(0o700)).expect("set");
        make(&place, "written", &Content::Local(at("written"), false)).expect("made");
        let mode = std::fs::metadata(at("written")).expect("it exists").mode() & 0o7777;
        assert_eq!(mode, 0o700);
        let error = make(&place, "v", &Content::Local(at("gone"), false)).expect_err("refused").to_string();
        assert_eq!(error, format!("path {:?} does not exist", at("gone").display().to_string()));
        assert!(!at("gone").exists());
    }

    #[test]
    fn a_part_is_not_outside_of_its_volume() {
        let folder = tempfile::tempdir().expect("a folder");
        let (volume, outside) = (folder.path().join("volume"), folder.path().join("outside"));
        for made in [&volume, &outside, &volume.join("own")] {
            std::fs::create_dir(made).expect("created");
        }
        symlink(&outside, volume.join("absolute")).expect("linked");
        symlink("../outside", volume.join("relative")).expect("linked");
        symlink("own", volume.join("inner")).expect("linked");
        let part = |path: &str| part_of(&volume, &Content::Empty, Some(path), Path::new("/unused"));
        for path in ["absolute", "relative", "relative/new"] {
            assert!(part(path).expect_err("refused").to_string().ends_with("leads out of the volume"), "{path}");
        }
        assert!(std::fs::read_dir(&outside).expect("there").next().is_none());
        assert_eq!(part("inner/new").expect("made"), volume.join("inner/new"));
        assert!(volume.join("own/new").exists());
    }

    #[test]
    fn paths_stay_inside() {
        assert_eq!(inside("/a/../../b/./c"), Path::new("a/b/c"));
    }
}
