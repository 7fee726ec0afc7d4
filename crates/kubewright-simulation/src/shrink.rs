//! The smallest schedule that still fails.

use std::sync::Arc;

use crate::{error::SimulationError, oracle::Finding, run, scenario::Scenario, schedule::Schedule, search::Failure};

impl Scenario {
    /// Returns the failure with the fewest faults, and then the fewest steps of the user, that the same oracle finds,
    /// after at most `runs` runs and one without faults. Must be called outside of a tokio runtime.
    ///
    /// # Errors
    /// If a cluster can't be started.
    pub fn shrink(&self, failure: Failure, runs: usize) -> Result<Failure, SimulationError> {
        self.shrink_until(failure, runs, &|| false)
    }

    /// Like [`shrink`](Self::shrink), but starts no run once `is_over` returns true.
    pub(crate) fn shrink_until(
        &self,
        failure: Failure,
        runs: usize,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Failure, SimulationError> {
        let Some(oracle) = failure.outcome.findings.first().map(|finding| finding.oracle.clone()) else {
            return Ok(failure);
        };
        let seed = failure.schedule.seed;
        let calm = Arc::new(run::run(self, &Schedule::calm(seed), None)?.calm);
        let is_it = |finding: &Finding| finding.oracle == oracle;
        let (mut error, mut smallest, mut left) = (None, None, runs);
        fewest(&failure.schedule.injections, runs, |injections| {
            if is_over() {
                return false;
            }
            left = left.saturating_sub(1);
            let schedule = Schedule { injections: injections.to_vec(), ..Schedule::calm(seed) };
            match run::run(self, &schedule, Some(&calm)) {
                Ok(outcome) => {
                    let fails = outcome.findings.iter().any(is_it);
                    if fails {
                        smallest = Some(Failure { schedule, outcome });
                    }
                    fails
                }
                Err(reason) => {
                    error.get_or_insert(reason);
                    false
                }
            }
        });
        match error {
            Some(error) => Err(error),
            None => self.with_fewer_steps(smallest.unwrap_or(failure), &oracle, left, is_over),
        }
    }

    /// Leaves out steps of the user, from the last one on, as long as the same oracle finds something, and nothing
    /// without faults.
    fn with_fewer_steps(
        &self,
        mut failure: Failure,
        oracle: &str,
        runs: usize,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Failure, SimulationError> {
        // Each step costs two runs.
        let steps = (0..failure.outcome.steps).rev().take(runs / 2).take_while(|_| !is_over());
        for step in steps {
            let mut schedule = failure.schedule.clone().without_step(step);
            let faults = std::mem::take(&mut schedule.injections);
            let calm = run::run(self, &schedule, None)?;
            if !calm.findings.is_empty() {
                continue;
            }
            schedule.injections = faults;
            let outcome = run::run(self, &schedule, Some(&Arc::new(calm.calm)))?;
            if outcome.findings.iter().any(|finding| finding.oracle == oracle) {
                failure = Failure { schedule, outcome };
            }
        }
        Ok(failure)
    }
}

/// Returns a part of the items, in their order, for which `fails` still holds and none of whose items can be left out
/// alone.
///
/// `fails` must hold for all items. It is called at most `budget` times; when these are used up, the smallest part so
/// far is returned. The method is delta debugging (Zeller and Hildebrandt, *Simplifying and Isolating Failure-Inducing
/// Input*, 2002): halves are tried first, then smaller parts and what is left without them.
pub(crate) fn fewest<T: Clone>(items: &[T], budget: usize, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut left = budget;
    let mut fails = |part: &[T]| {
        let asked = left > 0;
        left = left.saturating_sub(1);
        asked && fails(part)
    };
    if items.is_empty() || fails(&[]) {
        return Vec::new();
    }
    let mut smallest = items.to_vec();
    let mut parts = 2;
    while smallest.len() >= 2 {
        let size = smallest.len().div_ceil(parts);
        let chunks: Vec<Vec<T>> = smallest.chunks(size).map(<[T]>::to_vec).collect();
        let rest = |index: usize| -> Vec<T> {
            let others = chunks.iter().enumerate().filter(|(other, _)| *other != index);
            others.flat_map(|(_, chunk)| chunk.clone()).collect()
        };
        if let Some(part) = chunks.iter().find(|part| fails(part)) {
            (smallest, parts) = (part.clone(), 2);
        } else if let Some(part) = (0..chunks.len()).map(rest).find(|part| part.len() < smallest.len() && fails(part)) {
            (smallest, parts) = (part, (parts - 1).max(2));
        } else if size == 1 {
            break;
        } else {
            parts = (parts * 2).min(smallest.len());
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_left() {
        let items: Vec<u32> = (0..100).collect();
        let mut runs = 0;
        let found = fewest(&items, 1_000, |part| {
            runs += 1;
            [13, 14, 77].iter().all(|it| part.contains(it))
        });
        assert_eq!(found, [13, 14, 77]);
        assert!(runs < 120, "{runs}");
    }

    #[test]
    fn nothing_is_left_of_items_that_dont_matter() {
        assert!(fewest(&[1, 2, 3], 10, |_| true).is_empty());
    }

    #[test]
    fn an_item_alone_is_kept() {
        assert_eq!(fewest(&[5], 10, |part| part == [5]), [5]);
    }

    #[test]
    fn a_budget_ends_the_search() {
        let items: Vec<u32> = (0..64).collect();
        let mut runs = 0;
        let found = fewest(&items, 5, |part| {
            runs += 1;
            part.contains(&63)
        });
        assert_eq!(runs, 5);
        assert!(found.contains(&63) && found.len() < 64);
    }
}
