//! Resource fields of the downward API, `resourceFieldRef`
//! (<https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#downwardapi-resourceFieldRef>). Pure.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use super::object::Capacity;

/// The unit in which quantities are counted: billionths, the smallest unit of quantities.
const PARTS: i128 = 1_000_000_000;

/// Returns the value of a resource field of a container; `None` for an unknown field. If the field names no container,
/// `own` is used. Without a limit, a container may use the whole node.
pub(crate) fn value(pod: &Pod, own: &Container, field: &ResourceFieldSelector, node: Capacity) -> Option<String> {
    let container = match field.container_name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => {
            let spec = pod.spec.as_ref()?;
            spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|one| one.name == name)?
        }
        None => own,
    };
    let (sort, resource) = field.resource.split_once('.')?;
    let resources = container.resources.as_ref();
    let limit = resources.and_then(|all| all.limits.as_ref()?.get(resource));
    let amount = match sort {
        "limits" => match (limit, resource) {
            (Some(limit), _) => quantity(&limit.0)?,
            (None, "cpu") => i128::try_from(node.processors()).ok()? * PARTS,
            (None, "memory") => i128::from(node.memory_kib()) * 1024 * PARTS,
            (None, _) => 0,
        },
        "requests" => {
            let request = resources.and_then(|all| all.requests.as_ref()?.get(resource));
            request.or(limit).map_or(Some(0), |request| quantity(&request.0))?
        }
        _ => return None,
    };
    if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") && !resource.starts_with("hugepages-") {
        return None;
    }
    let divisor = field.divisor.as_ref().map_or(Some(PARTS), |divisor| quantity(&divisor.0))?;
    let divisor = if divisor <= 0 { PARTS } else { divisor };
    Some(((amount + divisor - 1) / divisor).to_string())
}

/// Parses a quantity into billionths.
pub(crate) fn quantity(text: &str) -> Option<i128> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (mantissa, exponent) = match suffix {
        "" => (PARTS, 0),
        "n" => (1, 0),
        "u" => (1000, 0),
        "m" => (1_000_000, 0),
        "k" => (PARTS, 3),
        "M" => (PARTS, 6),
        "G" => (PARTS, 9),
        "T" => (PARTS, 12),
        "P" => (PARTS, 15),
        "E" => (PARTS, 18),
        _ => match suffix.strip_suffix('i').and_then(|letter| "KMGTPE".find(letter)) {
            Some(place) if suffix.len() == 2 => (PARTS << (10 * (place + 1)), 0),
            _ => (PARTS, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        },
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let places = i32::try_from(fraction.len()).ok()?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let power: i32 = exponent - places;
    let scale = 10i128.checked_pow(power.unsigned_abs())?;
    let amount = digits.checked_mul(mantissa)?;
    if power < 0 { Some(amount / scale) } else { amount.checked_mul(scale) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities() {
        let check = |text, expect: i128| assert_eq!(quantity(text), Some(expect), "{text}");
        check("1", PARTS);
        check("100m", PARTS / 10);
        check("1.5", PARTS * 3 / 2);
        check("2Ki", PARTS * 2048);
        check("0.5Gi", PARTS << 29);
        check("3k", PARTS * 3000);
        check("1e3", PARTS * 1000);
        check("12E2", PARTS * 1200);
        check("1E", PARTS * 1_000_000_000_000_000_000);
        for text in ["", "x", "1x", "1.2.3", "1ei", "999999999999999999999999E"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }

    #[test]
    fn fields() {
        let container = json!({"name": "main", "resources": {
            "limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"memory": "32Mi"},
        }});
        let bare = json!({"name": "bare"});
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [container, bare]}})).expect("a pod");
        let own = pod.spec.as_ref().map(|spec| spec.containers[0].clone()).expect("a container");
        let check = |field: serde_json::Value, expect: Option<&str>| {
            let selector = serde_json::from_value(field.clone()).expect("a selector");
            assert_eq!(value(&pod, &own, &selector, Capacity::simulated()).as_deref(), expect, "{field}");
        };
        check(json!({"resource": "limits.cpu"}), Some("2"));
        check(json!({"resource": "limits.cpu", "divisor": "1m"}), Some("1500"));
        check(json!({"resource": "requests.cpu", "divisor": "1m"}), Some("1500"));
        check(json!({"resource": "limits.memory", "divisor": "0"}), Some("67108864"));
        check(json!({"resource": "requests.memory", "divisor": "1Mi"}), Some("32"));
        check(json!({"resource": "limits.cpu", "containerName": "bare"}), Some("1000"));
        check(json!({"resource": "requests.memory", "containerName": "bare"}), Some("0"));
        check(json!({"resource": "limits.gold"}), None);
        check(json!({"resource": "cpu"}), None);
    }
}
