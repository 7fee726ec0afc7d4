//! The header of new source files, with the copyright holder and the licence.

use std::str::FromStr;

use crate::{
    name::{NameError, as_text},
    project::Project,
};

/// The licence of a project: a keyword of kubebuilder, or an SPDX expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct License(String);

as_text!(License);

impl License {
    /// Returns the licence as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the SPDX expression, such as `Apache-2.0`; `None` for `none` and `copyright`.
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
        let why = "must be apache2, copyright, none, or an SPDX expression such as MIT OR Apache-2.0";
        Err(NameError::new("licence", text, why))
    }
}

/// Returns the header; empty if neither a copyright holder nor a licence is set.
pub(super) fn file_header(project: &Project) -> String {
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
    fn the_header_has_owner_and_licence() {
        let mut project = Project::new("a".parse().unwrap(), None);
        assert_eq!(file_header(&project), "");
        project.set("owner", "Jane Doe");
        assert_eq!(file_header(&project), "// SPDX-FileCopyrightText: Jane Doe\n\n");
        project.set("license", "apache2");
        let both = "// SPDX-FileCopyrightText: Jane Doe\n// SPDX-License-Identifier: Apache-2.0\n\n";
        assert_eq!(file_header(&project), both);
        project.set("license", "none");
        assert_eq!(file_header(&project), "");
    }

    #[test]
    fn licences_are_validated() {
        for good in ["apache2", "none", "MIT OR Apache-2.0", "GPL-3.0+", "LicenseRef-x"] {
            assert!(good.parse::<License>().is_ok(), "{good}");
        }
        for bad in ["", " MIT", "MIT\n", "\"MIT\"", "ü"] {
            assert!(bad.parse::<License>().is_err(), "{bad}");
        }
    }
}
