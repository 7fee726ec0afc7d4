//! The results of the suites: a table of cases and clients, and what is unexpected in it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

/// A client and a case.
type Key = (String, String);

/// The results so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The cases that are expected to fail, each with its reason.
    expected: BTreeMap<Key, String>,
    /// Whether a case passed.
    results: BTreeMap<Key, bool>,
    /// The cases and the clients, in the order of the suites.
    cases: Vec<String>,
    clients: Vec<String>,
}

impl Report {
    /// Reads the expected failures: lines `CLIENT CASE: REASON`, and comments.
    pub(super) fn expecting(list: &str) -> Result<Self> {
        let mut expected = BTreeMap::new();
        for line in list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let entry = line.split_once(": ").and_then(|(key, reason)| Some((key.split_once(' ')?, reason)));
            let ((client, case), reason) = entry.with_context(|| format!("{line:?} is not CLIENT CASE: REASON"))?;
            if expected.insert((client.to_owned(), case.to_owned()), reason.to_owned()).is_some() {
                bail!("{client} {case} is listed twice");
            }
        }
        Ok(Self { expected, ..Self::default() })
    }

    /// Adds the output of a suite.
    ///
    /// # Errors
    /// If a case failed unexpectedly, passed unexpectedly, or wasn't run, or if the suite failed in another way.
    pub(super) fn add(&mut self, clients: &[&str], output: &str, succeeded: bool) -> Result<()> {
        let (mut problems, mut seen, mut has_failed) = (Vec::new(), BTreeSet::new(), false);
        for (key, failure) in output.lines().filter_map(|line| result(line, clients)) {
            has_failed |= failure.is_some();
            let (client, case) = &key;
            match (failure, self.expected.contains_key(&key)) {
                (Some(reason), false) => problems.push(format!("{client} {case} fails: {reason}")),
                (None, true) => problems.push(format!("{client} {case} passes: remove it from the expected failures")),
                _ => {}
            }
            for (list, name) in [(&mut self.clients, client), (&mut self.cases, case)] {
                if !list.contains(name) {
                    list.push(name.clone());
                }
            }
            self.results.insert(key.clone(), failure.is_none());
            seen.insert(key);
        }
        for client in clients {
            if !seen.iter().any(|(found, _)| found == client) {
                problems.push(format!("{client} printed no result"));
            }
        }
        let is_absent = |key: &&Key| clients.contains(&key.0.as_str()) && !seen.contains(key);
        let absent = self.expected.keys().filter(is_absent);
        problems.extend(absent.map(|(client, case)| format!("{client} {case} is expected to fail, but wasn't run")));
        if !succeeded && !has_failed {
            problems.push("the suite failed although no case did".into());
        }
        if !problems.is_empty() {
            bail!("{}", problems.join("; "));
        }
        Ok(())
    }

    /// Returns the table: a line for each case, a column for each client, and the counts.
    pub(super) fn table(&self) -> String {
        let width = self.cases.iter().map(String::len).max().unwrap_or_default();
        let mut text = format!("{:width$}", "");
        for client in &self.clients {
            text += &format!("  {client}");
        }
        text.push('\n');
        for case in &self.cases {
            text += &format!("{case:width$}");
            for client in &self.clients {
                let key = (client.clone(), case.clone());
                let cell = match (self.results.get(&key), self.expected.contains_key(&key)) {
                    (Some(true), _) => "ok",
                    (Some(false), true) => "expected",
                    (Some(false), false) => "FAIL",
                    (None, _) => "",
                };
                text += &format!("  {cell:width$}", width = client.len());
            }
            text = text.trim_end().to_owned() + "\n";
        }
        let passed = self.results.values().filter(|passed| **passed).count();
        let expected = self.results.keys().filter(|key| self.expected.contains_key(*key)).count();
        let total = self.results.len();
        text + &format!("{passed} of {total} cases pass; {expected} are expected to fail\n")
    }
}

/// Parses a line of a suite's output: the case, and the reason if it failed.
fn result<'a>(line: &'a str, clients: &[&str]) -> Option<(Key, Option<&'a str>)> {
    let (word, rest) = line.split_once(' ')?;
    let (client, rest) = rest.split_once(' ')?;
    if !clients.contains(&client) {
        return None;
    }
    let key = |case: &str| (client.to_owned(), case.trim().to_owned());
    match word {
        "ok" => Some((key(rest), None)),
        "FAIL" => {
            let (case, reason) = rest.split_once(": ").unwrap_or((rest, "see the log"));
            Some((key(case.trim_end_matches(':')), Some(reason)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# a comment\n\ngo watch: it is too fast\n";

    fn problems(list: &str, output: &str, succeeded: bool) -> String {
        let result = Report::expecting(list).unwrap().add(&["go", "helm"], output, succeeded);
        result.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn only_what_is_unexpected_is_a_problem() {
        let check = |output: &str, succeeded, expected: &str| {
            assert_eq!(problems(LIST, output, succeeded), expected, "{output}");
        };
        check("ok go read\nother\nok 1 - read\nok helm install\nFAIL go watch: why", false, "");
        check("ok helm a\nok go watch", true, "go watch passes: remove it from the expected failures");
        check("ok helm a\nFAIL go read: 422: no\nFAIL go watch", false, "go read fails: 422: no");
        check("ok helm a\nok go read", true, "go watch is expected to fail, but wasn't run");
        check("FAIL go watch: why", false, "helm printed no result");
        let ended = "the suite failed although no case did";
        assert_eq!(problems("", "ok go a\nok helm a", false), ended);
        assert!(Report::expecting("go watch").is_err() && Report::expecting("go a: b\ngo a: c").is_err());
    }

    #[test]
    fn the_table_has_a_column_for_each_client() {
        let mut report = Report::expecting(LIST).unwrap();
        report.add(&["go"], "ok go read\nFAIL go watch: why", false).unwrap();
        report.add(&["helm"], "FAIL helm read: why", false).unwrap_err();
        let expected = "       go  helm\nread   ok  FAIL\nwatch  expected\n1 of 3 cases pass; 1 are expected to fail\n";
        assert_eq!(report.table(), expected);
    }
}
