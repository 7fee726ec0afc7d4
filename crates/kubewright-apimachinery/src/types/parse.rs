//! Reads a table from text.
//!
//! Lines that begin with `#` are comments. All others declare:
//!
//! * `package NAME GROUP`: the package of the following types, by its OpenAPI name, and its API group (`core` for the
//!   core group, `-` for none)
//! * `alias NAME TYPE [VALUE,…]`: another name of a simple type, with its values in JSON if they are enumerated
//! * `message NAME TYPE`: another name of a list, which is a message of its own in protobuf, as `Verbs`
//! * `special NAME`: a type whose JSON form isn't that of its fields, such as `Time`
//! * `struct NAME [map=atomic]`: a struct. Its fields follow, one a line:
//! * `NUMBER NAME TYPE MARK…`: the protobuf number (`-` for none), the JSON name (`.` if the fields of the type belong
//!   to the struct) with `?` for `omitempty` and `??` for `omitzero`, the type, and markers: `optional`, `required`,
//!   `list=atomic`, `list=set`, `list=map:KEY,…`, `map=atomic`, `map=granular`, `patch=STRATEGY,…`, `key=KEY`,
//!   `default=JSON`, `empty` for a list that counts as present if it is empty
//!
//! A type is `string`, `bool`, `int32`, `int64`, `float64`, `bytes`, `uid`, `any`, a name in the same package, or a
//! full name; `*` before it marks a pointer, `[]` a list, `map[KEY]` a map.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Field, ListMark, Marks, Numbered, Omit, Shape, Struct, Type, TypeId, Types, names::Names};

/// A malformed table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the table of types: {why}")]
pub struct ParseError {
    line: usize,
    why: String,
}

/// The number of types and of fields of a struct that fit an index.
const MAX: usize = u16::MAX as usize;

/// A named type before its fields are known.
struct Declared {
    package: &'static str,
    id: TypeId,
    line: usize,
    text: &'static str,
    fields: Vec<(usize, &'static str)>,
}

/// A field before embedded structs are resolved.
struct Member {
    number: Option<u32>,
    field: Field,
    embedded: bool,
}

impl Types {
    /// Parses a table.
    ///
    /// # Errors
    /// If a line is malformed or refers to an unknown type.
    pub fn parse(text: &'static str) -> Result<Self, ParseError> {
        let mut reader = Reader::default();
        let declared = reader.declare(text)?;
        for one in &declared {
            reader.define(one)?;
        }
        reader.flatten()?;
        reader.find_kinds();
        let mut types = reader.types;
        types.index();
        Ok(types)
    }

    /// Computes what follows from the declarations.
    fn index(&mut self) {
        let is_struct: Vec<bool> = self.types.iter().map(|ty| ty.shape.is_struct()).collect();
        for ty in &mut self.types {
            if let Shape::Struct(all) = &mut ty.shape {
                let always = |field: &Field| match field.omit {
                    Omit::Never => true,
                    Omit::Empty => !field.pointer && is_struct[usize::from(field.ty.0)],
                    Omit::Zero => false,
                };
                let of = |wanted: &dyn Fn(&Field) -> bool| {
                    let all = all.fields.iter().enumerate().filter(|(_, field)| wanted(field));
                    all.filter_map(|(index, _)| u16::try_from(index).ok()).collect::<Vec<_>>()
                };
                all.always = of(&|field| always(field) || default(field).is_some()).into();
                all.required = of(&|field| field.required).into();
                all.names = Names::new(all.fields.iter().map(|field| field.name));
            }
        }
        let grows = self.containing(|all| !all.always.is_empty());
        let requires = self.containing(|all| !all.required.is_empty());
        for (ty, (grows, requires)) in self.types.iter_mut().zip(grows.into_iter().zip(requires)) {
            (ty.grows, ty.requires) = (grows, requires);
        }
    }

    /// Returns for each type whether it is or contains such a struct.
    fn containing(&self, wanted: impl Fn(&Struct) -> bool) -> Vec<bool> {
        let mut found = vec![false; self.types.len()];
        // Types are recursive, so this is repeated until nothing changes.
        loop {
            let mut changed = false;
            for (place, ty) in self.types.iter().enumerate() {
                let is_found = |id: &TypeId| found[usize::from(id.0)];
                let now = match &ty.shape {
                    Shape::List(id) | Shape::Map(id) => is_found(id),
                    Shape::SchemaOrArray(id) | Shape::SchemaOrBool(id) | Shape::SchemaOrStrings(id) => is_found(id),
                    Shape::Struct(all) => wanted(all) || all.fields.iter().any(|field| is_found(&field.ty)),
                    _ => false,
                };
                changed |= now && !found[place];
                found[place] = now;
            }
            if !changed {
                return found;
            }
        }
    }
}

/// Returns the default of a field, if it isn't the zero value.
pub(super) fn default(field: &Field) -> Option<&serde_json::Value> {
    field.marks.as_ref()?.default.as_ref().filter(|value| match value {
        serde_json::Value::Null => false,
        _ if field.pointer => true,
        serde_json::Value::Bool(value) => *value,
        serde_json::Value::Number(number) => number.as_f64() != Some(0.0),
        serde_json::Value::String(text) => !text.is_empty(),
        _ => true,
    })
}

/// What a list or a map is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Keyed {
    List,
    ByString,
    By(TypeId),
}

#[derive(Default)]
struct Reader {
    types: Types,
    /// Lists and maps by the types of their values and keys.
    unnamed: BTreeMap<(TypeId, Keyed), TypeId>,
    basic: Vec<(&'static str, TypeId)>,
    /// The members of structs, by the index of their types.
    members: Vec<Vec<Member>>,
    /// The API groups of packages.
    groups: BTreeMap<&'static str, &'static str>,
    line: usize,
}

impl Reader {
    fn error<T>(&self, why: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, why: why.into() })
    }

    fn add(&mut self, package: &'static str, local: Cow<'static, str>, shape: Shape) -> Result<TypeId, ParseError> {
        match u16::try_from(self.types.types.len()) {
            Ok(id) => {
                let values = Box::default();
                self.types.types.push(Type {
                    package,
                    local,
                    shape,
                    values,
                    grows: false,
                    requires: false,
                    message: false,
                });
                Ok(TypeId(id))
            }
            Err(_) => self.error("too many types"),
        }
    }

    /// Registers all names.
    fn declare(&mut self, text: &'static str) -> Result<Vec<Declared>, ParseError> {
        let mut package = "";
        let mut all: Vec<Declared> = Vec::new();
        for (index, text) in text.lines().enumerate() {
            self.line = index + 1;
            let mut words = Words(text);
            match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
                ("#" | "", _) => {}
                ("package", name) => {
                    package = name;
                    match words.next() {
                        None | Some("-") => {}
                        Some("core") => drop(self.groups.insert(package, "")),
                        Some(group) => drop(self.groups.insert(package, group)),
                    }
                }
                ("alias" | "message" | "special" | "struct", name) => {
                    let id = self.add(package, Cow::Borrowed(name), Shape::Any)?;
                    self.types.names.entry(package).or_default().insert(name, id);
                    all.push(Declared { package, id, line: self.line, text, fields: Vec::new() });
                }
                _ => match all.last_mut() {
                    Some(declared) => declared.fields.push((self.line, text)),
                    None => return self.error("a field without a struct"),
                },
            }
        }
        self.members.resize_with(all.len(), Vec::new);
        Ok(all)
    }

    /// Reads one type.
    fn define(&mut self, declared: &Declared) -> Result<(), ParseError> {
        self.line = declared.line;
        let package = declared.package;
        let mut words = declared.text.splitn(4, ' ');
        let (what, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (shape, values) = match what {
            "alias" => {
                let of = words.next().unwrap_or_default();
                let values = words.next().map_or(Ok(Vec::new()), serde_json::from_str);
                let Ok(values) = values else { return self.error("the values are not a list of strings in JSON") };
                (self.alias(package, of)?, values)
            }
            "message" => (self.alias(package, words.next().unwrap_or_default())?, Vec::new()),
            "special" => (self.special(package, name)?, Vec::new()),
            _ => {
                let atomic = words.next() == Some("map=atomic");
                let mut members = Vec::with_capacity(declared.fields.len());
                for (line, text) in &declared.fields {
                    self.line = *line;
                    members.push(self.member(package, text)?);
                }
                self.members[usize::from(declared.id.0)] = members;
                (Shape::Struct(Box::new(Struct { atomic, ..Struct::default() })), Vec::new())
            }
        };
        let ty = &mut self.types.types[usize::from(declared.id.0)];
        ty.shape = shape;
        ty.message = what == "message";
        ty.values = values.into();
        Ok(())
    }

    /// Returns the shape of an alias.
    fn alias(&mut self, package: &'static str, of: &'static str) -> Result<Shape, ParseError> {
        let id = self.reference(package, of)?;
        Ok(match self.types.get(id).shape {
            Shape::String => Shape::String,
            Shape::Bool => Shape::Bool,
            Shape::Int32 => Shape::Int32,
            Shape::Int64 => Shape::Int64,
            Shape::List(id) => Shape::List(id),
            Shape::Map(id) => Shape::Map(id),
            // Another alias of a string, which may follow.
            _ => Shape::String,
        })
    }

    fn special(&mut self, package: &'static str, name: &str) -> Result<Shape, ParseError> {
        let mut schema = || self.reference(package, "JSONSchemaProps");
        Ok(match name {
            "Time" => Shape::Time,
            "MicroTime" => Shape::MicroTime,
            "Quantity" => Shape::Quantity,
            "IntOrString" => Shape::IntOrString,
            "FieldsV1" | "RawExtension" | "JSON" => Shape::Any,
            "JSONSchemaPropsOrArray" => Shape::SchemaOrArray(schema()?),
            "JSONSchemaPropsOrBool" => Shape::SchemaOrBool(schema()?),
            "JSONSchemaPropsOrStringArray" => Shape::SchemaOrStrings(schema()?),
            _ => return self.error(format!("{name} is not a special type")),
        })
    }

    fn member(&mut self, package: &'static str, text: &'static str) -> Result<Member, ParseError> {
        let mut words = Words(text);
        let (Some(number), Some(name), Some(ty)) = (words.next(), words.next(), words.next()) else {
            return self.error("a field consists of a number, a name and a type");
        };
        let number = match (number, number.parse()) {
            ("-", _) => None,
            (_, Ok(number)) => Some(number),
            _ => return self.error(format!("{number:?} is not a number")),
        };
        let (name, omit) = match (name.strip_suffix("??"), name.strip_suffix('?')) {
            (Some(name), _) => (name, Omit::Zero),
            (_, Some(name)) => (name, Omit::Empty),
            _ => (name, Omit::Never),
        };
        let (ty, pointer) = ty.strip_prefix('*').map_or((ty, false), |ty| (ty, true));
        let ty = self.reference(package, ty)?;
        let (mut marks, mut required) = (None, omit == Omit::Never);
        for word in words {
            match word {
                "optional" => {
                    required = false;
                    continue;
                }
                "required" => {
                    required = true;
                    continue;
                }
                _ => {}
            }
            let marks: &mut Marks = marks.get_or_insert_with(Box::default);
            match word.split_once('=') {
                None if word == "empty" => marks.empty = true,
                Some(("list", "atomic")) => marks.list = Some(ListMark::Atomic),
                Some(("list", "set")) => marks.list = Some(ListMark::Set),
                Some(("list", keys)) if keys.starts_with("map:") => {
                    marks.list = Some(ListMark::Map(keys["map:".len()..].split(',').map(str::to_owned).collect()));
                }
                Some(("map", kind)) => marks.atomic = Some(kind == "atomic"),
                Some(("patch", names)) => marks.patch_strategy = names.split(',').map(str::to_owned).collect(),
                Some(("key", key)) => marks.patch_merge_key = Some(key.to_owned()),
                Some(("default", json)) => match serde_json::from_str(json) {
                    Ok(value) => marks.default = Some(value),
                    Err(error) => return self.error(format!("the default of {name}: {error}")),
                },
                _ => return self.error(format!("{word:?} is not a marker")),
            }
        }
        Ok(Member { number, embedded: name == ".", field: Field { name, ty, pointer, omit, required, marks } })
    }

    /// Returns a type by its expression.
    fn reference(&mut self, package: &'static str, text: &'static str) -> Result<TypeId, ParseError> {
        if let Some(item) = text.strip_prefix("[]") {
            let item = self.reference(package, item)?;
            return self.composite(Keyed::List, item);
        }
        if let Some((key, value)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            let key = if key == "string" { Keyed::ByString } else { Keyed::By(self.reference(package, key)?) };
            let value = self.reference(package, value)?;
            return self.composite(key, value);
        }
        let shape = match text {
            "string" | "uid" => Shape::String,
            "bool" => Shape::Bool,
            "int32" => Shape::Int32,
            "int64" => Shape::Int64,
            "float64" => Shape::Float64,
            "bytes" => Shape::Bytes,
            "any" => Shape::Any,
            name => {
                let (package, name) = name.rsplit_once('.').unwrap_or((package, name));
                return match self.types.names.get(package).and_then(|names| names.get(name)) {
                    Some(id) => Ok(*id),
                    None => self.error(format!("unknown type {name}")),
                };
            }
        };
        if let Some((_, id)) = self.basic.iter().find(|(name, _)| *name == text) {
            return Ok(*id);
        }
        let go = match text {
            "uid" => "types.UID",
            "bytes" => "[]uint8",
            "any" => "interface {}",
            name => name,
        };
        let id = self.add("", Cow::Borrowed(go), shape)?;
        self.basic.push((text, id));
        Ok(id)
    }

    /// Returns the type of a list or a map.
    fn composite(&mut self, keyed: Keyed, value: TypeId) -> Result<TypeId, ParseError> {
        if let Some(id) = self.unnamed.get(&(value, keyed)) {
            return Ok(*id);
        }
        let of = self.types.get(value).go();
        let (go, shape) = match keyed {
            Keyed::List => (["[]", &of].concat(), Shape::List(value)),
            Keyed::ByString => (["map[string]", &of].concat(), Shape::Map(value)),
            Keyed::By(key) => (["map[", &self.types.get(key).go(), "]", &of].concat(), Shape::Map(value)),
        };
        let id = self.add("", go.into(), shape)?;
        self.unnamed.insert((value, keyed), id);
        Ok(id)
    }

    /// Gives each struct its fields, with those of embedded structs.
    fn flatten(&mut self) -> Result<(), ParseError> {
        let members = std::mem::take(&mut self.members);
        for (index, own) in members.iter().enumerate() {
            let (mut fields, mut numbers) = (Vec::with_capacity(own.len()), Vec::with_capacity(own.len()));
            for Member { number, field, embedded } in own {
                let first = fields.len();
                if *embedded {
                    if let Err(id) = collect(&members, field.ty, &mut fields, 0) {
                        let go = self.types.get(id).go().into_owned();
                        return self.error(format!("{go} embeds itself"));
                    }
                } else {
                    fields.push(field.clone());
                }
                let target = match u16::try_from(first) {
                    _ if *embedded => Numbered::Embedded(field.ty),
                    Ok(first) => Numbered::Field(first),
                    Err(_) => return self.error("too many fields"),
                };
                numbers.extend(number.map(|number| (number, target)));
            }
            if fields.len() > MAX {
                return self.error("too many fields");
            }
            numbers.sort_by_key(|(number, _)| *number);
            if let Shape::Struct(all) = &mut self.types.types[index].shape {
                (all.fields, all.numbers) = (fields, numbers.into());
            }
        }
        Ok(())
    }

    /// Finds the types of objects, which begin with the fields of `TypeMeta`.
    fn find_kinds(&mut self) {
        let mut kinds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (package, names) in &self.types.names {
            let Some(&group) = self.groups.get(package) else { continue };
            let version = package.rsplit('.').next().unwrap_or_default();
            for (&name, &id) in names {
                let fields = self.types.get(id).as_struct().map(Struct::fields).unwrap_or_default();
                if matches!(fields, [first, second, ..] if first.name == "kind" && second.name == "apiVersion") {
                    kinds.entry(name).or_default().push((group, version, id));
                }
            }
        }
        self.types.kinds = kinds;
    }
}

/// Adds the fields of a struct to those of one that it is embedded in.
///
/// # Errors
/// The struct, if it embeds itself and so has no finite form.
fn collect(members: &[Vec<Member>], of: TypeId, into: &mut Vec<Field>, depth: usize) -> Result<(), TypeId> {
    if depth > 8 {
        return Err(of);
    }
    for Member { field, embedded, .. } in members.get(usize::from(of.0)).into_iter().flatten() {
        if *embedded {
            collect(members, field.ty, into, depth + 1)?;
        } else {
            into.push(field.clone());
        }
    }
    Ok(())
}

/// The words of a line. They are short, so that a search byte by byte is the fastest.
struct Words(&'static str);

impl Iterator for Words {
    type Item = &'static str;

    fn next(&mut self) -> Option<&'static str> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.bytes().position(|byte| byte == b' ').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        Some(word)
    }
}
