//! The flags of plugins. Plugins are queried before the command line is parsed, so that an unknown flag is a usage
//! error.

use std::ffi::OsString;

use clap::{Arg, ArgAction, value_parser};
use kubewright_scaffold::{
    external::{Flag, PluginKey, Request},
    project::{self, Project},
};

use super::{Command, Plugin, PluginChain, call};

const PLUGINS: &str = "--plugins";

/// Adds the flags of the plugins in the command line and, for help output, their descriptions. Errors are left to the
/// command itself to report.
pub(crate) fn extend(command: clap::Command, line: &[OsString]) -> clap::Command {
    let line: Vec<String> = line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let Some(called) = called(&line) else { return command };
    let Some(chain) = chain(called, &line) else { return command };
    let is_help = line.iter().any(|word| matches!(word.as_str(), "--help" | "-h"));
    chain.external().fold(command, |command, plugin| {
        change(command, called.words(), &|command| {
            let command = with_flags(command, called, plugin, &line);
            if is_help { with_help(command, called, plugin) } else { command }
        })
    })
}

/// Returns the command in a command line. The flags before it have no values.
fn called(line: &[String]) -> Option<Command> {
    let words: Vec<_> = line.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let all = [Command::Init, Command::CreateApi, Command::CreateWebhook, Command::Edit];
    all.into_iter().find(|command| words.starts_with(command.words()))
}

/// Returns the plugins in a command line, or those in `PROJECT`.
fn chain(called: Command, line: &[String]) -> Option<PluginChain> {
    let mut keys = Vec::new();
    for (index, word) in line.iter().enumerate() {
        let named = match word.strip_prefix(PLUGINS) {
            Some("") => line.get(index + 1).map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        keys.extend(named.into_iter().flat_map(|named| named.split(',')).map(str::parse::<PluginKey>));
    }
    if !keys.is_empty() {
        return PluginChain::find(&keys.into_iter().collect::<Result<Vec<_>, _>>().ok()?).ok();
    }
    if called == Command::Init {
        return None;
    }
    let here = std::env::current_dir().ok()?;
    let text = here.ancestors().find_map(|folder| std::fs::read_to_string(folder.join(project::FILE)).ok())?;
    PluginChain::of(&Project::read(&text).ok()?).ok()
}

/// Changes a subcommand, found by its words.
fn change(
    command: clap::Command,
    words: &'static [&'static str],
    by: &dyn Fn(clap::Command) -> clap::Command,
) -> clap::Command {
    match words {
        [] => by(command),
        [word, rest @ ..] => command.mut_subcommand(word, |command| change(command, rest, by)),
    }
}

/// Queries a plugin about a command without running it.
fn query(name: &str, called: Command, plugin: &Plugin) -> anyhow::Result<kubewright_scaffold::external::Response> {
    let about = called.words().last().map(|word| format!("--{word}"));
    let (arguments, nothing) = (Vec::from_iter(about), Default::default());
    call::call(plugin, &Request::new(name, &arguments, &nothing), None)
}

/// Adds the flags of a plugin. As in kubebuilder, a plugin that cannot list its flags receives all unknown flags.
fn with_flags(command: clap::Command, called: Command, plugin: &Plugin, line: &[String]) -> clap::Command {
    let flags = match query("flags", called, plugin) {
        Ok(response) => response.flags,
        Err(_) => unknown(line),
    };
    flags.into_iter().fold(command, |command, flag| {
        let is_there = command.get_arguments().any(|arg| arg.get_long() == Some(&flag.name));
        // Global flags are not among the arguments of a subcommand yet.
        if is_there || !is_name(&flag.name) || matches!(flag.name.as_str(), "help" | "quiet" | "verbose") {
            return command;
        }
        command.arg(argument(flag, &plugin.key))
    })
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Returns the unknown flags in a command line. A flag is a string if it is followed by a value.
fn unknown(line: &[String]) -> Vec<Flag> {
    let flag = |(index, word): (usize, &String)| {
        let name = word.strip_prefix("--")?;
        let has_value = name.contains('=') || line.get(index + 1).is_some_and(|next| !next.starts_with("--"));
        let mut flag = Flag::default();
        flag.name = name.split('=').next().unwrap_or_default().to_owned();
        flag.r#type = if has_value { "string" } else { "bool" }.into();
        Some(flag)
    };
    line.iter().enumerate().filter_map(flag).collect()
}

fn argument(flag: Flag, key: &PluginKey) -> Arg {
    let default = if flag.default.is_empty() { String::new() } else { format!(" [default: {}]", flag.default) };
    let usage = format!("{} (plugin {key}){default}", flag.usage.trim());
    // Leaked once per run, since clap requires argument names to be static.
    let name: &'static str = flag.name.leak();
    let arg = Arg::new(name).long(name).help(usage.trim_start().to_owned()).action(ArgAction::Set);
    match flag.r#type.as_str() {
        "bool" => {
            let arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
            arg.value_name("BOOL").value_parser(value_parser!(bool))
        }
        "int" => arg.value_name("INT").allow_negative_numbers(true).value_parser(value_parser!(i64)),
        "float" => arg.value_name("FLOAT").allow_negative_numbers(true).value_parser(value_parser!(f64)),
        _ => arg.value_name("STRING"),
    }
}

/// Adds the description of a plugin to the help of a command.
fn with_help(command: clap::Command, called: Command, plugin: &Plugin) -> clap::Command {
    let metadata = query("metadata", called, plugin).map(|response| response.metadata).unwrap_or_default();
    let mut text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    text.push_str(&format!("\n\nPlugin {}:\n{}", plugin.key, metadata.description.trim_end()));
    if metadata.description.trim().is_empty() {
        text.push_str("No description: see its documentation.");
    }
    if !metadata.examples.trim().is_empty() {
        text.push_str(&format!("\nExamples:\n{}", metadata.examples.trim_end()));
    }
    command.after_help(text)
}

/// Returns the flags in the command line and their values for plugins, without `--plugins` and the global flags.
pub(super) fn given() -> Vec<String> {
    let line: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    of_plugins(&line)
}

fn of_plugins(line: &[String]) -> Vec<String> {
    let mut given = Vec::new();
    for (index, word) in line.iter().enumerate() {
        let name = word.split('=').next().unwrap_or_default();
        if !word.starts_with("--") || matches!(name, PLUGINS | "--quiet" | "--verbose") {
            continue;
        }
        given.push(word.clone());
        let is_value = |next: &&String| !next.starts_with("--") && !matches!(next.as_str(), "-q" | "-v");
        given.extend(line.get(index + 1).filter(is_value).cloned());
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn plugins_receive_flags_and_their_values() {
        let check = |line: &str, flags: &str| assert_eq!(of_plugins(&words(line)), words(flags), "{line}");
        check("init", "");
        check("-v init --plugins a/v1,b/v1 --domain a.b --sail", "--domain a.b --sail");
        check("create api --plugins=a/v1 --kind Captain --masts=3 -v --quiet", "--kind Captain --masts=3");
        check("edit --depth -3", "--depth -3");
    }

    #[test]
    fn commands_are_recognized_by_their_words() {
        assert_eq!(called(&words("-v create --quiet api --kind X")), Some(Command::CreateApi));
        assert_eq!(called(&words("edit --plugins a/v1")), Some(Command::Edit));
        assert_eq!(called(&words("create")), None);
        assert_eq!(called(&words("manifests --check")), None);
    }

    #[test]
    fn an_unknown_flag_followed_by_a_value_is_a_string() {
        let kinds: Vec<_> = unknown(&words("init --sail --masts 3 --crew=a --deep"))
            .into_iter()
            .map(|flag| (flag.name, flag.r#type))
            .collect();
        let expected = [("sail", "bool"), ("masts", "string"), ("crew", "string"), ("deep", "bool")];
        assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind.to_owned())));
    }
}
