//! The order in which a JSON document has its fields.
//!
//! The fields of a decoded object are sorted by their names. Go's decoder reports what is wrong with a document in the
//! order of its text, so what reports several fields reads the text once more.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Returns the place of each field among the given ones, in the order of a JSON document.
///
/// A field is a path, such as `spec.containers[0].name`, and the number of fields with that path that precede it: 1 for
/// the duplicate of a field. A field that the document doesn't have is behind all others, at [`usize::MAX`].
///
/// Reads the text once, and only those of its parts that contain the fields.
pub fn places(text: &[u8], fields: &[(&str, usize)]) -> Vec<usize> {
    let mut search = Search { fields, seen: vec![0; fields.len()], places: vec![usize::MAX; fields.len()], next: 0 };
    let below = fields.iter().enumerate().map(|(index, (path, _))| (index, *path)).collect();
    // A text that can't be read has no fields behind the error.
    let _ = Visit { search: &mut search, below }.deserialize(&mut serde_json::Deserializer::from_slice(text));
    search.places
}

struct Search<'a> {
    fields: &'a [(&'a str, usize)],
    /// How often the path of each field was found.
    seen: Vec<usize>,
    places: Vec<usize>,
    next: usize,
}

impl<'a> Search<'a> {
    /// Takes the step to a field or an item. Returns the fields below it, by their indices and the rest of their paths.
    fn step(&mut self, below: &[(usize, &'a str)], step: &str) -> Vec<(usize, &'a str)> {
        let mut deeper = Vec::new();
        for &(index, rest) in below {
            match rest.strip_prefix(step) {
                Some("") => self.find(index),
                Some(rest) if rest.starts_with(['.', '[']) => {
                    deeper.push((index, rest.strip_prefix('.').unwrap_or(rest)));
                }
                _ => {}
            }
        }
        deeper
    }

    fn find(&mut self, index: usize) {
        if self.seen[index] == self.fields[index].1 {
            self.places[index] = self.next;
            self.next += 1;
        }
        self.seen[index] += 1;
    }
}

/// Visits a value with some of the fields.
struct Visit<'s, 'a> {
    search: &'s mut Search<'a>,
    /// The indices of the fields, and their paths from here.
    below: Vec<(usize, &'a str)>,
}

impl<'de> DeserializeSeed<'de> for Visit<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Visit<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let below = self.search.step(&self.below, &format!("[{index}]"));
            let item = if below.is_empty() {
                items.next_element::<IgnoredAny>()?.map(|IgnoredAny| ())
            } else {
                items.next_element_seed(Visit { search: &mut *self.search, below })?
            };
            if item.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            let below = self.search.step(&self.below, &name);
            if below.is_empty() {
                fields.next_value::<IgnoredAny>()?;
            } else {
                fields.next_value_seed(Visit { search: &mut *self.search, below })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_the_order_of_the_text() {
        let text =
            br#"{"z": 1, "b": {"y": [{"d": 1}, {"c": 2, "c": 3}], "a.b": null}, "a": "x", "z": {"b": [[true, 1.5]]}}"#;
        let fields = [
            ("a", 0),
            ("b.a.b", 0),
            ("b.y[1].c", 1),
            ("b.y[1].c", 0),
            ("nothing", 0),
            ("z", 1),
            ("z", 0),
            ("z.b[0][1]", 0),
            ("b.y[2]", 1),
        ];
        let none = usize::MAX;
        assert_eq!(places(text, &fields), [4, 3, 2, 1, none, 5, 0, 6, none]);
    }

    #[test]
    fn a_text_that_ends_early_has_the_fields_before() {
        assert_eq!(places(br#"{"a": 1, "b": "#, &[("b", 0), ("c", 0), ("a", 0)]), [1, usize::MAX, 0]);
        assert_eq!(places(b"", &[]), [0_usize; 0]);
    }
}
