//! Random values of a type, of which some are malformed.

use serde_json::{Map, Value, json};

use super::Generator;
use crate::generate::walk::{INT_OR_STRING, QUANTITY, child, resolve};

const TEXTS: &[&str] = &[
    "",
    "a",
    "a-b",
    "a.b",
    "a/b",
    "A b",
    "-a",
    "..",
    "/a",
    "1",
    "10%",
    "-1%",
    "1.2.3.4",
    "01.2.3.4",
    "::1",
    "10.0.0.0/8",
    "10.0.0.1/8",
    "https://a.b/c",
    "Always",
    "None",
    "TCP",
    "100m",
    "1Gi",
    "0.5",
    "café",
    "a_b",
    "*",
    "*.example.com",
    "example.com/a",
    "kubernetes.io/a",
    "a=b",
    " a",
    "\n",
    "cpu",
    "memory",
    "pods",
    "self.a",
    "1 == 1",
    "true ||",
    "$(A)",
    "metadata.name",
    "system:masters",
    "*/2 * * * *",
    "UTC",
    "Localhost",
    "kubernetes.io/hostname",
];
const QUANTITIES: &[&str] = &["1", "0", "-1", "100m", "1Gi", "1.5", "1e3", "5n", "0.1m", "x"];
const NUMBERS: &[i64] = &[-1, 0, 1, 2, 3, 10, 80, 100, 101, 443, 600, 1024, 65_535, 65_536, 86_400, 2_147_483_647];
/// The odds of an optional field in a new struct: one in this number.
const RARE: usize = 4;

impl Generator<'_> {
    /// Returns a text.
    pub(super) fn text(&mut self) -> String {
        match self.random.usize(0..TEXTS.len() + 2) {
            0 => "x".repeat(64),
            1 => "x".repeat(254),
            index => TEXTS[index - 2].to_owned(),
        }
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        self.random.choice(of).copied()
    }

    /// Returns a value of a declared type. Its structs, lists and maps nest as deep as `depth`.
    pub(super) fn value(&mut self, declared: &str, depth: usize) -> Value {
        let kind = resolve(self.types, declared);
        match kind.as_str() {
            "string" => self.text().into(),
            "bool" => self.random.bool().into(),
            "int32" | "int64" => self.one(NUMBERS).into(),
            "float64" => json!(1.5),
            "[]byte" => self.one(&["aGk=", "", "!"]).into(),
            QUANTITY => self.one(QUANTITIES).into(),
            INT_OR_STRING => match self.one(&["", "10%", "http", "150%", "x"]) {
                Some("") => self.one(NUMBERS).into(),
                text => text.into(),
            },
            _ if kind.ends_with(".Time") => "2024-01-01T00:00:00Z".into(),
            _ if kind.ends_with(".MicroTime") => "2024-01-01T00:00:00.000000Z".into(),
            _ => self.composed(&kind, depth),
        }
    }

    fn composed(&mut self, kind: &str, depth: usize) -> Value {
        let number = if depth == 0 { 0 } else { self.random.usize(0..3) };
        let inner = depth.saturating_sub(1);
        if kind.starts_with("[]") {
            let of = child(self.types, kind, "0");
            return (0..number).map(|_| self.value(&of, inner)).collect();
        }
        if kind.starts_with("map[") {
            let of = child(self.types, kind, "a");
            return (0..number).map(|_| (self.text(), self.value(&of, inner))).collect::<Map<_, _>>().into();
        }
        if let Some(values) = self.types.get(kind).map(|kind| &kind.values).filter(|values| !values.is_empty()) {
            return match self.random.u8(0..10) {
                0 => self.text().into(),
                _ => self.random.choice(values).cloned().into(),
            };
        }
        let mut fields = Map::new();
        for (name, field) in self.types.fields(kind) {
            if depth > 0 && self.random.usize(0..RARE) == 0 {
                let value = self.value(field, inner);
                fields.insert(name.to_owned(), value);
            }
        }
        fields.into()
    }
}
