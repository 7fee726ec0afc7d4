//! The files of `kubewright create api`.

use super::{CreateApi, DeployImage};
use crate::{
    code,
    command::{
        header::file_header,
        kind_paths::{KindPaths, group_name, types_path},
        templates::{TemplatePlan, Values},
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
    let paths = KindPaths::new(project, &resource.group, &resource.version, &api.kind);
    let mut templates = TemplatePlan::new(plan, file_header(project), values(api, project, resource, &paths));
    if api.resource {
        types(&mut templates, project, resource, &paths, api)?;
        manifests(&mut templates, resource, &paths, api)?;
    }
    if api.controller {
        controller(&mut templates, resource, &paths, api)?;
    }
    if let Some((name, version)) = dependency(resource) {
        templates.insert("Cargo.toml", "dependencies", &format!("{name} = \"{version}\""));
    }
    Ok(())
}

fn values(api: &CreateApi, project: &Project, resource: &Resource, paths: &KindPaths) -> Values {
    let (kind, types) = (&resource.kind, types_path(project, resource));
    let of = format!("Reconciler<{kind}>");
    let (object, context) = (format!("object: &{kind}"), format!("ctx: &Context<{kind}>"));
    let sample = format!("../../config/samples/{}.yaml", paths.sample());
    let mut values = vec![
        ("project", project.project_name.clone()),
        ("library", project.library()),
        ("group", resource.qualified_group()),
        ("group_name", group_name(resource)),
        ("version", resource.version.clone()),
        ("kind", kind.clone()),
        ("lower", api.kind.lower()),
        ("child", if kind == "ConfigMap" { "Secret" } else { "ConfigMap" }.into()),
        ("plural", resource.plural.clone()),
        ("scope", if api.namespaced { "\n    namespaced,".into() } else { String::new() }),
        ("types_path", types.strip_prefix("crate::").unwrap_or(&types).to_owned()),
        ("types", types),
        (
            "new_controller",
            code::chain(4, &format!("Controller::new({kind}Reconciler)"), &format!(".name(\"{}\")", paths.name())),
        ),
        ("role", paths.name()),
        ("impl_reconciler", code::implementation(&of, &format!("{kind}Reconciler"))),
        (
            "fn_reconcile",
            code::list(4, "async fn reconcile", &["&self", &object, &context], " -> Result<Action, ClientError> {"),
        ),
        ("const_sample", code::included("SAMPLE", &sample)),
        ("test", paths.test()),
        ("edit_sample", code::awaited(4, &format!("sim.edit::<{kind}>(NAME, change)"))),
        ("is_empty", code::chained(4, "world", &[format!(".list::<{kind}>()"), ".is_empty()".into()])),
        ("delete_sample", code::awaited(4, &format!("sim.delete::<{kind}>(NAME)"))),
    ];
    values.extend(simulation_values(api.image.is_some()));
    if let Some(image) = &api.image {
        values.extend(image_values(api, image, paths));
    }
    values
}

/// Returns the values for the scenario: the change of the sample, and what is waited for.
fn simulation_values(has_image: bool) -> Values {
    let (edit, done, is_done) = if has_image {
        let is_done = "ready.is_some_and(|ready| {
            ready.status == \"True\" && ready.observed_generation == object.metadata.generation
        })";
        (r#"{"size": 2}"#, "true for", is_done)
    } else {
        let is_done = "ready.is_some_and(|ready| ready.observed_generation == object.metadata.generation)";
        (r#"{"foo": "baz"}"#, "for", is_done)
    };
    vec![("edit", edit.into()), ("done", done.into()), ("is_done", is_done.into())]
}

/// Returns the values for the templates of the plugin `deploy-image`.
fn image_values(api: &CreateApi, image: &DeployImage, paths: &KindPaths) -> Values {
    let kind = &api.kind;
    let command = image.command.iter().map(|word| format!("            \"{word}\".into(),\n")).collect::<String>();
    let command =
        if command.is_empty() { command } else { format!("        command: Some(vec![\n{command}        ]),\n") };
    let user = image.run_as_user.map(|user| format!("            run_as_user: Some({user}),\n")).unwrap_or_default();
    let (mut ports, mut port_field, mut port_sample) = (String::new(), String::new(), String::new());
    let mut uses = vec!["Capabilities", "Container", "PodSpec", "PodTemplateSpec", "SeccompProfile", "SecurityContext"];
    let (mut argument, mut parameter) = (String::new(), String::new());
    if let Some(port) = image.port {
        uses.insert(2, "ContainerPort");
        (argument, parameter) = ("object".into(), format!("object: &{kind}"));
        ports = format!(
            "        ports: Some(vec![ContainerPort {{\n            container_port: object.spec.container_port.unwrap_or({port}),\n            \
             ..ContainerPort::default()\n        }}]),\n"
        );
        port_field = format!(
            "\n\n    /// The port of the container. The default is {port}.\n    \
             #[serde(default, skip_serializing_if = \"Option::is_none\")]\n    \
             #[schemars(range(min = 1, max = 65535))]\n    pub container_port: Option<i32>,"
        );
        port_sample = format!("\n  containerPort: {port}");
    }
    vec![
        ("image", image.image.clone()),
        ("variable", format!("{}_IMAGE", kind.lower().to_uppercase())),
        ("command", command),
        ("user", user),
        ("ports", ports),
        ("core_uses", code::uses(8, "core::v1", &uses)),
        ("container_argument", argument),
        ("container_parameter", parameter),
        ("port_field", port_field),
        ("port_sample", port_sample),
        (
            "new_owning_controller",
            code::chained(
                4,
                &format!("Controller::new({kind}Reconciler)"),
                &[format!(".name(\"{}\")", paths.name()), ".owns::<Deployment>()".into()],
            ),
        ),
    ]
}

/// Plans the types of a kind and their modules.
fn types(
    templates: &mut TemplatePlan<'_, '_>,
    project: &Project,
    resource: &Resource,
    paths: &KindPaths,
    api: &CreateApi,
) -> Result<(), TemplateError> {
    let module = api.kind.module();
    templates.insert_sorted("src/lib.rs", "modules", "pub mod api;");
    let parts = paths.api();
    for depth in 1..parts.len() {
        let template = match (depth, project.multigroup && parts.len() > 2) {
            (1, true) => template!("mod_groups.rs"),
            (1, false) => template!("mod_api.rs"),
            _ => template!("mod_group.rs"),
        };
        let file = format!("src/{}/mod.rs", parts[..depth].join("/"));
        templates.module(&file, template, &format!("pub mod {};", parts[depth]))?;
    }
    let version = format!("src/{}/mod.rs", parts.join("/"));
    templates.module(&version, template!("mod_version.rs"), &format!("mod {module};"))?;
    templates.insert_sorted(&version, "exports", &format!("pub use self::{module}::*;"));
    let types = if api.image.is_some() { template!("image_types.rs") } else { template!("types.rs") };
    templates.create(&paths.types_file(), types)?;
    let method = if project.is_first_version(resource) { "kind" } else { "version" };
    let declared = format!("{method}::<{}::{}>", parts.join("::"), resource.kind);
    templates.insert("src/lib.rs", "builder", &code::wiring(&declared, ""));
    Ok(())
}

/// Plans the manifests: the CRD's entry in the kustomization, a sample, and user-facing roles.
fn manifests(
    templates: &mut TemplatePlan<'_, '_>,
    resource: &Resource,
    paths: &KindPaths,
    api: &CreateApi,
) -> Result<(), TemplateError> {
    let definitions = "config/crd/kustomization.yaml";
    templates.create_if_missing(definitions, template!("crd_kustomization.yaml"))?;
    let base = format!("- bases/{}_{}.yaml", resource.qualified_group(), resource.plural);
    templates.insert(definitions, "crdkustomizeresource", &base);
    templates.insert("config/default/kustomization.yaml", "defaultresources", "- ../crd");
    let samples = "config/samples/kustomization.yaml";
    templates.create_if_missing(samples, template!("samples_kustomization.yaml"))?;
    templates.insert(samples, "manifestskustomizesamples", &format!("- {}.yaml", paths.sample()));
    let sample = if api.image.is_some() { template!("image_sample.yaml") } else { template!("sample.yaml") };
    templates.create(&format!("config/samples/{}.yaml", paths.sample()), sample)?;
    for (name, template) in ROLES {
        // The roles apply to all versions of a kind, so existing ones are kept.
        let file = format!("{}_{name}_role.yaml", paths.file_name());
        templates.create_if_missing(&format!("config/rbac/{file}"), template)?;
        templates.insert("config/rbac/kustomization.yaml", "rbacresources", &format!("- {file}"));
    }
    Ok(())
}

/// Plans the controller of a kind, its modules, its test and its scenario.
fn controller(
    templates: &mut TemplatePlan<'_, '_>,
    resource: &Resource,
    paths: &KindPaths,
    api: &CreateApi,
) -> Result<(), TemplateError> {
    let parts = paths.controller();
    templates.insert_sorted("src/lib.rs", "modules", "mod controller;");
    for depth in 1..parts.len() {
        let template = if depth == 1 { template!("mod_controller.rs") } else { template!("mod_controller_group.rs") };
        let file = format!("src/{}/mod.rs", parts[..depth].join("/"));
        templates.module(&file, template, &format!("pub(crate) mod {};", parts[depth]))?;
    }
    let is_ours = resource.api.is_some();
    let template = match (is_ours, &api.image) {
        (true, Some(_)) => template!("image_controller.rs"),
        (true, None) => template!("controller.rs"),
        (false, _) => template!("controller_foreign.rs"),
    };
    templates.create(&format!("src/{}.rs", parts.join("/")), template)?;
    let wiring = code::wiring("controller", &format!("{}::controller()", parts.join("::")));
    templates.insert("src/lib.rs", "builder", &wiring);
    let test = paths.test();
    templates.module("tests/it/main.rs", template!("tests_main.rs"), &format!("mod {test};"))?;
    let template = match (is_ours, &api.image) {
        (true, Some(_)) => template!("image_test.rs"),
        (true, None) => template!("test.rs"),
        (false, _) => template!("test_foreign.rs"),
    };
    templates.create(&format!("tests/it/{test}.rs"), template)?;
    if is_ours {
        let scenario = format!("{test}_simulation");
        templates.module("tests/it/main.rs", template!("tests_main.rs"), &format!("mod {scenario};"))?;
        templates.create(&format!("tests/it/{scenario}.rs"), template!("simulation.rs"))?;
    }
    if api.image.is_some() {
        let variable = templates.fill("- name: @variable@\n  value: @image@")?;
        templates.insert("config/manager/manager.yaml", "managerenv", &variable);
    }
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
