//! The file of `--token-auth-file`: static tokens, each with its user.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use kubewright_cluster::UserInfo;

/// Reads the users of a file's tokens. A record has the token, the name of its user, the UID and, in one field with
/// commas, the groups. Records without a token are left out, and of several with the same token the last counts.
///
/// # Errors
/// If the text isn't comma-separated values as Go reads them, or if a record has fewer than three fields.
pub(super) fn parse(text: &str, mut warn: impl FnMut(String)) -> Result<BTreeMap<String, UserInfo>> {
    let mut reader = Reader { rest: text, line: 1 };
    let mut users = BTreeMap::new();
    let mut number = 0;
    while let Some(record) = reader.record()? {
        let [token, name, uid, others @ ..] = record.as_slice() else {
            bail!("a record has {} of at least 3 columns (token, user name, user UID)", record.len());
        };
        number += 1;
        if token.is_empty() {
            warn(format!("record {number} has no token, and is left out"));
            continue;
        }
        let mut user = UserInfo::new(name, others.first().into_iter().flat_map(|groups| groups.split(',')));
        user.uid.clone_from(uid);
        if users.insert(token.clone(), user).is_some() {
            warn(format!("the token of record {number} is that of an earlier one, which it replaces"));
        }
    }
    Ok(users)
}

/// A reader of comma-separated values.
struct Reader<'a> {
    rest: &'a str,
    line: usize,
}

impl Reader<'_> {
    /// Returns the next record. Empty lines are none.
    fn record(&mut self) -> Result<Option<Vec<String>>> {
        while self.ends_line() {}
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut record = Vec::new();
        loop {
            let line = self.line;
            record.push(self.field().with_context(|| format!("read line {line}"))?);
            if self.rest.is_empty() || self.ends_line() {
                return Ok(Some(record));
            }
            // Every field ends with its record or with a comma.
            self.rest = &self.rest[1..];
            if self.rest.is_empty() {
                record.push(String::new());
                return Ok(Some(record));
            }
        }
    }

    /// Moves on if the line ends here.
    fn ends_line(&mut self) -> bool {
        let next = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n'));
        let ends = next.is_some();
        self.rest = next.unwrap_or(self.rest);
        self.line += usize::from(ends);
        ends
    }

    fn field(&mut self) -> Result<String> {
        if let Some(quoted) = self.rest.strip_prefix('"') {
            self.rest = quoted;
            return self.quoted();
        }
        let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
        let end = if self.rest[..end].ends_with('\r') && self.rest[end..].starts_with('\n') { end - 1 } else { end };
        let (field, rest) = self.rest.split_at(end);
        if field.contains('"') {
            bail!("the field {field:?} has a quote, and so has to begin and end with one");
        }
        self.rest = rest;
        Ok(field.to_owned())
    }

    /// Reads the rest of a field behind its first quote. Two quotes in it stand for one.
    fn quoted(&mut self) -> Result<String> {
        let mut field = String::new();
        loop {
            let Some((text, rest)) = self.rest.split_once('"') else { bail!("the last quote is missing") };
            self.line += text.matches('\n').count();
            self.rest = rest;
            field.push_str(&text.replace("\r\n", "\n"));
            if let Some(rest) = rest.strip_prefix('"') {
                self.rest = rest;
                field.push('"');
            } else if rest.is_empty() || [",", "\n", "\r\n"].iter().any(|end| rest.starts_with(end)) {
                return Ok(field);
            } else {
                bail!("a comma is missing behind the quoted field {field:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_a_token_a_user_its_uid_and_groups() {
        let mut warnings = Vec::new();
        let text = "t1,ann,1\r\n\n\"t\"\"2\",\"b\nob\",,\"x,y\",more\n,nobody,\nt1,eve,3,\"\"\nt3,kim,";
        let users = parse(text, |warning| warnings.push(warning)).unwrap();
        let user = |name: &str, uid: &str, groups: &[&str]| {
            let mut user = UserInfo::new(name, groups.iter().copied());
            user.uid = uid.into();
            user
        };
        let expect =
            [("t\"2", user("b\nob", "", &["x", "y"])), ("t1", user("eve", "3", &[""])), ("t3", user("kim", "", &[]))];
        assert_eq!(users, expect.map(|(token, user)| (token.to_owned(), user)).into());
        let expect = [
            "record 3 has no token, and is left out",
            "the token of record 4 is that of an earlier one, which it replaces",
        ];
        assert_eq!(warnings, expect);
    }

    #[test]
    fn other_texts_are_errors() {
        for (text, expect) in [
            ("a,b", "a record has 2 of at least 3 columns"),
            ("a,b,c\nd,e\"f,g", "read line 2: the field \"e\\\"f\" has a quote"),
            ("a,\"b\"c,d", "a comma is missing"),
            ("a,\"b,c", "the last quote is missing"),
        ] {
            let error = format!("{:#}", parse(text, |_| ()).unwrap_err());
            assert!(error.contains(expect), "{text:?}: {error}");
        }
    }
}
