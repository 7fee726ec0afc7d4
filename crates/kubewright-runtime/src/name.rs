//! Names derived from other names, within the length limits of Kubernetes.

/// Shortens a name to at most `max` bytes: a longer name becomes its beginning and a hash of the whole name.
///
/// The name of an object is limited to 253 bytes, the value of a label to 63 (`shorten(name, 63)`); the name of a child
/// needs room for a suffix too. The result for a name never changes, in later releases neither. Two long names with the
/// same beginning give the same result with a probability of one in four billion, so identify objects by UID. A `max`
/// below 10 counts as 10.
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
    // A dash must not follow a dot in a name.
    let beginning = name[..end].trim_end_matches(|c: char| !c.is_alphanumeric());
    format!("{beginning}-{:08x}", fnv1a(name.as_bytes()))
}

/// FNV-1a with 32 bits. The hashes of the standard library may change between releases.
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
    fn long_names_are_shortened_and_stay_distinct() {
        let (a, b) = (shorten(&format!("{}a", "x".repeat(252)), 63), shorten(&format!("{}b", "x".repeat(252)), 63));
        assert_eq!((a.len(), b.len()), (63, 63));
        assert_ne!(a, b);
        assert!(a.starts_with(&"x".repeat(54)));
    }

    #[test]
    fn a_shortened_name_is_valid() {
        assert!(
            shorten(&format!("{}.{}", "x".repeat(53), "y".repeat(20)), 63).starts_with(&format!("{}-", "x".repeat(53)))
        );
    }

    #[test]
    fn a_name_is_shortened_at_a_character() {
        assert!(shorten(&"é".repeat(20), 20).len() <= 20);
    }
}
