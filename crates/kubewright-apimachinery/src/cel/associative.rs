//! Lists that are sets or maps by their schema (`x-kubernetes-list-type`). They are equal regardless of order, and `+`
//! keeps their items unique.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube_cel::cel::{
    Value,
    objects::{Key, Map, Opaque},
};

use super::domains;

/// A list that is a set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Associative {
    items: Arc<Vec<Value>>,
    /// The fields that identify an item of a map. A set has none.
    keys: Option<Arc<[Key]>>,
}

impl Opaque for Associative {
    fn runtime_type_name(&self) -> &'static str {
        "list"
    }
}

/// What identifies an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    Absent,
    Bool(bool),
    Int(i64),
    Uint(u64),
    /// The bits of a number.
    Double(u64),
    Text(Arc<String>),
    Fields(Vec<Identity>),
}

impl Associative {
    /// Returns a list as a set, or as a map with these keys.
    pub(crate) fn value(items: Vec<Value>, keys: Option<Arc<[Key]>>) -> Value {
        Value::Opaque(Arc::new(Self { items: Arc::new(items), keys }))
    }

    /// Returns a set or map, or `None` for other values.
    pub(super) fn of(value: &Value) -> Option<&Self> {
        match value {
            Value::Opaque(value) => value.downcast_ref(),
            _ => None,
        }
    }

    /// Returns what identifies an item. `None` if it isn't what the schema says.
    fn identity(&self, item: &Value) -> Option<Identity> {
        match (&self.keys, item) {
            (None, item) => scalar(item),
            (Some(keys), Value::Map(Map { map })) => {
                let fields = keys.iter().map(|key| map.get(key).map_or(Some(Identity::Absent), scalar));
                fields.collect::<Option<_>>().map(Identity::Fields)
            }
            _ => None,
        }
    }

    /// Pairs each item of another list with the item that has its identity. `None` if one has no such item.
    pub(super) fn pairs<'v>(&'v self, other: &'v [Value]) -> Option<Vec<(&'v Value, &'v Value)>> {
        let known: HashMap<_, _> = self.items.iter().map(|item| (self.identity(item), item)).collect();
        other.iter().map(|item| Some((*known.get(&self.identity(item))?, item))).collect()
    }

    /// Adds the items of another list. An item of a map takes the place of the one that has its identity.
    pub(super) fn with(&self, other: &[Value]) -> Value {
        let mut items = self.items.as_ref().clone();
        if self.keys.is_some() {
            let mut places: HashMap<_, _> =
                items.iter().enumerate().map(|(place, item)| (self.identity(item), place)).collect();
            for item in other {
                match places.get(&self.identity(item)) {
                    Some(place) => items[*place] = item.clone(),
                    None => {
                        places.insert(self.identity(item), items.len());
                        items.push(item.clone());
                    }
                }
            }
        } else {
            let mut seen: HashSet<_> = items.iter().map(|item| self.identity(item)).collect();
            items.extend(other.iter().filter(|item| seen.insert(self.identity(item))).cloned());
        }
        Self::value(items, self.keys.clone())
    }
}

fn scalar(value: &Value) -> Option<Identity> {
    Some(match value {
        Value::Null => Identity::Absent,
        Value::Bool(value) => Identity::Bool(*value),
        Value::Int(number) => Identity::Int(*number),
        Value::UInt(number) => Identity::Uint(*number),
        Value::Float(number) => Identity::Double(number.to_bits()),
        Value::String(text) => Identity::Text(text.clone()),
        _ => return None,
    })
}

/// Returns the items of any list, or `None` for other values.
pub(crate) fn items(value: &Value) -> Option<&Arc<Vec<Value>>> {
    match value {
        Value::List(items) => Some(items),
        value => Associative::of(value).map(|list| &list.items),
    }
}

/// Returns a value as the library knows it: as a plain list if it is a set or map, and as a plain map.
pub(super) fn plain(value: Value) -> Value {
    match (Associative::of(&value), domains::entries(&value)) {
        (Some(list), _) => Value::List(list.items.clone()),
        (None, Some(map)) => Value::Map(map.clone()),
        (None, None) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(numbers: &[i64]) -> Vec<Value> {
        numbers.iter().map(|number| Value::Int(*number)).collect()
    }

    #[test]
    fn sets_keep_the_order_of_new_items() {
        let set = Associative::value(numbers(&[3, 1]), None);
        let sum = Associative::of(&set).unwrap().with(&numbers(&[1, 4, 2, 4]));
        assert_eq!(**items(&sum).unwrap(), numbers(&[3, 1, 4, 2]));
        assert!(Associative::of(&set).unwrap().pairs(&numbers(&[1, 3])).is_some());
        assert!(Associative::of(&set).unwrap().pairs(&numbers(&[1, 2])).is_none());
    }

    #[test]
    fn items_of_maps_are_replaced_in_place() {
        let item = |name: &str, number: i64| {
            let fields = [(Key::from("name"), name.into()), (Key::from("number"), Value::Int(number))];
            Value::Map(Map { map: Arc::new(HashMap::from(fields)) })
        };
        let map = Associative::value(vec![item("a", 1), item("b", 2)], Some(Arc::new([Key::from("name")])));
        let sum = Associative::of(&map).unwrap().with(&[item("c", 3), item("a", 4)]);
        assert_eq!(**items(&sum).unwrap(), [item("a", 4), item("b", 2), item("c", 3)]);
    }
}
