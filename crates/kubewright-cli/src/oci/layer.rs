//! The single layer of an image: the program, certificates, users and a temporary directory.

use std::io::{self, Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::layout::{Blob, digest};

/// The path of the program in the image, as in the generated Deployment and Dockerfile.
pub(crate) const PROGRAM: &str = "/manager";

/// The user id: `nonroot` in distroless images.
pub(crate) const USER: u64 = 65532;

/// The path of the root certificates, as in Debian; `SSL_CERT_FILE` is set to it.
pub(crate) const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Names are looked up in files, then by DNS. Both lookups are compiled into static glibc programs.
const NAMES: &str = "hosts: files dns\n";

/// A compressed layer.
pub(super) struct Layer {
    /// The compressed archive.
    pub(super) blob: Blob,
    /// The digest of the uncompressed archive.
    pub(super) diff_id: String,
}

/// Creates the layer for a program. The output is deterministic: times are 0, and owners and order are fixed.
pub(super) fn pack(program: &[u8]) -> io::Result<Layer> {
    let tar = archive(program)?;
    let diff_id = digest(&tar);
    // The gzip header has neither a name nor a time.
    let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::default());
    gzip.write_all(&tar)?;
    let blob = Blob::new("application/vnd.oci.image.layer.v1.tar+gzip", gzip.finish()?);
    Ok(Layer { blob, diff_id })
}

fn archive(program: &[u8]) -> io::Result<Vec<u8>> {
    let passwd = format!("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/:/sbin/nologin\n");
    let group = format!("root:x:0:\nnonroot:x:{USER}:\n");
    let mut builder = Builder::new(Vec::new());
    for folder in ["etc/", "etc/ssl/", "etc/ssl/certs/"] {
        entry(&mut builder, folder, EntryType::Directory, 0o755, b"")?;
    }
    entry(&mut builder, "etc/group", EntryType::Regular, 0o644, group.as_bytes())?;
    entry(&mut builder, "etc/nsswitch.conf", EntryType::Regular, 0o644, NAMES.as_bytes())?;
    entry(&mut builder, "etc/passwd", EntryType::Regular, 0o644, passwd.as_bytes())?;
    let certificates = certificates();
    let (path, program_path) = (CERTIFICATES.trim_start_matches('/'), PROGRAM.trim_start_matches('/'));
    entry(&mut builder, path, EntryType::Regular, 0o644, certificates.as_bytes())?;
    entry(&mut builder, program_path, EntryType::Regular, 0o755, program)?;
    // For temporary files of the unprivileged user.
    entry(&mut builder, "tmp/", EntryType::Directory, 0o1777, b"")?;
    builder.into_inner()
}

fn entry(builder: &mut Builder<Vec<u8>>, path: &str, kind: EntryType, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    builder.append_data(&mut header, path, content)
}

/// Returns Mozilla's root certificates in this version of kubewright. With those of the build machine, images would
/// differ.
fn certificates() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(certificate);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = more;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read};

    use flate2::read::GzDecoder;
    use rustls::{
        RootCertStore,
        pki_types::{CertificateDer, pem::PemObject},
    };

    use super::*;

    /// Returns mode, owner, time and content of each entry.
    fn entries(layer: &Layer) -> BTreeMap<String, (u32, u64, u64, Vec<u8>)> {
        let mut archive = tar::Archive::new(GzDecoder::new(layer.blob.bytes.as_slice()));
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let header = entry.header().clone();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let (mode, owner, time) = (header.mode().unwrap(), header.uid().unwrap(), header.mtime().unwrap());
            assert!(found.insert(path, (mode, owner, time, content)).is_none());
        }
        found
    }

    #[test]
    fn a_layer_has_program_certificates_and_users() {
        let layer = pack(b"program").unwrap();
        let entries = entries(&layer);
        let names: Vec<_> = entries.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "etc/",
                "etc/group",
                "etc/nsswitch.conf",
                "etc/passwd",
                "etc/ssl/",
                "etc/ssl/certs/",
                "etc/ssl/certs/ca-certificates.crt",
                "manager",
                "tmp/"
            ]
        );
        assert_eq!(entries["manager"], (0o755, 0, 0, b"program".to_vec()));
        assert_eq!(entries["tmp/"].0, 0o1777);
        assert!(entries.values().all(|(_, owner, time, _)| (*owner, *time) == (0, 0)), "only root may change it");
        let passwd = String::from_utf8(entries["etc/passwd"].3.clone()).unwrap();
        assert!(passwd.contains("\nnonroot:x:65532:65532:"), "{passwd}");
        let authorities = CertificateDer::pem_slice_iter(&entries["etc/ssl/certs/ca-certificates.crt"].3);
        let authorities: Vec<_> = authorities.map(Result::unwrap).collect();
        let (taken, refused) = RootCertStore::empty().add_parsable_certificates(authorities);
        assert!(taken > 100 && refused == 0, "{taken} and {refused}");
    }

    #[test]
    fn the_same_program_gives_the_same_layer() {
        let (one, other) = (pack(b"program").unwrap(), pack(b"program").unwrap());
        assert_eq!((one.blob, one.diff_id.clone()), (other.blob, other.diff_id));
        let mut plain = Vec::new();
        let another = pack(b"another").unwrap();
        GzDecoder::new(another.blob.bytes.as_slice()).read_to_end(&mut plain).unwrap();
        assert_eq!(digest(&plain), another.diff_id);
        assert_ne!(another.diff_id, one.diff_id);
    }
}
