//! The files of `kubewright create webhook --conversion`: the hub, and the derives and the test of each spoke.

use super::{CreateWebhook, files::template};
use crate::{
    code,
    command::{
        head::head,
        place::{Place, types_path},
        texts::{Texts, Values},
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
    let place = Place::new(project, &hub.group, &hub.version, &webhook.kind);
    let mut texts = Texts::new(plan, head(project), values(project, hub, hub, &place));
    let parts = place.conversion();
    let file = format!("src/{}.rs", parts.join("/"));
    if webhook.force {
        texts.create(&file, template!("conversion.rs"))?;
    } else {
        texts.create_if_missing(&file, template!("conversion.rs"))?;
    }
    let (module, version) = (parts[parts.len() - 1].clone(), parts[..parts.len() - 1].join("/"));
    texts.insert_sorted(&format!("src/{version}/mod.rs"), "modules", &format!("pub(crate) mod {module};"));
    texts.insert("src/lib.rs", "builder", &code::wiring("conversion", &format!("{}::conversion()", parts.join("::"))));
    declared(&mut texts, &place, &hub.kind, "kind")?;
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
    let place = Place::new(project, &spoke.group, &spoke.version, &webhook.kind);
    let mut texts = Texts::new(plan, head(project), values(project, hub, spoke, &place));
    let added = format!("spoke::<super::super::{}::{}>", spoke.version, spoke.kind);
    texts.insert(hub_file, "spokes", &code::given("conversion", &added, ""));
    declared(&mut texts, &place, &spoke.kind, "version")?;
    let types = place.types_file();
    let has_status = texts.has(&types, STATUS)?;
    let spec = if has_status { template!("spoke_with_status.rs") } else { template!("spoke.rs") };
    derived(&mut texts, &types, SPEC, spec, "hub = @types@::@kind@Spec")?;
    if has_status {
        derived(&mut texts, &types, STATUS, template!("spoke_status.rs"), "hub = @types@::@kind@Status")?;
    }
    let test = format!("{}_{}_conversion", place.test(), spoke.version);
    texts.module("tests/it/main.rs", super::TESTS, &format!("mod {test};"))?;
    texts.create(&format!("tests/it/{test}.rs"), template!("test_conversion.rs"))?;
    Ok(())
}

/// Inserts derives above a struct, unless it already has them in some form.
fn derived(
    texts: &mut Texts<'_, '_>,
    file: &str,
    head: &str,
    attributes: &str,
    is_there: &str,
) -> Result<(), TemplateError> {
    if !texts.has(file, is_there)? {
        texts.swap(file, head, &format!("{attributes}{head}"))?;
    }
    Ok(())
}

/// Declares a version in `register` as the storage version (`kind`) or as an additional version (`version`).
fn declared(texts: &mut Texts<'_, '_>, place: &Place, kind: &str, method: &str) -> Result<(), TemplateError> {
    const FILE: &str = "src/lib.rs";
    let call = |method| format!("{method}::<{}::{kind}>", place.api().join("::"));
    if texts.has(FILE, &format!(".{}", call(method)))? {
        return Ok(());
    }
    let line = |method| code::indented(&code::wiring(&call(method), "")) + "\n";
    let other = if method == "kind" { "version" } else { "kind" };
    texts.swap(FILE, &line(other), &line(method)).map(drop)
}

fn values(project: &Project, hub: &Resource, spoke: &Resource, place: &Place) -> Values {
    let library = project.library();
    let outside = |resource: &Resource| {
        let path = types_path(project, resource);
        format!("{library}::{}::{}", path.strip_prefix("crate::").unwrap_or(&path), resource.kind)
    };
    let mut uses = [(outside(hub), "Hub"), (outside(spoke), "Spoke")];
    uses.sort_by(|one, other| natural(&one.0, &other.0));
    let uses = uses.map(|(path, name)| format!("use {path} as {name};"));
    let sample = format!("../../config/samples/{}.yaml", place.sample());
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
