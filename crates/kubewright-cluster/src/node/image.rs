//! The image table: the host programs that run in place of container images.
//!
//! There is no registry, and nothing is pulled. An image that is missing in the table fails with `ErrImagePull`.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use super::environment::expand;

/// The search path for commands if this process has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The host program that runs in the containers of an image.
///
/// As in an image's configuration, a container's `command` replaces the entrypoint *and* the default arguments, and its
/// `args` replace the default arguments alone.
///
/// Without [network namespaces](crate::PodNetwork::Namespaces), a program that listens on `0.0.0.0` occupies that port
/// of the whole machine, and a second pod with the same image finds the port in use. A program should therefore listen
/// on its pod's own address, which the entrypoint, the default arguments and the values of [`Program::env`] may refer
/// to as `$(POD_IP)`. The names `$(HOST_IP)`, `$(POD_NAME)` and `$(POD_NAMESPACE)` are expanded as well; `$$` stands
/// for a dollar sign, and any other reference is left unchanged.
///
/// ```
/// # use kubewright_cluster::Program;
/// Program::executable("/usr/local/bin/web").env("LISTEN", "$(POD_IP):8080");
/// Program::entrypoint(["/usr/bin/env", "web", "--page"]).arguments(["--listen=$(POD_IP):8080"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    entrypoint: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Whether the program is the only file of the image.
    single: bool,
}

impl Program {
    /// Creates an image of the host's shell tools, without an entrypoint: commands are searched on the host's `PATH`,
    /// and `sh` is the default.
    pub fn host_tools() -> Self {
        Self { arguments: vec!["sh".into()], ..Self::default() }
    }

    /// Creates an image whose entrypoint is a program of the host. Prefer an absolute path; a bare name is searched on
    /// the container's `PATH`.
    pub fn executable(path: impl Into<PathBuf>) -> Self {
        Self { entrypoint: vec![path.into().to_string_lossy().into_owned()], ..Self::default() }
    }

    /// Creates an image whose entrypoint is a program of the host with leading arguments, like an `ENTRYPOINT` of
    /// several words.
    pub fn entrypoint(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { entrypoint: words.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Creates an image that contains only this program, as those of most operators do. It runs by whatever name or
    /// absolute path the container's `command` has, such as `manager` or `/manager`. That of another program of the
    /// host, such as `sh` or `/bin/sh`, runs the host's instead, and a path in a volume of the container what is there.
    pub fn single(path: impl Into<PathBuf>) -> Self {
        Self { single: true, ..Self::executable(path) }
    }

    /// Sets the default arguments, which a container's `args` replace.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an environment variable, like an image's `ENV`. The container's own `env` overrides it.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Returns the program with the paths that its files have in a container.
    pub(crate) fn inside(&self, path: impl Fn(&Path) -> PathBuf) -> Self {
        let word = |word: &String| match Path::new(word) {
            file if file.is_absolute() && file.is_file() => path(file).to_string_lossy().into_owned(),
            _ => word.clone(),
        };
        Self { entrypoint: self.entrypoint.iter().map(word).collect(), ..self.clone() }
    }

    /// Returns the command line for a container's `command` and `args`. `place` contains the values of the names that
    /// the image's own arguments may refer to, `mounts` are the paths of the container's volumes.
    pub(crate) fn argv(
        &self,
        place: &[(String, String)],
        command: Vec<String>,
        args: Vec<String>,
        mounts: &[&str],
    ) -> Vec<String> {
        let own = |words: &[String]| words.iter().map(|word| expand(word, place)).collect();
        let (mut head, tail) = match (command.is_empty(), args.is_empty()) {
            (false, _) if self.single && !self.is_another_program(&command[0], mounts) => {
                ([own(&self.entrypoint), command[1..].to_vec()].concat(), args)
            }
            (false, _) => (command, args),
            (true, false) => (own(&self.entrypoint), args),
            (true, true) => (own(&self.entrypoint), own(&self.arguments)),
        };
        head.extend(tail);
        head
    }

    /// Returns whether a command isn't the image's only program: it is in a volume, relative to the working directory,
    /// or a program of the host with another file name.
    fn is_another_program(&self, command: &str, mounts: &[&str]) -> bool {
        let path = Path::new(command);
        let program = self.entrypoint.first().and_then(|program| Path::new(program).file_name());
        let is_named_differently = path.file_name() != program;
        if !command.contains('/') {
            let is_host_program = |directory: PathBuf| directory.join(path).is_file();
            return is_named_differently && env::split_paths(&search_path()).any(is_host_program);
        }
        !path.is_absolute()
            || mounts.iter().any(|mount| path.starts_with(mount))
            || (is_named_differently && path.is_file())
    }

    /// Returns the variables of the image, expanded with `place`.
    pub(crate) fn environment(&self, place: &[(String, String)]) -> Vec<(String, String)> {
        let mut variables = vec![("PATH".to_owned(), search_path())];
        variables.extend(self.environment.iter().map(|(name, value)| (name.clone(), expand(value, place))));
        variables
    }

    /// Adds the directory of an image's only program to the end of `PATH`: it may look itself up by its name, or be
    /// called by it.
    pub(crate) fn extend_search_path(&self, environment: &mut [(String, String)]) {
        let program = self.entrypoint.first().filter(|_| self.single).map(Path::new);
        let directory = program.filter(|program| program.is_absolute()).and_then(Path::parent).and_then(Path::to_str);
        let path = environment.iter_mut().find(|(name, _)| name == "PATH");
        if let (Some(directory), Some((_, path))) = (directory, path) {
            let is_there = env::split_paths(path.as_str()).any(|one| one == Path::new(directory));
            if !is_there && !directory.contains(':') {
                path.push(':');
                path.push_str(directory);
            }
        }
    }
}

/// Returns the search path for commands.
fn search_path() -> String {
    env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.into())
}

/// The programs that run in place of images. The default table contains `busybox`, for which the host's shell tools
/// run.
#[derive(Clone, Debug)]
pub struct ImageTable {
    programs: BTreeMap<String, Program>,
}

impl Default for ImageTable {
    fn default() -> Self {
        Self::empty().with("busybox", Program::host_tools())
    }
}

impl ImageTable {
    /// Creates a table without images.
    pub fn empty() -> Self {
        Self { programs: BTreeMap::new() }
    }

    /// Adds or replaces an image. The tag, the digest and the default registry in `image` are ignored: `busybox` and
    /// `docker.io/library/busybox:1.36` are the same image.
    pub fn with(mut self, image: &str, program: Program) -> Self {
        self.programs.insert(repository(image), program);
        self
    }

    /// Returns the program that runs in place of an image, if there is one.
    ///
    /// ```
    /// # use kubewright_cluster::ImageTable;
    /// assert!(ImageTable::default().program("docker.io/library/busybox:1.36").is_some());
    /// ```
    pub fn program(&self, image: &str) -> Option<&Program> {
        self.find(image).ok()
    }

    /// Returns the program for an image reference.
    pub(crate) fn find(&self, image: &str) -> Result<&Program, ImageError> {
        if !is_reference(image) {
            return Err(ImageError::Invalid(image.into()));
        }
        self.programs.get(&repository(image)).ok_or_else(|| ImageError::Unknown {
            image: image.into(),
            known: self.programs.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }
}

/// An error that prevents an image from being run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
    /// The reference is malformed.
    #[error("couldn't parse image name {0:?}: invalid reference format")]
    Invalid(String),
    /// The image is not in the table.
    #[error(
        "failed to pull and unpack image {image:?}: not found: this node has no program for it (it has programs for {known}; \
         `kubewright cluster --image` adds one)"
    )]
    Unknown {
        /// The reference.
        image: String,
        /// The images of the table, for the message.
        known: String,
    },
}

/// Checks the syntax of an image reference roughly.
fn is_reference(image: &str) -> bool {
    let name = repository(image);
    let component = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._-:".contains(c))
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let mut parts = name.rsplit('/');
    let last = parts.next().unwrap_or_default();
    component(last) && !last.contains(|c: char| c.is_ascii_uppercase()) && parts.all(component)
}

/// Returns the repository of an image reference, without digest, tag and default registry.
fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let name = name[last..].find(':').map_or(name, |colon| &name[..last + colon]);
    let name = name.strip_prefix("docker.io/").or_else(|| name.strip_prefix("index.docker.io/")).unwrap_or(name);
    name.strip_prefix("library/").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_program_of_an_image_has_every_name() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let program = Program::single("/home/me/operator").arguments(["--default"]);
        let check = |command: &[&str], args: &[&str], expect: &[&str]| {
            let mounts = ["/tools/bin", "/var/data/"];
            assert_eq!(program.argv(&[], words(command), words(args), &mounts), words(expect), "{command:?} {args:?}");
        };
        check(&[], &[], &["/home/me/operator", "--default"]);
        check(&[], &["--a"], &["/home/me/operator", "--a"]);
        check(&["/manager"], &["--a"], &["/home/me/operator", "--a"]);
        check(&["/bin/manager", "run"], &[], &["/home/me/operator", "run"]);
        check(&["sh", "-c", "true"], &[], &["sh", "-c", "true"]);
        check(&["the-manager", "run"], &[], &["/home/me/operator", "run"]);
        check(&["operator"], &[], &["/home/me/operator"]);
        check(&["bin/manager"], &[], &["bin/manager"]);
        check(&["/bin/sh", "-c"], &["true"], &["/bin/sh", "-c", "true"]);
        check(&["/tools/bin/entrypoint"], &["-a"], &["/tools/bin/entrypoint", "-a"]);
        check(&["/var/data/operator"], &[], &["/var/data/operator"]);
        check(&["/tools/binary"], &[], &["/home/me/operator"]);
        assert_eq!(
            Program::single("/home/me/sh").argv(&[], words(&["/bin/sh"]), words(&["-c"]), &[]),
            words(&["/home/me/sh", "-c"])
        );
    }

    #[test]
    fn the_only_program_of_an_image_is_on_the_search_path() {
        let check = |program: Program, path: &str, expect: &str| {
            let mut environment = vec![("HOME".to_owned(), "/root".to_owned()), ("PATH".to_owned(), path.to_owned())];
            program.extend_search_path(&mut environment);
            assert_eq!(environment[1].1, expect);
        };
        check(Program::single("/home/me/operator"), "/bin", "/bin:/home/me");
        check(Program::single("/home/me/operator"), "/home/me:/bin", "/home/me:/bin");
        check(Program::single("/home/a:b/operator"), "/bin", "/bin");
        check(Program::single("operator"), "/bin", "/bin");
        check(Program::executable("/home/me/operator"), "/bin", "/bin");
        Program::single("/home/me/operator").extend_search_path(&mut []);
    }

    #[test]
    fn references_of_one_repository_are_one_image() {
        let check = |image, expect| assert_eq!(repository(image), expect, "{image}");
        check("busybox", "busybox");
        check("busybox:1.36", "busybox");
        check("docker.io/library/busybox:1.36", "busybox");
        check("busybox@sha256:0123", "busybox");
        check("busybox:1.36@sha256:0123", "busybox");
        check("localhost:5000/busybox", "localhost:5000/busybox");
        check("localhost:5000/busybox:dev", "localhost:5000/busybox");
        check("ghcr.io/vsoch/lolcow-operator", "ghcr.io/vsoch/lolcow-operator");
    }

    #[test]
    fn a_command_replaces_entrypoint_and_arguments() {
        let program = Program::executable("/bin/cow").arguments(["moo"]);
        let check = |command: &[&str], args: &[&str], expect: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
            assert_eq!(program.argv(&[], owned(command), owned(args), &[]), owned(expect));
        };
        check(&[], &[], &["/bin/cow", "moo"]);
        check(&[], &["hello"], &["/bin/cow", "hello"]);
        check(&["echo"], &[], &["echo"]);
        check(&["echo"], &["hello"], &["echo", "hello"]);
        assert_eq!(Program::host_tools().argv(&[], vec![], vec![], &[]), ["sh"]);
    }

    #[test]
    fn arguments_of_an_image_expand_pod_fields() {
        let place = [("POD_IP".to_owned(), "127.1.0.7".to_owned())];
        let program = Program::entrypoint(["/bin/web", "--at=$(POD_IP)"]).arguments(["$(POD_IP):80"]);
        let program = program.env("LISTEN", "$(POD_IP):80").env("PRICE", "$$(POD_IP) $(OTHER)");
        assert_eq!(program.argv(&place, vec![], vec![], &[]), ["/bin/web", "--at=127.1.0.7", "127.1.0.7:80"]);
        let given = vec!["$(POD_IP)".to_owned()];
        assert_eq!(
            program.argv(&place, vec![], given, &[]),
            ["/bin/web", "--at=127.1.0.7", "$(POD_IP)"],
            "not the image's"
        );
        let own: Vec<_> = program.environment(&place).into_iter().skip(1).map(|(_, value)| value).collect();
        assert_eq!(own, ["127.1.0.7:80", "$(POD_IP) $(OTHER)"]);
    }

    #[test]
    fn unknown_and_invalid_images_have_different_errors() {
        let table = ImageTable::default();
        assert!(table.find("docker.io/library/busybox:latest").is_ok());
        assert!(matches!(table.find("nginx:1"), Err(ImageError::Unknown { .. })));
        for image in ["", "Busy Box", "BUSYBOX", "/busybox", "a//b"] {
            assert!(matches!(table.find(image), Err(ImageError::Invalid(_))), "{image}");
        }
    }
}
