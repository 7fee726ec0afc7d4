//! What may be, and what comes of it.

use super::*;

fn project() -> Project {
    Project::new("my-operator".parse().unwrap(), Some("my.domain".parse().unwrap()))
}

fn api(group: &str, kind: &str) -> CreateApi {
    CreateApi::new(Some(group.parse().unwrap()), "v1".parse().unwrap(), kind.parse().unwrap())
}

/// Asserts a refusal that leaves the project alone.
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
fn groups_are_kept_apart_where_there_are_several() {
    let mut project = project();
    api("batch", "CronJob").note(&mut project).unwrap();
    let other = api("sea-creatures", "Kraken");
    assert!(refused(&other, &mut project).contains("kubewright edit --multigroup"));
    project.multigroup = true;
    assert_eq!(other.note(&mut project).unwrap().path, "my_operator::api::sea_creatures::v1");
}

#[test]
fn a_controller_for_a_kind_of_kubernetes() {
    let mut project = project();
    let mut api = api("apps", "Deployment");
    api.resource = false;
    let resource = api.note(&mut project).unwrap();
    assert!(resource.core && resource.api.is_none() && resource.domain.is_empty());
    assert_eq!(resource.path, "k8s_openapi::api::apps::v1");
    api.kind = "Thing".parse().unwrap();
    api.group = Some("mine".parse().unwrap());
    assert!(refused(&api, &mut project).contains("--external-api-path"));
    // Types of the project first, then a controller for them.
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
    api.external = Some(External { path, domain, module });
    assert!(refused(&api, &mut project).contains("--resource=false"));
    api.resource = false;
    let resource = api.note(&mut project).unwrap();
    assert!(resource.external && !resource.core && resource.controller);
    assert_eq!((resource.domain.as_str(), resource.module.as_str()), ("io", "cert-manager@1"));
    api.external.as_mut().unwrap().path.clear();
    assert!(refused(&api, &mut project).contains("say where the type is"));
}

#[test]
fn nothing_and_clashes_are_refused() {
    let mut project = project();
    let mut nothing = api("batch", "CronJob");
    (nothing.resource, nothing.controller) = (false, false);
    assert!(refused(&nothing, &mut project).contains("--controller"));
    api("batch", "CronJob").note(&mut project).unwrap();
    assert!(refused(&api("batch", "Cronjob"), &mut project).contains("with the kind CronJob"));
    project.domain.clear();
    let mut bare = api("batch", "Foo");
    bare.group = None;
    assert!(refused(&bare, &mut project).contains("--group"));
}

#[test]
fn a_kind_is_called_the_same_in_all_versions() {
    let mut project = project();
    let mut admiral = api("crew", "Admiral");
    (admiral.plural, admiral.namespaced) = (Some("admirales".parse().unwrap()), false);
    admiral.note(&mut project).unwrap();
    (admiral.version, admiral.controller, admiral.plural) = ("v2".parse().unwrap(), false, None);
    assert_eq!(admiral.note(&mut project).unwrap().plural, "admirales");
    (admiral.version, admiral.plural) = ("v3".parse().unwrap(), Some("admirals".parse().unwrap()));
    let error = refused(&admiral, &mut project);
    assert!(error.contains("the plural admirales in version v1") && error.contains("leave --plural out"), "{error}");
    (admiral.plural, admiral.namespaced) = (None, true);
    let error = refused(&admiral, &mut project);
    assert!(
        error.contains("objects outside of namespaces in version v1") && error.ends_with("give --namespaced=false"),
        "{error}"
    );
}

#[test]
fn two_kinds_are_not_called_the_same() {
    let mut project = project();
    api("crew", "Policy").note(&mut project).unwrap();
    let mut other = api("crew", "Policie");
    assert!(
        refused(&other, &mut project)
            .contains("called policies, as many of Policy are: give another name with --plural")
    );
    other.plural = Some("policie".parse().unwrap());
    other.note(&mut project).unwrap();
    // Of another version, too: both would be one definition.
    let mut cook = api("crew", "Cook");
    (cook.version, cook.plural) = ("v2".parse().unwrap(), Some("policies".parse().unwrap()));
    assert!(refused(&cook, &mut project).contains("as many of Policy are"));
    // In another group they may.
    project.multigroup = true;
    api("ship", "Policie").note(&mut project).unwrap();
}
