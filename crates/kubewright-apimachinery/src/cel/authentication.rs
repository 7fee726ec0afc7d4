//! Expressions about the claims of a token, and about a user
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration>).

use std::{collections::HashMap, sync::Arc};

use kube_cel::cel::{
    self, IdedExpr,
    common::ast::{EntryExpr, Expr, LiteralValue, operators},
    objects::{Key, Map},
};
use serde_json::Value;

use super::{escape, macros, program, value};

/// Converts a value: numbers are doubles, and a name that isn't an identifier is also there in its escaped form.
pub(super) fn to_cel(of: &Value) -> cel::Value {
    match of {
        Value::Number(number) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let mut map: HashMap<Key, cel::Value> = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                let field = to_cel(field);
                if let Some(escaped) = escape(name).filter(|escaped| escaped != name) {
                    map.insert(value::key(&escaped), field.clone());
                }
                map.insert(value::key(name), field);
            }
            cel::Value::Map(Map { map: Arc::new(map) })
        }
        other => value::from_json(other),
    }
}

/// Returns whether an expression selects a field of a variable, as `variable.field`, `has(variable.field)` or
/// `variable.?field`. One that can't be parsed doesn't.
pub fn selects(expression: &str, variable: &str, field: &str) -> bool {
    let found = program::with_tree(expression, |mut tree| {
        macros::expand(&mut tree)?;
        Ok(selects_in(&tree, variable, field))
    });
    found.unwrap_or(false)
}

fn selects_in(tree: &IdedExpr, variable: &str, field: &str) -> bool {
    let is_variable = |operand: &IdedExpr| matches!(&operand.expr, Expr::Ident(name) if name == variable);
    let inside = |part: &IdedExpr| selects_in(part, variable, field);
    match &tree.expr {
        Expr::Select(select) => (select.field == field && is_variable(&select.operand)) || inside(&select.operand),
        Expr::Call(call) => {
            if call.func_name == operators::OPT_SELECT
                && let [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(name)), .. }] = &*call.args
                && is_variable(operand)
                && name.inner() == field
            {
                return true;
            }
            call.args.iter().chain(call.target.as_deref()).any(inside)
        }
        Expr::List(list) => list.elements.iter().any(inside),
        Expr::Map(map) => map.entries.iter().any(|entry| entry_selects(&entry.expr, &inside)),
        Expr::Struct(message) => message.entries.iter().any(|entry| entry_selects(&entry.expr, &inside)),
        Expr::Comprehension(parts) => {
            [&parts.iter_range, &parts.accu_init, &parts.loop_cond, &parts.loop_step, &parts.result]
                .into_iter()
                .any(inside)
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => false,
    }
}

fn entry_selects(entry: &EntryExpr, inside: &dyn Fn(&IdedExpr) -> bool) -> bool {
    match entry {
        EntryExpr::StructField(field) => inside(&field.value),
        EntryExpr::MapEntry(entry) => inside(&entry.key) || inside(&entry.value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cel::{Composition, Expected, PolicyDeclarations, PolicyEnvironment, PolicyExpression, PolicyInput};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    fn evaluate(text: &str) -> Result<Vec<String>, String> {
        let claims =
            json!({"sub": "ann", "roles": ["a", "", "b"], "exp": 1796104870, "a.b": {"c/d": "x"}, "none": null});
        let environment = PolicyEnvironment::new([("claims", PolicyInput::claims(&claims))]);
        let composition = Composition::default();
        let mut session = environment.session(&composition, None);
        let output = runtime().block_on(session.evaluate(&PolicyExpression::new(text))).unwrap()?;
        output.to_texts().ok_or_else(|| output.type_name())
    }

    #[test]
    fn claims_are_values_of_json() {
        for (text, expect) in [
            ("claims.sub", vec!["ann"]),
            ("claims.roles + ['', claims.sub]", vec!["a", "b", "ann"]),
            ("claims.none", vec![]),
            ("''", vec![]),
            ("string(type(claims.exp) == double)", vec!["true"]),
            ("string(claims.exp)", vec!["1.79610487e+09"]),
            ("claims.a__dot__b.c__slash__d + claims['a.b']['c/d']", vec!["xx"]),
            ("has(claims.absent) ? 'x' : claims.?absent.orValue('y')", vec!["y"]),
        ] {
            assert_eq!(evaluate(text), Ok(expect.into_iter().map(String::from).collect()), "{text}");
        }
        assert!(evaluate("claims.exp").is_err());
        assert!(evaluate("claims.exp + 1").unwrap_err().contains("no such overload"));
        assert!(evaluate("claims.absent").unwrap_err().contains("no such key: absent"));
    }

    #[test]
    fn expressions_are_checked_by_their_variables() {
        let claims = PolicyDeclarations::of_claims();
        assert_eq!(claims.check("claims.exp - claims.nbf <= 86400", Expected::Bool), Ok(()));
        assert!(claims.check("claims.email_verified", Expected::Bool).is_err());
        assert!(claims.check("user.username", Expected::Any).is_err());
        let user = PolicyDeclarations::of_user();
        assert_eq!(user.check("!user.username.startsWith('system:') && 'a' in user.groups", Expected::Bool), Ok(()));
        assert_eq!(user.check("user.extra.all(k, user.extra[k].size() == 1)", Expected::Bool), Ok(()));
        assert!(user.check("user.name == ''", Expected::Bool).is_err());
    }

    #[test]
    fn selections_of_a_field_are_found() {
        for (text, expect) in [
            ("claims.email", true),
            ("claims.?email.orValue('')", true),
            ("has(claims.email) ? 'a' : 'b'", true),
            ("['a', {'b': claims.email + 'c'}.b][0]", true),
            ("claims.roles.exists(role, role == claims.email)", true),
            ("claims['email']", false),
            ("claims.email_verified", false),
            ("user.email + claims.a.email", false),
            ("claims.email +", false),
        ] {
            assert_eq!(selects(text, "claims", "email"), expect, "{text}");
        }
    }
}
