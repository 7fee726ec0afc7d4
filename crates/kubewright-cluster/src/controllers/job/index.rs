//! Sets of completion indexes, in the format of the API: `1,3-5,7`.

use std::{collections::BTreeSet, fmt};

/// Indexes that are below a job's number of completions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(pub(super) BTreeSet<i64>);

impl Indexes {
    /// Parses the text. Invalid parts, and indexes that aren't below `completions`, are left out.
    pub(super) fn parse(text: &str, completions: i64) -> Self {
        let mut all = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) {
                all.extend(first.max(0)..=last.min(completions - 1));
            }
        }
        Self(all)
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            match last - first {
                0 => {}
                1 => write!(f, ",{last}")?,
                _ => write!(f, "-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let check = |text: &str, completions, expect: &str| {
            assert_eq!(Indexes::parse(text, completions).to_string(), expect, "{text}");
        };
        check("", 5, "");
        check("0", 5, "0");
        check("0,1", 5, "0,1");
        check("0-2,4", 5, "0-2,4");
        check("0,1,2,3", 5, "0-3");
        check("3-9", 5, "3,4");
        check("x,-1,2", 5, "2");
    }
}
