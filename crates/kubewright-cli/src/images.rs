//! The programs of this machine that run in place of images: `--image` and `--image-file`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use kubewright_cluster::{ImageTable, Program};

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ImageOptions {
    /// Run a program of this machine in place of an image, whatever its tag; may be repeated
    #[arg(long = "image", value_name = "NAME=PROGRAM", value_parser = parse)]
    images: Vec<Image>,

    /// File with a NAME=PROGRAM on each line; lines that begin with # are comments
    #[arg(long, value_name = "FILE")]
    image_file: Option<PathBuf>,
}

/// An image, and its program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    name: String,
    program: PathBuf,
}

impl ImageOptions {
    /// Returns the default images and the given ones. Those of the command line replace those of the file.
    ///
    /// # Errors
    /// If the file can't be read, or a program isn't an executable file.
    pub(crate) fn table(&self) -> Result<ImageTable> {
        let from_file = match &self.image_file {
            Some(path) => read(path)?,
            None => Vec::new(),
        };
        let mut table = ImageTable::default();
        for Image { name, program } in from_file.iter().chain(&self.images) {
            let program = executable(program).with_context(|| format!("use a program in place of the image {name}"))?;
            table = table.with(name, Program::single(program));
        }
        Ok(table)
    }
}

/// Parses `NAME=PROGRAM`.
fn parse(text: &str) -> Result<Image, String> {
    match text.split_once('=') {
        Some((name, program)) if !name.is_empty() && !program.is_empty() && !name.contains(char::is_whitespace) => {
            Ok(Image { name: name.into(), program: program.into() })
        }
        _ => Err("use NAME=PROGRAM, such as example.com/operator=target/debug/operator".into()),
    }
}

/// Reads a file of images. Relative paths of programs begin at its directory.
fn read(path: &Path) -> Result<Vec<Image>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut images = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let image = parse(line).map_err(anyhow::Error::msg);
        let mut image = image.with_context(|| format!("read line {} of {}", index + 1, path.display()))?;
        image.program = directory.join(image.program);
        images.push(image);
    }
    Ok(images)
}

/// Returns the absolute path of a program.
fn executable(program: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(program)?;
    let metadata = fs::metadata(&path).with_context(|| format!("read {}", path.display()))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        bail!("{} is not an executable file", path.display());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_an_image_on_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("images");
        fs::write(&path, "# comment\n\nexample.com/a = b\n  example.com/c=/bin/d  \n").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("line 3"), "no spaces in names");
        fs::write(&path, "# comment\n\nexample.com/a=b\n  example.com/c:1=/bin/d  \n").unwrap();
        let image = |name: &str, program: PathBuf| Image { name: name.into(), program };
        let expect = [image("example.com/a", folder.path().join("b")), image("example.com/c:1", "/bin/d".into())];
        assert_eq!(read(&path).unwrap(), expect);
        for wrong in ["", "a", "=b", "a="] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_program_must_be_executable() {
        let folder = tempfile::tempdir().unwrap();
        let options = |program: &Path| ImageOptions {
            images: vec![Image { name: "example.com/a".into(), program: program.into() }],
            image_file: None,
        };
        let failure = |path: &Path| format!("{:#}", options(path).table().unwrap_err());
        let path = folder.path().join("program");
        assert!(failure(&path).starts_with("use a program in place of the image example.com/a: read "));
        fs::write(&path, "").unwrap();
        assert!(failure(&path).ends_with("is not an executable file"));
        assert!(failure(folder.path()).ends_with("is not an executable file"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(options(&path).table().is_ok());
    }
}
