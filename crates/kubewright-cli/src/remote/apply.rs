//! Applying objects: first a dry run of all, then the writes in order.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::Value;

use super::{
    CONCURRENCY, REQUEST_TIMEOUT, Remote, Wait,
    failure::{explain, is_transient, status},
    kinds::{Kinds, ObjectLocation, is_definition, text, title},
};
use crate::shell::Shell;

/// The field manager of applied fields.
const MANAGER: &str = "kubewright";

// Not a doc comment: clap would show it as the help of the command.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ApplyOptions {
    /// Take over fields that other field managers own, such as kubectl
    #[arg(long)]
    force_conflicts: bool,
}

impl ApplyOptions {
    /// Returns options that take over fields of other managers.
    pub(crate) fn forced() -> Self {
        Self { force_conflicts: true }
    }
}

/// An object, and its state in the cluster.
struct CurrentObject<'a> {
    object: &'a Value,
    /// The location; `None` until its kind is installed.
    location: Option<ObjectLocation>,
    /// The current resource version.
    before: Option<String>,
}

/// Objects that passed the dry run.
pub(crate) struct Plan<'a> {
    remote: &'a Remote,
    options: &'a ApplyOptions,
    kinds: Kinds,
    found: Vec<CurrentObject<'a>>,
}

impl<'a> Plan<'a> {
    /// Performs the dry run. The error lists every object that the API server would reject.
    pub(crate) async fn new(remote: &'a Remote, objects: &'a [Value], options: &'a ApplyOptions) -> Result<Self> {
        let mut kinds = Kinds::new(&remote.client);
        let mut found = Vec::new();
        for object in objects {
            found.push(find(remote, &mut kinds, object, objects).await?);
        }
        dry_run(remote, &found, objects, options).await?;
        Ok(Self { remote, options, kinds, found })
    }

    /// Applies the selected objects in order, and waits until the definitions among them are established.
    pub(crate) async fn write(
        &mut self,
        is_chosen: impl Fn(&Value) -> bool,
        wait: &Wait<'_>,
        shell: &Shell,
    ) -> Result<()> {
        let chosen: Vec<_> = self.found.iter().filter(|found| is_chosen(found.object)).collect();
        let (mut counts, all) = ([0; 3], chosen.len());
        for (done, found) in chosen.iter().enumerate() {
            let location = match &found.location {
                Some(location) => location.clone(),
                None => served(&mut self.kinds, found.object, wait).await?,
            };
            let written = write(&location, found.object, self.options, false).await;
            let version = written.map_err(|error| {
                anyhow::anyhow!(
                    "{}: {}; {done} of {all} objects were applied: run the command again after fixing this",
                    title(found.object),
                    message(&error)
                )
            })?;
            let (index, word) = match &found.before {
                None => (0, "Created"),
                before if *before == version => (2, "Unchanged"),
                _ => (1, "Changed"),
            };
            counts[index] += 1;
            shell.detail(word, title(found.object));
            // Later objects may be of these kinds.
            if is_definition(found.object) && chosen.get(done + 1).is_none_or(|next| !is_definition(next.object)) {
                established(self.remote, chosen.iter().map(|found| found.object), wait).await?;
            }
        }
        if all > 0 {
            let [created, changed, unchanged] = counts;
            let what = if all == 1 { "object" } else { "objects" };
            shell.status(
                "Applied",
                format!("{all} {what}: {created} created, {changed} changed, {unchanged} unchanged"),
            );
        }
        Ok(())
    }
}

/// Finds the location and the current state of an object.
async fn find<'a>(remote: &Remote, kinds: &mut Kinds, object: &'a Value, all: &[Value]) -> Result<CurrentObject<'a>> {
    let failed = |error: kube::Error| anyhow::anyhow!("{}: {}", title(object), explain(&error));
    let Some(location) = kinds.locate(object).await.map_err(failed)? else {
        if defines(all, object) {
            return Ok(CurrentObject { object, location: None, before: None });
        }
        let (kind, version) = (text(object, "/kind"), text(object, "/apiVersion"));
        bail!(
            "{remote} has no kind {kind} in {version}: install its CustomResourceDefinition, or remove {} from the kustomization; nothing was \
             changed",
            title(object)
        );
    };
    // A user who has permission to apply but not to read still gets the objects, with a less precise summary.
    let before = location.api.get_metadata_opt(&location.name).await.ok().flatten();
    Ok(CurrentObject { object, location: Some(location), before: before.and_then(|it| it.metadata.resource_version) })
}

/// Returns whether one of the objects defines the kind of another.
fn defines(all: &[Value], object: &Value) -> bool {
    let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    all.iter().filter(|other| is_definition(other)).any(|definition| {
        text(definition, "/spec/group") == group && text(definition, "/spec/names/kind") == text(object, "/kind")
    })
}

/// Applies all objects with `dryRun`.
async fn dry_run(remote: &Remote, found: &[CurrentObject<'_>], all: &[Value], options: &ApplyOptions) -> Result<()> {
    let namespaces: BTreeSet<_> = all
        .iter()
        .filter(|object| object["kind"] == "Namespace")
        .map(|object| text(object, "/metadata/name"))
        .collect();
    let asked = stream::iter(found.iter().filter_map(|found| Some((found.object, found.location.clone()?))))
        .map(async |(object, location)| (object, write(&location, object, options, true).await.err()))
        .buffered(CONCURRENCY)
        .collect::<Vec<_>>()
        .await;
    let mut refused = Vec::new();
    for (object, error) in asked {
        let Some(error) = error else { continue };
        // A dry run in a namespace that doesn't exist yet fails with 404, after permissions were checked.
        let is_early = status(&error).is_some_and(|status| status.code == 404)
            && namespaces.contains(text(object, "/metadata/namespace"));
        if !is_early {
            refused.push(format!("\n  {}: {}", title(object), message(&error)));
        }
    }
    if !refused.is_empty() {
        bail!("{remote} rejects the objects; nothing was changed:{}", refused.concat());
    }
    Ok(())
}

/// Formats an error, with a hint about fields of other managers.
fn message(error: &kube::Error) -> String {
    let text = explain(error);
    let is_conflict = status(error).is_some_and(|status| {
        let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        causes.iter().any(|cause| cause.reason == "FieldManagerConflict")
    });
    let text = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    if is_conflict { format!("{text}; use --force-conflicts to take over these fields") } else { text }
}

/// Applies an object, and returns its new resource version.
async fn write(
    location: &ObjectLocation,
    object: &Value,
    options: &ApplyOptions,
    dry_run: bool,
) -> Result<Option<String>, kube::Error> {
    let mut parameters = PatchParams::apply(MANAGER);
    parameters.force = options.force_conflicts;
    parameters.dry_run = dry_run;
    let patch = Patch::Apply(object);
    let request = location.api.patch(&location.name, &parameters, &patch);
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?.metadata.resource_version),
        Err(late) => Err(kube::Error::Service(Box::new(std::io::Error::new(std::io::ErrorKind::TimedOut, late)))),
    }
}

/// Waits until the API server serves a kind whose definition is established.
async fn served(kinds: &mut Kinds, object: &Value, wait: &Wait<'_>) -> Result<ObjectLocation> {
    loop {
        kinds.forget(text(object, "/apiVersion"));
        match kinds.locate(object).await {
            Ok(Some(location)) => return Ok(location),
            Err(error) if !is_transient(&error) => bail!("{}: {}", title(object), explain(&error)),
            _ => {}
        }
        if !wait.poll_again(&format!("for the API to serve {}", title(object))).await {
            bail!("{}: the API does not serve its kind after {}", title(object), wait.timeout());
        }
    }
}

/// Waits until all definitions among the objects are established.
async fn established<'a>(remote: &Remote, objects: impl Iterator<Item = &'a Value>, wait: &Wait<'_>) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(remote.client.clone());
    let mut open: Vec<_> =
        objects.filter(|object| is_definition(object)).map(|object| text(object, "/metadata/name")).collect();
    let all = open.len();
    while let Some(name) = open.last().copied() {
        let why = match definitions.get_opt(name).await {
            Ok(definition) => match definition_state(definition.as_ref()) {
                DefinitionState::Established => {
                    open.pop();
                    continue;
                }
                DefinitionState::NotAccepted(why) => bail!("customresourcedefinition/{name} is not accepted: {why}"),
                DefinitionState::Pending => String::new(),
            },
            Err(error) if is_transient(&error) => format!(": {}", explain(&error)),
            Err(error) => bail!("customresourcedefinition/{name}: {}", explain(&error)),
        };
        let done = all - open.len();
        if !wait.poll_again(&format!("for definitions, {done} of {all} established: {name}{why}")).await {
            bail!("customresourcedefinition/{name} is not established after {}{why}", wait.timeout());
        }
    }
    Ok(())
}

/// The state of a CustomResourceDefinition, from its conditions.
#[derive(Debug, PartialEq, Eq)]
enum DefinitionState {
    Established,
    NotAccepted(String),
    Pending,
}

fn definition_state(definition: Option<&CustomResourceDefinition>) -> DefinitionState {
    let conditions = definition.and_then(|definition| definition.status.as_ref()?.conditions.as_ref());
    let find = |kind: &str, status: &str| {
        conditions.into_iter().flatten().find(|condition| condition.type_ == kind && condition.status == status)
    };
    if find("Established", "True").is_some() {
        return DefinitionState::Established;
    }
    match find("NamesAccepted", "False") {
        Some(condition) => DefinitionState::NotAccepted(condition.message.clone().unwrap_or_default()),
        None => DefinitionState::Pending,
    }
}

/// Returns the names of the definitions that are missing in the cluster. Returns none without the permission to read
/// them.
pub(crate) async fn missing_definitions(remote: &Remote, names: &[&str]) -> Result<Vec<String>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(remote.client.clone());
    let mut missing = Vec::new();
    for name in names {
        match definitions.get_metadata_opt(name).await {
            Ok(Some(_)) => {}
            Ok(None) => missing.push((*name).to_owned()),
            Err(error) if status(&error).is_some_and(|status| status.code == 403) => {}
            Err(error) => bail!("get customresourcedefinition/{name}: {}", explain(&error)),
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(conditions: Value) -> CustomResourceDefinition {
        let names = json!({"kind": "Cow", "plural": "cows"});
        let spec = json!({"group": "my.domain", "scope": "Namespaced", "names": names, "versions": []});
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"conditions": conditions}})).unwrap()
    }

    #[test]
    fn a_definition_that_is_not_accepted_is_not_waited_for() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "message": "taken by Ox"});
        let of = |conditions: Value| definition_state(Some(&definition(conditions)));
        assert_eq!(definition_state(None), DefinitionState::Pending);
        assert_eq!(of(json!([condition("NamesAccepted", "True")])), DefinitionState::Pending);
        assert_eq!(of(json!([condition("Established", "True")])), DefinitionState::Established);
        assert_eq!(
            of(json!([condition("NamesAccepted", "False")])),
            DefinitionState::NotAccepted("taken by Ox".into())
        );
    }

    #[test]
    fn objects_may_define_the_kinds_of_others() {
        let all =
            [json!({"kind": "CustomResourceDefinition", "spec": {"group": "my.domain", "names": {"kind": "Cow"}}})];
        assert!(defines(&all, &json!({"apiVersion": "my.domain/v1", "kind": "Cow"})));
        assert!(!defines(&all, &json!({"apiVersion": "other.domain/v1", "kind": "Cow"})));
        assert!(!defines(&all, &json!({"apiVersion": "v1", "kind": "Cow"})));
    }

    #[test]
    fn a_field_conflict_mentions_force_conflicts() {
        let status = json!({
            "code": 409, "reason": "Conflict", "message": "Apply failed with 1 conflict: conflict with \"kubectl\":\n- .spec",
            "details": {"causes": [{"reason": "FieldManagerConflict", "field": ".spec", "message": "conflict"}]},
        });
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        let message = message(&kube::Error::Api(status.boxed()));
        assert_eq!(
            message,
            "Apply failed with 1 conflict: conflict with \"kubectl\": - .spec; use --force-conflicts to take over these fields"
        );
    }
}
