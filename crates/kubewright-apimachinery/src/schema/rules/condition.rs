//! Conditions: expressions over several values that have no schema at hand, such as a webhook's `matchConditions`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>).

use std::{fmt, sync::Arc};

use kube_cel::cel;
use serde_json::Value;

use super::{
    cost::{Budget, Sizes},
    program::Program,
    value,
};

/// An expression that is true or false. Evaluation is bounded as that of a rule is.
#[derive(Clone)]
pub struct Condition {
    text: String,
    program: Arc<Program>,
}

impl Condition {
    /// Reads an expression; the error says why it can't be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let program = Program::of(text).map_err(|why| format!("compilation failed: {why}"))?;
        Ok(Self { text: text.to_owned(), program })
    }

    /// Whether it holds for these values by name. It is an error when that can't be told: a field that isn't there, an
    /// answer that is neither true nor false, a cost past the limit.
    pub fn holds(&self, values: &[(&str, &Value)]) -> Result<bool, String> {
        let sizes = Sizes::of_all(values.iter().map(|(_, value)| *value));
        Budget::of_object().spend(self.program.cost(&sizes), &self.text)?;
        let answer = self.program.evaluate_with(|context| {
            for (name, value) in values {
                context.add_variable_from_value(*name, value::untyped(value));
            }
        })?;
        match answer {
            cel::Value::Bool(holds) => Ok(holds),
            _ => Err("must evaluate to a bool".to_owned()),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(text: &str, expect: Result<bool, &str>) {
        let object =
            json!({"metadata": {"name": "a", "labels": {"x-y/z": "b"}}, "spec": {"replicas": 3, "off": false}});
        let request = json!({"operation": "CREATE", "userInfo": {"groups": ["system:nodes", "other"]}});
        let values = [("object", &object), ("oldObject", &Value::Null), ("request", &request)];
        match (Condition::parse(text).unwrap().holds(&values), expect) {
            (Ok(holds), expect) => assert_eq!(Ok(holds), expect, "{text}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
            (Err(why), _) => panic!("{text}: {why}"),
        }
    }

    #[test]
    fn conditions_hold_or_not_or_cannot_tell() {
        check("true", Ok(true));
        check("request.operation == 'CREATE' && oldObject == null", Ok(true));
        check("!('system:nodes' in request.userInfo.groups)", Ok(false));
        check("object.metadata.labels['x-y/z'] == 'b' && object.spec.replicas > 2", Ok(true));
        check("has(object.spec.absent) || object.spec.off", Ok(false));
        check("object.spec.absent == 1", Err("no such key"));
        check("object.spec.replicas", Err("must evaluate to a bool"));
        check("authorizer.group('')", Err("undeclared reference"));
        let all = "[0,1,2,3,4,5,6,7,8,9]";
        let deep = format!("{all}.all(a, {all}.all(b, {all}.all(c, {all}.all(d, {all}.all(e, {all}.all(f, true))))))");
        check(&deep, Err("cost limit exceeded"));
        assert!(Condition::parse("object.").is_err());
    }
}
