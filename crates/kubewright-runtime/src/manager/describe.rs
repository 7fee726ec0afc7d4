//! The description of a manager, from which manifests are made.

use std::{collections::BTreeSet, env, ffi::OsString, fs, io, path::Path};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright_apimachinery::description;
use serde::Serialize;
use serde_json::Value;

use super::{Manager, ManagerError, features};
use crate::{
    controller::{ControllerDescription, Use},
    conversion::ConversionDescription,
    object::KindName,
    rbac::PolicyRule,
    webhook::{
        WebhookDescription,
        manifests::{self, Target},
    },
};

/// The description of a manager.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// The kinds that it defines, in the order of their declaration.
    pub kinds: Vec<KindDescription>,
    /// Its controllers, in the order in which they were added.
    pub controllers: Vec<ControllerDescription>,
    /// The namespaces that it watches; an empty set means all.
    pub namespaces: BTreeSet<String>,
    /// Its webhooks, in the order in which they were added. [`manifests`] makes the configurations from them.
    pub webhooks: Vec<WebhookDescription>,
    /// The kinds whose versions it converts.
    pub conversions: Vec<ConversionDescription>,
    /// The RBAC rules that it needs beyond those of its controllers ([`Manager::policy_rule`],
    /// [`Runnable::policy_rule`](super::Runnable::policy_rule)).
    pub policy_rules: Vec<PolicyRule>,
    /// The ports that it listens on: `metrics`, `probes`, `webhook`. Ports that the system chooses are left out.
    pub ports: Vec<Port>,
}

/// A kind that a manager defines.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KindDescription {
    /// One definition for each version, as the derive makes it. The first is the stored version.
    pub versions: Vec<CustomResourceDefinition>,
}

/// A port that a manager listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub number: u16,
}

/// A declared version of a kind.
#[derive(Debug)]
pub(super) struct DeclaredVersion {
    pub(super) is_stored: bool,
    pub(super) definition: CustomResourceDefinition,
}

impl DeclaredVersion {
    fn is_of(&self, other: &Self) -> bool {
        let name = |version: &Self| {
            let spec = &version.definition.spec;
            (spec.group.clone(), spec.names.kind.clone())
        };
        name(self) == name(other)
    }

    /// `Lolcow.my.domain/v1`.
    fn shown(&self) -> String {
        let spec = &self.definition.spec;
        let version = spec.versions.first().map(|version| version.name.as_str()).unwrap_or_default();
        format!("{}.{}/{version}", spec.names.kind, spec.group)
    }
}

/// Checks that each kind has one stored version, and that no version is declared twice.
pub(super) fn check_kinds(declared: &[DeclaredVersion]) -> Result<(), ManagerError> {
    let mut seen = BTreeSet::new();
    for version in declared {
        let of_it = || declared.iter().filter(|other| other.is_of(version));
        if !seen.insert(version.shown()) || of_it().filter(|other| other.is_stored).count() > 1 {
            return Err(ManagerError::SameKind(version.shown()));
        }
        if !of_it().any(|other| other.is_stored) {
            return Err(ManagerError::NoKind(version.shown()));
        }
    }
    Ok(())
}

/// Returns the file to which the description is written instead of running.
pub(super) fn wanted() -> Option<OsString> {
    env::var_os(description::VARIABLE).filter(|file| !file.is_empty())
}

impl Manager {
    /// Describes the manager: its kinds, its controllers and the kinds that they use, its webhooks, its ports. Manifests are
    /// made from this.
    pub fn describe(&self) -> Description {
        let of = |stored: &DeclaredVersion| {
            let (mut first, others): (Vec<_>, Vec<_>) =
                self.kinds.iter().filter(|version| version.is_of(stored)).partition(|version| version.is_stored);
            first.extend(others);
            KindDescription { versions: first.into_iter().map(|version| version.definition.clone()).collect() }
        };
        Description {
            kinds: self.kinds.iter().filter(|version| version.is_stored).map(of).collect(),
            controllers: self.controllers.iter().map(|controller| controller.describe()).collect(),
            namespaces: self.namespaces.clone(),
            webhooks: self.webhooks.webhooks.iter().map(|webhook| webhook.description.clone()).collect(),
            conversions: self.webhooks.hubs.iter().map(|hub| hub.describe()).collect(),
            policy_rules: self
                .policy_rules
                .iter()
                .chain(self.runnables.iter().flat_map(|runnable| &runnable.policy_rules))
                .cloned()
                .collect(),
            ports: self.ports(),
        }
    }

    fn ports(&self) -> Vec<Port> {
        let webhooks = self.webhook_server.as_ref().filter(|_| !self.webhooks.is_empty());
        let addresses = [("metrics", Some(&self.metrics_server.address)), ("probes", Some(&self.probe_address))];
        let addresses = addresses.into_iter().chain([("webhook", webhooks.map(|server| &server.address))]);
        let ports = addresses.filter_map(|(name, address)| Some(Port { name, number: address?.port()? }));
        ports.collect()
    }
}

impl Description {
    /// Returns the form that other programs read.
    ///
    /// # Errors
    /// If a definition can't be represented in JSON.
    pub fn document(&self) -> Result<description::Description, serde_json::Error> {
        let kinds = self.kinds.iter().map(|kind| Ok(description::Kind::new(values(&kind.versions)?)));
        let target = Target::Service { namespace: "system".into(), name: "webhook-service".into() };
        let made = manifests::configurations(&self.webhooks, "", &target, None);
        let mut document = description::Description::default();
        document.version = description::VERSION;
        document.kinds = kinds.collect::<Result<_, serde_json::Error>>()?;
        document.controllers = self.controllers.iter().map(controller).collect();
        document.webhook_configurations = [values(&made.mutating)?, values(&made.validating)?].concat();
        let conversions = self.conversions.iter().map(|description| conversion(description, &target));
        document.conversions = conversions.collect::<Result<_, serde_json::Error>>()?;
        document.rights = self.policy_rules.iter().map(PolicyRule::rule).collect();
        document.features = features::rules(&self.webhooks, &self.conversions);
        document.namespaces = self.namespaces.iter().cloned().collect();
        document.ports = self.ports.iter().map(|port| description::Port::new(port.name.into(), port.number)).collect();
        Ok(document)
    }

    pub(super) fn write(&self, file: &OsString) -> Result<(), ManagerError> {
        let path = Path::new(file);
        let text = self.document().and_then(|document| document.write()).map_err(io::Error::from);
        let written = text.and_then(|text| fs::write(path, text));
        written.map_err(|source| ManagerError::Describe { path: path.into(), source })
    }
}

fn values<'a, T: Serialize + 'a>(objects: impl IntoIterator<Item = &'a T>) -> Result<Vec<Value>, serde_json::Error> {
    objects.into_iter().map(serde_json::to_value).collect()
}

fn conversion(
    described: &ConversionDescription,
    target: &Target,
) -> Result<description::Conversion, serde_json::Error> {
    let KindName { group, version, kind, .. } = described.hub.clone();
    let versions = [vec![version], described.spokes.clone()].concat();
    let spec = serde_json::to_value(manifests::conversion(target, None))?;
    Ok(description::Conversion::new(group, kind, versions, spec))
}

fn controller(controller: &ControllerDescription) -> description::Controller {
    let used = |used: &Use| {
        let kind = used.kind.clone();
        let (group, version, plural) = (kind.group, kind.version, kind.plural);
        let resource = description::Resource::new(group, version, kind.kind, plural, used.is_namespaced);
        description::Use::new(resource, used.relation)
    };
    let mut described = description::Controller::default();
    described.name = controller.name.clone();
    described.uses = controller.uses.iter().map(used).collect();
    described.finalizer = controller.finalizer.clone();
    described.workspace = controller.workspace;
    described.may = controller.allowed.iter().map(PolicyRule::rule).collect();
    described.may_not = controller.omitted.iter().map(PolicyRule::rule).collect();
    described
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(is_stored: bool, kind: &str, version: &str) -> DeclaredVersion {
        let definition = json!({"metadata": {}, "spec": {
            "group": "my.domain", "names": {"kind": kind, "plural": "x"}, "scope": "Cluster",
            "versions": [{"name": version, "served": true, "storage": true}],
        }});
        DeclaredVersion { is_stored, definition: serde_json::from_value(definition).unwrap() }
    }

    fn refused(declared: &[DeclaredVersion]) -> Option<String> {
        check_kinds(declared).err().map(|error| error.to_string())
    }

    #[test]
    fn each_kind_has_one_stored_version_and_no_version_twice() {
        // The order doesn't matter.
        let cows = [declared(false, "Cow", "v1"), declared(true, "Cow", "v2"), declared(true, "Pig", "v1")];
        assert_eq!(refused(&cows), None);
        let stray = refused(&[declared(true, "Pig", "v1"), declared(false, "Cow", "v1")]).unwrap();
        assert!(stray.starts_with("Cow.my.domain/v1 is declared as a version of a kind that is not"), "{stray}");
        for twice in [declared(true, "Cow", "v3"), declared(false, "Cow", "v2"), declared(true, "Cow", "v2")] {
            let kinds = [declared(true, "Cow", "v2"), twice];
            assert!(refused(&kinds).unwrap().contains("is declared twice"));
        }
    }
}
