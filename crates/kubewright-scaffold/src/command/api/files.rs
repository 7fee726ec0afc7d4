//! The files of `kubewright create api`.

use super::CreateApi;
use crate::{
    code,
    command::{
        head::head,
        place::{Place, types_path},
        texts::{Texts, Values},
    },
    plan::Plan,
    project::{Project, Resource},
    template::TemplateError,
};

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../../../templates/api/", $name, ".in"))
    };
}

/// The user-facing roles for a kind, by name.
const ROLES: [(&str, &str); 3] = [
    ("admin", template!("admin_role.yaml")),
    ("editor", template!("editor_role.yaml")),
    ("viewer", template!("viewer_role.yaml")),
];

/// Plans the files of a resource in the project.
pub(super) fn plan(
    api: &CreateApi,
    project: &Project,
    resource: &Resource,
    plan: &mut Plan<'_>,
) -> Result<(), TemplateError> {
    let place = Place::new(project, &resource.group, &resource.version, &api.kind);
    let mut texts = Texts::new(plan, head(project), values(api, project, resource, &place));
    if api.resource {
        types(&mut texts, project, resource, &place, api)?;
        manifests(&mut texts, resource, &place)?;
    }
    if api.controller {
        controller(&mut texts, resource, &place)?;
    }
    if let Some((name, version)) = dependency(resource) {
        texts.insert("Cargo.toml", "dependencies", &format!("{name} = \"{version}\""));
    }
    Ok(())
}

fn values(api: &CreateApi, project: &Project, resource: &Resource, place: &Place) -> Values {
    let (kind, types) = (&resource.kind, types_path(project, resource));
    let of = format!("Reconciler<{kind}>");
    let (object, context) = (format!("object: &{kind}"), format!("ctx: &Context<{kind}>"));
    let sample = format!("../../config/samples/{}.yaml", place.sample());
    vec![
        ("project", project.project_name.clone()),
        ("library", project.library()),
        ("group", resource.qualified_group()),
        ("version", resource.version.clone()),
        ("kind", kind.clone()),
        ("lower", api.kind.lower()),
        ("plural", resource.plural.clone()),
        ("scope", if api.namespaced { "\n    namespaced,".into() } else { String::new() }),
        ("types_path", types.strip_prefix("crate::").unwrap_or(&types).to_owned()),
        ("types", types),
        (
            "new_controller",
            code::chain(4, &format!("Controller::new({kind}Reconciler)"), &format!(".name(\"{}\")", place.name())),
        ),
        ("role", place.name()),
        ("impl_reconciler", code::implementation(&of, &format!("{kind}Reconciler"))),
        (
            "fn_reconcile",
            code::list(4, "async fn reconcile", &["&self", &object, &context], " -> Result<Action, ClientError> {"),
        ),
        ("const_sample", code::included("SAMPLE", &sample)),
    ]
}

/// Plans the types of a kind and their modules.
fn types(
    texts: &mut Texts<'_, '_>,
    project: &Project,
    resource: &Resource,
    place: &Place,
    api: &CreateApi,
) -> Result<(), TemplateError> {
    let module = api.kind.module();
    texts.insert_sorted("src/lib.rs", "modules", "pub mod api;");
    let parts = place.api();
    for depth in 1..parts.len() {
        let template = match (depth, project.multigroup && parts.len() > 2) {
            (1, true) => template!("mod_groups.rs"),
            (1, false) => template!("mod_api.rs"),
            _ => template!("mod_group.rs"),
        };
        let file = format!("src/{}/mod.rs", parts[..depth].join("/"));
        texts.module(&file, template, &format!("pub mod {};", parts[depth]))?;
    }
    let version = format!("src/{}/mod.rs", parts.join("/"));
    texts.module(&version, template!("mod_version.rs"), &format!("mod {module};"))?;
    texts.insert_sorted(&version, "exports", &format!("pub use self::{module}::*;"));
    texts.create(&place.types_file(), template!("types.rs"))?;
    let method = if project.is_first_version(resource) { "kind" } else { "version" };
    let declared = format!("{method}::<{}::{}>", parts.join("::"), resource.kind);
    texts.insert("src/lib.rs", "builder", &code::wiring(&declared, ""));
    Ok(())
}

/// Plans the manifests: the CRD's entry in the kustomization, a sample, and user-facing roles.
fn manifests(texts: &mut Texts<'_, '_>, resource: &Resource, place: &Place) -> Result<(), TemplateError> {
    let definitions = "config/crd/kustomization.yaml";
    texts.create_if_missing(definitions, template!("crd_kustomization.yaml"))?;
    let base = format!("- bases/{}_{}.yaml", resource.qualified_group(), resource.plural);
    texts.insert(definitions, "crdkustomizeresource", &base);
    texts.insert("config/default/kustomization.yaml", "defaultresources", "- ../crd");
    let samples = "config/samples/kustomization.yaml";
    texts.create_if_missing(samples, template!("samples_kustomization.yaml"))?;
    texts.insert(samples, "manifestskustomizesamples", &format!("- {}.yaml", place.sample()));
    texts.create(&format!("config/samples/{}.yaml", place.sample()), template!("sample.yaml"))?;
    for (name, template) in ROLES {
        // The roles apply to all versions of a kind, so existing ones are kept.
        let file = format!("{}_{name}_role.yaml", place.file_name());
        texts.create_if_missing(&format!("config/rbac/{file}"), template)?;
        texts.insert("config/rbac/kustomization.yaml", "rbacresources", &format!("- {file}"));
    }
    Ok(())
}

/// Plans the controller of a kind, its modules and its test.
fn controller(texts: &mut Texts<'_, '_>, resource: &Resource, place: &Place) -> Result<(), TemplateError> {
    let parts = place.controller();
    texts.insert_sorted("src/lib.rs", "modules", "mod controller;");
    for depth in 1..parts.len() {
        let template = if depth == 1 { template!("mod_controller.rs") } else { template!("mod_controller_group.rs") };
        let file = format!("src/{}/mod.rs", parts[..depth].join("/"));
        texts.module(&file, template, &format!("pub(crate) mod {};", parts[depth]))?;
    }
    let is_ours = resource.api.is_some();
    let template = if is_ours { template!("controller.rs") } else { template!("controller_foreign.rs") };
    texts.create(&format!("src/{}.rs", parts.join("/")), template)?;
    let wiring = code::wiring("controller", &format!("{}::controller()", parts.join("::")));
    texts.insert("src/lib.rs", "builder", &wiring);
    let test = place.test();
    texts.module("tests/it/main.rs", template!("tests_main.rs"), &format!("mod {test};"))?;
    let template = if is_ours { template!("test.rs") } else { template!("test_foreign.rs") };
    texts.create(&format!("tests/it/{test}.rs"), template)?;
    Ok(())
}

/// Returns the crate and version of an external type. The default is the first part of the path.
fn dependency(resource: &Resource) -> Option<(String, String)> {
    if !resource.external {
        return None;
    }
    let (name, version) = resource.module.split_once('@').unwrap_or((&resource.module, "*"));
    let name = if name.is_empty() { resource.path.split("::").next()?.replace('_', "-") } else { name.to_owned() };
    Some((name, version.to_owned()))
}
