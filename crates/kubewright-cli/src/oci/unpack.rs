//! The files in the layers of an image. Pure.

use std::{
    collections::BTreeMap,
    io::{self, Read},
};

use flate2::read::MultiGzDecoder;

/// The beginnings of compressed layers.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The most bytes that are read from a layer.
const LARGEST: u64 = 256 << 20;
/// The prefix of a file that deletes another one of a lower layer.
const WHITEOUT: &str = ".wh.";
/// The file that deletes all files of its directory in lower layers.
const OPAQUE: &str = ".wh..wh..opq";

/// Returns the chosen files of layers, from the lowest to the highest, by path without a leading slash. Links are left
/// out.
pub(crate) fn unpack(layers: &[Vec<u8>], is_chosen: impl Fn(&str) -> bool) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for layer in layers {
        let reader: Box<dyn Read + '_> = match layer.as_slice() {
            bytes if bytes.starts_with(GZIP) => Box::new(MultiGzDecoder::new(bytes)),
            bytes if bytes.starts_with(ZSTD) => {
                let why = "a layer is compressed with zstd, which is not supported: build the image with gzip";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            bytes => Box::new(bytes),
        };
        let mut added = BTreeMap::new();
        for entry in tar::Archive::new(reader.take(LARGEST)).entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_string_lossy().trim_start_matches("./").trim_start_matches('/').to_owned();
            let (folder, name) = path.rsplit_once('/').map_or(("", path.as_str()), |(folder, name)| (folder, name));
            let below = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            if name == OPAQUE {
                files.retain(|path: &String, _| !path.starts_with(&below("")));
            } else if let Some(deleted) = name.strip_prefix(WHITEOUT).map(below) {
                files.retain(|path, _| *path != deleted && !path.starts_with(&format!("{deleted}/")));
            } else if entry.header().entry_type().is_file() && is_chosen(&path) {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                added.insert(path, bytes);
            }
        }
        files.extend(added);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn layer(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, text) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            archive.append_data(&mut header, path, text.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn upper_layers_replace_and_delete_files() {
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        compressed
            .write_all(&layer(&[("./a/one", "1"), ("a/two", "2"), ("b/c/three", "3"), ("d/four", "4"), ("e", "5")]))
            .unwrap();
        let layers = [
            compressed.finish().unwrap(),
            layer(&[("a/one", "changed"), ("a/.wh.two", ""), (".wh.b", ""), ("d/.wh..wh..opq", ""), ("d/five", "5")]),
        ];
        let files = unpack(&layers, |path| path != "e").unwrap();
        let files: Vec<_> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
        assert_eq!(files, [("a/one", b"changed".as_slice()), ("d/five", b"5")]);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let error = unpack(&[[ZSTD, b"rest"].concat()], |_| true).unwrap_err().to_string();
        assert!(error.contains("build the image with gzip"), "{error}");
        assert!(unpack(&[vec![1; 600]], |_| true).is_err());
    }
}
