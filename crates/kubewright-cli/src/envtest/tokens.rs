//! The file of `--token-auth-file`: static tokens, each with its user.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use kubewright_cluster::UserInfo;

/// Reads the users of a file's tokens. A record has the token, the name of its user, the UID and, in one field with
/// commas, the groups. Records without a token are left out, and of several with the same token the last counts.
///
/// # Errors
/// If a record has fewer than three fields. A quote within a field is a part of it; kube-apiserver refuses the file.
pub(super) fn parse(text: &str, mut warn: impl FnMut(String)) -> Result<BTreeMap<String, UserInfo>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut users = BTreeMap::new();
    for (record, number) in reader.records().zip(1..) {
        let record = record?;
        let (Some(token), Some(name), Some(uid)) = (record.get(0), record.get(1), record.get(2)) else {
            bail!("record {number} has {} of at least 3 columns (token, user name, user UID)", record.len());
        };
        if token.is_empty() {
            warn(format!("record {number} has no token, and is left out"));
            continue;
        }
        let mut user = UserInfo::new(name, record.get(3).into_iter().flat_map(|groups| groups.split(',')));
        user.uid = uid.to_owned();
        if users.insert(token.to_owned(), user).is_some() {
            warn(format!("the token of record {number} is that of an earlier one, which it replaces"));
        }
    }
    Ok(users)
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
    fn a_record_with_too_few_fields_is_an_error() {
        let error = parse("a,b,c\na,b", |_| ()).unwrap_err().to_string();
        assert!(error.contains("record 2 has 2 of at least 3 columns"), "{error}");
    }
}
