//! The invariants of ARCHITECTURE.md that only the source can show.

pub(crate) mod rings;

#[cfg(test)]
mod tests;
