//! Tests of the options of `create api`, and their results.

use super::*;

fn project() -> Project {
    Project::new("my-operator".parse().unwrap(), Some("my.domain".parse().unwrap()))
}

fn api(group: &str, kind: &str) -> CreateApi {
    CreateApi::new(Some(group.parse().unwrap()), "v1".parse().unwrap(), kind.parse().unwrap())
}

/// Asserts an error that leaves the project unchanged.
fn refused(api: &CreateApi, project: &mut Project) -> String {
    let before = project.clone();
    let error = api.note(project).unwrap_err().to_string();
    assert_eq!(*project, before);
    error
}

#[test]
fn a_kind_of_the_project() {
    let mut project = project();
    let resource = api("batch", "CronJob").note(&mut project).unwrap();
    assert_eq!(resource.path, "my_operator::api::v1");
    assert_eq!((resource.domain.as_str(), resource.plural.as_str()), ("my.domain", "cronjobs"));
    assert!(resource.controller && !resource.core && resource.api.as_ref().unwrap().namespaced);
    let again = refused(&api("batch", "CronJob"), &mut project);
    assert!(again.contains("edit src/api/v1/cronjob.rs, or use --force"), "{again}");
    let mut forced = api("batch", "CronJob");
    (forced.force, forced.namespaced) = (true, false);
    assert!(!forced.note(&mut project).unwrap().api.as_ref().unwrap().namespaced);
    assert_eq!(project.resources.len(), 1);
}

#[test]
fn several_groups_have_their_own_modules() {
    let mut project = project();
    api("batch", "CronJob").note(&mut project).unwrap();
    let other = api("sea-creatures", "Kraken");
    assert!(refused(&other, &mut project).contains("kubewright edit --multigroup"));
    project.multigroup = true;
    assert_eq!(other.note(&mut project).unwrap().path, "my_operator::api::sea_creatures::v1");
}

#[test]
fn a_controller_for_a_built_in_kind() {
    let mut project = project();
    let mut api = api("apps", "Deployment");
    api.resource = false;
    let resource = api.note(&mut project).unwrap();
    assert!(resource.core && resource.api.is_none() && resource.domain.is_empty());
    assert_eq!(resource.path, "k8s_openapi::api::apps::v1");
    api.kind = "Thing".parse().unwrap();
    api.group = Some("mine".parse().unwrap());
    assert!(refused(&api, &mut project).contains("--external-api-path"));
    api.group = Some("rbac.authorization.k8s.io".parse().unwrap());
    assert!(refused(&api, &mut project).ends_with(": use --group rbac.authorization"));
    api.group = Some("mine".parse().unwrap());
    // First the types, then a controller for them.
    (api.resource, api.controller, project.multigroup) = (true, false, true);
    api.note(&mut project).unwrap();
    (api.resource, api.controller) = (false, true);
    assert!(api.note(&mut project).unwrap().controller);
    assert_eq!(project.resources.len(), 2);
}

#[test]
fn a_controller_for_a_kind_of_another_crate() {
    let mut project = project();
    let mut api = api("cert-manager", "Certificate");
    let (path, domain, module) = ("cert_manager::v1".into(), "io".into(), "cert-manager@1".into());
    api.external = Some(ExternalApi { path, domain, module });
    assert!(refused(&api, &mut project).contains("--resource=false"));
    api.resource = false;
    let resource = api.note(&mut project).unwrap();
    assert!(resource.external && !resource.core && resource.controller);
    assert_eq!((resource.domain.as_str(), resource.module.as_str()), ("io", "cert-manager@1"));
    api.external.as_mut().unwrap().path.clear();
    assert!(refused(&api, &mut project).contains("set the module of the type"));
}

#[test]
fn conflicts_are_errors() {
    let mut project = project();
    let mut nothing = api("batch", "CronJob");
    (nothing.resource, nothing.controller) = (false, false);
    assert!(refused(&nothing, &mut project).contains("--controller"));
    api("batch", "CronJob").note(&mut project).unwrap();
    assert!(refused(&api("batch", "Cronjob"), &mut project).contains("of the kind CronJob"));
    project.domain.clear();
    let mut bare = api("batch", "Foo");
    bare.group = None;
    assert!(refused(&bare, &mut project).contains("--group"));
}

#[test]
fn a_kind_has_one_plural_and_scope_in_all_versions() {
    let mut project = project();
    let mut admiral = api("crew", "Admiral");
    (admiral.plural, admiral.namespaced) = (Some("admirales".parse().unwrap()), false);
    admiral.note(&mut project).unwrap();
    (admiral.version, admiral.controller, admiral.plural) = ("v2".parse().unwrap(), false, None);
    assert_eq!(admiral.note(&mut project).unwrap().plural, "admirales");
    (admiral.version, admiral.plural) = ("v3".parse().unwrap(), Some("admirals".parse().unwrap()));
    let error = refused(&admiral, &mut project);
    assert!(error.contains("the plural admirales in version v1") && error.contains("omit --plural"), "{error}");
    (admiral.plural, admiral.namespaced) = (None, true);
    let error = refused(&admiral, &mut project);
    assert!(error.contains("cluster scope in version v1") && error.ends_with("set --namespaced=false"), "{error}");
}

#[test]
fn two_kinds_cannot_have_the_same_plural() {
    let mut project = project();
    api("crew", "Policy").note(&mut project).unwrap();
    let mut other = api("crew", "Policie");
    assert!(
        refused(&other, &mut project)
            .contains("would be policies, as that of Policy: choose another one with --plural")
    );
    other.plural = Some("policie".parse().unwrap());
    other.note(&mut project).unwrap();
    // The same applies to another version, since it is part of the same CRD.
    let mut cook = api("crew", "Cook");
    (cook.version, cook.plural) = ("v2".parse().unwrap(), Some("policies".parse().unwrap()));
    assert!(refused(&cook, &mut project).contains("as that of Policy"));
    // Kinds of another group may have the same plural.
    project.multigroup = true;
    api("ship", "Policie").note(&mut project).unwrap();
}
