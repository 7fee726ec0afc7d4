//! Validation of CRDs, in Kubernetes' wording
//! (<https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/>).

use std::collections::BTreeSet;

use kubewright_apimachinery::{
    name,
    path::JsonPath,
    schema::{Kind, Node, parse, rules, structural},
    status::Cause,
};
use serde_json::{Value, json};

use super::{approval, status::holds};
use crate::{
    conversion::REVIEW_VERSIONS,
    fields::{flag, has, list, text},
    registry::builtin::{
        check::{each_sentence, immutable, one_of},
        schemas::definitions,
        webhook::check_client,
    },
};

/// The maximum number of selectable fields of a version.
const MAX_SELECTABLE: usize = 8;

/// Checks a CRD. `old` is the replaced CRD.
pub(super) fn definition(old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    if text(new, "/metadata/name") != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &new["metadata"]["name"], why));
    }
    self::group(spec, &mut causes);
    approval::check(old, new, &mut causes);
    names(&spec["names"], &mut causes);
    if text(spec, "/scope").is_empty() {
        causes.push(Cause::required("spec.scope", ""));
    } else {
        one_of(spec, "spec", "scope", &["Cluster", "Namespaced"], &mut causes);
    }
    if flag(spec, "/preserveUnknownFields") {
        let why = "must be false, use x-kubernetes-preserve-unknown-fields in the schema instead";
        causes.push(Cause::invalid("spec.preserveUnknownFields", &json!(true), why));
    }
    versions(spec, &mut causes);
    conversion(&spec["conversion"], &mut causes);
    if let Some(old) = old {
        update(old, new, &mut causes);
    }
    causes
}

fn group(spec: &Value, causes: &mut Vec<Cause>) {
    let group = text(spec, "/group");
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(Cause::invalid("spec.group", &spec["group"], "should be a domain with at least one dot"));
    }
    each_sentence(spec, "spec", "group", name::dns1123_subdomain, causes);
}

fn names(names: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.names";
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(names, &format!("/{field}")).is_empty() {
            causes.push(Cause::required(format!("{path}.{field}"), ""));
        }
    }
    for field in ["plural", "singular"] {
        each_sentence(names, path, field, name::dns1035_label, causes);
    }
    for field in ["kind", "listKind"] {
        let value = text(names, &format!("/{field}"));
        for why in name::dns1035_label(&value.to_lowercase()).iter().filter(|_| !value.is_empty()) {
            let why = format!("may have mixed case, but should otherwise match: {why}");
            causes.push(Cause::invalid(format!("{path}.{field}"), &names[field], &why));
        }
    }
    let kind = text(names, "/kind");
    if !kind.is_empty() && kind == text(names, "/listKind") {
        causes.push(Cause::invalid(
            format!("{path}.listKind"),
            &names["listKind"],
            "kind and listKind may not be the same",
        ));
    }
    for field in ["shortNames", "categories"] {
        for (index, value) in list(names, &format!("/{field}")).iter().enumerate() {
            let sentences = name::dns1035_label(value.as_str().unwrap_or_default());
            causes.extend(sentences.iter().map(|why| Cause::invalid(format!("{path}.{field}[{index}]"), value, why)));
        }
    }
}

fn versions(spec: &Value, causes: &mut Vec<Cause>) {
    let versions = list(spec, "/versions");
    let shown = || versions.iter().map(|version| version["name"].clone()).collect::<Value>();
    if versions.is_empty() {
        causes.push(Cause::required("spec.versions", "must have at least one version"));
        return;
    }
    let mut seen = BTreeSet::new();
    if !versions.iter().all(|version| seen.insert(text(version, "/name"))) {
        causes.push(Cause::invalid("spec.versions", &shown(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| flag(version, "/storage")).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &shown(), why));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        if text(version, "/name").is_empty() {
            causes.push(Cause::required(format!("{path}.name"), ""));
        }
        each_sentence(version, &path, "name", name::dns1035_label, causes);
        // Kubernetes reports the fields of a CRD's only version as if they were fields of the spec.
        let single = versions.len() == 1;
        let place = if single { "spec".to_owned() } else { path };
        schema(version, &place, single, causes);
        subresources(version, &place, causes);
        columns(version, &place, causes);
        selectable(version, &place, causes);
    }
}

fn schema(version: &Value, place: &str, single: bool, causes: &mut Vec<Cause>) {
    let parent = if single { format!("{place}.validation") } else { format!("{place}.schema") };
    let document = &version["schema"]["openAPIV3Schema"];
    if !document.is_object() {
        let field =
            if single { "spec.versions[0].schema.openAPIV3Schema" } else { &format!("{parent}.openAPIV3Schema") };
        causes.push(Cause::required(field, "schemas are required"));
        return;
    }
    let mut found = structural::check(document);
    if found.is_empty() {
        found = rules::check(&parse::from_openapi(document));
    }
    causes.extend(found.into_iter().map(|mut cause| {
        cause.field = format!("{parent}.{}", cause.field);
        cause
    }));
}

fn subresources(version: &Value, place: &str, causes: &mut Vec<Cause>) {
    let scale = &version["subresources"]["scale"];
    if !scale.is_object() {
        return;
    }
    let place = format!("{place}.subresources.scale");
    let rules: [(&str, &[&str], bool); 3] = [
        ("specReplicasPath", &["spec"], true),
        ("statusReplicasPath", &["status"], true),
        ("labelSelectorPath", &["spec", "status"], false),
    ];
    for (field, parents, required) in rules {
        let path = text(scale, &format!("/{field}"));
        if path.is_empty() {
            if required {
                causes.push(Cause::required(format!("{place}.{field}"), ""));
            }
            continue;
        }
        let first = JsonPath::parse(path).ok().filter(|_| path.starts_with('.'));
        let below = first.as_ref().and_then(JsonPath::fields).filter(|fields| fields.len() > 1);
        if !below.is_some_and(|fields| parents.contains(&fields[0])) {
            let parents: Vec<_> = parents.iter().map(|parent| format!(".{parent}")).collect();
            let why = format!("should be a json path under {}", parents.join(" or "));
            causes.push(Cause::invalid(format!("{place}.{field}"), &scale[field], &why));
        }
    }
}

fn columns(version: &Value, place: &str, causes: &mut Vec<Cause>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in list(version, "/additionalPrinterColumns").iter().enumerate() {
        let place = format!("{place}.additionalPrinterColumns[{index}]");
        if text(column, "/name").is_empty() {
            causes.push(Cause::required(format!("{place}.name"), ""));
        }
        let why = format!("must be one of {}", TYPES.join(","));
        match text(column, "/type") {
            "" => causes.push(Cause::required(format!("{place}.type"), &why)),
            kind if !TYPES.contains(&kind) => {
                causes.push(Cause::invalid(format!("{place}.type"), &column["type"], &why));
            }
            _ => {}
        }
        let format = text(column, "/format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            let why = format!("must be one of {}", FORMATS.join(","));
            causes.push(Cause::invalid(format!("{place}.format"), &column["format"], &why));
        }
        match text(column, "/jsonPath") {
            "" => causes.push(Cause::required(format!("{place}.jsonPath"), "")),
            path => {
                if let Err(error) = JsonPath::parse(path) {
                    causes.push(Cause::invalid(format!("{place}.jsonPath"), &column["jsonPath"], &error.to_string()));
                }
            }
        }
    }
}

fn selectable(version: &Value, place: &str, causes: &mut Vec<Cause>) {
    let fields = list(version, "/selectableFields");
    let place = format!("{place}.selectableFields");
    if fields.len() > MAX_SELECTABLE {
        let message = format!("Too many: {}: must have at most {MAX_SELECTABLE} items", fields.len());
        causes.push(Cause::new("FieldValueTooMany", place.clone(), message));
    }
    let schema = structural::parse(&version["schema"]["openAPIV3Schema"]).unwrap_or_default();
    let definitions = definitions();
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let place = format!("{place}[{index}].jsonPath");
        let path = text(field, "/jsonPath");
        if path.is_empty() {
            causes.push(Cause::required(place, ""));
            continue;
        }
        if !seen.insert(path) {
            causes.push(Cause::duplicate(place.clone(), &field["jsonPath"]));
        }
        let parsed = JsonPath::parse(path).ok();
        let mut node = Some(Node::new(&schema, &definitions));
        match parsed.as_ref().and_then(JsonPath::fields) {
            Some(steps) if path.starts_with('.') => {
                for step in steps {
                    node = node.and_then(|node| node.field(step));
                }
            }
            _ => node = None,
        }
        match node.map(|node| node.schema().kind) {
            Some(Some(Kind::String | Kind::Boolean | Kind::Integer)) => {}
            Some(_) => {
                let why = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                           with formats are allowed";
                causes.push(Cause::invalid(place, &field["jsonPath"], why));
            }
            None => {
                let why = "is an invalid path: does not refer to a valid field";
                causes.push(Cause::invalid(place, &field["jsonPath"], why));
            }
        }
    }
}

fn conversion(conversion: &Value, causes: &mut Vec<Cause>) {
    one_of(conversion, "spec.conversion", "strategy", &["None", "Webhook"], causes);
    let webhook = &conversion["webhook"];
    const CLIENT: &str = "spec.conversion.webhookClientConfig";
    const REVIEWS: &str = "spec.conversion.conversionReviewVersions";
    let versions = list(webhook, "/conversionReviewVersions");
    if text(conversion, "/strategy") != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if has(webhook, "/clientConfig") {
            causes.push(Cause::forbidden(CLIENT, why));
        }
        if !versions.is_empty() {
            causes.push(Cause::forbidden(REVIEWS, why));
        }
        return;
    }
    if has(webhook, "/clientConfig") {
        check_client(&webhook["clientConfig"], CLIENT, causes);
    } else {
        causes.push(Cause::required(CLIENT, "required when strategy is set to Webhook"));
    }
    if versions.is_empty() {
        causes.push(Cause::required(REVIEWS, ""));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let place = format!("{REVIEWS}[{index}]");
        if versions[..index].contains(version) {
            causes.push(Cause::invalid(place.clone(), version, "duplicate version"));
        }
        let wrong = name::dns1035_label(version.as_str().unwrap_or_default());
        causes.extend(wrong.iter().map(|why| Cause::invalid(place.clone(), version, why)));
    }
    if !versions.iter().any(|version| REVIEW_VERSIONS.iter().any(|known| version == known)) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        causes.push(Cause::invalid(REVIEWS, &webhook["conversionReviewVersions"], &why));
    }
}

fn update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    immutable(old, new, "/spec/group", causes);
    immutable(old, new, "/spec/names/plural", causes);
    if holds(old, "Established") {
        immutable(old, new, "/spec/scope", causes);
        immutable(old, new, "/spec/names/kind", causes);
    }
    stored_versions(new, causes);
}

/// Checks that no stored version is removed from the spec, since objects may be stored in any of them.
fn stored_versions(definition: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "status.storedVersions";
    let (versions, stored) = (list(definition, "/spec/versions"), list(definition, "/status/storedVersions"));
    if stored.is_empty() {
        causes.push(Cause::invalid(PATH, &json!([]), "must have at least one stored version"));
        return;
    }
    let storage = versions.iter().find(|version| flag(version, "/storage")).map(|version| &version["name"]);
    if let Some(name) = storage.filter(|name| !stored.contains(name)) {
        let why = format!("must have the storage version {}", name.as_str().unwrap_or_default());
        causes.push(Cause::invalid(PATH, &stored.into(), &why));
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let shown = name.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {shown} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {shown} and removes {shown} from \
                 status.storedVersions"
            );
            causes.push(Cause::invalid(format!("{PATH}[{index}]"), name, &why));
        }
    }
}
