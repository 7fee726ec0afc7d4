use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::json_value;

#[track_caller]
fn check(document: Value, patch: Value, expect: Value) {
    assert_eq!(apply(&document, &patch).unwrap_or_else(|why| panic!("{patch}: {why}")), expect, "{patch}");
}

#[test]
fn examples_of_the_rfc() {
    let op = |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
    check(json!({"foo": "bar"}), op("add", "/baz", json!("qux")), json!({"baz": "qux", "foo": "bar"}));
    check(json!({"foo": ["bar", "baz"]}), op("add", "/foo/1", json!("qux")), json!({"foo": ["bar", "qux", "baz"]}));
    check(json!({"baz": "qux", "foo": "bar"}), json!([{"op": "remove", "path": "/baz"}]), json!({"foo": "bar"}));
    check(json!({"foo": [1, 2, 3]}), json!([{"op": "remove", "path": "/foo/1"}]), json!({"foo": [1, 3]}));
    check(json!({"baz": "qux"}), op("replace", "/baz", json!("boo")), json!({"baz": "boo"}));
    check(
        json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
        json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
        json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}),
    );
    check(
        json!({"foo": ["all", "grass", "cows", "eat"]}),
        json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
        json!({"foo": ["all", "cows", "eat", "grass"]}),
    );
    check(
        json!({"baz": "qux", "foo": ["a", 2, "c"]}),
        json!([{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]),
        json!({"baz": "qux", "foo": ["a", 2, "c"]}),
    );
    check(json!({"foo": "bar"}), op("add", "/child", json!({"a": {}})), json!({"foo": "bar", "child": {"a": {}}}));
    check(
        json!({"foo": "bar"}),
        json!([{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]),
        json!({"foo": "bar", "baz": "qux"}),
    );
    check(json!({"/": 9, "~1": 10}), op("test", "/~01", json!(10)), json!({"/": 9, "~1": 10}));
    check(json!({"foo": ["bar"]}), op("add", "/foo/-", json!(["abc"])), json!({"foo": ["bar", ["abc"]]}));
}

#[test]
fn edge_cases() {
    check(json!({"a": 1}), json!([{"op": "replace", "path": "", "value": [2]}]), json!([2]));
    check(json!({"a/b": 1}), json!([{"op": "remove", "path": "/a~1b"}]), json!({}));
    check(json!({"": 1}), json!([{"op": "replace", "path": "/", "value": 2}]), json!({"": 2}));
    check(json!({"a": [1]}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"a": [1], "b": [1]}));
    check(json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/a"}]), json!({"a": 1}));
    check(json!({"a": 1.0}), json!([{"op": "test", "path": "/a", "value": 1}]), json!({"a": 1.0}));
    check(json!({}), json!([{"op": "test", "path": "/a", "value": null}]), json!({}));
    let failed = "testing value /a failed: test failed";
    for (found, sent) in [(json!(1), json!(1.0)), (json!([1]), json!([1.0])), (json!({"b": 1}), json!({"b": 1.0}))] {
        check_error(json!({"a": found}), json!([{"op": "test", "path": "/a", "value": sent}]), 422, failed);
    }
    check(json!({"a": 1}), json!([]), json!({"a": 1}));
}

#[track_caller]
fn check_error(document: Value, patch: Value, code: u16, expect: &str) {
    let error = apply(&document, &patch).unwrap_err();
    assert_eq!((error.to_status().code, error.to_string().as_str()), (code, expect), "{patch}");
}

#[test]
fn operations_that_do_not_apply_are_rejected() {
    let missing = "error in remove for path: '/a': Unable to remove nonexistent key: a: missing value";
    check_error(json!({}), json!([{"op": "remove", "path": "/a"}]), 422, missing);
    let missing = "remove operation does not apply: doc is missing path: \"/a/b\": missing value";
    check_error(json!({}), json!([{"op": "remove", "path": "/a/b"}]), 422, missing);
    let missing = "replace operation does not apply: doc is missing path: /a/b: missing value";
    check_error(json!({}), json!([{"op": "replace", "path": "/a/b", "value": 1}]), 422, missing);
    let missing = "replace operation does not apply: doc is missing key: /1: missing value";
    check_error(json!([1]), json!([{"op": "replace", "path": "/1", "value": 1}]), 422, missing);
    let missing = "add operation does not apply: doc is missing path: \"/a/b\": missing value";
    check_error(json!({}), json!([{"op": "add", "path": "/a/b", "value": 1}]), 422, missing);
    check_error(json!({"a": 1}), json!([{"op": "add", "path": "/a/b", "value": 1}]), 422, missing);
    let invalid = "error in add for path: '/2': Unable to access invalid index: 2: invalid index referenced";
    check_error(json!([1]), json!([{"op": "add", "path": "/2", "value": 1}]), 422, invalid);
    let invalid = "error in add for path: '/-3': Unable to access invalid index: -3: invalid index referenced";
    check_error(json!([1]), json!([{"op": "add", "path": "/-3", "value": 1}]), 422, invalid);
    let invalid = "error in add for path: '/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": \
                   invalid syntax";
    check_error(json!([1]), json!([{"op": "add", "path": "/x", "value": 1}]), 422, invalid);
    let invalid = "error in remove for path: '/99999999999999999999': strconv.Atoi: parsing \"99999999999999999999\": \
                   value out of range";
    check_error(json!([1]), json!([{"op": "remove", "path": "/99999999999999999999"}]), 422, invalid);
    let failed = "testing value /a failed: test failed";
    check_error(json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 2}]), 422, failed);
    check_error(json!({"a": 1}), json!([{"op": "test", "path": "/a"}]), 422, failed);
    let missing = "test operation does not apply: is missing path: /b/c: missing value";
    check_error(json!({"a": 1}), json!([{"op": "test", "path": "/b/c", "value": 2}]), 422, missing);
    let inside = "move operation does not apply: doc is missing destination path: /a/b: missing value";
    check_error(json!({"a": {}}), json!([{"op": "move", "from": "/a", "path": "/a/b"}]), 422, inside);
    let missing = "error in move for path: 'b': Unable to remove nonexistent key: b: missing value";
    check_error(json!({"a": {}}), json!([{"op": "move", "from": "/a/b", "path": "/c"}]), 422, missing);
    let missing = "copy operation does not apply: doc is missing from path: /b/c: missing value";
    check_error(json!({"a": {}}), json!([{"op": "copy", "from": "/b/c", "path": "/c"}]), 422, missing);
    for op in ["add", "remove"] {
        let missing = format!("{op} operation does not apply: doc is missing path: \"\": missing value");
        check_error(json!({}), json!([{"op": op, "path": "", "value": {}}]), 422, &missing);
    }
    let missing = "remove operation does not apply: doc is missing path: \"a\": missing value";
    check_error(json!({"a": 1}), json!([{"op": "remove", "path": "a"}]), 422, missing);
    let root = "replace operation value must be object or array: %!w(<nil>)";
    check_error(json!({}), json!([{"op": "replace", "path": "", "value": 1}]), 422, root);
}

#[test]
fn what_an_operation_lacks_is_an_error_when_it_is_performed() {
    check_error(json!({}), json!([null]), 422, "Unexpected kind: unknown");
    check_error(json!({}), json!([{"op": "spam", "path": "/a"}]), 422, "Unexpected kind: spam");
    let path = "add operation failed to decode path: missing value";
    check_error(json!({}), json!([{"op": "add", "value": 1}]), 422, path);
    let path = "replace operation failed to decode path: operation missing path field: missing value";
    check_error(json!({}), json!([{"op": "replace", "path": null}]), 422, path);
    let from = "move operation failed to decode from: operation, missing from field: missing value";
    check_error(json!({}), json!([{"op": "move", "path": "/a"}]), 422, from);
    check(json!({}), json!([{"op": "add", "path": "/a"}]), json!({"a": null}));
    check(json!({"a": 1}), json!([{"op": "replace", "path": "/a"}]), json!({"a": null}));
    check(json!({}), json!([{"op": "copy", "from": "/b", "path": "/a"}]), json!({"a": null}));
}

#[test]
fn an_index_may_have_a_sign_and_leading_zeros() {
    let list = || json!({"a": [1, 2]});
    let at = |op: &str, index: &str| json!([{"op": op, "path": format!("/a/{index}"), "value": 3}]);
    check(list(), at("add", "-1"), json!({"a": [1, 2, 3]}));
    check(list(), at("add", "-3"), json!({"a": [3, 1, 2]}));
    check(list(), at("add", "01"), json!({"a": [1, 3, 2]}));
    check(list(), at("add", "+1"), json!({"a": [1, 3, 2]}));
    check(list(), at("remove", "-1"), json!({"a": [1]}));
    check(list(), at("replace", "-2"), json!({"a": [3, 2]}));
    check(list(), json!([{"op": "test", "path": "/a/-1", "value": 2}]), list());
    check(list(), json!([{"op": "move", "from": "/a/-1", "path": "/a/0"}]), json!({"a": [2, 1]}));
}

#[test]
fn malformed_patches_are_refused() {
    check_error(json!({}), json!({}), 400, "a JSON patch must be a list of operations");
    let begin = "error decoding patch: json: cannot unmarshal number into Go";
    check_error(json!({}), json!([1]), 400, &format!("{begin} value of type handlers.jsonPatchOp"));
    let op = json!([{"op": 1, "path": "/a"}]);
    check_error(json!({}), op, 400, &format!("{begin} struct field jsonPatchOp.op of type string"));
    let operation = json!({"op": "test", "path": "/a"});
    let many = "The allowed maximum operations in a JSON patch is 10000, got 10001";
    check_error(json!({}), Value::from(vec![operation; 10_001]), 413, many);
}

#[test]
fn a_patch_cannot_grow_without_bound() {
    let copies = vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 40];
    let error = apply(&json!({"a": [1]}), &Value::from(copies)).unwrap_err();
    assert!(error.to_string().starts_with("Unable to complete the copy"), "{error}");

    let nests = (0..200).flat_map(|_| {
        [
            json!({"op": "move", "from": "/a", "path": "/b"}),
            json!({"op": "add", "path": "/a", "value": {}}),
            json!({"op": "move", "from": "/b", "path": "/a/c"}),
        ]
    });
    let error = apply(&json!({"a": 1}), &nests.collect()).unwrap_err();
    assert!(error.to_string().contains("nest deeper than"), "{error}");
}

fn work_of(document: Value, operations: &[Value]) -> Result<usize, PatchError> {
    let mut patching = Patching::new(document);
    for operation in operations {
        patching.perform(&parse_operation(operation)?)?;
    }
    Ok(patching.work)
}

#[test]
fn a_move_does_not_visit_what_it_moves() {
    let there = json!({"op": "move", "from": "/a", "path": "/b"});
    let back = json!({"op": "move", "from": "/b", "path": "/a"});
    let document = json!({"a": vec![json!({"x": [1, 2]}); 1000]});
    assert_eq!(work_of(document, &vec![[there, back]; 500].concat()), Ok(0));
}

#[test]
fn moves_of_deep_values_are_bounded() {
    let deep = (0..100).fold(json!(vec![0; 200_000]), |inner, _| json!({"a": inner}));
    let document = json!({"from": {"a": {"a": {"a": {"a": {"a": {"a": {"a": deep}}}}}}}, "to": {}});
    let inner = "/from/a/a/a/a/a/a/a";
    let there = json!({"op": "move", "from": inner, "path": "/to/a"});
    let back = json!({"op": "move", "from": "/to/a", "path": inner});
    let few = work_of(document.clone(), &[there.clone(), back.clone()]).unwrap();
    assert!((200_000..500_000).contains(&few), "{few}");
    let many = work_of(document, &vec![[there, back]; 500].concat());
    assert!(matches!(many, Err(PatchError::TooLarge(_))), "{many:?}");
}

#[test]
fn shifting_the_items_of_a_long_list_is_bounded() {
    let rotate = json!({"op": "move", "from": "/0", "path": "/-"});
    assert_eq!(work_of(json!(vec![0; 1000]), &vec![rotate.clone(); 1000]), Ok(1_000_000));
    let prepend = json!({"op": "add", "path": "/0", "value": 0});
    for operation in [rotate, prepend, json!({"op": "remove", "path": "/0"})] {
        let work = work_of(json!(vec![0; 100_000]), &vec![operation.clone(); 1000]);
        assert!(matches!(work, Err(PatchError::TooLarge(_))), "{operation}: {work:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_input_causes_no_panic(document in json_value(), patch in prop::collection::vec(
        ("(add|remove|replace|move|copy|test)", "(/[a-c0-2~-]{0,2}){0,3}", "(/[a-c0-2]{1,2}){0,2}", json_value()), 0..6,
    )) {
        let patch = patch.into_iter().map(|(op, path, from, value)| {
            json!({"op": op, "path": path, "from": from, "value": value})
        });
        let _ = apply(&document, &patch.collect());
    }

    #[test]
    fn a_difference_turns_one_value_into_the_other(from in json_value(), to in json_value()) {
        // Only an object or a list replaces the whole document.
        let (from, to) = (json!({"a": from}), json!({"a": to}));
        let patch = serde_json::to_value(json_patch::diff(&from, &to)).unwrap();
        prop_assert_eq!(apply(&from, &patch).unwrap(), to);
    }

    #[test]
    fn a_move_there_and_back_changes_nothing(value in json_value()) {
        let document = json!({"a": value, "b": {}});
        let there = json!({"op": "move", "from": "/a", "path": "/b/c"});
        let back = json!({"op": "move", "from": "/b/c", "path": "/a"});
        prop_assert_eq!(apply(&document, &json!([there, back])).unwrap(), document);
    }

    #[test]
    fn an_added_value_passes_a_test_for_it(document in json_value(), value in json_value()) {
        let document = json!({"list": [], "document": document});
        let patch = json!([
            {"op": "add", "path": "/list/-", "value": value},
            {"op": "test", "path": "/list/0", "value": value},
            {"op": "remove", "path": "/list/0"},
        ]);
        prop_assert_eq!(apply(&document, &patch).unwrap(), document);
    }
}
