//! `kubewright version`: the same as `--version`, as other tools of the field have it.

use crate::shell::Shell;

/// Prints it.
pub(crate) fn run(shell: &Shell) {
    shell.result(concat!("kubewright ", env!("CARGO_PKG_VERSION")));
}
