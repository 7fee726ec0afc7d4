//! Warnings about files of one volume whose paths overlap: one is the same as another one, or is a directory in it.

use std::fmt;

use serde_json::Value;

use crate::registry::builtin::validation::{field, items, string};

/// The path of a file, without trailing slashes, and what it comes from in a projected volume.
struct File {
    path: String,
    source: String,
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.path)?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}

impl File {
    fn new(path: &str, source: &str) -> Self {
        Self { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let is_in = |inner: &Self, outer: &Self| {
            inner.path.strip_prefix(&outer.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !self.path.is_empty() && !other.path.is_empty() && (is_in(self, other) || is_in(other, self))
    }
}

/// Returns the warnings about the files of volumes.
pub(super) fn warnings(volumes: &[Value]) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in volumes {
        for (kind, what) in [
            ("configMap", format!("ConfigMap {:?}", string(&volume["configMap"], "name"))),
            ("secret", format!("Secret {:?}", string(&volume["secret"], "secretName"))),
            ("downwardAPI", "DownwardAPI".to_owned()),
        ] {
            of_files(volume, &what, mapped(&volume[kind], ""), &mut warnings);
        }
        if field(volume, "projected").is_some() {
            of_projected(volume, &mut warnings);
        }
    }
    warnings
}

fn of_projected(volume: &Value, warnings: &mut Vec<String>) {
    let mut files = Vec::new();
    for source in items(&volume["projected"], "sources") {
        if source.as_object().is_some_and(serde_json::Map::is_empty) {
            let name = string(volume, "name");
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        for (kind, what) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
            let what = format!("{what} {:?}", string(&source[kind], "name"));
            files.extend(mapped(&source[kind], &what));
        }
        files.extend(mapped(&source["downwardAPI"], "DownwardAPI"));
        let token = field(source, "serviceAccountToken");
        files.extend(token.map(|token| File::new(string(token, "path"), "ServiceAccountToken")));
    }
    of_files(volume, "Projected", files, warnings);
}

/// Returns the files to which the items of a source are mapped.
fn mapped(source: &Value, what: &str) -> Vec<File> {
    items(source, "items").iter().map(|item| File::new(string(item, "path"), what)).collect()
}

fn of_files(volume: &Value, what: &str, files: Vec<File>, warnings: &mut Vec<String>) {
    let name = string(volume, "name");
    for (index, file) in files.iter().enumerate() {
        let before = files[..index].iter().filter(|other| file.overlaps(other));
        warnings
            .extend(before.map(|other| format!("volume {name:?} ({what}): overlapping paths: {file} with {other}")));
        if warnings.len() > super::warnings::LIMIT {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_a_volume_overlap() {
        let items = json!([{"path": "a/"}, {"path": "a"}, {"path": "a/b"}, {"path": "ab"}, {"path": ""}]);
        let found = warnings(&[json!({"name": "v", "configMap": {"name": "m", "items": items}})]);
        let text = |paths: &str| format!("volume \"v\" (ConfigMap \"m\"): overlapping paths: {paths}");
        assert_eq!(found, [text("\"a\" with \"a\""), text("\"a/b\" with \"a\""), text("\"a/b\" with \"a\"")]);
    }

    #[test]
    fn sources_of_a_projected_volume_overlap() {
        let sources = json!([
            {"secret": {"name": "s", "items": [{"path": "t"}]}}, {"serviceAccountToken": {"path": "t"}}, {},
        ]);
        let found = warnings(&[json!({"name": "v", "projected": {"sources": sources}})]);
        let overlap =
            "volume \"v\" (Projected): overlapping paths: \"t\" (ServiceAccountToken) with \"t\" (Secret \"s\")";
        assert_eq!(found, ["volume \"v\" (Projected) has no sources provided", overlap]);
    }
}
