//! The files of a bundle in an image.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use crate::{
    oci::{
        registry::{self, credentials, reference::Reference},
        unpack::unpack,
    },
    shell::Shell,
};

/// The directories of a bundle.
const PARTS: [&str; 2] = ["manifests/", "metadata/"];
/// The ends of the names of its files.
const ENDS: [&str; 3] = [".yaml", ".yml", ".json"];

/// Pulls the image of a bundle, and returns its files by path.
pub(crate) async fn files_of_image(
    reference: &Reference,
    plain_http: bool,
    shell: &Shell,
) -> Result<BTreeMap<String, String>> {
    shell.status("Pulling", reference);
    let failed = || format!("pull the bundle {reference} (--directory reads it from this machine instead)");
    let credentials = credentials::find(&reference.registry).with_context(failed)?;
    let image = registry::pull(reference, credentials, plain_http).await.with_context(failed)?;
    let is_part = |path: &str| {
        let name = PARTS.iter().find_map(|part| path.strip_prefix(part));
        name.is_some_and(|name| !name.contains('/') && ENDS.iter().any(|end| name.ends_with(end)))
    };
    let files = unpack(&image.layers, is_part).with_context(|| format!("unpack {reference}"))?;
    if files.is_empty() {
        let labels = image.labels.keys().cloned().collect::<Vec<_>>().join(", ");
        bail!(
            "{reference} is not the image of a bundle: it has no files in manifests and metadata, and the labels {labels:?}; build it with \
             bundle.Dockerfile, which kubewright generate bundle writes"
        );
    }
    let text = |(path, bytes)| match String::from_utf8(bytes) {
        Ok(text) => Ok((path, text)),
        Err(_) => bail!("{path} in {reference} is not UTF-8"),
    };
    files.into_iter().map(text).collect()
}
