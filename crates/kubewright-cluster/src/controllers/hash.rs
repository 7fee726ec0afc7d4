//! Hashes of templates, which are parts of names and labels.

/// Returns the hash of a text: FNV-1a, in the alphabet of generated names. The hashes of templates differ from those of
/// Kubernetes, which hashes Go's memory layout; neither is part of the API.
pub(crate) fn short_hash(text: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}
