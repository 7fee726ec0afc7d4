//! External plugins, which scaffold together with kubewright (`--plugins`), using the protocol of kubebuilder.

mod call;
mod files;
mod find;
mod flags;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use kubewright_scaffold::{
    external::{Feature, PluginKey, Request},
    plan::{Change, Overlay, Plan},
    project::{self, LAYOUT, Project},
};

use crate::shell::Shell;

pub(crate) use self::flags::extend;

// Not a doc comment: clap would show it as the help of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Plugins {
    /// Plugins to scaffold with, in this order: rust/v1 is kubewright itself, which also has deploy-image (create api)
    /// and grafana (edit); others are found in $EXTERNAL_PLUGINS_PATH [default: those in PROJECT]
    #[arg(long, value_name = "NAME/VERSION", value_delimiter = ',')]
    pub(crate) plugins: Vec<PluginKey>,
}

impl Plugins {
    /// Returns whether a part of kubewright is named. Others that the command does not have are an error.
    pub(crate) fn feature(&self, wanted: Option<Feature>) -> Result<bool> {
        let named = self.plugins.iter().filter_map(PluginKey::feature);
        let mut others = named.clone().filter(|feature| Some(*feature) != wanted);
        if let Some(other) = others.next() {
            let command = match other {
                Feature::DeployImage => "create api",
                _ => "edit",
            };
            bail!("plugin {} belongs to kubewright {command}: name it there", other.name());
        }
        Ok(named.count() > 0)
    }
}

/// The commands that plugins extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Init,
    CreateApi,
    CreateWebhook,
    Edit,
}

impl Command {
    /// Returns the words of the command, as in the command line and in requests to plugins.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Init => &["init"],
            Self::CreateApi => &["create", "api"],
            Self::CreateWebhook => &["create", "webhook"],
            Self::Edit => &["edit"],
        }
    }
}

/// An external plugin.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    key: PluginKey,
    program: PathBuf,
}

#[derive(Clone, Debug)]
enum ChainItem {
    BuiltIn,
    External(Plugin),
}

/// The plugins of a command, in their order.
#[derive(Clone, Debug)]
pub(crate) struct PluginChain(Vec<ChainItem>);

impl PluginChain {
    /// Returns a chain of kubewright alone.
    pub(crate) fn built_in() -> Self {
        Self(vec![ChainItem::BuiltIn])
    }

    /// Finds the plugins with some keys.
    pub(crate) fn find(keys: &[PluginKey]) -> Result<Self> {
        let mut items = Vec::new();
        for key in keys {
            if !key.is_ours() && key.feature().is_none() {
                items.push(ChainItem::External(find::plugin(key)?));
            } else if !items.iter().any(|item| matches!(item, ChainItem::BuiltIn)) {
                items.push(ChainItem::BuiltIn);
            }
        }
        Ok(Self(items))
    }

    /// Finds the plugins that `PROJECT` lists.
    pub(crate) fn of(project: &Project) -> Result<Self> {
        let keys: Vec<PluginKey> = project.layout.iter().map(|key| key.parse()).collect::<Result<_, _>>()?;
        if keys.is_empty() {
            bail!("PROJECT lists no plugins");
        }
        Self::find(&keys)
    }

    /// Returns whether kubewright itself is in the chain.
    pub(crate) fn has_built_in(&self) -> bool {
        self.0.iter().any(|link| matches!(link, ChainItem::BuiltIn))
    }

    /// Returns whether there are external plugins in the chain.
    pub(crate) fn has_external(&self) -> bool {
        self.external().next().is_some()
    }

    fn external(&self) -> impl Iterator<Item = &Plugin> {
        self.0.iter().filter_map(|item| if let ChainItem::External(plugin) = item { Some(plugin) } else { None })
    }

    /// Returns the keys for `PROJECT`.
    pub(crate) fn keys(&self) -> Vec<String> {
        let key = |item: &ChainItem| match item {
            ChainItem::BuiltIn => LAYOUT.to_owned(),
            ChainItem::External(plugin) => plugin.key.to_string(),
        };
        self.0.iter().map(key).collect()
    }

    /// Lets each plugin plan its changes on top of the preceding ones. `built_in` is kubewright's own part. `kubewright
    /// init` always writes `PROJECT`, even if kubewright is not in the chain.
    pub(crate) fn plan(
        &self,
        command: Command,
        folder: &kubewright_scaffold::write::Folder,
        shell: &Shell,
        mut built_in: impl FnMut(&mut Plan<'_>) -> Result<()>,
    ) -> Result<Vec<Change>> {
        let mut overlay = Overlay::new(folder);
        let init = (command == Command::Init && !self.has_built_in()).then_some(&ChainItem::BuiltIn);
        for item in init.into_iter().chain(&self.0) {
            let mut plan = Plan::new(&overlay);
            let changes = match item {
                ChainItem::BuiltIn => {
                    built_in(&mut plan)?;
                    plan.finish()?
                }
                ChainItem::External(plugin) => self
                    .call(plugin, command, folder.path(), &overlay, plan, shell)
                    .with_context(|| format!("plugin {}", plugin.key))?,
            };
            overlay.add(changes);
        }
        Ok(overlay.finish())
    }

    /// Calls a plugin, and plans the changes in its response.
    fn call(
        &self,
        plugin: &Plugin,
        command: Command,
        folder: &std::path::Path,
        overlay: &Overlay<'_>,
        mut plan: Plan<'_>,
        shell: &Shell,
    ) -> Result<Vec<Change>> {
        let shown = files::text_files(folder, overlay)?;
        let (words, arguments, chain) = (command.words().join(" "), flags::given(), self.keys());
        let mut request = Request::new(&words, &arguments, &shown);
        request.plugin_chain = &chain;
        request.config = match shown.get(project::FILE) {
            Some(project) if command != Command::Init => Some(Project::read(project)?.to_json()?),
            _ => None,
        };
        let response = call::call(plugin, &request, Some(folder))?;
        for (path, text) in &response.universe {
            let path = path.strip_prefix("./").unwrap_or(path);
            if shown.get(path) == Some(text) {
                continue;
            }
            let first = path.split('/').next().unwrap_or_default();
            if first.eq_ignore_ascii_case(".git") {
                bail!("the plugin changes {path}, which belongs to git; nothing was written");
            }
            if path == project::FILE {
                shell.warning(&format!("plugin {} may not change {path}: its change is ignored", plugin.key));
                continue;
            }
            plan.replace(path, text.as_str());
        }
        let changes = plan.finish().context("apply the response")?;
        if let Some(odd) = changes.iter().find(|change| change.before.as_ref() != shown.get(&change.path)) {
            bail!(
                "the plugin overwrites {}, which it did not receive or which changed meanwhile: move the file or try again",
                odd.path
            );
        }
        shell.status("Called", format!("plugin {}: {} files", plugin.key, changes.len()));
        Ok(changes)
    }
}
