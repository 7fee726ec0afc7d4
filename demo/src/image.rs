//! The images of the operators' web pages. The node runs this program for them, with a first argument that selects the
//! page.

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::Parser;
use kubewright_cluster::{ImageTable, Program};

/// An image that this program can run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    Guestbook,
    Lolcow,
}

impl Image {
    const ALL: [Self; 2] = [Self::Guestbook, Self::Lolcow];

    fn reference(self) -> &'static str {
        match self {
            Self::Guestbook => "kubewright/guestbook",
            Self::Lolcow => "ghcr.io/vsoch/lolcow-operator",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Guestbook => "play-image=guestbook",
            Self::Lolcow => "play-image=lolcow",
        }
    }

    /// Returns the image that the arguments select, and its own arguments, the program's name first.
    pub(crate) fn selected(arguments: impl Iterator<Item = OsString>) -> Option<(Self, Vec<OsString>)> {
        let mut arguments: Vec<_> = arguments.collect();
        let image = Self::ALL.into_iter().find(|image| arguments.get(1).is_some_and(|word| word == image.word()))?;
        arguments.remove(1);
        Some((image, arguments))
    }

    /// Serves the page until a signal arrives.
    pub(crate) async fn run(self, arguments: Vec<OsString>) -> Result<()> {
        match self {
            Self::Guestbook => {
                use guestbook_operator::page::{Arguments, run};
                run(Arguments::try_parse_from(arguments)?).await
            }
            Self::Lolcow => {
                use lolcow_operator::page::{Arguments, run};
                Ok(run(Arguments::read(arguments)?).await?)
            }
        }
    }
}

/// Returns the node's default images and the pages. Each pod listens at its own address.
pub(crate) fn table() -> Result<ImageTable> {
    let program = std::env::current_exe().context("find this program, which plays the images")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    Ok(Image::ALL.into_iter().fold(ImageTable::default(), |table, image| {
        let page = Program::entrypoint([program, image.word()]).env("LISTEN", "$(POD_IP):8080");
        table.with(image.reference(), page)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_front_is_taken_off_and_no_other() {
        let played = |words: &[&str]| Image::selected(words.iter().map(OsString::from));
        let rest = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(played(&["demo", "play-image=lolcow", "--once"]), Some((Image::Lolcow, rest(&["demo", "--once"]))));
        assert_eq!(played(&["demo", "play-image=guestbook"]), Some((Image::Guestbook, rest(&["demo"]))));
        assert_eq!(played(&["demo", "--once", "play-image=lolcow"]), None);
        assert_eq!(played(&["demo"]), None);
    }
}
