//! Kinds and their plurals.

use std::str::FromStr;

use kubewright_apimachinery::name;

use super::{NameError, rust, text};

/// A kind, such as `CronJob`. It is the name of a Rust type, and in lower case that of a module and a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(String);

text!(Kind);

impl Kind {
    /// Returns the kind in lower case, for file names: `cronjob`. Kinds that differ only in case have the same one.
    pub fn lower(&self) -> String {
        self.0.to_ascii_lowercase()
    }

    /// Returns the module name, which is also the file name without `.rs`: `cronjob`, or `type_` for a Rust keyword.
    pub fn module(&self) -> String {
        rust::module(&self.lower())
    }

    /// Returns the default plural, by the rule of kube's derive macro: `policies`, `foxes`, `cronjobs`. Irregular
    /// plurals need `--plural`.
    pub fn plural(&self) -> Plural {
        let word = self.lower();
        let hisses = ["s", "x", "z", "ch", "sh"].into_iter().any(|end| word.ends_with(end));
        let stem = word.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']) && !stem.is_empty());
        Plural(match stem {
            Some(stem) => format!("{stem}ies"),
            None if hisses => format!("{word}es"),
            None => format!("{word}s"),
        })
    }
}

impl FromStr for Kind {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |why: &str| NameError::new("kind", text, why);
        if text.is_empty() {
            return Err(refuse("must not be empty"));
        }
        if let Some(odd) = text.chars().find(|c| !c.is_ascii_alphanumeric()) {
            let why = format!("must consist of ASCII letters and digits, and contains {odd:?}");
            return Err(refuse(&why).or::<Self>(camel(text)));
        }
        if !text.starts_with(|first: char| first.is_ascii_uppercase()) {
            return Err(refuse("must begin with a capital letter").or::<Self>(camel(text)));
        }
        // The plural is also a DNS label, and usually two characters longer.
        if text.len() > 63 {
            return Err(refuse("must be no more than 63 characters"));
        }
        if rust::is_type(text) {
            return Err(refuse("is the name of a type that the code of each operator uses: choose another"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Converts `cron-job` and `cron job` to `CronJob`. Returns an empty string for other scripts.
fn camel(text: &str) -> String {
    if !text.is_ascii() {
        return String::new();
    }
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect()
}

/// The plural resource name, as in paths and rules: `cronjobs`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Plural(String);

text!(Plural);

impl FromStr for Plural {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if name::dns1035_label(text).is_empty() {
            return Ok(Self(text.to_owned()));
        }
        let why = "must consist of at most 63 lower-case letters, digits and hyphens, and start with a letter";
        Err(NameError::new("plural", text, why).or::<Self>(text.to_ascii_lowercase()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Kind>().unwrap_err().to_string()
    }

    #[test]
    fn kinds_are_valid_rust_types() {
        for good in ["CronJob", "A", "HTTPRoute", "Pod2", "Type"] {
            assert_eq!(good.parse::<Kind>().unwrap().as_str(), good);
        }
        for bad in ["", "cronJob", "Cron-Job", "Kühe", "Cron Job", "1Pod", "Self", "Option", "Manager", &"A".repeat(64)]
        {
            assert!(bad.parse::<Kind>().is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_suggest_a_valid_name() {
        assert_eq!(refused("cronJob"), "the kind \"cronJob\" must begin with a capital letter: try \"CronJob\"");
        let odd = "must consist of ASCII letters and digits, and contains";
        assert_eq!(refused("cron-job"), format!("the kind \"cron-job\" {odd} '-': try \"CronJob\""));
        assert_eq!(refused("1pod"), "the kind \"1pod\" must begin with a capital letter");
        assert_eq!(refused("日本"), format!("the kind \"日本\" {odd} '日'"));
        assert!(refused("Option").ends_with("choose another"));
    }

    #[test]
    fn a_kind_is_a_module() {
        let module = |text: &str| text.parse::<Kind>().unwrap().module();
        assert_eq!(module("CronJob"), "cronjob");
        assert_eq!(module("Type"), "type_");
        assert_eq!(module("Mod"), "mod_", "mod.rs is the folder's own file");
        assert_eq!(module("Main"), "main_", "main.rs is that of the tests");
    }

    #[test]
    fn plurals_follow_the_rule_of_the_derive() {
        let plural = |text: &str| text.parse::<Kind>().unwrap().plural().as_str().to_owned();
        let cases = [
            ("CronJob", "cronjobs"),
            ("Policy", "policies"),
            ("Key", "keys"),
            ("Fox", "foxes"),
            ("Ingress", "ingresses"),
            ("Batch", "batches"),
            ("Mesh", "meshes"),
            ("Y", "ys"),
            ("Index", "indexes"),
        ];
        for (kind, expected) in cases {
            assert_eq!(plural(kind), expected);
        }
        assert_eq!("Mice".parse::<Plural>().unwrap_err().instead.as_deref(), Some("mice"));
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_refused(text in ".{0,70}") {
            if let Ok(kind) = text.parse::<Kind>() {
                let module = kind.module();
                prop_assert!(module.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
                prop_assert!(kind.as_str().len() > 61 || kind.plural().as_str().parse::<Plural>().is_ok());
            }
        }
    }
}
