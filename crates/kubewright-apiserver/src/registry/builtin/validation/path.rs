//! The path of a field, for messages.

use std::fmt;

/// The path of a field, such as `spec.containers[0].name`. A path refers to its parent, so that walking an object
/// allocates nothing unless there is an error.
#[derive(Clone, Copy, Debug)]
pub(in crate::registry::builtin) enum Path<'a> {
    /// The first step, or a path that is already text.
    Root(&'a str),
    /// A field of an object.
    Child(&'a Path<'a>, &'a str),
    /// An element of a list.
    Index(&'a Path<'a>, usize),
    /// An entry of a map.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// Creates the path of a top-level field.
    pub(in crate::registry::builtin) const fn new(root: &'a str) -> Self {
        Self::Root(root)
    }

    /// Returns the path of a field.
    pub(in crate::registry::builtin) const fn child<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path::Child(self, name)
    }

    /// Returns the path of an element.
    pub(in crate::registry::builtin) const fn index(&self, index: usize) -> Path<'_> {
        Path::Index(self, index)
    }

    /// Returns the path of a map's entry.
    pub(in crate::registry::builtin) const fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(root) => f.write_str(root),
            Path::Child(Path::Root(""), name) => f.write_str(name),
            Path::Child(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_in_kubernetes() {
        let spec = Path::new("spec");
        let text = spec.child("containers").index(1).child("limits").key("cpu").to_string();
        assert_eq!(text, "spec.containers[1].limits[cpu]");
        assert_eq!(Path::new("").child("a").to_string(), "a");
    }
}
