//! `kubewright image`: builds and pushes an image of the operator, without a container engine.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::build::BuildOptions;
use crate::{
    oci::{
        self, Contents, elf,
        layout::{Descriptor, Layout},
        registry::{
            self, PushOptions, Step,
            credentials::{self, Credentials},
            reference::Reference,
        },
        sbom::{self, Metadata},
        signature::key::SigningKey,
    },
    operator::{Package, install_hint},
    project::current_folder,
    shell::Shell,
};

/// Arguments of `kubewright image`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Build an image, and push it to a registry
  kubewright image --tag ghcr.io/me/cow:v1 --push

  # Build an image, and load it into Docker
  kubewright image --tag cow:v1 --archive cow.tar && docker load --input cow.tar

  # Build an image of two platforms, and push it
  kubewright image --tag ghcr.io/me/cow:v1 --platform linux/amd64,linux/arm64 --push

  # The same of programs that were built elsewhere
  kubewright image --tag ghcr.io/me/cow:v1 --program cow-amd64 --program cow-arm64 --push

  # Push a release of an image whose blobs are in a repository for development
  kubewright image --tag ghcr.io/me/cow:v1 --push --mount-from me/cow-dev

  # Sign the pushed image with a key of cosign
  COSIGN_PASSWORD=… kubewright image --tag ghcr.io/me/cow:v1 --push --sign-key cosign.key
  cosign verify --key cosign.pub --insecure-ignore-tlog=true ghcr.io/me/cow:v1

The image has one layer: the static program as /manager, root certificates, and an unprivileged user (65532). The same program always gives the
same digest, which is printed. A software bill of materials (CycloneDX) is attached. Credentials come from docker login.
Blobs of more than 64 MiB are pushed in chunks, and resumed after an interruption.

Signatures are those of cosign sign --key --recursive: of the image, and of each platform in its index. They are not entered in a transparency
log.")]
pub(crate) struct Arguments {
    /// Image name, such as ghcr.io/me/cow:v1
    #[arg(long, short, value_name = "NAME")]
    tag: Option<String>,

    /// Directory to write the image to, as an OCI image layout [default: image/NAME in cargo's target directory]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Write an archive for docker load, podman load or kind load image-archive
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,

    /// Push the image to the registry in its name
    #[arg(long, requires = "tag")]
    push: bool,

    /// Use HTTP without TLS, as is always done for registries on this machine
    #[arg(long, requires = "push")]
    plain_http: bool,

    /// Use the blobs of this repository in the same registry, if it has them, instead of uploading them
    #[arg(long, value_name = "REPOSITORY", requires = "push")]
    mount_from: Option<String>,

    /// Sign the pushed image with this private key, ECDSA P-256 in PEM format; the password of cosign's keys is taken
    /// from COSIGN_PASSWORD
    #[arg(long, value_name = "FILE", requires = "push")]
    sign_key: Option<PathBuf>,

    /// Label of the image, in addition to those from Cargo.toml
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    label: Vec<(String, String)>,

    /// Platforms of the image, such as linux/amd64,linux/arm64; the program is built for each
    /// [default: that of --target]
    #[arg(long, value_name = "PLATFORMS", value_delimiter = ',', value_parser = platform, conflicts_with = "target")]
    platform: Vec<String>,

    /// Use this program instead of building one; may be repeated for several platforms
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bin", "target", "profile", "platform"])]
    program: Vec<PathBuf>,

    #[command(flatten)]
    build: BuildOptions,
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.into(), value.into())).ok_or_else(|| "use NAME=VALUE".into())
}

/// The architectures that programs are built for.
const ARCHITECTURES: [&str; 5] = ["amd64", "arm64", "386", "riscv64", "loong64"];

/// Parses a platform, and returns its architecture.
fn platform(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some(("linux", architecture)) if ARCHITECTURES.contains(&architecture) => Ok(architecture.to_owned()),
        _ => Err("use linux/amd64, linux/arm64, linux/386, linux/riscv64 or linux/loong64".into()),
    }
}

/// Builds the image, writes it, and pushes it if requested.
pub(crate) async fn run(arguments: Arguments, shell: &Shell) -> Result<()> {
    // An invalid name, missing credentials or a wrong key are reported before the build.
    let reference = arguments.tag.as_deref().map(Reference::parse).transpose()?;
    let push = Push::prepare(&arguments, reference.as_ref())?;
    let here = current_folder()?;
    let package = match arguments.program.is_empty() {
        true => Some(Package::find(&here, arguments.build.bin.as_deref())?),
        // If programs are given, no project is needed.
        false => Package::find(&here, None).ok(),
    };
    if arguments.archive.is_some() && arguments.platform.len().max(arguments.program.len()) > 1 {
        bail!("an archive for docker load has one platform: write an image of several with --output or --push");
    }
    let programs = programs(&arguments, package.as_ref(), shell)?;
    let mut images = BTreeMap::new();
    for (program, target) in &programs {
        let metadata = match &package {
            Some(package) => Some(metadata(package, target.as_deref())?),
            None => None,
        };
        let (architecture, layout) = make(&arguments, program, package.as_ref(), metadata.as_ref())?;
        if images.insert(architecture.clone(), layout).is_some() {
            bail!(
                "{} is a second program for linux/{architecture}: name one program for each platform",
                program.display()
            );
        }
    }
    let mut images: Vec<_> = images.into_values().collect();
    let layout = match images.len() {
        1 => images.remove(0),
        _ => Layout::join(images).context("assemble the index")?,
    };
    let name = reference.as_ref().map(ToString::to_string);
    write(&arguments, &layout, package.as_ref(), name.as_deref(), shell)?;
    match push {
        Some(push) => push.run(&layout, shell).await,
        None => {
            shell.result(layout.digest());
            Ok(())
        }
    }
}

/// What a push needs.
struct Push<'a> {
    reference: &'a Reference,
    credentials: Option<Credentials>,
    plain: bool,
    key: Option<SigningKey>,
    mount_from: Option<String>,
}

impl<'a> Push<'a> {
    /// Reads what a push needs, if one is requested.
    fn prepare(arguments: &Arguments, reference: Option<&'a Reference>) -> Result<Option<Self>> {
        let Some(reference) = reference.filter(|_| arguments.push) else { return Ok(None) };
        let mount_from = arguments.mount_from.as_deref().map(|source| reference.sibling(source)).transpose()?;
        Ok(Some(Self {
            reference,
            credentials: credentials::find(&reference.registry)?,
            plain: arguments.plain_http,
            key: arguments.sign_key.as_deref().map(read_key).transpose()?,
            mount_from,
        }))
    }

    /// Pushes the image, and prints its name with the digest.
    async fn run(self, layout: &Layout, shell: &Shell) -> Result<()> {
        let Self { reference, credentials, plain, key, mount_from } = self;
        let (key, mount_from) = (key.as_ref(), mount_from.as_deref());
        let options = PushOptions { credentials, plain, key, mount_from, ..PushOptions::default() };
        registry::push(layout, reference, options, |step: Step<'_>| report(&step, shell)).await?;
        shell.status("Finished", format!("pushed {reference}"));
        shell.result(&format!("{}/{}@{}", reference.registry, reference.repository, layout.digest()));
        Ok(())
    }
}

/// Reads the key for signatures.
fn read_key(path: &Path) -> Result<SigningKey> {
    let file = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let password = std::env::var_os("COSIGN_PASSWORD").map(OsStringExt::into_vec);
    SigningKey::from_pem(&file, password.as_deref()).with_context(|| format!("{} cannot sign images", path.display()))
}

/// Returns the programs of the image, built or given, with their targets.
fn programs(arguments: &Arguments, package: Option<&Package>, shell: &Shell) -> Result<Vec<(PathBuf, Option<String>)>> {
    let Some(package) = package.filter(|_| arguments.program.is_empty()) else {
        return Ok(arguments.program.iter().map(|program| (program.clone(), None)).collect());
    };
    let built = |target: Option<&str>| {
        let built = arguments.build.build_for(target, package, shell)?;
        Ok((built.program, Some(built.target)))
    };
    if arguments.platform.is_empty() {
        let built = arguments.build.build(package, shell)?;
        return Ok(vec![(built.program, Some(built.target))]);
    }
    arguments.platform.iter().map(|architecture| built(Some(&musl(architecture)))).collect()
}

fn metadata(package: &Package, target: Option<&str>) -> Result<Metadata> {
    serde_json::from_slice(&package.dependencies(target)?).context("parse the output of cargo metadata")
}

/// Assembles the image of a program, and returns it with its architecture.
fn make(
    arguments: &Arguments,
    path: &Path,
    package: Option<&Package>,
    metadata: Option<&Metadata>,
) -> Result<(String, Layout)> {
    let program = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let read = elf::read(&program).with_context(|| format!("{} is not a program for an image", path.display()))?;
    if let Some(interpreter) = read.interpreter {
        let triple = musl(read.architecture);
        bail!(
            "{} is linked dynamically, and the image has no {interpreter}: build it with kubewright build, or for {triple}; if that target is \
             missing, {}",
            path.display(),
            install_hint(&triple)
        );
    }
    let sbom = match (package, metadata) {
        (Some(package), Some(metadata)) => {
            let lock = package.root.join("Cargo.lock");
            let lock = fs::read_to_string(&lock).with_context(|| format!("read {}", lock.display()))?;
            sbom::list(metadata, &lock)
        }
        _ => None,
    };
    let labels = labels(metadata, &arguments.label);
    let contents = Contents { program: &program, architecture: read.architecture, labels, sbom };
    Ok((read.architecture.to_owned(), oci::make(&contents).context("assemble the image")?))
}

/// Returns the musl target for an image architecture.
fn musl(architecture: &str) -> String {
    let processor = match architecture {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        "386" => "i686",
        "riscv64" => "riscv64gc",
        "loong64" => "loongarch64",
        other => other,
    };
    format!("{processor}-unknown-linux-musl")
}

/// Returns the labels of the image: those derived from `Cargo.toml`, with the names in the OCI image specification, and
/// the given ones.
fn labels(metadata: Option<&Metadata>, wanted: &[(String, String)]) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    if let Some(package) = metadata.and_then(Metadata::root) {
        let authors = Some(package.authors.join(", ")).filter(|authors| !authors.is_empty());
        for (name, value) in [
            ("title", Some(package.name.clone())),
            ("version", Some(package.version.clone())),
            ("description", package.description.clone()),
            ("licenses", package.license.clone()),
            ("source", package.repository.clone()),
            ("url", package.homepage.clone()),
            ("authors", authors),
        ] {
            labels.extend(value.map(|value| (format!("org.opencontainers.image.{name}"), value)));
        }
    }
    labels.extend(wanted.iter().cloned());
    labels
}

fn write(
    arguments: &Arguments,
    layout: &Layout,
    package: Option<&Package>,
    name: Option<&str>,
    shell: &Shell,
) -> Result<()> {
    let usual = || package.map(|package| package.target.join("image").join(&package.program));
    let only_elsewhere = arguments.archive.is_some() || arguments.push;
    if let Some(folder) = arguments.output.clone().or_else(|| usual().filter(|_| !only_elsewhere)) {
        write_folder(&folder, &layout.files(name)?)?;
        shell.status("Wrote", folder.display());
    } else if !only_elsewhere {
        bail!("not in a project: choose where to write the image with --output or --archive");
    }
    if let Some(path) = &arguments.archive {
        write_archive(path, &layout.archive(name)?)?;
        shell.status("Wrote", path.display());
    }
    Ok(())
}

/// Writes to a temporary directory and renames it, so that the directory always contains a complete image. An existing
/// directory is only replaced if it contains an image.
fn write_folder(folder: &Path, files: &[oci::layout::File]) -> Result<()> {
    if folder.exists() && !folder.join("oci-layout").is_file() {
        let is_empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty {
            bail!("{} exists and is not an image: choose another directory; nothing was written", folder.display());
        }
    }
    let failed = || format!("write {}", folder.display());
    let parent = parent(folder);
    fs::create_dir_all(parent).with_context(failed)?;
    let temporary = tempfile::Builder::new().prefix(".kubewright-").tempdir_in(parent).with_context(failed)?;
    let (new, old) = (temporary.path().join("new"), temporary.path().join("old"));
    for (path, bytes) in files {
        let path = new.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&new)).with_context(failed)?;
        fs::write(&path, bytes).with_context(failed)?;
    }
    if folder.exists() {
        fs::rename(folder, &old).with_context(failed)?;
    }
    fs::rename(&new, folder).with_context(failed)
}

fn write_archive(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = || format!("write {}", path.display());
    let mut file = tempfile::NamedTempFile::new_in(parent(path)).with_context(failed)?;
    std::io::Write::write_all(&mut file, bytes).with_context(failed)?;
    // Temporary files are private, but this one is meant to be shared.
    #[cfg(unix)]
    fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).with_context(failed)?;
    file.persist(path).map(drop).with_context(failed)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn report(step: &Step<'_>, shell: &Shell) {
    let of = |descriptor: &Descriptor| {
        let digest = descriptor.digest.get(..19).unwrap_or(&descriptor.digest);
        format!("{digest} ({})", size(descriptor.size))
    };
    match step {
        Step::Blob(blob) => shell.status("Pushing", of(blob)),
        Step::Mounted(blob) => shell.status("Mounted", of(blob)),
        Step::Sent(blob, bytes) => shell.detail("Sent", format!("{} of {}", size(*bytes), of(blob))),
        Step::Resumed(blob, bytes) => shell.status("Resuming", format!("{} after {}", of(blob), size(*bytes))),
        Step::Exists(blob) => shell.detail("Exists", of(blob)),
        Step::Manifest(manifest) => shell.detail("Manifest", of(manifest)),
        Step::Signature(manifest) => shell.status("Signing", of(manifest)),
        Step::IsSigned(manifest) => shell.detail("Is signed", of(manifest)),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..1_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_image_is_replaced_by_an_image() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/image");
        let files = |text: &str| vec![("oci-layout".into(), b"{}".to_vec()), ("blobs/sha256/x".into(), text.into())];
        write_folder(&folder, &files("one")).unwrap();
        fs::write(folder.join("blobs/sha256/older"), "").unwrap();
        write_folder(&folder, &files("two")).unwrap();
        assert_eq!(fs::read_to_string(folder.join("blobs/sha256/x")).unwrap(), "two");
        assert!(!folder.join("blobs/sha256/older").exists());
        assert_eq!(fs::read_dir(home.path().join("a")).unwrap().count(), 1, "no temporary directory is left");
        let refused = write_folder(home.path(), &files("three")).unwrap_err().to_string();
        assert!(refused.contains("is not an image"), "{refused}");
        assert!(folder.exists());
    }

    #[test]
    fn sizes_are_formatted() {
        assert_eq!([9_999, 10_000, 12_345_678].map(size), ["9999 bytes", "10 kB", "12.3 MB"]);
    }
}
