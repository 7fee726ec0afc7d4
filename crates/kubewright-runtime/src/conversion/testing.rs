//! Round-trip tests of conversions, with values that are generated from schemas.
//!
//! `#[derive(Convert)]` generates a test that calls [`round_trip`].

use kubewright_apimachinery::random::Random;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{Convert, part::Data};

/// The number of values of each version.
const CASES: u64 = 256;
/// The depth below which optional fields are omitted.
const DEPTH: usize = 6;

/// A conversion that is not lossless.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RoundTripError {
    /// A value changed in a round trip.
    #[error("the conversion {way} is lossy (seed {seed}):\n  {before}\nbecame\n  {after}\nthrough\n  {between}")]
    Lost {
        /// The direction of the round trip.
        way: &'static str,
        /// The seed that generates the value.
        seed: u64,
        /// The value before the round trip.
        before: Value,
        /// The value in the other version.
        between: Value,
        /// The value after the round trip.
        after: Value,
    },
    /// A value of one version can't be converted to the other.
    #[error("the conversion {way} fails (seed {seed}): {why}\n  {before}")]
    Failed {
        /// The direction of the round trip.
        way: &'static str,
        /// The seed that generates the value.
        seed: u64,
        /// The value before the round trip.
        before: Value,
        /// The error of the conversion.
        why: String,
    },
    /// No generated value can be deserialized as the type.
    #[error("no value of {0} can be generated from its schema: {1}")]
    NoValue(&'static str, String),
}

/// Converts values of the hub to `S` and back, and values of `S` to the hub and back, and compares the results.
///
/// A value of `S` that can't be converted to the hub is skipped, since the conversion may be stricter than the schema.
/// Each value of the hub must be convertible.
///
/// # Errors
/// Returns the first value that is lost or can't be converted.
pub fn round_trip<S>() -> Result<(), RoundTripError>
where
    S: Convert + JsonSchema,
    S::Hub: JsonSchema,
{
    let hubs = values::<S::Hub>()?;
    for (seed, hub) in hubs {
        const WAY: &str = "from the hub and back";
        let before = text(&hub);
        let failed = |why: String| RoundTripError::Failed { way: WAY, seed, before: before.clone(), why };
        let mut data = Data::default();
        let spoke = S::from_hub(hub, &mut data).map_err(|error| failed(error.to_string()))?;
        let between = text(&spoke);
        let after = spoke.into_hub(&mut data.turned()).map_err(|error| failed(error.to_string()))?;
        compare(WAY, seed, before, between, text(&after))?;
    }
    for (seed, spoke) in values::<S>()? {
        const WAY: &str = "to the hub and back";
        let before = text(&spoke);
        let mut data = Data::default();
        let Ok(hub) = spoke.into_hub(&mut data) else { continue };
        let between = text(&hub);
        let failed = |why: String| RoundTripError::Failed { way: WAY, seed, before: before.clone(), why };
        let after = S::from_hub(hub, &mut data.turned()).map_err(|error| failed(error.to_string()))?;
        compare(WAY, seed, before.clone(), between, text(&after))?;
    }
    Ok(())
}

fn compare(way: &'static str, seed: u64, before: Value, between: Value, after: Value) -> Result<(), RoundTripError> {
    if before == after { Ok(()) } else { Err(RoundTripError::Lost { way, seed, before, between, after }) }
}

fn text(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Generates values of a type, each with its seed. The first ones are minimal.
fn values<T: JsonSchema + DeserializeOwned>() -> Result<Vec<(u64, T)>, RoundTripError> {
    let schemas = SchemaGenerator::new(SchemaSettings::draft2020_12());
    let schema = schemas.into_root_schema_for::<T>().to_value();
    let mut refused = String::new();
    let mut values = Vec::new();
    for seed in 0..CASES {
        let generator = Generator { root: &schema, random: Random::seeded(seed), is_minimal: seed < 2 };
        match serde_json::from_value(generator.value(&schema, 0)) {
            Ok(value) => values.push((seed, value)),
            Err(error) => refused = error.to_string(),
        }
    }
    if values.is_empty() { Err(RoundTripError::NoValue(std::any::type_name::<T>(), refused)) } else { Ok(values) }
}

/// A generator of values of a JSON schema.
struct Generator<'a> {
    root: &'a Value,
    random: Random,
    /// True if only required fields are generated.
    is_minimal: bool,
}

impl Generator<'_> {
    fn below(&self, bound: u64) -> u64 {
        self.random.u64() % bound.max(1)
    }

    fn one<'v>(&self, all: &'v [Value]) -> &'v Value {
        const NOTHING: &Value = &Value::Null;
        usize::try_from(self.below(all.len() as u64)).ok().and_then(|index| all.get(index)).unwrap_or(NOTHING)
    }

    fn value(&self, schema: &Value, depth: usize) -> Value {
        if let Some(target) = schema["$ref"].as_str() {
            let target = self.root.pointer(target.trim_start_matches('#')).unwrap_or(&Value::Null);
            return self.value(target, depth);
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(all) = schema["enum"].as_array() {
            return self.one(all).clone();
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(all) = schema[choice].as_array() {
                let chosen = self.value(self.one(all), depth);
                return merged(self.typed(schema, depth), chosen);
            }
        }
        if let Some(all) = schema["allOf"].as_array() {
            let start = self.typed(schema, depth);
            return all.iter().fold(start, |made, part| merged(made, self.value(part, depth)));
        }
        self.typed(schema, depth)
    }

    fn typed(&self, schema: &Value, depth: usize) -> Value {
        let kind = match &schema["type"] {
            Value::Array(all) if self.is_minimal => all.iter().find(|kind| *kind == "null").unwrap_or(self.one(all)),
            Value::Array(all) => self.one(all),
            one => one,
        };
        match kind.as_str() {
            Some("object") => self.object(schema, depth),
            Some("array") => self.array(schema, depth),
            Some("string") => self.string(schema),
            Some("integer") => self.integer(schema),
            Some("number") => json!(self.below(1000) as f64 / 8.0),
            Some("boolean") => json!(self.below(2) == 1),
            _ if schema["properties"].is_object() => self.object(schema, depth),
            _ => Value::Null,
        }
    }

    fn object(&self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array();
        let must = |name: &str| required.is_some_and(|all| all.iter().any(|other| other == name));
        let mut object = Map::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            if must(name) || (!self.is_minimal && depth < DEPTH && self.below(4) > 0) {
                object.insert(name.clone(), self.value(field, depth + 1));
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            let count = if self.is_minimal || depth >= DEPTH { 0 } else { self.below(3) };
            for number in 0..count {
                object.insert(format!("key{number}"), self.value(values, depth + 1));
            }
        }
        Value::Object(object)
    }

    fn array(&self, schema: &Value, depth: usize) -> Value {
        let least = schema["minItems"].as_u64().unwrap_or(0);
        let more = if self.is_minimal || depth >= DEPTH { 0 } else { self.below(3) };
        let count = (least + more).min(schema["maxItems"].as_u64().unwrap_or(u64::MAX));
        (0..count).map(|_| self.value(&schema["items"], depth + 1)).collect()
    }

    fn string(&self, schema: &Value) -> Value {
        match schema["format"].as_str() {
            Some("date-time") => json!(format!("2026-01-{:02}T10:00:00Z", 1 + self.below(28))),
            Some("date") => json!(format!("2026-01-{:02}", 1 + self.below(28))),
            Some("uuid") => json!(self.random.uuid()),
            _ => {
                let least = schema["minLength"].as_u64().unwrap_or(0);
                let most = schema["maxLength"].as_u64().unwrap_or(least + 8);
                let length = least + self.below(most.saturating_sub(least).min(8) + 1);
                json!(self.random.suffix(usize::try_from(length).unwrap_or_default()))
            }
        }
    }

    fn integer(&self, schema: &Value) -> Value {
        let (least, most) = match schema["format"].as_str() {
            Some("int8") => (-128, 127),
            Some("uint8") => (0, 255),
            Some("int16") => (-32_768, 32_767),
            Some("uint16") => (0, 65_535),
            Some(format) if format.starts_with("uint") => (0, 2_147_483_647),
            _ => (-2_147_483_648, 2_147_483_647),
        };
        let least = schema["minimum"].as_i64().unwrap_or(least).max(least);
        let most = schema["maximum"].as_i64().unwrap_or(most).min(most).max(least);
        // Most fields have small numbers, and edge cases are near zero.
        let span = (most - least).min(if self.below(4) == 0 { i64::MAX } else { 100 });
        let start = if least < 0 && span <= 100 { (-50).max(least) } else { least };
        let offset = i64::try_from(self.below(u64::try_from(span).unwrap_or_default() + 1)).unwrap_or_default();
        json!((start + offset).min(most))
    }
}

/// Merges two parts of one value.
fn merged(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            one.extend(other);
            Value::Object(one)
        }
        (Value::Null, other) => other,
        (one, Value::Null) => one,
        (_, other) => other,
    }
}
