//! The command lines of `etcd` and `kube-apiserver`, as envtest writes them.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Result, bail};

/// The flags of a program.
pub(super) struct Known {
    /// The name of the program.
    pub(super) program: &'static str,
    /// All flags of the program, one a line, with ` switch` behind those that need no value.
    pub(super) all: &'static str,
    /// The flags with an effect, each with its help.
    pub(super) used: &'static [(&'static str, &'static str)],
    /// The flags without an effect. The program does what they ask for, or what they set doesn't exist.
    pub(super) accepted: &'static [&'static str],
}

impl Known {
    /// Returns the help. Programs search it for the names of flags.
    pub(super) fn help(&self) -> String {
        let mut help = format!(
            "The part of {} in kubewright, for envtest.\n\nUsage: {} [--FLAG=VALUE ...]\n\n",
            self.program, self.program
        );
        let width = self.used.iter().map(|(flag, _)| flag.len()).max().unwrap_or_default();
        for (flag, about) in self.used {
            let _ = writeln!(help, "  --{flag:<width$}  {about}");
        }
        help.push_str("\nWithout effect:\n");
        for flag in self.accepted {
            let _ = writeln!(help, "  --{flag}");
        }
        let _ = writeln!(help, "\nThe other flags of {} have no effect, and cause a warning.", self.program);
        help
    }

    /// Parses the arguments of the program: `--FLAG=VALUE`, `--FLAG VALUE`, and `--FLAG` for a switch that is on.
    ///
    /// # Errors
    /// If an argument isn't a flag of the program, or has no value.
    pub(super) fn parse(&self, arguments: impl IntoIterator<Item = String>) -> Result<Flags> {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            // Go's flags may have one dash.
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                bail!("{argument:?} is not a flag of {}", self.program);
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let Some(is_switch) = self.is_switch(name) else { bail!("--{name} is not a flag of {}", self.program) };
            let value = value.or_else(|| if is_switch { Some("true".into()) } else { arguments.next() });
            let Some(value) = value else { bail!("--{name} needs a value") };
            values.entry(name.to_owned()).or_default().push(value);
        }
        Ok(Flags(values))
    }

    /// Returns whether a flag needs no value; `None` if the program doesn't have it.
    fn is_switch(&self, flag: &str) -> Option<bool> {
        let mut lines =
            self.all.lines().map(|line| line.split_once(' ').map_or((line, false), |(name, _)| (name, true)));
        lines.find_map(|(name, is_switch)| (name == flag).then_some(is_switch))
    }

    /// Returns the flags that are neither used nor accepted.
    pub(super) fn unused<'a>(&self, flags: &'a Flags) -> Vec<&'a str> {
        let is_used = |name: &str| self.used.iter().any(|(used, _)| *used == name) || self.accepted.contains(&name);
        flags.0.keys().map(String::as_str).filter(|name| !is_used(name)).collect()
    }
}

/// The values of flags, in their order.
#[derive(Debug, Default)]
pub(super) struct Flags(BTreeMap<String, Vec<String>>);

impl Flags {
    /// Returns the last value of a flag, unless it is empty.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns whether a flag is given, if only with an empty value.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the values of a flag that may be repeated.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str)
    }

    /// Returns the values of a list: the flag may be repeated, and a value may have commas.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        self.all(name).flat_map(|value| value.split(',')).filter(|one| !one.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known =
        Known { program: "p", all: "empty\nport\nquiet switch\nx", used: &[("port", "Port")], accepted: &["quiet"] };

    fn parse(arguments: &[&str]) -> Result<Flags> {
        KNOWN.parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn flags_have_the_forms_of_go() {
        let flags = parse(&["--port=1", "--port", "-2", "--quiet", "-x=y,z", "--x=w", "--empty="]).unwrap();
        assert_eq!(flags.last("port"), Some("-2"));
        assert_eq!(flags.last("quiet"), Some("true"));
        assert_eq!(flags.list("x"), ["y", "z", "w"]);
        assert_eq!((flags.last("empty"), flags.last("none")), (None, None));
        assert_eq!(KNOWN.unused(&flags), ["empty", "x"]);
        for (arguments, expect) in [
            (["--quiet", "true"].as_slice(), "\"true\" is not a flag of p"),
            (&["--y=1"], "--y is not a flag of p"),
            (&["--port"], "--port needs a value"),
        ] {
            assert_eq!(parse(arguments).unwrap_err().to_string(), expect);
        }
    }

    #[test]
    fn the_help_has_each_flag_at_the_beginning_of_a_line() {
        let help = KNOWN.help();
        for flag in ["--port", "--quiet"] {
            assert!(help.lines().any(|line| line.trim_start().starts_with(flag)), "{help}");
        }
    }
}
