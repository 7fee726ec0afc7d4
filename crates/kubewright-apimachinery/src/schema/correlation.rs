//! Correlation of a list's items with those of the list that it replaces. Items of a list of type map correspond if
//! their keys are equal.

use std::collections::HashMap;

use serde_json::Value;

use super::List;

/// The items of a list that is being replaced.
///
/// An item is first compared with the old item at its own index. The first mismatch builds an index of all keys, so
/// that the cost is linear in the lists' lengths, regardless of the order of items.
pub(super) struct OldItems<'v> {
    items: &'v [Value],
    keys: &'v [String],
    by_keys: Option<HashMap<String, usize>>,
    /// The number of items whose keys were read.
    #[cfg(test)]
    read: usize,
}

impl<'v> OldItems<'v> {
    /// Returns the items of `old`. `None` if items have no counterparts, which is the case in all lists but those of
    /// type map.
    pub(super) fn of(list: &'v List, old: Option<&'v Value>) -> Option<Self> {
        match (list, old) {
            (List::Map(keys), Some(Value::Array(items))) => Some(Self {
                items,
                keys,
                by_keys: None,
                #[cfg(test)]
                read: 0,
            }),
            _ => None,
        }
    }

    /// Returns the counterpart of `item`, which is at `index` of the new list, and the counterpart's index.
    pub(super) fn counterpart(&mut self, index: usize, item: &Value) -> Option<(usize, &'v Value)> {
        if let Some(old) = self.items.get(index)
            && self.keys.iter().all(|key| old.get(key) == item.get(key))
        {
            return Some((index, old));
        }
        let wanted = self.key_of(item);
        if self.by_keys.is_none() {
            let mut by_keys = HashMap::with_capacity(self.items.len());
            for (index, item) in self.items.iter().enumerate() {
                by_keys.entry(self.key_of(item)).or_insert(index);
            }
            self.by_keys = Some(by_keys);
        }
        let index = *self.by_keys.as_ref()?.get(&wanted)?;
        Some((index, self.items.get(index)?))
    }

    /// Returns the values of an item's keys as text.
    fn key_of(&mut self, item: &Value) -> String {
        #[cfg(test)]
        {
            self.read += 1;
        }
        let mut text = String::new();
        for key in self.keys {
            if let Some(value) = item.get(key) {
                text += &value.to_string();
            }
            text.push(',');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_correlated_by_their_keys() {
        let list = List::Map(vec!["name".into(), "port".into()]);
        let old = json!([{"name": "a", "port": 1}, {"name": "a"}, {"name": "b", "port": 1, "x": 1}, "odd"]);
        let mut items = OldItems::of(&list, Some(&old)).unwrap();
        for (index, item, expect) in [
            (0, json!({"name": "a", "port": 1, "y": 2}), Some(0)),
            (0, json!({"name": "b", "port": 1}), Some(2)),
            (2, json!({"name": "a"}), Some(1)),
            (0, json!({"name": "b"}), None),
            (9, json!({"name": "a", "port": "1"}), None),
        ] {
            assert_eq!(items.counterpart(index, &item).map(|(index, _)| index), expect, "{item}");
        }
        assert!(OldItems::of(&List::Atomic, Some(&old)).is_none());
        assert!(OldItems::of(&list, Some(&json!({}))).is_none());
    }

    #[test]
    fn each_item_is_read_once_whatever_the_order() {
        let list = List::Map(vec!["name".into()]);
        let old = Value::from_iter((0..1000).map(|name| json!({"name": name})));
        let mut items = OldItems::of(&list, Some(&old)).unwrap();
        for index in 0..1000 {
            let (stood, _) = items.counterpart(index, &json!({"name": 999 - index})).unwrap();
            assert_eq!(stood, 999 - index);
        }
        assert!(items.read <= 2000, "{} items were read", items.read);
    }
}
