//! Properties of the schema algorithms in combination, for arbitrary schemas and values.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::json_value;

/// Generates a structural schema of a few levels, with the field names of [`json_value`].
fn schema_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "default": "a"})),
        Just(json!({"type": "string", "maxLength": 1})),
        Just(json!({"type": "string", "enum": ["a", "b"]})),
        Just(json!({"type": "integer", "minimum": 0, "default": 1})),
        Just(json!({"type": "boolean", "nullable": true})),
        Just(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "object", "additionalProperties": {"type": "integer", "default": 1}})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let fields = prop::collection::btree_map("[a-c]{1,2}", inner.clone(), 0..4);
        prop_oneof![
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            inner.clone().prop_map(|items| {
                json!({"type": "array", "items": items, "x-kubernetes-list-type": "set", "maxItems": 2})
            }),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
            (fields, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(fields, preserve, required, default)| {
                let mut schema = json!({"type": "object"});
                if !fields.is_empty() {
                    schema["properties"] = json!(fields);
                }
                if preserve {
                    schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                }
                if required && let Some(name) = fields.keys().next() {
                    schema["required"] = json!([name]);
                }
                if default {
                    schema["default"] = json!({});
                }
                schema
            }),
        ]
    })
}

proptest! {
    #[test]
    fn an_emitted_schema_is_parsed_back(document in schema_document()) {
        let schema = structural::parse(&document).unwrap();
        prop_assert_eq!(&parse::from_openapi(&emit::openapi_v3(&schema)), &schema);
        prop_assert_eq!(emit::openapi_v3(&schema), document);
    }

    #[test]
    fn pruning_and_defaulting_twice_changes_nothing(document in schema_document(), value in json_value()) {
        let schema = parse::from_openapi(&document);
        let definitions = Definitions::default();
        let node = Node::new(&schema, &definitions);
        let mut once = value;
        prune(node, &mut once);
        prop_assert_eq!(prune(node, &mut once), Vec::<String>::new());
        default(node, &mut once);
        let mut twice = once.clone();
        default(node, &mut twice);
        prop_assert_eq!(&twice, &once);
        prop_assert_eq!(prune(node, &mut twice), Vec::<String>::new(), "what defaulting adds is known");
    }

    #[test]
    fn unchanged_values_are_accepted(document in schema_document(), value in json_value()) {
        let schema = parse::from_openapi(&document);
        let definitions = Definitions::default();
        let node = Node::new(&schema, &definitions);
        prop_assert_eq!(validate(node, &value, Some(&value)), vec![]);
        prop_assume!(!value.is_null());
        let nothing = Value::Null;
        prop_assert_eq!(validate(node, &value, Some(&nothing)), validate(node, &value, None));
    }

    #[test]
    fn unknown_fields_are_those_that_pruning_drops(document in schema_document(), value in json_value()) {
        let schema = parse::from_openapi(&document);
        let definitions = Definitions::default();
        let mut pruned = value.clone();
        let dropped = prune(Node::new(&schema, &definitions), &mut pruned);
        prop_assert_eq!(dropped.is_empty(), pruned == value);
    }
}

/// Processes a value of the maximum depth on a thread with a smaller stack than a server's.
#[test]
fn the_deepest_value_fits_the_stack() {
    let work = || {
        let mut value = json!(null);
        for _ in 0..crate::depth::LIMIT {
            value = json!({"a": value});
        }
        let table =
            json!({"type": "object", "properties": {"a": {"$ref": "#/definitions/x"}}, "allOf": [{"required": ["b"]}]});
        let definitions = Definitions::from([("x", parse::from_openapi(&table))]);
        let schema = Schema { reference: Some("x".into()), ..Schema::default() };
        let node = Node::new(&schema, &definitions);
        assert!(!validate(node, &value, None).is_empty());
        default(node, &mut value);
        drop_nulls(node, &mut value);
        prune(node, &mut value);
        let mut copy = value.clone();
        crate::patch::merge::apply(&mut copy, &value);
        assert_eq!(copy, value);
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}
