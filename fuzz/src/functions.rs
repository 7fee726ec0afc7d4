//! Targets that are functions of values.

use std::sync::LazyLock;

use kubewright_apimachinery::{
    apply::{self, FieldSet, PathElement},
    cel::{Composition, Expected, PolicyDeclarations, PolicyEnvironment, PolicyExpression, PolicyInput},
    decode,
    patch::{json, merge, strategic},
    schema::{self, Definitions, Node, Schema, parse, rules, structural},
    selector::{FieldSelector, LabelSelector},
};
use serde_json::{Value, json};

use crate::Target;

/// Returns texts as inputs.
fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Returns the JSON value of an input.
fn value(input: &[u8]) -> Option<Value> {
    decode::json(input).ok().map(|decoded| decoded.value)
}

/// Runs a future that never waits.
fn finish<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));
    RUNTIME.block_on(future)
}

/// A schema with lists and maps of all kinds.
fn lists() -> Schema {
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}});
    parse::from_openapi(&json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item,
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"},
        "atomic": {"type": "array", "items": item},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "port": {"x-kubernetes-int-or-string": true},
    }}))
}

/// A document for patches.
fn document() -> Value {
    json!({"set": ["a", "b"], "map": [{"name": "a", "port": 1}, {"name": "b", "port": 2}], "atomic": [{"name": "a"}],
        "labels": {"a": "b"}, "free": {"x": [1, {"y": null}]}, "port": "http"})
}

/// JSON patches, merge patches and strategic merge patches.
#[derive(Debug)]
pub(crate) struct Patches {
    schema: Schema,
    definitions: Definitions,
}

impl Patches {
    pub(crate) fn new() -> Self {
        Self { schema: lists(), definitions: Definitions::default() }
    }
}

impl Target for Patches {
    fn corpus(&self) -> Vec<Vec<u8>> {
        texts(&[
            r#"[{"op":"add","path":"/set/-","value":"c"},{"op":"test","path":"/labels/a","value":"b"}]"#,
            r#"[{"op":"copy","from":"/free","path":"/free/x/1"},{"op":"move","from":"/map/0","path":"/map/1"}]"#,
            r#"[{"op":"remove","path":"/labels/a~1b"},{"op":"replace","path":"","value":{}}]"#,
            r#"{"labels":{"a":null,"c":"d"},"set":["x"],"free":{"x":{"y":1}}}"#,
            r#"{"map":[{"name":"a","port":3},{"$patch":"delete","name":"b"}],"$setElementOrder/map":[{"name":"a"}]}"#,
            r#"{"$retainKeys":["map","set"],"$deleteFromPrimitiveList/set":["a"],"set":["c"],"labels":{"$patch":"replace"}}"#,
        ])
    }

    fn take(&mut self, input: &[u8]) {
        let Some(patch) = value(input) else { return };
        let document = document();
        // A patch that can't be parsed or applied is an error, not a failure.
        let _applied = json::apply(&document, &patch);
        let mut merged = document.clone();
        merge::apply(&mut merged, &patch);
        let mut again = merged.clone();
        merge::apply(&mut again, &patch);
        assert_eq!(merged, again, "a merge patch changes something the second time");
        let _difference = merge::diff(&document, &merged);
        let node = Node::new(&self.schema, &self.definitions);
        let _strategic = strategic::apply(node, &document, &patch);
    }
}

/// Sets of fields and merges of apply configurations.
#[derive(Debug)]
pub(crate) struct Apply {
    schema: Schema,
    definitions: Definitions,
}

impl Apply {
    pub(crate) fn new() -> Self {
        Self { schema: lists(), definitions: Definitions::default() }
    }
}

impl Target for Apply {
    fn corpus(&self) -> Vec<Vec<u8>> {
        texts(&[
            r#"{"f:map":{"k:{\"name\":\"a\"}":{".":{},"f:port":{}}},"f:set":{"v:\"a\"":{}},"i:0":{}}"#,
            r#"{"set":["c"],"map":[{"name":"c","port":1}],"labels":{"x":"y"},"free":{"z":[]},"port":80}"#,
            r#"[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}}]"#,
            r#"k:{"name":"a","port":1}"#,
        ])
    }

    fn take(&mut self, input: &[u8]) {
        if let Ok(text) = std::str::from_utf8(input)
            && let Ok(element) = PathElement::parse(text)
        {
            let _shown = element.to_string();
        }
        let Some(value) = value(input) else { return };
        if let Ok(set) = FieldSet::from_fields_v1(&value) {
            let again = FieldSet::from_fields_v1(&set.clone().into_fields_v1());
            assert_eq!(again.ok(), Some(set));
        }
        let _checked = apply::check_managed_fields(&value);
        let node = Node::new(&self.schema, &self.definitions);
        let _merged = apply::merge_configuration(node, &document(), &value);
    }
}

/// Label selectors and field selectors.
#[derive(Debug)]
pub(crate) struct Selectors;

impl Target for Selectors {
    fn corpus(&self) -> Vec<Vec<u8>> {
        texts(&[
            "app=web,tier!=db,env in (a,b),x notin (c),!gone,here,size>3,size<9",
            "metadata.name=a,status.phase!=Running,spec.nodeName==b\\,c",
            r#"{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"x","operator":"In","values":["y"]}]}"#,
        ])
    }

    fn take(&mut self, input: &[u8]) {
        let labels = json!({"app": "web", "size": "5"});
        if let Ok(text) = std::str::from_utf8(input) {
            if let Ok(selector) = LabelSelector::parse(text) {
                selector.matches_labels(&labels);
                let again = LabelSelector::parse(&selector.to_string());
                assert_eq!(again.map(|again| again.to_string()).ok(), Some(selector.to_string()), "{text}");
            }
            if let Ok(selector) = FieldSelector::parse(text) {
                selector.matches(|field| Some(field.len().to_string()));
            }
        }
        if let Some(value) = value(input)
            && let Ok(selector) = LabelSelector::from_object(&value)
        {
            selector.matches_labels(&labels);
        }
    }
}

/// Expressions: parsed, checked and evaluated.
#[derive(Debug)]
pub(crate) struct Cel;

impl Target for Cel {
    fn corpus(&self) -> Vec<Vec<u8>> {
        texts(&[
            "object.spec.replicas > 1 && object.metadata.name.startsWith('a')",
            "object.items.all(i, i.x in [1, 2.0, 'a']) || has(object.a) ? {'a': b'x'}.a : null",
            "object.?a.orValue(1) + size('abc') - int('3') * 2 % 5 == -1",
            "[3, 1].map(x, x > 1, x * x).exists_one(y, y == 9) && !('a' in {'a': 1u})",
            "quantity('1.5Gi').isGreaterThan(quantity('1')) && timestamp('2026-01-01T00:00:00Z') < timestamp(1)",
            "'%s %d'.format(['a', 1]).split(' ').join('-').matches('^[a-z]+.[0-9]$') && 'ab'.find('(a+)+b') == 'ab'",
            "request.userInfo.groups.filter(g, g != r'\\x').size() > 0 && cidr('10.0.0.0/8').containsIP(ip('10.1.1.1'))",
            "variables.x == 1 // a comment\n && sets.contains(['a'], []) && duration('1h30m').getMinutes() == 90",
            "Object{spec: Object.spec{replicas: 1}}",
        ])
    }

    fn take(&mut self, input: &[u8]) {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let mut declarations = PolicyDeclarations::of_policy(true);
        let declared = declarations.declare("x", "1 + 1");
        assert_eq!(declared, Ok(()));
        let checked = declarations.check(text, Expected::Any);
        let _mutation = declarations.with_messages().check(text, Expected::Any);
        let object =
            json!({"spec": {"replicas": 3}, "metadata": {"name": "abc"}, "items": [{"x": 1}, {"x": "a"}], "a": null});
        let environment = PolicyEnvironment::new([
            ("object", PolicyInput::new(Some(&object))),
            ("oldObject", PolicyInput::new(None)),
            ("request", PolicyInput::new(Some(&json!({"userInfo": {"groups": ["a"]}, "name": "n"})))),
            ("params", PolicyInput::new(Some(&json!({})))),
        ]);
        let composition = Composition::new([("x", "1 + 1")]);
        let expression = PolicyExpression::new(text);
        assert!(
            expression.compile_error().is_none() || checked.is_err(),
            "a checked expression can't be parsed: {text}"
        );
        let mut session = environment.session(&composition, None);
        let _output = finish(session.evaluate(&expression));
    }
}

/// Schemas of CRDs, and values under them.
#[derive(Debug)]
pub(crate) struct Schemas;

impl Target for Schemas {
    fn corpus(&self) -> Vec<Vec<u8>> {
        texts(&[
            r#"{"type":"object","properties":{"spec":{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":1,"default":3}}}}}"#,
            r#"{"type":"object","properties":{"l":{"type":"array","maxItems":3,"items":{"type":"string","pattern":"^a+$"},"x-kubernetes-list-type":"set"}}}"#,
            r#"{"type":"object","additionalProperties":{"type":"number","nullable":true},"x-kubernetes-validations":[{"rule":"size(self) < 3","messageExpression":"'a' + 'b'"}]}"#,
            r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"oneOf":[{"required":["a"]},{"not":{"required":["b"]}}]}"#,
            r#"{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"p":{"x-kubernetes-int-or-string":true}}},"f":{"type":"string","format":"date-time","enum":["a","b"]}}}"#,
        ])
    }

    fn take(&mut self, input: &[u8]) {
        let Some(document) = value(input) else { return };
        let is_structural = structural::check(&document, "").0.is_empty();
        let schema = parse::from_openapi(&document);
        if !is_structural || !rules::check(&schema, "", false).is_empty() {
            return;
        }
        let definitions = Definitions::default();
        let node = Node::new(&schema, &definitions);
        let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "spec": {"a": "x", "z": 1},
            "l": ["a", "a", 1], "e": {"p": 1}, "f": "a", "x": null});
        schema::prune(node, &mut object);
        schema::default(node, &mut object);
        let mut again = object.clone();
        schema::prune(node, &mut again);
        assert_eq!(again, object, "pruning twice changes something");
        let _causes = schema::validate(node, &object, None);
        let _violations = finish(rules::validate(node, &object, None));
    }
}
