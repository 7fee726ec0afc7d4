//! Named schemas.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use super::Schema;

/// Named schemas that others refer to, such as `io.k8s.api.core.v1.PodSpec`. They can be built when they are first
/// asked for.
#[derive(Debug)]
pub struct Definitions {
    schemas: HashMap<Arc<str>, OnceLock<Box<Schema>>>,
    build: fn(&str) -> Schema,
}

impl Definitions {
    /// Creates definitions with these names, each of which is built when it is first asked for.
    pub fn lazy(names: impl IntoIterator<Item = String>, build: fn(&str) -> Schema) -> Self {
        Self { schemas: names.into_iter().map(|name| (name.into(), OnceLock::new())).collect(), build }
    }

    /// Returns a schema by its name.
    pub fn get(&self, name: &str) -> Option<&Schema> {
        let schema = self.schemas.get(name)?;
        Some(&**schema.get_or_init(|| Box::new((self.build)(name))))
    }

    /// Returns the names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.schemas.keys().map(|name| &**name)
    }

    /// Returns the number of schemas.
    pub fn len(&self) -> usize {
        self.schemas.len()
    }

    /// Returns whether there are no schemas.
    pub fn is_empty(&self) -> bool {
        self.schemas.is_empty()
    }
}

impl Default for Definitions {
    fn default() -> Self {
        Self { schemas: HashMap::new(), build: |_| Schema::default() }
    }
}

impl<const N: usize> From<[(&str, Schema); N]> for Definitions {
    fn from(schemas: [(&str, Schema); N]) -> Self {
        let schemas = schemas.into_iter().map(|(name, schema)| (name.into(), OnceLock::from(Box::new(schema))));
        Self { schemas: schemas.collect(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_built_when_it_is_asked_for() {
        let definitions = Definitions::lazy(["a", "b"].map(str::to_owned), |name| Schema {
            title: Some(name.into()),
            ..Schema::default()
        });
        let built = || definitions.schemas.values().filter(|schema| schema.get().is_some()).count();
        assert_eq!((definitions.len(), built()), (2, 0));
        assert_eq!(definitions.get("a").and_then(|schema| schema.title.as_deref()), Some("a"));
        assert_eq!(definitions.get("c"), None);
        assert_eq!(built(), 1);
    }
}
