//! Certificate and key from two files.
//!
//! They are read again and again rather than watched: a Secret that is mounted changes by symbolic links, some file
//! systems tell nothing, and two small files in ten seconds cost nothing.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;
use tokio::time::sleep;

use super::{
    Slot,
    pair::{Pair, PairError},
};
use crate::metrics::CertificateMetrics;

/// The two files.
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Why they can't be used.
#[derive(Debug, Error)]
enum FilesError {
    #[error("{}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} and {}: {source}", certificate.display(), key.display())]
    Pair {
        certificate: PathBuf,
        key: PathBuf,
        #[source]
        source: PairError,
    },
}

impl Files {
    /// Keeps the slot filled with what the files say, for ever. `looked` hears when they were looked at for the first time.
    pub(crate) async fn follow(
        self,
        slot: Slot,
        metrics: CertificateMetrics,
        interval: Duration,
        looked: impl FnOnce(),
    ) {
        let (mut seen, mut looked) = (None, Some(looked));
        loop {
            let found = self.read().await;
            // What hasn't changed is neither read again nor told again: files are written one after the other, and may
            // not fit together for a moment.
            let found = found.map_err(|error| error.to_string());
            if seen.as_ref() != Some(&found) {
                let pair = found.clone().and_then(|(certificate, key)| {
                    let pair = Pair::read(&certificate, &key);
                    pair.map_err(|source| self.unusable(source).to_string())
                });
                metrics.read_certificate(pair.is_ok());
                match pair {
                    Ok(pair) => slot.set(pair),
                    Err(error) if slot.get().is_some() => {
                        let what = slot.what();
                        tracing::error!(error, "{what}: the certificate can't be read; the one before is still served");
                    }
                    Err(error) => tracing::error!(error, "{}: there is no certificate", slot.what()),
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

    fn unusable(&self, source: PairError) -> FilesError {
        FilesError::Pair { certificate: self.certificate.clone(), key: self.key.clone(), source }
    }
}
