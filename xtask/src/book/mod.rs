//! Building and checking the book. mdbook builds it, and is installed below `target` if it is missing. The tests below
//! don't need mdbook; they check for errors that it ignores: missing files and anchors, and broken links. The module
//! [`commands`] runs the commands in the pages.

pub(crate) mod commands;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::steps::cargo;

/// The version of mdbook.
const VERSION: &str = "0.5.4";
/// The directory where it is installed, below `target` so that nothing of the user's changes.
const ROOT: &str = "target/tools";

/// The directory of the pages, relative to the root of the repository.
const PAGES: &str = "book/src";

/// Returns every page with its text, ordered by path.
fn pages(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let (mut pages, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                pages.push((path, text));
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Builds the book into `target/book`.
pub(crate) fn build() -> Result<()> {
    let mdbook = installed().map_or_else(install, Ok)?;
    let status = Command::new(&mdbook).args(["build", "book"]).status().with_context(|| format!("start {mdbook}"))?;
    if !status.success() {
        bail!("the book can't be built ({status})");
    }
    eprintln!("    target/book/index.html");
    Ok(())
}

/// Returns the path of an installed mdbook of the right version.
fn installed() -> Option<String> {
    let ours = format!("{ROOT}/bin/mdbook");
    let is_right = |program: &String| {
        let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(VERSION))
    };
    [ours, "mdbook".into()].into_iter().find(is_right)
}

/// Installs mdbook, in a minute or two without its server and search. It is built unoptimised, since the book is small.
fn install() -> Result<String> {
    eprintln!("    installing mdbook {VERSION} below {ROOT}");
    let mut install = cargo(&["install", "mdbook", "--version", VERSION, "--locked", "--debug", "--quiet"]);
    install.args(["--no-default-features", "--root", ROOT]).env("CARGO_TARGET_DIR", format!("{ROOT}/build"));
    let status = install.status().context("start cargo install")?;
    if !status.success() {
        bail!("mdbook can't be installed ({status}); install version {VERSION} of it yourself: {install:?}");
    }
    // The build directory isn't needed any more.
    let _ = std::fs::remove_dir_all(Path::new(ROOT).join("build"));
    Ok(format!("{ROOT}/bin/mdbook"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
    }

    /// Returns every page with its text.
    fn pages() -> Vec<(PathBuf, String)> {
        let pages = super::pages(&root().join(PAGES)).unwrap();
        assert!(pages.len() > 10, "the pages are found");
        pages
    }

    /// Returns all texts between `open` and `close`.
    fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
        text.split(open).skip(1).filter_map(move |rest| rest.split_once(close).map(|(inside, _)| inside))
    }

    #[test]
    fn whatever_is_included_is_there() {
        let mut wrong = Vec::new();
        for (page, text) in pages() {
            for include in between(&text, "{{#include ", "}}") {
                let (file, anchor) = include.split_once(':').map_or((include, None), |(file, name)| (file, Some(name)));
                let source = fs::read_to_string(page.parent().unwrap().join(file)).unwrap_or_default();
                let has = |mark: &str| {
                    let mark = format!("{mark}: {}", anchor.unwrap_or_default());
                    source.lines().any(|line| line.trim().trim_start_matches(['/', '#', ' ']) == mark)
                };
                if source.is_empty() || anchor.is_some() && !(has("ANCHOR") && has("ANCHOR_END")) {
                    wrong.push(format!("{}: {include}", page.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "nothing to include: {wrong:#?}");
    }

    #[test]
    fn every_anchor_is_used() {
        let book: String = pages().into_iter().map(|(_, text)| text).collect();
        let folders = ["operators", "crates/kubewright/examples", "crates/kubewright-cluster/tests/clients"];
        let mut folders = folders.map(|folder| root().join(folder)).to_vec();
        let is_source = |path: &Path| {
            let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            ["rs", "py", "mjs", "java", "go"].contains(&extension)
        };
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if is_source(&path) {
                    let text = fs::read_to_string(&path).unwrap();
                    for anchor in between(&text, " ANCHOR: ", "\n") {
                        let end = path.strip_prefix(root()).unwrap().display();
                        assert!(book.contains(&format!("{end}:{anchor}}}}}")), "no page includes {end}:{anchor}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_link_leads_somewhere() {
        let mut wrong = Vec::new();
        for (page, text) in pages() {
            for link in between(&text, "](", ")").filter(|link| !link.contains("://")) {
                let file = link.split('#').next().unwrap_or_default();
                if !file.is_empty() && !page.parent().unwrap().join(file).is_file() {
                    wrong.push(format!("{}: {link}", page.display()));
                }
            }
        }
        assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
    }

    #[test]
    fn every_page_is_in_the_summary() {
        let folder = root().join("book/src");
        let summary = fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
        let listed: Vec<_> = between(&summary, "](", ")").map(|link| folder.join(link)).collect();
        for (page, _) in pages().into_iter().filter(|(page, _)| !page.ends_with("SUMMARY.md")) {
            assert!(listed.contains(&page), "{} is in no chapter", page.display());
        }
    }
}
