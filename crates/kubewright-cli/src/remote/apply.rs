//! Applying objects: all are tried first, then written in their order.

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
    AT_ONCE, PATIENCE, Remote, Wait,
    failure::{explain, is_transient, status},
    kinds::{Kinds, Located, is_definition, text, title},
};
use crate::shell::Shell;

/// Who owns the fields that we apply.
const MANAGER: &str = "kubewright";

/// How to apply.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Take over fields that others have set, such as kubectl apply before
    #[arg(long)]
    force_conflicts: bool,
}

impl Options {
    /// Taking over whatever others have set.
    pub(crate) fn forced() -> Self {
        Self { force_conflicts: true }
    }
}

/// An object and what was found of it.
struct Found<'a> {
    object: &'a Value,
    /// Where it goes; nowhere yet if its kind is among the objects.
    place: Option<Located>,
    /// The version that is there.
    before: Option<String>,
}

/// Objects that the API server would take, as far as can be known before one is written.
pub(crate) struct Plan<'a> {
    remote: &'a Remote,
    options: &'a Options,
    kinds: Kinds,
    found: Vec<Found<'a>>,
}

impl<'a> Plan<'a> {
    /// Tries all objects. It fails with all that the API server would refuse, and has changed nothing then.
    pub(crate) async fn of(remote: &'a Remote, objects: &'a [Value], options: &'a Options) -> Result<Self> {
        let mut kinds = Kinds::of(&remote.client);
        let mut found = Vec::new();
        for object in objects {
            found.push(find(remote, &mut kinds, object, objects).await?);
        }
        rehearse(remote, &found, objects, options).await?;
        Ok(Self { remote, options, kinds, found })
    }

    /// Applies those of the objects that are chosen, in their order. Definitions are established when it ends.
    pub(crate) async fn write(
        &mut self,
        is_chosen: impl Fn(&Value) -> bool,
        wait: &Wait<'_>,
        shell: &Shell,
    ) -> Result<()> {
        let chosen: Vec<_> = self.found.iter().filter(|found| is_chosen(found.object)).collect();
        let (mut counts, all) = ([0; 3], chosen.len());
        for (done, found) in chosen.iter().enumerate() {
            let place = match &found.place {
                Some(place) => place.clone(),
                None => appeared(&mut self.kinds, found.object, wait).await?,
            };
            let written = write(&place, found.object, self.options, false).await;
            let version = written.map_err(|error| {
                anyhow::anyhow!(
                    "{}: {}; {done} of {all} objects were applied: run the command again when that is mended",
                    title(found.object),
                    told(&error)
                )
            })?;
            let (index, word) = match &found.before {
                None => (0, "Created"),
                before if *before == version => (2, "Unchanged"),
                _ => (1, "Changed"),
            };
            counts[index] += 1;
            shell.detail(word, title(found.object));
            // What follows may need the kinds.
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

/// Where an object goes, and what is there.
async fn find<'a>(remote: &Remote, kinds: &mut Kinds, object: &'a Value, all: &[Value]) -> Result<Found<'a>> {
    let failed = |error: kube::Error| anyhow::anyhow!("{}: {}", title(object), explain(&error));
    let Some(place) = kinds.locate(object).await.map_err(failed)? else {
        if defines(all, object) {
            return Ok(Found { object, place: None, before: None });
        }
        let (kind, version) = (text(object, "/kind"), text(object, "/apiVersion"));
        bail!(
            "{remote} knows no {kind} of {version}: install what brings it, or take {} out of the kustomization; nothing was changed",
            title(object)
        );
    };
    // Who may apply but not read still gets his objects, and less is told.
    let before = place.api.get_metadata_opt(&place.name).await.ok().flatten();
    Ok(Found { object, place: Some(place), before: before.and_then(|it| it.metadata.resource_version) })
}

/// Whether the kind of an object is defined by one of the objects.
fn defines(all: &[Value], object: &Value) -> bool {
    let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    all.iter().filter(|other| is_definition(other)).any(|definition| {
        text(definition, "/spec/group") == group && text(definition, "/spec/names/kind") == text(object, "/kind")
    })
}

/// Asks whether all of it would be taken.
async fn rehearse(remote: &Remote, found: &[Found<'_>], all: &[Value], options: &Options) -> Result<()> {
    let namespaces: BTreeSet<_> = all
        .iter()
        .filter(|object| object["kind"] == "Namespace")
        .map(|object| text(object, "/metadata/name"))
        .collect();
    let asked = stream::iter(found.iter().filter_map(|found| Some((found.object, found.place.clone()?))))
        .map(async |(object, place)| (object, write(&place, object, options, true).await.err()))
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let mut refused = Vec::new();
    for (object, error) in asked {
        let Some(error) = error else { continue };
        // The namespace is made before the objects in it: until then nothing more can be known of them than that we may write them.
        let is_early = status(&error).is_some_and(|status| status.code == 404)
            && namespaces.contains(text(object, "/metadata/namespace"));
        if !is_early {
            refused.push(format!("\n  {}: {}", title(object), told(&error)));
        }
    }
    if !refused.is_empty() {
        bail!("{remote} would refuse what is to be applied; nothing was changed:{}", refused.concat());
    }
    Ok(())
}

/// What was said, with what to do about fields of others.
fn told(error: &kube::Error) -> String {
    let said = explain(error);
    let is_conflict = status(error).is_some_and(|status| {
        let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        causes.iter().any(|cause| cause.reason == "FieldManagerConflict")
    });
    let said = said.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    if is_conflict { format!("{said}; --force-conflicts takes these fields over") } else { said }
}

/// Writes an object; its version then.
async fn write(
    place: &Located,
    object: &Value,
    options: &Options,
    dry_run: bool,
) -> Result<Option<String>, kube::Error> {
    let mut parameters = PatchParams::apply(MANAGER);
    parameters.force = options.force_conflicts;
    parameters.dry_run = dry_run;
    let patch = Patch::Apply(object);
    let request = place.api.patch(&place.name, &parameters, &patch);
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => Ok(answer?.metadata.resource_version),
        Err(late) => Err(kube::Error::Service(Box::new(std::io::Error::new(std::io::ErrorKind::TimedOut, late)))),
    }
}

/// Waits until the API serves a kind whose definition is established.
async fn appeared(kinds: &mut Kinds, object: &Value, wait: &Wait<'_>) -> Result<Located> {
    loop {
        kinds.forget(text(object, "/apiVersion"));
        match kinds.locate(object).await {
            Ok(Some(place)) => return Ok(place),
            Err(error) if !is_transient(&error) => bail!("{}: {}", title(object), explain(&error)),
            _ => {}
        }
        if !wait.goes_on(&format!("the API of {}", title(object))).await {
            bail!("{}: its kind is defined, and not served after {}", title(object), wait.spent());
        }
    }
}

/// Waits until all definitions are established.
async fn established<'a>(remote: &Remote, objects: impl Iterator<Item = &'a Value>, wait: &Wait<'_>) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(remote.client.clone());
    let mut open: Vec<_> =
        objects.filter(|object| is_definition(object)).map(|object| text(object, "/metadata/name")).collect();
    let all = open.len();
    while let Some(name) = open.last().copied() {
        let why = match definitions.get_opt(name).await {
            Ok(definition) => match standing(definition.as_ref()) {
                Standing::Established => {
                    open.pop();
                    continue;
                }
                Standing::Refused(why) => bail!("customresourcedefinition/{name} isn't accepted: {why}"),
                Standing::Open => String::new(),
            },
            Err(error) if is_transient(&error) => format!(": {}", explain(&error)),
            Err(error) => bail!("customresourcedefinition/{name}: {}", explain(&error)),
        };
        let done = all - open.len();
        if !wait.goes_on(&format!("{done} of {all} definitions are established: {name}{why}")).await {
            bail!("customresourcedefinition/{name} is not established after {}{why}", wait.spent());
        }
    }
    Ok(())
}

/// How far a definition is.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Established,
    Refused(String),
    Open,
}

fn standing(definition: Option<&CustomResourceDefinition>) -> Standing {
    let conditions = definition.and_then(|definition| definition.status.as_ref()?.conditions.as_ref());
    let find = |kind: &str, status: &str| {
        conditions.into_iter().flatten().find(|condition| condition.type_ == kind && condition.status == status)
    };
    if find("Established", "True").is_some() {
        return Standing::Established;
    }
    match find("NamesAccepted", "False") {
        Some(condition) => Standing::Refused(condition.message.clone().unwrap_or_default()),
        None => Standing::Open,
    }
}

/// Those of some definitions, by name, that the cluster lacks. Who may not look is told of none.
pub(crate) async fn missing_definitions(remote: &Remote, names: &[&str]) -> Result<Vec<String>> {
    let definitions: Api<CustomResourceDefinition> = Api::all(remote.client.clone());
    let mut missing = Vec::new();
    for name in names {
        match definitions.get_metadata_opt(name).await {
            Ok(Some(_)) => {}
            Ok(None) => missing.push((*name).to_owned()),
            Err(error) if status(&error).is_some_and(|status| status.code == 403) => {}
            Err(error) => bail!("look for customresourcedefinition/{name}: {}", explain(&error)),
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
    fn a_definition_is_waited_for_unless_it_is_refused() {
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "message": "taken by Ox"});
        let of = |conditions: Value| standing(Some(&definition(conditions)));
        assert_eq!(standing(None), Standing::Open);
        assert_eq!(of(json!([condition("NamesAccepted", "True")])), Standing::Open);
        assert_eq!(of(json!([condition("Established", "True")])), Standing::Established);
        assert_eq!(of(json!([condition("NamesAccepted", "False")])), Standing::Refused("taken by Ox".into()));
    }

    #[test]
    fn kinds_may_come_with_the_objects() {
        let all =
            [json!({"kind": "CustomResourceDefinition", "spec": {"group": "my.domain", "names": {"kind": "Cow"}}})];
        assert!(defines(&all, &json!({"apiVersion": "my.domain/v1", "kind": "Cow"})));
        assert!(!defines(&all, &json!({"apiVersion": "other.domain/v1", "kind": "Cow"})));
        assert!(!defines(&all, &json!({"apiVersion": "v1", "kind": "Cow"})));
    }

    #[test]
    fn fields_of_others_are_told_with_what_takes_them_over() {
        let status = json!({
            "code": 409, "reason": "Conflict", "message": "Apply failed with 1 conflict: conflict with \"kubectl\":\n- .spec",
            "details": {"causes": [{"reason": "FieldManagerConflict", "field": ".spec", "message": "conflict"}]},
        });
        let status: kube::core::Status = serde_json::from_value(status).unwrap();
        let told = told(&kube::Error::Api(status.boxed()));
        assert_eq!(
            told,
            "Apply failed with 1 conflict: conflict with \"kubectl\": - .spec; --force-conflicts takes these fields over"
        );
    }
}
