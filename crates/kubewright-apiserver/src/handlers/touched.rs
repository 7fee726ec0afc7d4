//! The result of a patch as Kubernetes shows it in errors. Its library reads only the objects that the patch passes
//! through, and writes them with sorted fields; the others keep the text of the stored object, whose fields are in
//! their declared order.

use kubewright_apimachinery::types::{Shape, TypeId};
use serde_json::{Map, Value};

use crate::object_type::{self, ObjectType, types};

/// Returns the JSON of a patched object. `touched` contains the objects that the patch passes through.
pub(super) fn shown(original: &Value, result: &Value, touched: &Value) -> String {
    let mut out = Vec::new();
    write(ObjectType::of_object(original).map(ObjectType::id), result, Some(touched), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the objects through which the paths of a JSON patch lead.
pub(super) fn of_operations(operations: &Value) -> Value {
    let mut touched = Value::Object(Map::new());
    for operation in operations.as_array().into_iter().flatten() {
        for path in ["path", "from"].iter().filter_map(|field| operation[*field].as_str()) {
            let mut steps: Vec<_> =
                path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
            steps.pop();
            let mut at = &mut touched;
            for step in steps {
                let Value::Object(fields) = at else { break };
                at = fields.entry(step).or_insert_with(|| Value::Object(Map::new()));
            }
        }
    }
    touched
}

fn write(ty: Option<TypeId>, value: &Value, touched: Option<&Value>, out: &mut Vec<u8>) {
    match (value, touched) {
        (Value::Object(fields), Some(Value::Object(touched))) => {
            out.push(b'{');
            for (index, (name, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                object_type::write(&Value::from(&**name), out);
                out.push(b':');
                write(ty.and_then(|ty| below(ty, name)), value, touched.get(name), out);
            }
            out.push(b'}');
        }
        _ => match ty {
            Some(ty) => types().write(ty, value, out),
            None => object_type::write(value, out),
        },
    }
}

/// Returns the type of a field or entry.
fn below(ty: TypeId, name: &str) -> Option<TypeId> {
    match types().get(ty).shape() {
        Shape::Struct(fields) => fields.field(name).map(|field| field.ty()),
        Shape::Map(of) => Some(*of),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_touched_objects_are_sorted() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"b": "c"}}, "data": {"k": "v"},
        });
        let check = |touched: Value, expect: &str| assert_eq!(shown(&object, &object, &touched), expect);
        let data = r#""data":{"k":"v"},"kind":"ConfigMap""#;
        check(
            json!({}),
            &format!(r#"{{"apiVersion":"v1",{data},"metadata":{{"name":"a","annotations":{{"b":"c"}}}}}}"#),
        );
        let operations = json!([{"op": "add", "path": "/metadata/labels", "value": {}}]);
        let sorted = r#""metadata":{"annotations":{"b":"c"},"name":"a"}"#;
        check(of_operations(&operations), &format!(r#"{{"apiVersion":"v1",{data},{sorted}}}"#));
    }
}
