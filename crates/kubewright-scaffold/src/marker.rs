//! Insertion of code into existing files.
//!
//! A marker is a comment on a line of its own, above which code is inserted: `// +kubebuilder:scaffold:modules`. The
//! prefix is kubebuilder's, and so are the names where kubebuilder has them, so that its users and tools recognize
//! them. Unlike in kubebuilder, a missing marker is an error that says what to insert by hand, and nothing is written.

use std::{cmp::Ordering, iter::Peekable, str::Chars};

use thiserror::Error;

const PREFIX: &str = "+kubebuilder:scaffold:";

/// The position of inserted code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertPosition {
    /// Directly above the marker.
    Last,
    /// Directly above the marker, after an empty line.
    Apart,
    /// Sorted among the similar lines directly above the marker, in rustfmt's order for `mod`. For single lines only.
    Sorted,
}

/// A missing or ambiguous marker.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MarkerError {
    /// The marker is missing.
    #[error("{file} has no line `{marker}`: restore it and run the command again, or add this by hand:\n{fragment}")]
    Missing {
        /// The file.
        file: String,
        /// The line of the marker.
        marker: String,
        /// The code to insert.
        fragment: String,
    },
    /// The file contains the marker more than once.
    #[error(
        "{file} has the line `{marker}` {times} times: keep one of them, above which this is inserted, and run the command again:\n{fragment}"
    )]
    Ambiguous {
        /// The file.
        file: String,
        /// The line of the marker.
        marker: String,
        /// The number of occurrences.
        times: usize,
        /// The code to insert.
        fragment: String,
    },
}

/// Returns the line of a marker, with `//` in Rust and `#` elsewhere.
pub fn line(file: &str, name: &str) -> String {
    format!("{} {PREFIX}{name}", comment(file))
}

fn comment(file: &str) -> &'static str {
    if file.ends_with(".rs") { "//" } else { "#" }
}

/// Returns the text of a file with a fragment inserted above a marker, at the marker's indentation. Returns `None` if
/// the file already contains the fragment, at any indentation and position.
///
/// # Errors
/// Returns an error if the marker is missing or ambiguous.
pub fn insert(
    text: &str,
    file: &str,
    name: &str,
    fragment: &str,
    position: InsertPosition,
) -> Result<Option<String>, MarkerError> {
    let fragment: Vec<&str> = fragment.trim_matches('\n').lines().collect();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let found: Vec<usize> = (0..lines.len()).filter(|&index| is_marker(lines[index], comment(file), name)).collect();
    let [marker] = found[..] else {
        let (file, marker, fragment) = (file.to_owned(), line(file, name), fragment.join("\n"));
        return Err(match found.len() {
            0 => MarkerError::Missing { file, marker, fragment },
            times => MarkerError::Ambiguous { file, marker, times, fragment },
        });
    };
    if contains(&lines, &fragment) {
        return Ok(None);
    }
    let at = match (position, &fragment[..]) {
        (InsertPosition::Sorted, [one]) => sorted_position(&lines[..marker], one),
        _ => marker,
    };
    let indent = &lines[marker][..lines[marker].len() - lines[marker].trim_start().len()];
    let end = if lines[marker].ends_with("\r\n") { "\r\n" } else { "\n" };
    let mut whole = String::with_capacity(text.len() + 64 * fragment.len());
    whole.extend(lines[..at].iter().copied());
    if position == InsertPosition::Apart && at > 0 && !lines[at - 1].trim().is_empty() {
        whole.push_str(end);
    }
    for line in &fragment {
        if !line.is_empty() {
            whole.push_str(indent);
            whole.push_str(line);
        }
        whole.push_str(end);
    }
    whole.extend(lines[at..].iter().copied());
    Ok(Some(whole))
}

fn is_marker(line: &str, comment: &str, name: &str) -> bool {
    let marker = line.trim().strip_prefix(comment).and_then(|rest| rest.trim_start().strip_prefix(PREFIX));
    marker == Some(name)
}

fn contains(lines: &[&str], fragment: &[&str]) -> bool {
    let same = |window: &[&str]| window.iter().zip(fragment).all(|(line, wanted)| line.trim() == wanted.trim());
    fragment.is_empty() || lines.windows(fragment.len()).any(same)
}

/// Returns the position of a line among the sorted lines above the marker.
fn sorted_position(above: &[&str], line: &str) -> usize {
    let alike = above.iter().rev().take_while(|other| sort(other) == sort(line)).count();
    let first = above.len() - alike;
    let behind = |other: &&str| natural(key(other), key(line)) != Ordering::Greater;
    first + above[first..].iter().take_while(|other| behind(other)).count()
}

/// Returns the first word of a line without its visibility, such as `mod`.
fn sort(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| !word.starts_with("pub"))
}

/// Returns the sort key of a line: the name of a module, or the whole line.
fn key(line: &str) -> &str {
    let line = line.trim();
    if let Some((_, path)) = line.split_once("use self::") {
        return path.split("::").next().unwrap_or(path);
    }
    line.split_once("mod ").map_or(line, |(_, name)| name).trim_end_matches(';')
}

/// Compares texts in natural order: `v2` comes before `v10`.
pub(crate) fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.chars().peekable(), other.chars().peekable());
    loop {
        let order = match (one.peek(), other.peek()) {
            (None, None) => return Ordering::Equal,
            (Some(a), Some(b)) if a.is_ascii_digit() && b.is_ascii_digit() => number(&mut one).cmp(&number(&mut other)),
            _ => one.next().cmp(&other.next()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Splits off a number. It is compared by its length without leading zeros and then by its digits, so that there is no
/// overflow.
fn number(text: &mut Peekable<Chars<'_>>) -> (usize, String) {
    let mut digits = String::new();
    while let Some(digit) = text.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    let digits = digits.trim_start_matches('0').to_owned();
    (digits.len(), digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "\
//! An operator.

pub mod api;
mod v2;
// +kubebuilder:scaffold:modules

/// Adds it.
pub fn register(manager: Manager) -> Manager {
    manager
        .kind::<Foo>()
        // +kubebuilder:scaffold:builder
}
";

    fn put(text: &str, name: &str, fragment: &str, position: InsertPosition) -> String {
        insert(text, "src/lib.rs", name, fragment, position).unwrap().unwrap()
    }

    #[test]
    fn a_fragment_is_inserted_above_the_marker_with_its_indent() {
        let text = put(LIB, "builder", "\n.kind::<Bar>()\n\n.webhook(\n    bar(),\n)\n", InsertPosition::Last);
        let expected = "        .kind::<Foo>()\n        .kind::<Bar>()\n\n        .webhook(\n            bar(),\n        )\n        // +kube";
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.lines().count(), LIB.lines().count() + 5);
    }

    #[test]
    fn a_fragment_may_follow_an_empty_line() {
        let once = put(LIB, "modules", "struct A;", InsertPosition::Apart);
        assert!(once.contains("mod v2;\n\nstruct A;\n// +kube"), "{once}");
        let twice = put(&once, "modules", "struct B;", InsertPosition::Apart);
        assert!(twice.contains("struct A;\n\nstruct B;\n// +kube"), "{twice}");
    }

    #[test]
    fn existing_code_is_not_inserted_again() {
        let check = |fragment| insert(LIB, "src/lib.rs", "builder", fragment, InsertPosition::Last).unwrap();
        assert_eq!(check(".kind::<Foo>()"), None);
        assert_eq!(check("    manager\n.kind::<Foo>()\n"), None);
        assert!(check("manager\n.kind::<Bar>()").is_some());
        assert_eq!(check(""), None);
    }

    #[test]
    fn modules_are_sorted_by_name() {
        let order = |text: &str| -> Vec<String> {
            text.lines().filter_map(|line| line.split_once("mod ")).map(|(_, name)| name.to_owned()).collect()
        };
        let mut text = LIB.to_owned();
        for module in ["mod v10;", "pub mod v1;", "mod aaa;", "pub(crate) mod bus;"] {
            text = put(&text, "modules", module, InsertPosition::Sorted);
        }
        assert_eq!(order(&text), ["aaa;", "api;", "bus;", "v1;", "v2;", "v10;"]);
        let exports = "pub use self::foo::{Foo, FooSpec};\n// +kubebuilder:scaffold:modules\n";
        let text = put(exports, "modules", "pub use self::foo1::Foo1;", InsertPosition::Sorted);
        assert_eq!(
            text,
            put(
                &text.replace("pub use self::foo1::Foo1;\n", ""),
                "modules",
                "pub use self::foo1::Foo1;",
                InsertPosition::Sorted
            )
        );
        assert!(text.starts_with("pub use self::foo::"), "{text}");
        let first = put("// +kubebuilder:scaffold:modules", "modules", "mod a;", InsertPosition::Sorted);
        assert_eq!(first, "mod a;\n// +kubebuilder:scaffold:modules");
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let order = ["", "a", "a1", "a2", "a10", "a99999999999999999999999", "b", "v1", "v1alpha1", "v1beta1", "v2"];
        for pair in order.windows(2) {
            assert_eq!(natural(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(natural(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(natural("a01", "a1"), Ordering::Equal);
    }

    #[test]
    fn yaml_markers_and_line_endings_are_kept() {
        let text = "resources:\r\n#+kubebuilder:scaffold:crdkustomizeresource\r\n";
        let inserted =
            insert(text, "config/crd/kustomization.yaml", "crdkustomizeresource", "- a.yaml", InsertPosition::Last);
        assert_eq!(
            inserted.unwrap().unwrap(),
            "resources:\r\n- a.yaml\r\n#+kubebuilder:scaffold:crdkustomizeresource\r\n"
        );
    }

    #[test]
    fn a_missing_or_ambiguous_marker_is_an_error_with_a_hint() {
        let refused = |text: &str| {
            insert(text, "src/lib.rs", "builder", ".kind()", InsertPosition::Last).unwrap_err().to_string()
        };
        for text in [
            "",
            "// +kubebuilder:scaffold:builders",
            "# +kubebuilder:scaffold:builder",
            "x // +kubebuilder:scaffold:builder",
        ] {
            let error = refused(text);
            assert!(
                error.starts_with("src/lib.rs has no line `// +kubebuilder:scaffold:builder`: restore it"),
                "{error}"
            );
            assert!(error.ends_with("by hand:\n.kind()"), "{error}");
        }
        let twice = refused("//+kubebuilder:scaffold:builder\n  // +kubebuilder:scaffold:builder\n.kind()");
        assert!(twice.contains("2 times"), "{twice}");
    }
}
