//! The head of new sources: whose they are, and under which licence.

use std::str::FromStr;

use crate::{
    name::{NameError, as_text},
    project::Project,
};

/// The licence of a project: kubebuilder's words, or an expression of SPDX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct License(String);

as_text!(License);

impl License {
    /// As `PROJECT` says it, and its user.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As SPDX says it: `Apache-2.0`. None of `none` and `copyright`.
    pub fn spdx(&self) -> Option<&str> {
        match self.0.as_str() {
            "apache2" => Some("Apache-2.0"),
            "none" | "copyright" => None,
            spdx => Some(spdx),
        }
    }
}

impl FromStr for License {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || " .-+():".contains(c);
        if !text.is_empty() && text.chars().all(is_part) && text.trim() == text {
            return Ok(Self(text.to_owned()));
        }
        let why = "must be apache2, copyright, none, or an expression of SPDX, such as MIT OR Apache-2.0";
        Err(NameError::new("licence", text, why))
    }
}

/// The lines above each new source: none where neither an owner nor a licence was said.
pub(super) fn head(project: &Project) -> String {
    let license = project.setting("license").and_then(|text| text.parse::<License>().ok());
    if license.as_ref().is_some_and(|license| license.as_str() == "none") {
        return String::new();
    }
    let owner = project.setting("owner").map(|owner| format!("// SPDX-FileCopyrightText: {owner}\n"));
    let license = license.as_ref().and_then(License::spdx).map(|spdx| format!("// SPDX-License-Identifier: {spdx}\n"));
    match (owner, license) {
        (None, None) => String::new(),
        (owner, license) => format!("{}{}\n", owner.unwrap_or_default(), license.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_what_was_said() {
        let mut project = Project::new("a".parse().unwrap(), None);
        assert_eq!(head(&project), "");
        project.set("owner", "Jane Doe");
        assert_eq!(head(&project), "// SPDX-FileCopyrightText: Jane Doe\n\n");
        project.set("license", "apache2");
        let both = "// SPDX-FileCopyrightText: Jane Doe\n// SPDX-License-Identifier: Apache-2.0\n\n";
        assert_eq!(head(&project), both);
        project.set("license", "none");
        assert_eq!(head(&project), "");
    }

    #[test]
    fn licences_are_one_line_of_spdx() {
        for good in ["apache2", "none", "MIT OR Apache-2.0", "GPL-3.0+", "LicenseRef-x"] {
            assert!(good.parse::<License>().is_ok(), "{good}");
        }
        for bad in ["", " MIT", "MIT\n", "\"MIT\"", "ü"] {
            assert!(bad.parse::<License>().is_err(), "{bad}");
        }
    }
}
