//! The addresses of Services: `ServiceCIDR` and `IPAddress`.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use kubewright_apimachinery::{cidr::Cidr, name, status::Cause};
use parking_lot::RwLock;
use serde_json::Value;

use crate::registry::{
    Column, Strategy,
    builtin::{
        columns::{NONE, age, string},
        validation::{
            Errors, IMMUTABLE, Path, Shown, canonical_ip, field, items, string as text_field, strings,
            validate_canonical_cidr, validate_required_name, validate_text,
        },
    },
};

/// The strategy of IP addresses. The name of an object is the address.
#[derive(Debug)]
pub(in crate::registry::builtin) struct IpAddressStrategy;

impl Strategy for IpAddressStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| {
            let path = Path::new("spec.parentRef");
            match field(&new["spec"], "parentRef") {
                None => errors.required(&path, ""),
                Some(parent) => validate_parent(parent, &path, errors),
            }
            let parent = |object: &Value| field(&object["spec"], "parentRef").cloned().unwrap_or_default();
            if old.is_some_and(|old| parent(old) != parent(new)) {
                errors.invalid(&path, shown_parent(&parent(new)), IMMUTABLE);
            }
        })
    }

    fn name_rule(&self) -> fn(&str) -> Vec<String> {
        canonical_ip
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn validate_parent(parent: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = |name| text_field(parent, name);
    if !value("group").is_empty() {
        validate_text(value("group"), name::dns1123_subdomain, &path.child("group"), errors);
    }
    for field in ["resource", "name"] {
        validate_required_name(value(field), name::path_segment, &path.child(field), errors);
    }
    validate_text(value("namespace"), name::path_segment, &path.child("namespace"), errors);
}

fn shown_parent(parent: &Value) -> Shown {
    if parent.is_null() {
        return Value::Null.into();
    }
    let fields = [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")];
    Shown::object(fields.map(|(shown, field)| (shown, text_field(parent, field).into())))
}

pub(in crate::registry::builtin) fn ip_address_columns() -> Vec<Column> {
    vec![string("ParentRef", |object, _| {
        let Some(parent) = field(&object["spec"], "parentRef") else { return NONE.into() };
        let value = |name| text_field(parent, name);
        let mut shown = value("resource").to_lowercase();
        if !value("group").is_empty() {
            shown += &format!(".{}", value("group").to_lowercase());
        }
        for part in [value("namespace"), value("name")] {
            if !part.is_empty() {
                shown += &format!("/{part}");
            }
        }
        shown.into()
    })]
}

/// The ranges from which services can choose addresses: those that are ready and aren't being deleted.
#[derive(Debug, Default)]
pub(crate) struct ServiceRanges(RwLock<BTreeMap<String, Vec<Cidr>>>);

impl ServiceRanges {
    /// Returns whether a range contains an address.
    pub(in crate::registry::builtin) fn contains(&self, address: IpAddr) -> bool {
        self.0.read().values().flatten().any(|range| range.contains(address))
    }

    fn set(&self, object: &Value) {
        let is_ready = |one: &Value| text_field(one, "type") == "Ready" && text_field(one, "status") == "True";
        let is_usable = field(&object["metadata"], "deletionTimestamp").is_none()
            && items(&object["status"], "conditions").iter().any(is_ready);
        let ranges = strings(&object["spec"], "cidrs").filter(|_| is_usable).filter_map(Cidr::parse).collect();
        self.0.write().insert(text_field(&object["metadata"], "name").into(), ranges);
    }
}

/// The strategy of the address ranges of Services.
#[derive(Debug)]
pub(in crate::registry::builtin) struct ServiceCidrStrategy {
    pub(in crate::registry::builtin) ranges: Arc<ServiceRanges>,
}

impl Strategy for ServiceCidrStrategy {
    fn validate(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        Errors::collect(|errors| match old {
            None => validate_ranges(&new["spec"], errors),
            Some(old) => validate_ranges_update(&old["spec"], &new["spec"], errors),
        })
    }

    fn validate_status(&self, _old: &Value, _new: &Value) -> Vec<Cause> {
        Vec::new()
    }

    fn committed(&self, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (_, Some(range)) => self.ranges.set(range),
            (Some(range), None) => drop(self.ranges.0.write().remove(text_field(&range["metadata"], "name"))),
            (None, None) => {}
        }
    }

    fn has_own_validation(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        false
    }
}

fn validate_ranges(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec.cidrs");
    let ranges: Vec<_> = strings(spec, "cidrs").collect();
    let all = || items(spec, "cidrs").to_vec();
    if ranges.is_empty() {
        return errors.required(&path, "at least one CIDR required");
    }
    if ranges.len() > 2 {
        return errors.invalid(&path, Shown::object([("CIDRs", all().into())]), "may only hold up to 2 values");
    }
    for (index, range) in ranges.iter().enumerate() {
        validate_canonical_cidr(range, &path.index(index), errors);
    }
    let families: Vec<_> = ranges.iter().filter_map(|range| Cidr::parse(range)).collect();
    if let [first, second] = families[..]
        && first.address.is_ipv6() == second.address.is_ipv6()
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, all(), why);
    }
}

/// Checks a change, which can only add a range of the other IP family.
fn validate_ranges_update(old: &Value, new: &Value, errors: &mut Errors) {
    let path = Path::new("spec.cidrs");
    let (before, after): (Vec<_>, Vec<_>) = (strings(old, "cidrs").collect(), strings(new, "cidrs").collect());
    let adds = before.len() == 1 && after.len() == 2;
    if before.len() != after.len() && !adds {
        return errors.invalid(&path, items(new, "cidrs").to_vec(), IMMUTABLE);
    }
    for (index, (_, range)) in before.iter().zip(&after).enumerate().filter(|(_, (before, after))| before != after) {
        errors.invalid(&path.index(index), *range, IMMUTABLE);
    }
    if adds {
        validate_ranges(new, errors);
    }
}

pub(in crate::registry::builtin) fn service_cidr_columns() -> Vec<Column> {
    vec![string("CIDRs", |object, _| strings(&object["spec"], "cidrs").collect::<Vec<_>>().join(",").into()), age()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_name_of_an_address_is_canonical() {
        assert!(IpAddressStrategy.name_rule()("10.0.0.1").is_empty());
        assert_eq!(IpAddressStrategy.name_rule()("10.0.0.01").len(), 1);
        let address = json!({"spec": {"parentRef": {"resource": "services", "name": "a", "namespace": "b"}}});
        assert_eq!(IpAddressStrategy.validate(None, &address), []);
        let mut other = address.clone();
        other["spec"]["parentRef"]["name"] = "c".into();
        let shown = r#"{"Group":"","Resource":"services","Namespace":"b","Name":"c"}"#;
        let found = IpAddressStrategy.validate(Some(&address), &other);
        assert_eq!(found[0].to_string(), format!("spec.parentRef: Invalid value: {shown}: field is immutable"));
    }

    #[test]
    fn a_range_of_the_other_family_can_be_added() {
        let strategy = ServiceCidrStrategy { ranges: Arc::default() };
        let ranges = |ranges: &[&str]| json!({"spec": {"cidrs": ranges}});
        let check = |old: &[&str], new: &[&str]| strategy.validate(Some(&ranges(old)), &ranges(new)).len();
        assert_eq!(check(&["10.0.0.0/24"], &["10.0.0.0/24", "2001:db8::/64"]), 0);
        assert_eq!(check(&["10.0.0.0/24"], &["10.0.0.0/24", "10.0.1.0/24"]), 1);
        assert_eq!(check(&["10.0.0.0/24"], &["10.0.1.0/24"]), 1);
        assert_eq!(strategy.validate(None, &ranges(&[])).len(), 1);
        assert_eq!(strategy.validate(None, &ranges(&["10.0.0.1/24"])).len(), 1);
    }
    #[test]
    fn services_can_choose_addresses_from_ranges_that_are_ready() {
        let strategy = ServiceCidrStrategy { ranges: Arc::default() };
        let contains = |address: &str| address.parse().is_ok_and(|address| strategy.ranges.contains(address));
        let mut range = json!({"metadata": {"name": "a"}, "spec": {"cidrs": ["10.1.0.0/16", "2001:db8::/64"]}});
        let mut change = |after: Option<Value>| {
            strategy.committed(Some(&range), after.as_ref());
            range = after.unwrap_or_default();
        };
        let before = json!({"metadata": {"name": "a"}, "spec": {"cidrs": ["10.1.0.0/16", "2001:db8::/64"]}});
        change(Some(before.clone()));
        assert!(!contains("10.1.2.3"));
        let mut ready = before;
        ready["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        change(Some(ready.clone()));
        assert!(contains("10.1.2.3") && contains("2001:db8::1") && !contains("10.2.0.1"));
        let mut deleted = ready.clone();
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        change(Some(deleted));
        assert!(!contains("10.1.2.3"));
        change(Some(ready));
        change(None);
        assert!(!contains("10.1.2.3"));
    }
}
