//! Installation of the programs that the tests need, from Debian's packages unless they are on the path.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// A program that the tests need.
pub(crate) struct Tool {
    name: &'static str,
    /// The possible names of the program.
    programs: &'static [&'static str],
    /// The environment variable that overrides the path, if any.
    variable: Option<&'static str>,
    /// The arguments that print the version.
    version: &'static [&'static str],
    /// The Debian package.
    package: &'static str,
    /// The Debian release whose package is taken if older releases don't have it, and the path in that package.
    newer: Option<(&'static str, &'static str)>,
    /// The project's download page.
    home: &'static str,
    /// The minimum minor version.
    oldest: u32,
}

/// The Kubernetes command line.
pub(crate) const KUBECTL: Tool = Tool {
    name: "kubectl",
    programs: &["kubectl"],
    variable: None,
    version: &["version", "--client"],
    package: "kubectl",
    newer: Some(("trixie", "usr/bin/kubectl")),
    home: "https://kubernetes.io/docs/tasks/tools/",
    // The kustomize in earlier versions, such as Debian 12's, can't render the operators' manifests.
    oldest: 21,
};

/// The program that connects the network namespaces of pods, which only root can do.
pub(crate) const IP: Tool = Tool {
    name: "ip",
    programs: &["ip"],
    variable: None,
    version: &["-Version"],
    package: "iproute2",
    newer: None,
    home: "https://wiki.linuxfoundation.org/networking/iproute2",
    oldest: 0,
};

/// The program that redirects connections of pods with network namespaces to other machines.
pub(crate) const NFT: Tool = Tool {
    name: "nft",
    programs: &["nft"],
    variable: None,
    version: &["--version"],
    package: "nftables",
    newer: None,
    home: "https://www.nftables.org",
    oldest: 0,
};

/// The browser in which the operators' pages are tested. The names are those that `kubewright-browser` looks for.
pub(crate) const CHROMIUM: Tool = Tool {
    name: "chromium",
    programs: &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"],
    variable: Some("CHROMIUM"),
    version: &["--version"],
    package: "chromium",
    newer: None,
    home: "https://www.chromium.org/getting-involved/download-chromium/",
    oldest: 0,
};

/// The program that observes which instructions another one executes.
pub(crate) const VALGRIND: Tool = Tool {
    name: "valgrind",
    programs: &["valgrind"],
    variable: None,
    version: &["--version"],
    package: "valgrind",
    newer: None,
    home: "https://valgrind.org",
    oldest: 0,
};

/// The timeouts of apt-get: minutes for the lock of another one, and half a minute for a server, three times.
const PATIENCE: [&str; 6] =
    ["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::http::Timeout=30", "-o", "Acquire::Retries=3"];
/// The directory for a program that the machine's own release doesn't have.
const LOCAL: &str = "/usr/local/bin";
/// The maximum duration of one apt-get call, in the syntax of `timeout`.
const LONGEST: &str = "15m";

impl Tool {
    /// Installs the program if necessary, and succeeds once it prints its version.
    pub(crate) fn ensure(&self) -> Result<()> {
        if let Some(version) = self.version() {
            return self.tell(&version);
        }
        let Self { name, package, home, .. } = self;
        if !is_root() || !has("apt-get") {
            let variable = self.variable.map(|variable| format!(", or set {variable} to its path")).unwrap_or_default();
            bail!(
                "{name} is not on the path. Install it ({home}){variable}, or as root on Debian: \
                 apt-get update && apt-get install {package}"
            );
        }
        eprintln!("    not on the path: installing Debian's {package}");
        // If the update fails, the present package lists may suffice.
        let updated = apt_get(&[], &["update"]);
        let installed = apt_get(&[], &["install", "--yes", "--no-install-recommends", package]);
        match (installed, self.newer) {
            (Ok(()), _) => {}
            (Err(_), Some((release, path))) => {
                eprintln!("    there is none: taking that of Debian's {release} to {LOCAL}");
                take(release, package, path).with_context(|| format!("install {package} of Debian's {release}"))?;
            }
            (Err(error), None) => return updated.and(Err(error)),
        }
        let version = self.version().with_context(|| format!("{name} still does not run after its installation"))?;
        self.tell(&version)
    }

    /// Prints the version, unless it is too old.
    fn tell(&self, version: &str) -> Result<()> {
        let Self { name, home, oldest, .. } = self;
        if minor(version).is_some_and(|minor| minor < *oldest) {
            bail!("{name} is too old: 1.{oldest} or newer is needed ({home}), and there is {version}");
        }
        eprintln!("    {version}");
        Ok(())
    }

    fn version(&self) -> Option<String> {
        let given = self.variable.and_then(std::env::var_os).filter(|path| !path.is_empty());
        let programs = given.into_iter().chain(self.programs.iter().map(Into::into));
        programs.into_iter().find_map(|program| {
            let output = Command::new(program).args(self.version).stderr(Stdio::null()).output().ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
        })
    }
}

/// Returns the number after `v1.`, if there is one.
fn minor(version: &str) -> Option<u32> {
    let (_, after) = version.split_once("v1.")?;
    after.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Extracts one program from a package of another release, without adding that release to the machine's sources. The
/// package's dependencies are ignored, so this suits programs with few.
fn take(release: &str, package: &str, path: &str) -> Result<()> {
    const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let folder = std::path::absolute("target/tools/apt").context("find target")?;
    for part in ["lists/partial", "cache/archives/partial", "program"] {
        fs::create_dir_all(folder.join(part)).with_context(|| format!("make {}", folder.join(part).display()))?;
    }
    let at = |part: &str| folder.join(part).display().to_string();
    let source = format!("deb [signed-by={KEYS}] http://deb.debian.org/debian {release} main\n");
    fs::write(folder.join("sources.list"), source).context("name where it comes from")?;
    let own = [
        format!("Dir::Etc::SourceList={}", at("sources.list")),
        "Dir::Etc::SourceParts=/dev/null".into(),
        format!("Dir::State::Lists={}", at("lists")),
        "Dir::State::Status=/dev/null".into(),
        format!("Dir::Cache={}", at("cache")),
    ];
    let own = own.iter().flat_map(|option| ["-o", option]).collect::<Vec<_>>();
    apt_get(&own, &["update"])?;
    // Downloads to the cache, where the file is found whatever its version is.
    apt_get(&own, &["install", "--yes", "--download-only", "--no-install-recommends", package])?;
    let archives = fs::read_dir(folder.join("cache/archives")).context("look for the package")?;
    let name = format!("{package}_");
    let is_it = |found: &Path| found.file_name().is_some_and(|found| found.to_string_lossy().starts_with(&name));
    let found = archives.filter_map(|entry| Some(entry.ok()?.path())).find(|found| is_it(found));
    let found = found.with_context(|| format!("apt-get has brought no {package}"))?;
    let mut unpack = Command::new("dpkg");
    unpack.arg("--extract").arg(found).arg(folder.join("program"));
    let mut install = Command::new("install");
    install.arg(folder.join("program").join(path)).arg(LOCAL);
    for mut command in [unpack, install] {
        let status = command.status().with_context(|| format!("start {command:?}"))?;
        if !status.success() {
            bail!("{command:?} ended with {status}");
        }
    }
    Ok(())
}

fn apt_get(options: &[&str], arguments: &[&str]) -> Result<()> {
    let status = Command::new("timeout")
        .args([LONGEST, "apt-get", "--quiet"])
        .args(PATIENCE)
        .args(options)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("start apt-get")?;
    if !status.success() {
        let command = arguments.join(" ");
        bail!(
            "apt-get {command} failed ({status}; 124 means that it took longer than {LONGEST}). Its own words are above: if \
             another apt-get holds the lock, wait until it has ended; then run apt-get {command} yourself, and this again"
        );
    }
    Ok(())
}
