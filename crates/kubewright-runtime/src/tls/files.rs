//! A certificate and its key from two files.
//!
//! The files are polled, not watched: a mounted Secret changes through symbolic links, some file systems report no
//! changes, and reading two small files every ten seconds is cheap.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;
use tokio::time::sleep;

use super::{
    CertResolver,
    certified_key::{CertifiedKey, KeyError},
};
use crate::metrics::CertificateMetrics;

/// The certificate file and the key file.
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The error of unusable files.
#[derive(Debug, Error)]
enum FilesError {
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} and {}: {source}", certificate.display(), key.display())]
    Mismatch {
        certificate: PathBuf,
        key: PathBuf,
        #[source]
        source: KeyError,
    },
}

impl Files {
    /// Updates the resolver whenever the files change. It never returns; `looked` is called after the first read.
    pub(crate) async fn follow(
        self,
        resolver: CertResolver,
        metrics: CertificateMetrics,
        interval: Duration,
        looked: impl FnOnce(),
    ) {
        let (mut seen, mut looked) = (None, Some(looked));
        loop {
            let found = self.read().await;
            // Unchanged contents are not parsed or reported again. The two files are written one after the other, and
            // may not match for a moment.
            let found = found.map_err(|error| error.to_string());
            if seen.as_ref() != Some(&found) {
                let key = found.clone().and_then(|(certificate, key)| {
                    let key = CertifiedKey::read(&certificate, &key);
                    key.map_err(|source| self.unusable(source).to_string())
                });
                metrics.read_certificate(key.is_ok());
                match key {
                    Ok(key) => resolver.set(key),
                    Err(error) if resolver.get().is_some() => {
                        let what = resolver.what();
                        tracing::error!(error, "{what}: the certificate can't be read; the one before is still served");
                    }
                    Err(error) => tracing::error!(error, "{}: there is no certificate", resolver.what()),
                }
                seen = Some(found);
            }
            if let Some(looked) = looked.take() {
                looked();
            }
            sleep(interval).await;
        }
    }

    async fn read(&self) -> Result<(Vec<u8>, Vec<u8>), FilesError> {
        let read = async |path: &PathBuf| {
            tokio::fs::read(path).await.map_err(|source| FilesError::Read { path: path.clone(), source })
        };
        Ok((read(&self.certificate).await?, read(&self.key).await?))
    }

    fn unusable(&self, source: KeyError) -> FilesError {
        FilesError::Mismatch { certificate: self.certificate.clone(), key: self.key.clone(), source }
    }
}
