//! The flow schema and priority level of each request, which responses name by UID.
//!
//! Clients recognize by these headers that priority and fairness is enabled, and then don't limit themselves. Requests
//! are classified by the stored flow schemas
//! (<https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>), but never queued or rejected.

mod level;
mod rule;

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;
use serde_json::Value;

pub(crate) use self::level::Limits;
use self::{level::Level, rule::Rule};
use crate::{
    auth::{Attributes, UserInfo},
    fields::{int, text},
    meta,
};

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// The schema of users with unrestricted access. No other one may precede it.
const EXEMPT: &str = "exempt";
/// The schema of requests that match no other one.
const CATCH_ALL: &str = "catch-all";

/// The flow schemas and priority levels, which the strategies of both kinds keep up to date.
#[derive(Debug, Default)]
pub(crate) struct FlowControl(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    /// By name.
    schemas: BTreeMap<Box<str>, Arc<Schema>>,
    levels: BTreeMap<Box<str>, Level>,
    /// The schemas whose levels exist, by precedence and name.
    flows: Vec<(Arc<Schema>, Flow)>,
    exempt: Flow,
    catch_all: Flow,
}

/// A flow schema.
#[derive(Debug)]
struct Schema {
    precedence: i64,
    level: Box<str>,
    uid: HeaderValue,
    rules: Vec<Rule>,
}

/// The classification of a request: the UIDs of the flow schema and of the priority level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flow(Arc<[HeaderValue; 2]>);

impl Default for Flow {
    fn default() -> Self {
        Self(Arc::new([HeaderValue::from_static(""), HeaderValue::from_static("")]))
    }
}

impl Flow {
    /// Adds the headers that name the classification.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        let [schema, level] = &*self.0;
        headers.insert(SCHEMA_HEADER, schema.clone());
        headers.insert(LEVEL_HEADER, level.clone());
    }
}

impl Schema {
    fn of(object: &Value) -> Self {
        Self {
            precedence: int(object, "/spec/matchingPrecedence"),
            level: text(object, "/spec/priorityLevelConfiguration/name").into(),
            uid: uid(object),
            rules: Rule::all_of(object),
        }
    }
}

/// Returns the UID of an object as the value of a header.
fn uid(object: &Value) -> HeaderValue {
    HeaderValue::try_from(meta::text(object, "uid")).unwrap_or(HeaderValue::from_static(""))
}

impl State {
    /// Sorts the schemas whose levels exist, after a change of either.
    fn update_flows(&mut self) {
        let flow =
            |schema: &Schema| Some(Flow(Arc::new([schema.uid.clone(), self.levels.get(&schema.level)?.uid.clone()])));
        let named = |name: &str| self.schemas.get(name).and_then(|schema| flow(schema)).unwrap_or_default();
        let (exempt, catch_all) = (named(EXEMPT), named(CATCH_ALL));
        let mut flows: Vec<_> =
            self.schemas.values().filter_map(|schema| Some((schema.clone(), flow(schema)?))).collect();
        // Those of the same precedence remain in the order of their names.
        flows.sort_by_key(|(schema, _)| schema.precedence);
        (self.flows, self.exempt, self.catch_all) = (flows, exempt, catch_all);
    }
}

impl FlowControl {
    /// Classifies a request. The attributes may be absent for users with unrestricted access.
    pub(crate) fn classify(&self, user: &UserInfo, attributes: Option<&Attributes>) -> Flow {
        let state = self.0.read();
        let Some(request) = attributes.filter(|_| !user.is_unrestricted()) else { return state.exempt.clone() };
        let matches = |schema: &Schema| schema.rules.iter().any(|rule| rule.matches(user, request));
        let found = state.flows.iter().find(|(schema, _)| matches(schema));
        found.map_or(&state.catch_all, |(_, flow)| flow).clone()
    }

    /// Returns whether there is a priority level of this name.
    pub(crate) fn has_level(&self, name: &str) -> bool {
        self.0.read().levels.contains_key(name)
    }

    /// Returns the names of all flow schemas.
    pub(crate) fn schema_names(&self) -> Vec<String> {
        self.0.read().schemas.keys().map(|name| name.to_string()).collect()
    }

    /// Applies a change of a flow schema.
    pub(crate) fn schema_changed(&self, before: Option<&Value>, after: Option<&Value>) {
        let mut state = self.0.write();
        if let Some(after) = after {
            state.schemas.insert(meta::text(after, "name").into(), Arc::new(Schema::of(after)));
        } else if let Some(before) = before {
            state.schemas.remove(meta::text(before, "name"));
        }
        state.update_flows();
    }

    /// Applies a change of a priority level.
    pub(crate) fn level_changed(&self, before: Option<&Value>, after: Option<&Value>) {
        let mut state = self.0.write();
        if let Some(after) = after {
            state.levels.insert(meta::text(after, "name").into(), Level::of(after));
        } else if let Some(before) = before {
            state.levels.remove(meta::text(before, "name"));
        }
        state.update_flows();
    }

    /// Returns the limits of all priority levels, by name.
    pub(crate) fn limits(&self) -> Vec<(String, Limits)> {
        level::limits(&self.0.read().levels)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NO_GROUPS: [&str; 0] = [];

    fn schema(name: &str, level: &str, precedence: i64, user: &str) -> Value {
        json!({
            "metadata": {"name": name, "uid": format!("uid-of-{name}")},
            "spec": {
                "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
                "rules": [{
                    "subjects": [{"kind": "User", "user": {"name": user}}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }],
            },
        })
    }

    fn level(name: &str) -> Value {
        json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "spec": {"type": "Limited"}})
    }

    fn flow(control: &FlowControl, user: &UserInfo) -> String {
        let request = Attributes { verb: "get".into(), path: "/version".into(), ..Attributes::default() };
        let Flow(uids) = control.classify(user, Some(&request));
        uids.each_ref().map(|uid| uid.to_str().unwrap().to_owned()).join(" ")
    }

    #[test]
    fn requests_have_the_first_flow_schema_that_matches_and_has_a_level() {
        let (control, jane) = (FlowControl::default(), UserInfo::new("jane", NO_GROUPS));
        assert_eq!(flow(&control, &jane), " ");
        control.level_changed(None, Some(&level("l")));
        for schema in [
            schema("catch-all", "l", 10_000, "nobody"),
            schema("exempt", "l", 1, "nobody"),
            schema("b", "l", 5, "jane"),
            schema("a", "l", 5, "*"),
            schema("first", "missing", 2, "jane"),
        ] {
            control.schema_changed(None, Some(&schema));
        }
        assert_eq!(flow(&control, &jane), "uid-of-a uid-of-l");
        assert_eq!(flow(&control, &UserInfo::admin()), "uid-of-exempt uid-of-l");
        control.level_changed(None, Some(&level("missing")));
        assert_eq!(flow(&control, &jane), "uid-of-first uid-of-missing");
        control.level_changed(Some(&level("missing")), None);
        control.schema_changed(Some(&schema("a", "l", 5, "*")), None);
        assert_eq!(flow(&control, &jane), "uid-of-b uid-of-l");
        assert_eq!(flow(&control, &UserInfo::new("joe", NO_GROUPS)), "uid-of-catch-all uid-of-l");
    }
}
