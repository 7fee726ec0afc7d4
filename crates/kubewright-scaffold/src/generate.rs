//! The commands that scaffold a project like the one that a `PROJECT` file describes, for `kubewright alpha generate`
//! and for projects without a [record].
//!
//! `PROJECT` says what was scaffolded, but not in which order and from which checkout of Kubewright; the files are the
//! same up to the order of lines.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{
    command::{CreateApi, CreateWebhook, DeployImage, Edit, ExternalApi, GRAFANA, Init, Step},
    name::NameError,
    plan::{Plan, PlanError},
    project::{self, Project, ProjectError, Resource},
    record::{self, ScaffoldError, apply},
};

/// A project that cannot be scaffolded from its `PROJECT` file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A name in `PROJECT` is invalid.
    #[error("PROJECT: {0}")]
    Name(#[from] NameError),
    /// A kind of the project has another domain.
    #[error(
        "PROJECT has the domain {domain}, and its kind {kind} has {other}: kubewright creates kinds of the project's domain only, so scaffold this project by hand"
    )]
    Domain {
        /// The kind.
        kind: String,
        /// The domain of the project.
        domain: String,
        /// The domain of the kind.
        other: String,
    },
    /// A command failed.
    #[error("cannot repeat `kubewright {step}`: {why}")]
    Step {
        /// The command.
        step: &'static str,
        /// The reason.
        why: ScaffoldError,
    },
    /// The files of a command conflict with those of earlier commands.
    #[error("cannot repeat `kubewright {step}`: {why}")]
    Plan {
        /// The command.
        step: &'static str,
        /// The reason.
        why: PlanError,
    },
    /// `PROJECT` cannot be read again.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// Returns the commands that scaffold a project: `init`, then `create api` for each kind, and `create webhook`.
///
/// # Errors
/// Returns an error if `PROJECT` contains an invalid name, or a kind that no command creates.
pub fn steps(project: &Project) -> Result<Vec<Step>, GenerateError> {
    // Kinds from before `edit --multigroup` keep their places.
    let last_flat = project.resources.iter().rposition(|resource| project.multigroup && is_flat(project, resource));
    let mut init = Init::new(project.project_name.parse()?);
    init.domain = Some(project.domain.as_str()).filter(|domain| !domain.is_empty()).map(str::parse).transpose()?;
    (init.repo, init.layout) = (project.repo.clone(), project.layout.clone());
    init.license = project.setting("license").map(str::parse).transpose()?;
    init.owner = project.setting("owner").map(str::to_owned);
    (init.namespaced, init.multigroup) = (project.namespaced, project.multigroup && last_flat.is_none());
    let mut steps = vec![Step::Init(init)];
    let is_early = |resource: &Resource| last_flat.is_some() && is_flat(project, resource);
    for (index, resource) in project.resources.iter().enumerate() {
        if resource.api.is_some() || resource.controller {
            steps.push(Step::CreateApi(Box::new(api(project, resource)?)));
        }
        if last_flat == Some(index) {
            for flat in project.resources.iter().filter(|flat| is_early(flat)) {
                steps.extend(webhook(flat)?.map(|webhook| Step::CreateWebhook(Box::new(webhook))));
            }
            steps.push(Step::Edit(Edit { multigroup: Some(true), ..Edit::default() }));
        }
    }
    for resource in project.resources.iter().filter(|resource| !is_early(resource)) {
        steps.extend(webhook(resource)?.map(|webhook| Step::CreateWebhook(Box::new(webhook))));
    }
    if project.plugins.contains_key(GRAFANA) {
        steps.push(Step::Edit(Edit { grafana: true, ..Edit::default() }));
    }
    Ok(steps)
}

/// Returns the files of a project, including `PROJECT` and the [record].
///
/// # Errors
/// Returns an error if a command cannot be run.
pub fn files(steps: &[Step]) -> Result<BTreeMap<String, String>, GenerateError> {
    let mut files = BTreeMap::new();
    for step in steps {
        let project =
            files.get(project::FILE).map(|text: &String| Project::read(text)).transpose()?.unwrap_or_default();
        let mut plan = Plan::new(&files);
        let failed = |why| GenerateError::Step { step: step.name(), why };
        record::plan(step, &project, &mut plan).map_err(failed)?;
        let changes = plan.finish().map_err(|why| GenerateError::Plan { step: step.name(), why })?;
        apply(&mut files, changes);
    }
    Ok(files)
}

/// Returns whether the types of a kind are not below a module of their group.
fn is_flat(project: &Project, resource: &Resource) -> bool {
    let flat = format!("{}::api::{}", project.library(), resource.version);
    resource.api.is_some() && !resource.group.is_empty() && resource.path == flat
}

fn api(project: &Project, resource: &Resource) -> Result<CreateApi, GenerateError> {
    if resource.api.is_some() && resource.domain != project.domain {
        let (kind, domain, other) = (resource.kind.clone(), project.domain.clone(), resource.domain.clone());
        return Err(GenerateError::Domain { kind, domain, other });
    }
    let group = Some(resource.group.as_str()).filter(|group| !group.is_empty()).map(str::parse).transpose()?;
    let mut api = CreateApi::new(group, resource.version.parse()?, resource.kind.parse()?);
    (api.resource, api.controller) = (resource.api.is_some(), resource.controller);
    api.namespaced = resource.api.as_ref().is_none_or(|api| api.namespaced);
    let plural =
        Some(resource.plural.as_str()).filter(|plural| !plural.is_empty() && *plural != api.kind.plural().as_str());
    api.plural = plural.map(str::parse).transpose()?;
    api.external = external(resource);
    api.image = DeployImage::of(project, resource);
    Ok(api)
}

fn webhook(resource: &Resource) -> Result<Option<CreateWebhook>, GenerateError> {
    let Some(webhooks) = &resource.webhooks else { return Ok(None) };
    let mut webhook = CreateWebhook::new(&resource.group, resource.version.parse()?, resource.kind.parse()?);
    (webhook.defaulting, webhook.validation) = (webhooks.defaulting, webhooks.validation);
    webhook.conversion = webhooks.conversion && !webhooks.spoke.is_empty();
    if webhook.conversion {
        webhook.spokes = webhooks.spoke.iter().map(|spoke| spoke.parse()).collect::<Result<_, _>>()?;
    }
    webhook.external = external(resource);
    let is_any = webhook.defaulting || webhook.validation || webhook.conversion;
    Ok(is_any.then_some(webhook))
}

fn external(resource: &Resource) -> Option<ExternalApi> {
    let Resource { path, domain, module, .. } = resource;
    let (path, domain, module) = (path.clone(), domain.clone(), module.clone());
    resource.external.then_some(ExternalApi { path, domain, module })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[Step]) -> BTreeMap<String, String> {
        files(steps).unwrap()
    }

    fn create(group: &str, version: &str, kind: &str) -> CreateApi {
        CreateApi::new(Some(group.parse().unwrap()), version.parse().unwrap(), kind.parse().unwrap())
    }

    fn webhook_of(group: &str, version: &str, kind: &str) -> CreateWebhook {
        CreateWebhook::new(group, version.parse().unwrap(), kind.parse().unwrap())
    }

    #[test]
    fn a_project_is_scaffolded_again_from_its_project_file() {
        let mut init = Init::new("ship".parse().unwrap());
        init.domain = Some("my.domain".parse().unwrap());
        (init.owner, init.namespaced) = (Some("Jane".into()), true);
        let mut mate = create("crew", "v2", "Mate");
        (mate.controller, mate.namespaced) = (false, false);
        let mut first = create("crew", "v1", "Mate");
        (first.namespaced, first.plural) = (false, Some("mateys".parse().unwrap()));
        let edit = Edit { multigroup: Some(true), ..Edit::default() };
        let mut pods = webhook_of("core", "v1", "Pod");
        pods.defaulting = true;
        let mut conversion = webhook_of("crew", "v1", "Mate");
        (conversion.conversion, conversion.spokes) = (true, vec!["v2".parse().unwrap()]);
        let mut foreign = create("gateway.networking", "v1", "Gateway");
        foreign.resource = false;
        let (path, domain, module) = ("gateway_api::gateways".into(), "k8s.io".into(), "gateway-api@0.20".into());
        foreign.external = Some(ExternalApi { path, domain, module });
        let given = [
            Step::Init(init),
            Step::CreateApi(Box::new(first)),
            Step::CreateApi(Box::new(mate)),
            Step::CreateWebhook(Box::new(conversion)),
            Step::Edit(edit),
            Step::CreateApi(Box::new(create("sea", "v1", "Kraken"))),
            Step::CreateApi(Box::new(foreign)),
            Step::CreateWebhook(Box::new(pods)),
        ];
        let made = run(&given);
        let project = Project::read(&made[project::FILE]).unwrap();
        let mut again = run(&steps(&project).unwrap());
        assert_eq!(again.remove(record::FILE).is_some(), made.contains_key(record::FILE));
        for (path, text) in made.iter().filter(|(path, _)| *path != record::FILE) {
            assert_eq!(again.remove(path).as_ref(), Some(text), "{path}");
        }
        assert!(again.is_empty(), "{:?}", again.keys());
    }

    #[test]
    fn a_kind_of_another_domain_is_an_error() {
        let mut project = Project::new("ship".parse().unwrap(), Some("my.domain".parse().unwrap()));
        create("crew", "v1", "Mate").note(&mut project).unwrap();
        project.domain = "other.domain".into();
        let error = steps(&project).unwrap_err().to_string();
        assert!(error.contains("its kind Mate has my.domain"), "{error}");
    }
}
