//! Names that derive from another object's name, and must still fit where they are put.

/// The name itself if it is at most `max` bytes long; else its beginning and a hash of the whole, `max` bytes together or fewer.
///
/// An object's name may have 253 bytes, a label's value 63 (so `shorten(name, 63)`), and the name of a child has to hold
/// a suffix as well. The same name always gives the same result, also in later releases; different names give different
/// results but for a chance of one in four billion, so identity must rest on a UID. A `max` below 10 counts as 10.
///
/// ```
/// # use kubewright_runtime::name::shorten;
/// assert_eq!(shorten("web", 63), "web");
/// assert_eq!(shorten("a-name-that-is-too-long", 18), "a-name-th-769948a7");
/// ```
pub fn shorten(name: &str, max: usize) -> String {
    let max = max.max(10);
    if name.len() <= max {
        return name.into();
    }
    let mut end = max - 9;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    // A dot must not be followed by a dash in a name.
    let beginning = name[..end].trim_end_matches(|c: char| !c.is_alphanumeric());
    format!("{beginning}-{:08x}", fnv1a(name.as_bytes()))
}

/// FNV-1a with 32 bits: the standard library's hashes may change from release to release, and this one doesn't.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_are_kept() {
        assert_eq!(shorten(&"a".repeat(63), 63), "a".repeat(63));
        assert_eq!(shorten("", 63), "");
    }

    #[test]
    fn long_names_are_cut_to_size_and_told_apart() {
        let (a, b) = (shorten(&format!("{}a", "x".repeat(252)), 63), shorten(&format!("{}b", "x".repeat(252)), 63));
        assert_eq!((a.len(), b.len()), (63, 63));
        assert_ne!(a, b);
        assert!(a.starts_with(&"x".repeat(54)));
    }

    #[test]
    fn a_cut_leaves_a_name() {
        assert!(
            shorten(&format!("{}.{}", "x".repeat(53), "y".repeat(20)), 63).starts_with(&format!("{}-", "x".repeat(53)))
        );
    }

    #[test]
    fn a_cut_falls_between_characters() {
        assert!(shorten(&"é".repeat(20), 20).len() <= 20);
    }
}
