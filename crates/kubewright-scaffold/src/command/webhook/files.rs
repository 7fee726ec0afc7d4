//! The files of `kubewright create webhook`.

use super::{CreateWebhook, conversion};
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
        include_str!(concat!("../../../templates/webhook/", $name, ".in"))
    };
}
pub(super) use template;

/// The kustomization of the webhook configurations, which `kubewright manifests` generates only for admission webhooks.
const KUSTOMIZATION: (&str, &str) =
    ("config/webhook/kustomization.yaml", template!("config/webhook_kustomization.yaml"));

/// The files for the first webhook of a project, by path.
const CONFIG: [(&str, &str); 9] = [
    ("config/certmanager/certificate-webhook.yaml", template!("config/certificate-webhook.yaml")),
    ("config/default/cert_webhook_manager_patch.yaml", template!("config/cert_webhook_manager_patch.yaml")),
    ("config/default/manager_webhook_patch.yaml", template!("config/manager_webhook_patch.yaml")),
    ("config/network-policy/allow-webhook-traffic.yaml", template!("config/allow-webhook-traffic.yaml")),
    KUSTOMIZATION,
    ("config/webhook/kustomizeconfig.yaml", template!("config/webhook_kustomizeconfig.yaml")),
    ("config/webhook/role.yaml", template!("config/webhook_role.yaml")),
    ("config/webhook/role_binding.yaml", template!("config/webhook_role_binding.yaml")),
    ("config/webhook/service.yaml", template!("config/webhook_service.yaml")),
];

/// A type of admission webhook.
struct Role {
    /// The name in file names.
    name: &'static str,
    /// The name of the type without the kind, which is the name of the trait.
    type_: &'static str,
    code: &'static str,
    test: &'static str,
    foreign_test: &'static str,
}

const DEFAULTING: Role = Role {
    name: "defaulting",
    type_: "Defaulter",
    code: template!("defaulting.rs"),
    test: template!("test_defaulting.rs"),
    foreign_test: template!("test_foreign_defaulting.rs"),
};

const VALIDATION: Role = Role {
    name: "validation",
    type_: "Validator",
    code: template!("validation.rs"),
    test: template!("test_validation.rs"),
    foreign_test: template!("test_foreign_validation.rs"),
};

impl Role {
    /// Returns the method of `Webhook` that adds this webhook.
    fn method(&self) -> &'static str {
        if self.name == DEFAULTING.name { "defaulting" } else { "validating" }
    }
}

/// Plans the files of the webhooks in the project.
pub(super) fn plan(
    webhook: &CreateWebhook,
    project: &Project,
    resource: &Resource,
    plan: &mut Plan<'_>,
) -> Result<(), TemplateError> {
    let paths = KindPaths::new(project, &resource.group, &resource.version, &webhook.kind);
    if webhook.conversion {
        conversion::plan(webhook, project, resource, plan)?;
    }
    let mut templates = TemplatePlan::new(plan, file_header(project), values(project, resource, &paths));
    if webhook.defaulting || webhook.validation {
        admission(webhook, resource, &paths, &mut templates)?;
    }
    manifests(&mut templates)?;
    certificates(webhook, &mut templates)
}

/// Plans the defaulting and validating webhooks.
fn admission(
    webhook: &CreateWebhook,
    resource: &Resource,
    paths: &KindPaths,
    templates: &mut TemplatePlan<'_, '_>,
) -> Result<(), TemplateError> {
    let parts = paths.webhook();
    templates.insert_sorted("src/lib.rs", "modules", "mod webhook;");
    for depth in 1..parts.len() {
        let template = match (depth, parts.len()) {
            (1, 4) => template!("mod_groups.rs"),
            (1, _) => template!("mod_webhook.rs"),
            (2, 4) => template!("mod_group.rs"),
            _ => template!("mod_version.rs"),
        };
        let file = format!("src/{}/mod.rs", parts[..depth].join("/"));
        templates.module(&file, template, &format!("pub(crate) mod {};", parts[depth]))?;
    }
    let file = format!("src/{}.rs", parts.join("/"));
    if webhook.force {
        templates.create(&file, template!("webhook.rs"))?;
    } else {
        templates.create_if_missing(&file, template!("webhook.rs"))?;
    }
    templates.insert("src/lib.rs", "builder", &code::wiring("webhook", &format!("{}::webhook()", parts.join("::"))));
    // An overwritten file contains all webhooks.
    let there = resource.webhooks.as_ref().filter(|_| webhook.force);
    let is_there = (there.is_some_and(|it| it.defaulting), there.is_some_and(|it| it.validation));
    for (is_wanted, role) in
        [(webhook.defaulting || is_there.0, DEFAULTING), (webhook.validation || is_there.1, VALIDATION)]
    {
        if is_wanted {
            add(templates, resource, paths, &file, &role)?;
        }
    }
    templates.create_if_missing(KUSTOMIZATION.0, KUSTOMIZATION.1)?;
    templates.insert(KUSTOMIZATION.0, "webhookresources", "- manifests.yaml");
    Ok(())
}

fn values(project: &Project, resource: &Resource, paths: &KindPaths) -> Values {
    let (kind, types) = (&resource.kind, types_path(project, resource));
    let implementation =
        |role: &Role| code::implementation(&format!("{}<{kind}>", role.type_), &format!("{kind}{}", role.type_));
    let sample = format!("../../config/samples/{}.yaml", paths.sample());
    vec![
        ("project", project.project_name.clone()),
        ("library", project.library()),
        ("group", resource.qualified_group()),
        ("group_name", group_name(resource)),
        ("version", resource.version.clone()),
        ("kind", kind.clone()),
        ("plural", resource.plural.clone()),
        ("types_path", types.strip_prefix("crate::").unwrap_or(&types).to_owned()),
        ("types", types),
        ("impl_defaulter", implementation(&DEFAULTING)),
        ("impl_validator", implementation(&VALIDATION)),
        ("const_sample", code::included("SAMPLE", &sample)),
    ]
}

/// Plans one webhook and its test.
fn add(
    templates: &mut TemplatePlan<'_, '_>,
    resource: &Resource,
    paths: &KindPaths,
    file: &str,
    role: &Role,
) -> Result<(), TemplateError> {
    let wiring = format!("let webhook = webhook.{}({}{});", role.method(), resource.kind, role.type_);
    templates.insert(file, "webhook", &wiring).insert_apart(file, "webhooks", role.code)?;
    let test = format!("{}_{}_{}", paths.test(), resource.version, role.name);
    templates.module("tests/it/main.rs", super::TESTS, &format!("mod {test};"))?;
    let template = if resource.api.is_some() { role.test } else { role.foreign_test };
    templates.create(&format!("tests/it/{test}.rs"), template)?;
    Ok(())
}

/// Plans the manifests. `kubewright manifests` generates `config/webhook/manifests.yaml`.
fn manifests(templates: &mut TemplatePlan<'_, '_>) -> Result<(), TemplateError> {
    for (path, template) in CONFIG {
        templates.create_if_missing(path, template)?;
    }
    let default = "config/default/kustomization.yaml";
    templates.insert(default, "defaultresources", "- ../webhook").insert(
        default,
        "defaultpatches",
        "- path: manager_webhook_patch.yaml\n  target:\n    kind: Deployment",
    );
    let policies = "config/network-policy/kustomization.yaml";
    templates.insert(policies, "networkpolicyresources", "- allow-webhook-traffic.yaml");
    Ok(())
}

/// Plans the manifests for certificates of cert-manager.
fn certificates(webhook: &CreateWebhook, templates: &mut TemplatePlan<'_, '_>) -> Result<(), TemplateError> {
    const DEFAULT: &str = "config/default/kustomization.yaml";
    const REPLACEMENTS: &str = "config/default/certmanager_replacements.yaml";
    templates.insert("config/certmanager/kustomization.yaml", "certmanagerresources", "- certificate-webhook.yaml");
    // The lines are commented out until the user enables them.
    if !templates.has(DEFAULT, "cert_webhook_manager_patch.yaml")? {
        let patch = template!("config/cert_webhook_patch.yaml");
        let is_on = templates.has(DEFAULT, "\n- ../certmanager\n")?;
        let lines = patch.lines().map(|line| if is_on { format!("{line}\n") } else { format!("#{line}\n") });
        templates.insert(DEFAULT, "certmanagerpatches", &lines.collect::<String>());
    }
    if !templates.has(REPLACEMENTS, "name: webhook-service")? {
        templates.insert(REPLACEMENTS, "certmanagerreplacements", template!("config/certmanager_replacements.yaml"));
    }
    if webhook.conversion {
        let definition = templates.fill(template!("config/definition_replacement.yaml"))?;
        for (index, part) in ["ns", "name"].into_iter().enumerate() {
            let marker = format!("crdkustomizecainjection{part}");
            templates.insert(REPLACEMENTS, &marker, &definition.replace("INDEX", &index.to_string()));
        }
    }
    Ok(())
}
