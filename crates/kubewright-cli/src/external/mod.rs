//! Plugins that others write and that scaffold beside us, as kubebuilder knows them (`--plugins`): found, asked, and what they answer
//! planned with everything else.

mod ask;
mod files;
mod find;
mod flags;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use kubewright_scaffold::{
    external::{PluginKey, Request},
    plan::{Change, Layers, Plan},
    project::{self, LAYOUT, Project},
};

use crate::shell::Shell;

pub(crate) use self::flags::extend;

// Not a doc comment: clap would show it as the command's own.
#[derive(Debug, clap::Args)]
pub(crate) struct Plugins {
    /// Who scaffolds, in this order: rust/v1 is kubewright itself, others are looked for below $EXTERNAL_PLUGINS_PATH [default: those of
    /// PROJECT].
    #[arg(long, value_name = "NAME/VERSION", value_delimiter = ',')]
    pub(crate) plugins: Vec<PluginKey>,
}

/// The commands that plugins take part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Init,
    CreateApi,
    CreateWebhook,
    Edit,
}

impl Command {
    /// As it is typed, and as plugins are told it.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Init => &["init"],
            Self::CreateApi => &["create", "api"],
            Self::CreateWebhook => &["create", "webhook"],
            Self::Edit => &["edit"],
        }
    }
}

/// A program that scaffolds.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    key: PluginKey,
    program: PathBuf,
}

#[derive(Clone, Debug)]
enum Link {
    Ours,
    Other(Plugin),
}

/// Who scaffolds, in this order.
#[derive(Clone, Debug)]
pub(crate) struct Chain(Vec<Link>);

impl Chain {
    /// We alone.
    pub(crate) fn ours() -> Self {
        Self(vec![Link::Ours])
    }

    /// Those of these keys.
    pub(crate) fn find(keys: &[PluginKey]) -> Result<Self> {
        let link = |key: &PluginKey| {
            if key.is_ours() { Ok(Link::Ours) } else { find::plugin(key).map(Link::Other) }
        };
        keys.iter().map(link).collect::<Result<_>>().map(Self)
    }

    /// Those that `PROJECT` names.
    pub(crate) fn of(project: &Project) -> Result<Self> {
        let keys: Vec<PluginKey> = project.layout.iter().map(|key| key.parse()).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            bail!("it names none");
        }
        Self::find(&keys)
    }

    /// Whether we are among them.
    pub(crate) fn has_ours(&self) -> bool {
        self.0.iter().any(|link| matches!(link, Link::Ours))
    }

    /// Whether others are.
    pub(crate) fn has_others(&self) -> bool {
        self.others().next().is_some()
    }

    fn others(&self) -> impl Iterator<Item = &Plugin> {
        self.0.iter().filter_map(|link| if let Link::Other(plugin) = link { Some(plugin) } else { None })
    }

    /// As `PROJECT` names them.
    pub(crate) fn keys(&self) -> Vec<String> {
        let key = |link: &Link| match link {
            Link::Ours => LAYOUT.to_owned(),
            Link::Other(plugin) => plugin.key.to_string(),
        };
        self.0.iter().map(key).collect()
    }

    /// Has each plan its part in turn, upon what those before have planned; `ours` is our own. A project that is begun gets its `PROJECT`
    /// from us, whoever scaffolds it.
    pub(crate) fn plan(
        &self,
        command: Command,
        folder: &kubewright_scaffold::write::Folder,
        shell: &Shell,
        mut ours: impl FnMut(&mut Plan<'_>) -> Result<()>,
    ) -> Result<Vec<Change>> {
        let mut layers = Layers::new(folder);
        let begins = (command == Command::Init && !self.has_ours()).then_some(&Link::Ours);
        for link in begins.into_iter().chain(&self.0) {
            let mut plan = Plan::new(&layers);
            let changes = match link {
                Link::Ours => {
                    ours(&mut plan)?;
                    plan.finish()?
                }
                Link::Other(plugin) => self
                    .ask(plugin, command, folder.path(), &layers, plan, shell)
                    .with_context(|| format!("the plugin {}", plugin.key))?,
            };
            layers.add(changes);
        }
        Ok(layers.finish())
    }

    /// Asks a plugin, and plans what it answers.
    fn ask(
        &self,
        plugin: &Plugin,
        command: Command,
        folder: &std::path::Path,
        layers: &Layers<'_>,
        mut plan: Plan<'_>,
        shell: &Shell,
    ) -> Result<Vec<Change>> {
        let shown = files::shown(folder, layers)?;
        let (words, arguments, chain) = (command.words().join(" "), flags::given(), self.keys());
        let mut request = Request::new(&words, &arguments, &shown);
        request.plugin_chain = &chain;
        request.config = match shown.get(project::FILE) {
            Some(project) if command != Command::Init => Some(Project::read(project)?.to_json()?),
            _ => None,
        };
        let response = ask::ask(plugin, &request, Some(folder))?;
        for (path, text) in &response.universe {
            let path = path.strip_prefix("./").unwrap_or(path);
            if shown.get(path) == Some(text) {
                continue;
            }
            let first = path.split('/').next().unwrap_or_default();
            if first.eq_ignore_ascii_case(".git") {
                bail!("it would change {path}, which belongs to git. Nothing was written");
            }
            if path == project::FILE {
                shell.warning(&format!("{path} stays as it is: the plugin {} has no say in it", plugin.key));
                continue;
            }
            plan.replace(path, text.as_str());
        }
        let changes = plan.finish().context("what it answered can't be written")?;
        if let Some(odd) = changes.iter().find(|change| change.before.as_ref() != shown.get(&change.path)) {
            bail!("it would overwrite {}, which it was not shown as it is now: move it away, or try again", odd.path);
        }
        shell.status("Asked", format!("the plugin {}: {} files", plugin.key, changes.len()));
        Ok(changes)
    }
}
