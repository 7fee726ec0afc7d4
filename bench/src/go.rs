//! The peers in Go, and the comparison of figures over several rounds.

use std::path::{Path, PathBuf};

/// The programs of `bench/peers/controller-runtime`.
#[derive(Clone)]
pub(crate) struct Peers {
    folder: PathBuf,
}

impl Peers {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns a program, or `None` if it isn't built.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let program = self.folder.join(name);
        program.is_file().then_some(program)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Returns the order in which `count` programs take their turns: every other round the other way round.
pub(crate) fn turns(count: usize, round: usize) -> Vec<usize> {
    let order = 0..count;
    if round.is_multiple_of(2) { order.collect() } else { order.rev().collect() }
}

/// Returns the median of a figure of several rounds; `NaN` without any.
pub(crate) fn median<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    let mut figures: Vec<_> = rounds.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the figures of all rounds, for the details of a result.
pub(crate) fn each<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> String {
    rounds.iter().map(|round| format!("{:.2}", figure(round))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate() {
        assert_eq!([turns(3, 0), turns(3, 1), turns(3, 2)], [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
    }

    #[test]
    fn the_median_of_three_is_the_middle_one() {
        let rounds = [3.0, 1.0, 2.0];
        assert!((median(&rounds, |figure| *figure) - 2.0).abs() < 1e-9);
        assert_eq!(each(&rounds, |figure| *figure), "3.00, 1.00, 2.00");
    }
}
