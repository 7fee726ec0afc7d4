//! Each file in `ui` doesn't compile, and the text beside it is what rustc says of it, word by word:
//! `TRYBUILD=overwrite cargo test -p kubewright-macros --test ui` writes it again for another rustc.
//!
//! They are here, and not with what they are about, since all dependencies of the tests' crate are checked once more
//! for them.

use std::process::Command;

/// The words are those of the oldest rustc that builds the workspace; others say the same in words of their own.
fn is_pinned() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc is there").stdout;
    let pinned = format!("rustc {}.", env!("CARGO_PKG_RUST_VERSION"));
    String::from_utf8_lossy(&version).starts_with(&pinned)
}

#[test]
fn mistakes_are_reported_where_they_are() {
    if is_pinned() {
        trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
    }
}
