//! `kubewright delete`: undoes `create api` and `create webhook`.
//!
//! The project is scaffolded twice in memory, with and without the API or webhook: files of the first scaffold only are
//! deleted, and the lines that differ in the others are removed. Files that were edited stay, unless `force` is set.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use diffy::{DiffOptions, Line, MergeOptions};
use thiserror::Error;

use crate::{
    command::{CreateApi, CreateWebhook, DeployImage, Step},
    generate::{self, GenerateError},
    name::{Group, Kind, Version},
    plan::{Plan, PlanConflict, PlanError, Source},
    project::{self, Project, ProjectError, Resource},
    record::{self, Record, RecordError},
    update::is_generated,
};

/// The generated file of webhook configurations.
const WEBHOOKS: &str = "config/webhook/manifests.yaml";

/// A failure to delete. Nothing was written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeleteError {
    /// The kind is not in the project.
    #[error("the project has no {kind} of the group {group:?} in version {version}: PROJECT lists its kinds")]
    NoKind {
        /// The kind.
        kind: String,
        /// The group, without the domain.
        group: String,
        /// The version.
        version: String,
    },
    /// The kind has no such webhooks.
    #[error("{kind} in version {version} has no {what}: PROJECT lists its webhooks")]
    NoWebhook {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// The webhooks.
        what: &'static str,
    },
    /// The kind has webhooks.
    #[error("{kind} in version {version} has webhooks: run kubewright delete webhook first")]
    HasWebhooks {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
    },
    /// Another version converts from and to this one.
    #[error(
        "{kind} in version {hub} converts from and to version {version}: run kubewright delete webhook --version {hub} --conversion first"
    )]
    IsSpoke {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// The hub.
        hub: String,
    },
    /// The scaffold of the project is not known.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The record cannot be used.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// `PROJECT` cannot be written.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// Edited files cannot be changed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A file cannot be read.
    #[error("cannot read {path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The reason.
        why: io::Error,
    },
}

/// The parts of a kind to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parts {
    /// The types, the controller and the manifests.
    Api,
    /// Webhooks; all of them if none is named.
    Webhooks {
        /// The defaulting webhook.
        defaulting: bool,
        /// The validating webhook.
        validation: bool,
        /// The conversion.
        conversion: bool,
    },
}

/// The options of `delete api` and `delete webhook`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delete {
    /// The group, without the domain; `None` for the domain alone.
    pub group: Option<Group>,
    /// The version.
    pub version: Version,
    /// The kind.
    pub kind: Kind,
    /// The parts to delete.
    pub parts: Parts,
    /// Whether edited files are deleted, and lines that cannot be found are left.
    pub force: bool,
}

/// The files that a deletion leaves, to be reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// Files of the deleted part that were edited.
    pub edited: Vec<String>,
}

impl Delete {
    /// Creates options.
    pub fn new(group: Option<Group>, version: Version, kind: Kind, parts: Parts) -> Self {
        Self { group, version, kind, parts, force: false }
    }

    /// Plans the changes of files, including `PROJECT` and the record, and returns the edited files that stay.
    ///
    /// # Errors
    /// Returns an error if there is nothing to delete, if something else depends on it, or if lines to remove were
    /// edited.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<Kept, DeleteError> {
        let after = self.note(project)?;
        let source = plan.source();
        let read = |path: &str| source.read(path).map_err(|why| DeleteError::Unreadable { path: path.into(), why });
        let recorded = read(record::FILE)?.map(|text| Record::read(&text)).transpose()?;
        let steps = match &recorded {
            Some(record) => record.steps.clone(),
            None => generate::steps(project)?,
        };
        let new = Record { steps: self.without(&steps), ..Record::default() };
        let old = Record { steps, ..Record::default() };
        let (base, next) = (old.repeat()?, new.repeat()?);
        let known = recorded.as_ref().map(|record| &record.files);
        let mut kept = self.files(&base, &next, known, source, plan)?;
        for path in self.generated(project, &after) {
            plan.delete(&path);
        }
        kept.edited.sort();
        plan.replace(project::FILE, after.write()?);
        if let Some(mut record) = recorded {
            record.files = recorded_files(&base, &next, &record.files);
            record.steps = new.steps;
            plan.replace(record::FILE, record.write()?);
        }
        Ok(kept)
    }

    /// Plans the changes of the files of the scaffold.
    fn files(
        &self,
        base: &BTreeMap<String, String>,
        next: &BTreeMap<String, String>,
        known: Option<&BTreeMap<String, String>>,
        source: &dyn Source,
        plan: &mut Plan<'_>,
    ) -> Result<Kept, DeleteError> {
        let (mut kept, mut conflicts) = (Kept::default(), Vec::new());
        for (path, base) in base.iter().filter(|(path, _)| *path != project::FILE) {
            let there = source.read(path).map_err(|why| DeleteError::Unreadable { path: path.clone(), why })?;
            let Some(there) = there else { continue };
            match next.get(path) {
                Some(next) if next == base => {}
                Some(next) => match taken_out(base, &there, next) {
                    Ok(text) => drop(plan.replace(path, text)),
                    Err((text, _)) if self.force => drop(plan.replace(path, text)),
                    Err((_, lines)) => conflicts.push(PlanConflict::Entangled { path: path.clone(), lines }),
                },
                None => {
                    let is_known = known.and_then(|files| files.get(path)) == Some(&there);
                    if self.force || is_known || there == *base || is_generated(path) {
                        plan.delete(path);
                    } else {
                        kept.edited.push(path.clone());
                    }
                }
            }
        }
        if conflicts.is_empty() { Ok(kept) } else { Err(PlanError(conflicts).into()) }
    }

    /// Returns the project without the deleted part.
    fn note(&self, project: &Project) -> Result<Project, DeleteError> {
        let (kind, version) = (self.kind.to_string(), self.version.to_string());
        let mut after = project.clone();
        let found = after.resources.iter().position(|resource| self.is_it(resource));
        let Some(index) = found else {
            return Err(DeleteError::NoKind { kind, group: self.group().into(), version });
        };
        let resource = &mut after.resources[index];
        let webhooks = resource.webhooks.clone().unwrap_or_default();
        let is_any = webhooks.defaulting || webhooks.validation || webhooks.conversion;
        let Parts::Webhooks { defaulting, validation, conversion } = self.parts else {
            if is_any {
                return Err(DeleteError::HasWebhooks { kind, version });
            }
            if let Some(hub) = self.hub(project) {
                return Err(DeleteError::IsSpoke { kind, version, hub });
            }
            let resource = after.resources.remove(index);
            DeployImage::forget(&mut after, &resource);
            return Ok(after);
        };
        let asked = [
            (defaulting, webhooks.defaulting, "defaulting webhook"),
            (validation, webhooks.validation, "validating webhook"),
            (conversion, webhooks.conversion, "conversion"),
            (!is_any, is_any, "webhooks"),
        ];
        if let Some((_, _, what)) = asked.into_iter().find(|(asked, there, _)| *asked && !there) {
            return Err(DeleteError::NoWebhook { kind, version, what });
        }
        let mut left = webhooks;
        let all = !(defaulting || validation || conversion);
        left.defaulting &= !(all || defaulting);
        left.validation &= !(all || validation);
        if all || conversion {
            (left.conversion, left.spoke) = (false, Vec::new());
        }
        let is_empty = !(left.defaulting || left.validation || left.conversion);
        resource.webhooks = (!is_empty).then_some(left);
        // A kind of another project was listed for its webhooks.
        if resource.webhooks.is_none() && resource.api.is_none() && !resource.controller {
            after.resources.remove(index);
        }
        Ok(after)
    }

    /// Returns the version that converts from and to this one.
    fn hub(&self, project: &Project) -> Option<String> {
        let is_spoke = |resource: &&Resource| {
            let webhooks = resource.webhooks.as_ref();
            (resource.group.as_str(), resource.kind.as_str()) == (self.group(), self.kind.as_str())
                && webhooks.is_some_and(|webhooks| webhooks.spoke.iter().any(|spoke| spoke == self.version.as_str()))
        };
        project.resources.iter().find(is_spoke).map(|hub| hub.version.clone())
    }

    /// Returns the commands without those for the deleted part.
    fn without(&self, steps: &[Step]) -> Vec<Step> {
        let left = |step: &Step| match (step, self.parts) {
            (Step::CreateApi(api), Parts::Api) if self.created(api) => None,
            (Step::CreateWebhook(webhook), Parts::Api) if self.added(webhook) => None,
            (Step::CreateWebhook(webhook), parts @ Parts::Webhooks { .. }) if self.added(webhook) => {
                remaining(webhook, parts).map(|webhook| Step::CreateWebhook(Box::new(webhook)))
            }
            (step, _) => Some(step.clone()),
        };
        steps.iter().filter_map(left).collect()
    }

    /// Returns the files of `kubewright manifests` that the project no longer has.
    fn generated(&self, before: &Project, after: &Project) -> BTreeSet<String> {
        let definitions = |project: &Project| -> BTreeSet<String> {
            let own = project.resources.iter().filter(|resource| resource.api.is_some());
            own.map(|own| format!("config/crd/bases/{}_{}.yaml", own.qualified_group(), own.plural)).collect()
        };
        let has_webhooks = |project: &Project| {
            let mut all = project.resources.iter().filter_map(|resource| resource.webhooks.as_ref());
            all.any(|webhooks| webhooks.defaulting || webhooks.validation)
        };
        let mut gone = &definitions(before) - &definitions(after);
        if has_webhooks(before) && !has_webhooks(after) {
            gone.insert(WEBHOOKS.into());
        }
        gone
    }

    fn group(&self) -> &str {
        self.group.as_ref().map(Group::as_str).unwrap_or_default()
    }

    fn is_it(&self, resource: &Resource) -> bool {
        let (group, version, kind) = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
        (group, version, kind) == (self.group(), self.version.as_str(), self.kind.as_str())
    }

    fn created(&self, api: &CreateApi) -> bool {
        (&api.group, &api.version, &api.kind) == (&self.group, &self.version, &self.kind)
    }

    fn added(&self, webhook: &CreateWebhook) -> bool {
        (webhook.group.as_str(), &webhook.version, &webhook.kind) == (self.group(), &self.version, &self.kind)
    }
}

/// Returns what is left of a `create webhook`.
fn remaining(webhook: &CreateWebhook, parts: Parts) -> Option<CreateWebhook> {
    let Parts::Webhooks { defaulting, validation, conversion } = parts else { return None };
    let all = !(defaulting || validation || conversion);
    let mut left = webhook.clone();
    left.defaulting &= !(all || defaulting);
    left.validation &= !(all || validation);
    if all || conversion {
        (left.conversion, left.spokes) = (false, Vec::new());
    }
    (left.defaulting || left.validation || left.conversion).then_some(left)
}

/// Returns the files of the record, which nobody edits, without the deleted part.
fn recorded_files(
    base: &BTreeMap<String, String>,
    next: &BTreeMap<String, String>,
    files: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let left = |(path, there): (&String, &String)| {
        let text = match (base.get(path), next.get(path)) {
            (Some(_), None) => return None,
            (Some(base), Some(next)) if base != next => match taken_out(base, there, next) {
                Ok(text) => text,
                Err(_) => next.clone(),
            },
            _ => there.clone(),
        };
        Some((path.clone(), text))
    };
    files.iter().filter_map(left).collect()
}

/// Returns a file without the lines that `next` lacks in comparison with `base`. If some of them cannot be found,
/// returns the file without the others, and these lines.
fn taken_out(base: &str, there: &str, next: &str) -> Result<String, (String, String)> {
    if let Ok(merged) = MergeOptions::new().merge(base, there, next) {
        return Ok(merged);
    }
    // The lines around were edited: each block is looked up by itself.
    let mut options = DiffOptions::new();
    let patch = options.set_context_len(0).create_patch(base, next);
    let (mut text, mut left) = (there.to_owned(), String::new());
    for hunk in patch.hunks() {
        let deleted =
            hunk.lines().iter().filter_map(|line| if let Line::Delete(line) = line { Some(*line) } else { None });
        let added =
            hunk.lines().iter().filter_map(|line| if let Line::Insert(line) = line { Some(*line) } else { None });
        let (removed, added): (Vec<&str>, Vec<&str>) = (deleted.collect(), added.collect());
        match replaced(&text, &removed, &added) {
            Some(without) => text = without,
            None => left.push_str(&removed.concat()),
        }
    }
    if left.is_empty() { Ok(text) } else { Err((text, left.trim_end().to_owned())) }
}

/// Replaces lines that occur exactly once, together or, if they are only removed, each by itself.
fn replaced(text: &str, removed: &[&str], added: &[&str]) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    if removed.is_empty() {
        return Some(text.to_owned());
    }
    let places: Vec<usize> = (0..lines.len()).filter(|&at| lines[at..].starts_with(removed)).collect();
    if let [at] = places[..] {
        return Some([&lines[..at], added, &lines[at + removed.len()..]].concat().concat());
    }
    let is_single = |wanted: &&str| lines.iter().filter(|line| *line == wanted).count() == 1;
    let are_single = places.is_empty() && added.is_empty() && removed.iter().all(is_single);
    are_single.then(|| lines.iter().filter(|line| !removed.contains(line)).copied().collect())
}
