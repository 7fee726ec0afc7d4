//! The files of `kubewright create webhook --conversion`: the hub, and the derives and the test of each spoke.

use super::{CreateWebhook, files::template};
use crate::{
    code,
    command::{
        header::file_header,
        kind_paths::{KindPaths, types_path},
        templates::{TemplatePlan, Values},
    },
    marker::natural,
    plan::Plan,
    project::{Project, Resource},
    template::TemplateError,
};

/// The structs of a spoke in the file of its types.
const SPEC: &str = "pub struct @kind@Spec {\n";
const STATUS: &str = "pub struct @kind@Status {\n";

/// Plans the files of the conversions in the project.
pub(super) fn plan(
    webhook: &CreateWebhook,
    project: &Project,
    hub: &Resource,
    plan: &mut Plan<'_>,
) -> Result<(), TemplateError> {
    let paths = KindPaths::new(project, &hub.group, &hub.version, &webhook.kind);
    let mut templates = TemplatePlan::new(plan, file_header(project), values(project, hub, hub, &paths));
    let parts = paths.conversion();
    let file = format!("src/{}.rs", parts.join("/"));
    if webhook.force {
        templates.create(&file, template!("conversion.rs"))?;
    } else {
        templates.create_if_missing(&file, template!("conversion.rs"))?;
    }
    let (module, version) = (parts[parts.len() - 1].clone(), parts[..parts.len() - 1].join("/"));
    templates.insert_sorted(&format!("src/{version}/mod.rs"), "modules", &format!("pub(crate) mod {module};"));
    templates.insert(
        "src/lib.rs",
        "builder",
        &code::wiring("conversion", &format!("{}::conversion()", parts.join("::"))),
    );
    declared(&mut templates, &paths, &hub.kind, "kind")?;
    // An overwritten file contains all spokes.
    let all = hub.webhooks.iter().flat_map(|webhooks| &webhooks.spoke);
    for version in all.filter(|version| webhook.force || webhook.spokes.iter().any(|spoke| spoke.as_str() == *version))
    {
        let is_it = |resource: &&Resource| {
            (&resource.group, &resource.kind, &resource.version) == (&hub.group, &hub.kind, version)
        };
        if let Some(spoke) = project.resources.iter().find(is_it) {
            add(webhook, project, hub, spoke, &file, plan)?;
        }
    }
    Ok(())
}

/// Plans the files of one spoke.
fn add(
    webhook: &CreateWebhook,
    project: &Project,
    hub: &Resource,
    spoke: &Resource,
    hub_file: &str,
    plan: &mut Plan<'_>,
) -> Result<(), TemplateError> {
    let paths = KindPaths::new(project, &spoke.group, &spoke.version, &webhook.kind);
    let mut templates = TemplatePlan::new(plan, file_header(project), values(project, hub, spoke, &paths));
    let added = format!("spoke::<super::super::{}::{}>", spoke.version, spoke.kind);
    templates.insert(hub_file, "spokes", &code::given("conversion", &added, ""));
    declared(&mut templates, &paths, &spoke.kind, "version")?;
    let types = paths.types_file();
    let has_status = templates.has(&types, STATUS)?;
    let spec = if has_status { template!("spoke_with_status.rs") } else { template!("spoke.rs") };
    derived(&mut templates, &types, SPEC, spec, "hub = @types@::@kind@Spec")?;
    if has_status {
        derived(&mut templates, &types, STATUS, template!("spoke_status.rs"), "hub = @types@::@kind@Status")?;
    }
    let test = format!("{}_{}_conversion", paths.test(), spoke.version);
    templates.module("tests/it/main.rs", super::TESTS, &format!("mod {test};"))?;
    templates.create(&format!("tests/it/{test}.rs"), template!("test_conversion.rs"))?;
    Ok(())
}

/// Inserts derives above a struct, unless it already has them in some form.
fn derived(
    templates: &mut TemplatePlan<'_, '_>,
    file: &str,
    head: &str,
    attributes: &str,
    is_there: &str,
) -> Result<(), TemplateError> {
    if !templates.has(file, is_there)? {
        templates.swap(file, head, &format!("{attributes}{head}"))?;
    }
    Ok(())
}

/// Declares a version in `register` as the storage version (`kind`) or as an additional version (`version`).
fn declared(
    templates: &mut TemplatePlan<'_, '_>,
    paths: &KindPaths,
    kind: &str,
    method: &str,
) -> Result<(), TemplateError> {
    const FILE: &str = "src/lib.rs";
    let call = |method| format!("{method}::<{}::{kind}>", paths.api().join("::"));
    if templates.has(FILE, &format!(".{}", call(method)))? {
        return Ok(());
    }
    let line = |method| code::indented(&code::wiring(&call(method), "")) + "\n";
    let other = if method == "kind" { "version" } else { "kind" };
    templates.swap(FILE, &line(other), &line(method)).map(drop)
}

fn values(project: &Project, hub: &Resource, spoke: &Resource, paths: &KindPaths) -> Values {
    let library = project.library();
    let outside = |resource: &Resource| {
        let path = types_path(project, resource);
        format!("::{library}::{}::{}", path.strip_prefix("crate::").unwrap_or(&path), resource.kind)
    };
    let mut uses = [(outside(hub), "Hub"), (outside(spoke), "Spoke")];
    uses.sort_by(|one, other| natural(&one.0, &other.0));
    let uses = uses.map(|(path, name)| format!("use {path} as {name};"));
    let sample = format!("../../config/samples/{}.yaml", paths.sample());
    vec![
        ("library", library.clone()),
        ("kind", hub.kind.clone()),
        ("version", hub.version.clone()),
        ("spoke", spoke.version.clone()),
        ("types", types_path(project, hub)),
        ("uses", uses.join("\n")),
        ("const_sample", code::included("SAMPLE", &sample)),
    ]
}
