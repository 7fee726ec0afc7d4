use std::sync::Arc;

use super::*;
use crate::cel::{PolicyDeclarations, Refusal, program};

/// The environment of a rule on an object with some fields.
fn environment() -> Environment {
    let object = |fields: Vec<(&str, Type)>| {
        let fields = fields.into_iter().map(|(name, of)| (name.to_owned(), of)).collect();
        Type::Object(Arc::new(Fields { name: "object", fields }))
    };
    let port = object(vec![("name", Type::String), ("number", Type::Int)]);
    let this = object(vec![
        ("count", Type::Int),
        ("ratio", Type::Double),
        ("name", Type::String),
        ("flag", Type::Bool),
        ("any", Type::Dyn),
        ("since", Type::Timestamp),
        ("names", Type::list(Type::String)),
        ("labels", Type::map(Type::String, Type::String)),
        ("ports", Type::list(port)),
    ]);
    Environment::default().with("self", this)
}

#[track_caller]
fn accepts(text: &str, expect: &str) {
    let found = program::type_of(text, &environment()).map(|found| found.of.to_string());
    assert_eq!(found.as_deref(), Ok(expect), "{text}");
}

/// Checks the first line of the error, without its beginning.
#[track_caller]
fn refuses(text: &str, expect: &str) {
    let why = program::type_of(text, &environment()).expect_err("it is refused");
    let first = why.lines().next().unwrap_or_default();
    assert_eq!(first.strip_prefix("ERROR: <input>:"), Some(expect), "{text}");
}

#[test]
fn expressions_have_types() {
    accepts("self.count > 1 && self.name == 'a'", "bool");
    accepts("self.count + 1", "int");
    accepts("self.count < self.ratio", "bool");
    accepts("self.flag ? self.name : 'x'", "string");
    accepts("self.any.thing[3].other", "dyn");
    accepts("self.any == 1 || self.any == 'x'", "bool");
    accepts("self.any + 1", "int");
    accepts("self.since == null || self.since < timestamp('2026-01-01T00:00:00Z')", "bool");
    accepts("has(self.labels) && 'a' in self.labels && self.labels['a'].startsWith('b')", "bool");
    accepts("has(self.labels.a)", "bool");
    accepts("self.names.all(name, name.size() > 1) && self.names.exists_one(n, n == 'a')", "bool");
    accepts("self.ports.filter(p, p.number > 1).map(p, p.name)", "list(string)");
    accepts("self.ports.map(p, p.number > 1, p.number).sum()", "int");
    accepts("self.labels.map(key, self.labels[key])", "list(string)");
    accepts("self.?name.orValue('x')", "string");
    accepts("self.labels[?'a'].hasValue() && self.?labels.?a.value() == 'x'", "bool");
    accepts("type(self.count) == int && type(self.since) == google.protobuf.Timestamp", "bool");
    accepts("'%d of %s'.format([self.count, self.name])", "string");
    accepts("quantity('1').isGreaterThan(quantity('2')) && ip('::1').family() == 6", "bool");
    accepts("sets.contains(self.names, ['a'])", "bool");
    accepts("[] == self.names || self.names == []", "bool");
    accepts("self.?name.optMap(x, x + 'a').orValue('b')", "string");
    accepts("self.?labels.optFlatMap(x, x[?'a'])", "optional_type(string)");
    accepts("self.names.all(i, name, i > 0 && name != '') || self.labels.exists(k, v, k == v)", "bool");
    accepts("self.names.existsOne(i, name, name.size() == i)", "bool");
    accepts("self.ports.transformList(i, p, p.number + i)", "list(int)");
    accepts("self.ports.transformMap(i, p, i > 0, p.name)", "map(int, string)");
    accepts("self.labels.transformMapEntry(k, v, {v: k.size()})", "map(string, int)");
    accepts("self.ports.sortBy(p, p.number).map(p, p.name)", "list(string)");
    accepts("url(self.name).getQuery()", "map(string, list(string))");
    accepts("url('https://x').getHost() == 'x' && isURL('y')", "bool");
    accepts("dyn(self.count) == 'x' && self.count == int(self.name)", "bool");
    accepts("-self.count - -1 == 2 && !self.flag", "bool");
    accepts("self.names.isSorted() && self.names.min() == 'a' && self.names.indexOf('a') == 0", "bool");
}

#[test]
fn wrong_expressions_are_refused_at_their_place() {
    refuses("self.b > 1", "1:5: undefined field 'b'");
    refuses("self.count > 1 && has(self.b)", "1:22: undefined field 'b'");
    refuses("other.b", "1:1: undeclared reference to 'other' (in container '')");
    refuses("self.count == 'a'", "1:12: found no matching overload for '_==_' applied to '(int, string)'");
    refuses("self.count == 1.0", "1:12: found no matching overload for '_==_' applied to '(int, double)'");
    refuses("1 + (self.count == null ? 1 : 2)", "1:17: found no matching overload for '_==_' applied to '(int, null)'");
    refuses("self.count + self.name", "1:12: found no matching overload for '_+_' applied to '(int, string)'");
    refuses(
        "self.count.startsWith('a')",
        "1:22: found no matching overload for 'startsWith' applied to 'int.(string)'",
    );
    refuses("self.count && true", "1:5: expected type 'bool' but found 'int'");
    refuses("!self.count", "1:1: found no matching overload for '!_' applied to '(int)'");
    refuses("self.name.what()", "1:15: undeclared reference to 'what' (in container '')");
    refuses("what(1)", "1:5: undeclared reference to 'what' (in container '')");
    refuses("self.name.length", "1:10: type 'string' does not support field selection");
    let range = "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)";
    refuses("self.count.all(x, x > 1)", &format!("1:5: {range}"));
    refuses("self.names.all(x, x > 1)", "1:21: found no matching overload for '_>_' applied to '(string, int)'");
    refuses("self.names.all(x, x)", "1:19: expected type 'bool' but found 'string'");
    refuses("self.ports.all(p, p.host == 'a')", "1:20: undefined field 'host'");
    refuses(
        "self.ports.filter(p, p.number).size() > 0",
        "1:18: found no matching overload for '_?_:_' applied to '(int, list(object), list(object))'",
    );
    let range = "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)";
    refuses("self.count.all(i, n, true)", &format!("1:5: {range}"));
    refuses("self.count.sortBy(p, p).size() > 0", &format!("1:18: {range}"));
    refuses("self.names.all(i, n, n)", "1:22: expected type 'bool' but found 'string'");
    refuses("self.names.all(i, n, n > 1)", "1:24: found no matching overload for '_>_' applied to '(string, int)'");
    refuses("self.names.all(i, i, true)", "1:19: duplicate variable name: i");
    refuses("self.names.all(i + 1, n, true)", "1:18: argument must be a simple name");
    refuses("self.names.all(1, n, m)", "1:16: argument must be a simple name");
    refuses("self.names.all(i, n)", "1:19: undeclared reference to 'n' (in container '')");
    refuses("self.names.transformList(i, n)", "1:25: undeclared reference to 'transformList' (in container '')");
    let no_overload = "found no matching overload for";
    refuses("self.names.existsOne(i, n, n)", &format!("1:21: {no_overload} '_?_:_' applied to '(string, int, int)'"));
    refuses(
        "self.names.transformList(i, n, n, n).size() > 0",
        &format!("1:25: {no_overload} '_?_:_' applied to '(string, list(string), list(string))'"),
    );
    refuses(
        "self.labels.transformMapEntry(k, v, v).size() > 0",
        &format!("1:30: {no_overload} 'cel.@mapInsert' applied to '(map(dyn, dyn), string)'"),
    );
    refuses(
        "self.?names.optFlatMap(n, n[0]).orValue('b') == 'c'",
        &format!("1:23: {no_overload} '_?_:_' applied to '(bool, string, optional_type(dyn))'"),
    );
    refuses("self.name.optMap(n, n) == 'c'", &format!("1:17: {no_overload} 'hasValue' applied to 'string.()'"));
    refuses("self.?name.optMap(1, n).hasValue()", "1:19: optMap() variable name must be a simple identifier");
    refuses("self.?name.optFlatMap(n.a, n).hasValue()", "1:24: optFlatMap() variable name must be a simple identifier");
    refuses("self.?name.optMap(n, m).hasValue()", "1:22: undeclared reference to 'm' (in container '')");
    refuses("self.ports.sortBy(1, 2).size() > 0", "1:19: argument is not an identifier");
    refuses("'a'.sortBy(x, x).size() > 0", &format!("1:1: {UNSORTABLE}"));
    refuses("url(self.count).getHost() == 'a'", &format!("1:4: {no_overload} 'url' applied to '(int)'"));
    refuses("url(self.name).getNothing()", "1:26: undeclared reference to 'getNothing' (in container '')");
    refuses("cel.bind(x, 1, x > 0)", "1:1: undeclared reference to 'cel' (in container '')");
    refuses("self.names[0] == 1", "1:15: found no matching overload for '_==_' applied to '(string, int)'");
    refuses(
        "self.names['a'] == 'b'",
        "1:11: found no matching overload for '_[_]' applied to '(list(string), string)'",
    );
    refuses("true &&\n  self.b", "2:7: undefined field 'b'");
    let both = program::type_of("self.b == 1 && self.c == 2", &environment()).expect_err("it is refused");
    assert_eq!(
        both,
        "ERROR: <input>:1:5: undefined field 'b'\n | self.b == 1 && self.c == 2\n | ....^\n\
         ERROR: <input>:1:20: undefined field 'c'\n | self.b == 1 && self.c == 2\n | ...................^"
    );
}

#[test]
fn expressions_of_policies_are_checked() {
    let mut policy = PolicyDeclarations::of_policy(false);
    assert_eq!(policy.declare("small", "object.spec.replicas < 5"), Ok(()));
    assert!(policy.declare("bad", "nothing").is_err());
    let check = |text: &str, expected| policy.check(text, expected);
    let refused = |why: &str| Err(Refusal::Expression(why.to_owned()));
    assert_eq!(check("variables.small && request.userInfo.groups.exists(g, g == 'x')", Expected::Bool), Ok(()));
    assert_eq!(
        check("variables.bad && authorizer.group('').resource('pods').check('get').allowed()", Expected::Bool),
        Ok(())
    );
    assert_eq!(check("object.spec.flag", Expected::Bool), refused("must evaluate to bool but got dyn"));
    assert_eq!(check("1", Expected::String), refused("must evaluate to string but got int"));
    assert_eq!(check("null", Expected::StringOrNull), Ok(()));
    assert_eq!(check("1", Expected::StringOrNull), refused("must evaluate to one of [string null_type] but got int"));
    let first = |text: &str, on: &PolicyDeclarations| {
        let Err(Refusal::Expression(why)) = on.check(text, Expected::Any) else { panic!("{text} isn't refused") };
        why.lines().next().unwrap_or_default().to_owned()
    };
    let undeclared = |name: &str| {
        format!("compilation failed: ERROR: <input>:1:1: undeclared reference to '{name}' (in container '')")
    };
    assert_eq!(first("params.x", &policy), undeclared("params"));
    assert_eq!(PolicyDeclarations::of_policy(true).check("params.x == 1", Expected::Bool), Ok(()));
    assert_eq!(first("authorizer", &policy.without_authorizer()), undeclared("authorizer"));
    assert_eq!(first("variables", &PolicyDeclarations::of_webhook()), undeclared("variables"));
    assert!(first("variables.large", &policy).ends_with("undefined field 'large'"));
    assert!(first("request.object", &policy).ends_with("undefined field 'object'"));
    assert!(policy.check("Object{}", Expected::Any).is_err());
    assert_eq!(policy.with_messages().check("Object{spec: Object.spec{replicas: 1}}", Expected::Object), Ok(()));
    let patches = |text: &str| policy.with_messages().check(text, Expected::Patches);
    assert_eq!(patches("[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a'), value: object.x}]"), Ok(()));
    assert_eq!(patches("object.x ? [] : [JSONPatch{op: 'add'}]"), Ok(()));
    assert_eq!(patches("[1]"), refused("must evaluate to list(JSONPatch) but got list(int)"));
    let object = policy.with_messages().check("object", Expected::Object);
    assert_eq!(object, refused("must evaluate to Object but got dyn"));
}

#[test]
fn conditions_of_authorizers_see_a_review() {
    let authorizer = PolicyDeclarations::of_authorizer();
    for text in [
        "'a' in request.groups && request.user.startsWith('b') && request.extra['c'] == ['d']",
        "has(request.resourceAttributes) && request.resourceAttributes.version == 'v1'",
        "request.?nonResourceAttributes.path.orValue('') == '/healthz'",
        "request.resourceAttributes.fieldSelector.requirements.all(r, r.key == 'a' && 'b' in r.values)",
    ] {
        assert_eq!(authorizer.check(text, Expected::Bool), Ok(()), "{text}");
    }
    for (text, expect) in [
        ("request.name == 'a'", "undefined field 'name'"),
        ("request.resourceAttributes.kind == 'a'", "undefined field 'kind'"),
        ("request.user", "must evaluate to bool but got string"),
        ("object.x", "undeclared reference to 'object'"),
    ] {
        let Err(Refusal::Expression(why)) = authorizer.check(text, Expected::Bool) else {
            panic!("{text} isn't refused")
        };
        assert!(why.contains(expect), "{text}: {why}");
    }
}

/// The errors are those of 1.36.3.
#[test]
fn the_authorizer_has_types() {
    let policy = PolicyDeclarations::of_policy(false);
    let accepts = |text: &str| assert_eq!(policy.check(text, Expected::Bool), Ok(()), "{text}");
    accepts("authorizer.requestResource.check('get').allowed()");
    accepts(
        "authorizer.group('').resource('pods').namespace('a').name('b').subresource('c').fieldSelector('a=b')\
             .labelSelector('x').check('get').reason() == ''",
    );
    accepts("authorizer.serviceAccount('a','b').path('/a').check('get').errored()");
    accepts("authorizer == authorizer && authorizer.requestResource == null");
    accepts("object.group('').resource('x').check('y').allowed()");
    accepts("[{'requestResource': 1}].all(authorizer, authorizer.requestResource == 1)");
    let refuses = |text: &str, expect: &str| {
        let Err(Refusal::Expression(why)) = policy.check(text, Expected::Bool) else { panic!("{text} isn't refused") };
        let why = why.lines().next().unwrap_or_default().trim_start_matches("compilation failed: ERROR: <input>:");
        assert_eq!(why, expect.replace("TYPES", "kubernetes.authorization"), "{text}");
    };
    let no_overload = "found no matching overload for";
    refuses("authorizer.foo() == true", "1:15: undeclared reference to 'foo' (in container '')");
    refuses("authorizer.foo == true", "1:11: unexpected failed resolution of 'TYPES.Authorizer'");
    refuses("has(authorizer.requestResource)", "1:4: unexpected failed resolution of 'TYPES.Authorizer'");
    refuses("authorizer.requestResource.foo == 1", "1:27: unexpected failed resolution of 'TYPES.ResourceCheck'");
    refuses("quantity('1').foo == 1", "1:14: unexpected failed resolution of 'kubernetes.Quantity'");
    refuses("ip('1.2.3.4').foo == 1", "1:14: type 'net.IP' does not support field selection");
    let text = "authorizer.group('').check('get').allowed()";
    refuses(text, &format!("1:27: {no_overload} 'check' applied to 'TYPES.GroupCheck.(string)'"));
    let text = "authorizer.group(1).resource('pods').check('get').allowed()";
    refuses(text, &format!("1:17: {no_overload} 'group' applied to 'TYPES.Authorizer.(int)'"));
    let text = "authorizer.path('/a').resource('get').check('get').allowed()";
    refuses(text, &format!("1:31: {no_overload} 'resource' applied to 'TYPES.PathCheck.(string)'"));
    let text = "authorizer.serviceAccount('a').path('/a').check('get').allowed()";
    refuses(text, &format!("1:26: {no_overload} 'serviceAccount' applied to 'TYPES.Authorizer.(string)'"));
    let text = "authorizer == 1";
    refuses(text, &format!("1:12: {no_overload} '_==_' applied to '(TYPES.Authorizer, int)'"));
    let text = "type(authorizer) == authorizer";
    refuses(text, &format!("1:18: {no_overload} '_==_' applied to '(type(TYPES.Authorizer), TYPES.Authorizer)'"));
    let text = "authorizer['a'] == 1";
    refuses(text, &format!("1:11: {no_overload} '_[_]' applied to '(TYPES.Authorizer, string)'"));
    refuses("authorizer.path('/a').check('get')", "must evaluate to bool but got TYPES.Decision");
}

/// The errors are those of 1.36.3.
#[test]
fn messages_have_types() {
    let policy = PolicyDeclarations::of_policy(false).with_messages();
    let first = |text: &str, expected: Expected| match policy.check(text, expected) {
        Err(Refusal::Expression(why)) => why.lines().next().unwrap_or_default().to_owned(),
        other => format!("{other:?}"),
    };
    let failed = |why: &str| format!("compilation failed: ERROR: <input>:{why}");
    let object = |text: &str| first(text, Expected::Object);
    assert_eq!(object("Object"), "must evaluate to Object but got type(Object)");
    assert_eq!(object("Object.spec{}"), "must evaluate to Object but got Object.spec");
    assert_eq!(object("JSONPatch{}"), "must evaluate to Object but got JSONPatch");
    assert_eq!(object("Foo{}"), failed("1:4: undeclared reference to 'Foo' (in container '')"));
    assert_eq!(object("Objecta{}"), failed("1:8: undeclared reference to 'Objecta' (in container '')"));
    assert_eq!(object("Object{`a-b`: 1}"), failed("1:8: unsupported syntax: '`'"));
    assert_eq!(object("true ? Object{} : Object{spec: Object.spec{a: 1}.a}"), "Ok(())");
    let patches = |text: &str| first(text, Expected::Patches);
    for empty in ["[]", "true ? [] : []"] {
        assert_eq!(patches(empty), "must evaluate to list(JSONPatch) but got list(dyn)");
    }
    assert_eq!(patches("[JSONPatch{op: 'x'}.op]"), "must evaluate to list(JSONPatch) but got list(string)");
    let wrong = "1:14: expected type of field 'op' is 'string' but provided type is 'int'";
    assert_eq!(patches("[JSONPatch{op:1}]"), failed(wrong));
    let wrong = "1:15: expected type of field 'foo' is '' but provided type is 'int'";
    assert_eq!(patches("[JSONPatch{foo:1}]"), failed(wrong));
    assert_eq!(patches("[JSONPatch{op: 'x', ?value: optional.none()}] + []"), "Ok(())");
    assert_eq!(patches("[] + [JSONPatch{op: dyn(1)}].filter(x, x.op == 'y')"), "Ok(())");
}

/// The fields of a composed variable aren't checked, as in Kubernetes, but simple types are known.
#[test]
fn composed_variables_have_simple_types() {
    let mut policy = PolicyDeclarations::of_policy(false);
    for (name, expression) in [("r", "request"), ("l", "[request]"), ("g", "request.userInfo.groups")] {
        assert_eq!(policy.declare(name, expression), Ok(()));
    }
    for text in ["variables.r.absent == 1", "variables.l[0].absent == 1", "variables.g[0] == 'a'"] {
        assert_eq!(policy.check(text, Expected::Bool), Ok(()), "{text}");
    }
    for text in ["request.absent == 1", "variables.l == 1", "variables.g[0] == 1"] {
        assert!(policy.check(text, Expected::Bool).is_err(), "{text}");
    }
}

/// Composed variables can't be used in match conditions, and only after their declaration.
#[test]
fn composed_variables_are_declared_in_order() {
    let mut policy = PolicyDeclarations::of_policy(false);
    let why = |checked: Result<(), Refusal>| match checked {
        Err(Refusal::Expression(why)) => why.lines().next().unwrap_or_default().to_owned(),
        other => format!("{other:?}"),
    };
    assert!(why(policy.check("variables.b", Expected::Any)).contains("undeclared reference to 'variables'"));
    assert!(why(policy.declare("a", "variables.b")).ends_with("1:10: undefined field 'b'"));
    assert!(why(policy.check("variables.b", Expected::Any)).ends_with("1:10: undefined field 'b'"));
}

/// The errors are those of Kubernetes 1.36.3.
#[test]
fn literals_are_checked_last() {
    refuses("self.name.matches('(')", "1:19: invalid matches argument");
    refuses("matches('(', self.name)", "1:9: invalid matches argument");
    refuses("duration('1h') > duration('1x')", "1:27: invalid duration argument");
    refuses("!!absent && - -1 == 1", "1:3: undeclared reference to 'absent' (in container '')");
    refuses("true && !!!absent", "1:12: undeclared reference to 'absent' (in container '')");
    refuses("timestamp('2026') < self.since", "1:11: invalid timestamp argument");
    refuses("timestamp('x') < self.since && self.b", "1:36: undefined field 'b'");
    let both = "[1, 'a'].size() > 1 && duration('x') == duration('1h')";
    let why = program::type_of(both, &environment()).expect_err("it is refused");
    assert!(why.contains("1:5: expected type 'int' but found 'string'"), "{why}");
    assert!(why.contains("1:33: invalid duration argument"), "{why}");
}

/// Kubernetes makes a program of an expression only after its type is known to be right. The errors are those of
/// 1.36.3.
#[test]
fn literals_that_are_no_patterns_are_found() {
    let check = |text: &str, expect: Option<&str>| {
        let found = program::type_of(text, &environment()).expect("a type").invalid_literal;
        assert_eq!(found, expect.map(|why| format!("error parsing regexp: {why}")), "{text}");
    };
    check("self.name.find('[') == ''", Some("missing closing ]: `[`"));
    check("self.name.findAll('a{2,1}', 1) == []", Some("invalid repeat count: `{2,1}`"));
    check("matches(self.name, '(')", Some("missing closing ): `(`"));
    check("false && self.names.all(x, x.find('*') == '')", Some("missing argument to repetition operator: `*`"));
    check("self.name.find('[') == '' && self.name.find('(') == ''", Some("missing closing ]: `[`"));
    check("self.name.find('a' + '[') == '' && 'a'.find(self.name) == ''", None);
    let policy = PolicyDeclarations::of_policy(false);
    let why = "program instantiation failed: error parsing regexp: missing closing ]: `[`";
    assert_eq!(policy.check("'a'.find('[') == ''", Expected::Bool), Err(Refusal::Program(why.to_owned())));
    let why = "must evaluate to bool but got string";
    assert_eq!(policy.check("'a'.find('[')", Expected::Bool), Err(Refusal::Expression(why.to_owned())));
}

/// The errors are those of 1.36.3.
#[test]
fn literals_that_cannot_be_converted_are_found() {
    for (text, expect) in [
        ("int('x') == 1", "type conversion error from 'string' to 'int'"),
        ("false && uint(-1) == 1u", "unsigned integer overflow"),
        ("int(1e19) == 1 || bool('yes')", "integer overflow"),
        ("double('1e400') == 1.0", "type conversion error from 'string' to 'double'"),
        ("string(b'\\xff') == ''", "invalid UTF-8 in bytes, cannot convert to string"),
        ("int(dyn([1])) == 1", "no such overload: int(list)"),
        ("timestamp(dyn('x')) == timestamp(0)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
    ] {
        let found = program::type_of(text, &environment()).expect("a type").invalid_literal;
        assert_eq!(found.as_deref(), Some(expect), "{text}");
    }
    for text in [
        "int('5') == int(self.name)",
        "['1', 'x'].map(x, int(x)) == [1]",
        "int('1' + 'x') == 1",
        "string(ip('::1')) == ''",
    ] {
        assert_eq!(program::type_of(text, &environment()).expect("a type").invalid_literal, None, "{text}");
    }
    refuses("duration(5) == duration('1s')", "1:10: invalid duration argument");
    refuses("timestamp(253402300800) == self.since", "1:11: invalid timestamp argument");
    refuses("timestamp('2020-01-01 00:00:00Z') == self.since", "1:11: invalid timestamp argument");
    refuses("duration('1h 1m') == duration('9999999h')", "1:10: invalid duration argument");
}

#[test]
fn literal_templates_are_checked() {
    accepts("'%s %d %f %e %b %x %o %%'.format([[1, 'a'], 1u, 'NaN', 1.0, true, b'', self.any])", "string");
    accepts("self.name.format([1]) + '%d'.format(dyn(['a']))", "string");
    for (text, expect) in [
        ("'%t'.format([true])", r#"1:12: could not parse formatting clause: unrecognized formatting clause "t""#),
        (
            "'%d'.format(['a'])",
            "1:14: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "'%.3f'.format([1])",
            "1:16: error during formatting: fixed-point clause can only be used on doubles, was given int",
        ),
        ("'%s %s'.format(['a'])", "1:15: index 1 out of range"),
        ("'%s'.format(['a', 1])", "1:12: too many arguments supplied to string.format (expected 1, got 2)"),
        (
            "'%s'.format([optional.of(1)])",
            "1:25: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, \
             types, durations, and timestamps, was given optional_type",
        ),
        ("[int, string].size() == 1", "1:7: expected type 'type(int)' but found 'type(string)'"),
        (
            "quantity('1').sign() == 1",
            "1:19: found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'",
        ),
        ("[[1]].sort() == []", "1:11: found no matching overload for 'sort' applied to 'list(list(int)).()'"),
    ] {
        refuses(text, expect);
    }
    let policy = PolicyDeclarations::of_policy(false);
    assert!(
        policy
            .check("namespaceObject.metadata.name == 'a' && namespaceObject.status.phase == 'b'", Expected::Bool)
            .is_ok()
    );
    let Err(Refusal::Expression(why)) = policy.check("namespaceObject.kind == 'Namespace'", Expected::Bool) else {
        panic!("the field is declared");
    };
    assert!(why.contains("undefined field 'kind'"), "{why}");
}

#[test]
fn exists_one_of_one_variable_has_another_name() {
    let why =
        program::type_of("self.names.existsOne(x, x == 'existsOne(')", &environment()).expect_err("it is refused");
    let lines: Vec<_> = why.lines().filter(|line| line.starts_with("ERROR")).collect();
    let undeclared =
        |at: u32, name: &str| format!("ERROR: <input>:1:{at}: undeclared reference to '{name}' (in container '')");
    assert_eq!(lines, [undeclared(21, "existsOne"), undeclared(22, "x"), undeclared(25, "x")]);
    assert_eq!(why.lines().nth(1), Some(" | self.names.existsOne(x, x == 'existsOne(')"));
    let why = program::type_of("self.names.existsOne(i, x, ) &&", &environment()).expect_err("it is refused");
    assert!(why.contains("| self.names.existsOne(i, x, ) &&"), "{why}");
    accepts("self.names.exists_one(x, x == 'existsOne(') && self.names.existsOne(i, x, i == 0)", "bool");
}
