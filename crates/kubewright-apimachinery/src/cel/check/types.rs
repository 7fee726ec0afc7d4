//! The types of expressions.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use crate::cel::message::{self, JSON_PATCH};

/// The type of an operation of a JSON patch.
static OPERATION: LazyLock<Type> = LazyLock::new(|| {
    let texts = ["op", "path", "from"].into_iter().map(|name| (name.to_owned(), Type::String));
    let fields = texts.chain([("value".to_owned(), Type::Dyn)]).collect();
    Type::Object(Arc::new(Fields { name: JSON_PATCH, fields }))
});

/// The type of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// The checker can't tell the type. Every use of it is accepted.
    Unknown,
    /// The type is known only when the expression is evaluated.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    /// The type of a type.
    Meta(Arc<Type>),
    List(Arc<Type>),
    Map(Arc<[Type; 2]>),
    Optional(Arc<Type>),
    Object(Arc<Fields>),
    /// An apply configuration or a part of one, such as `Object.spec`.
    Message(Arc<str>),
    /// A type of the function library.
    Opaque(&'static str),
    /// A parameter of a function's signature.
    Parameter(char),
}

/// The declared fields of an object.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// The name of the type.
    pub(crate) name: &'static str,
    /// The fields by their identifiers.
    pub(crate) fields: BTreeMap<String, Type>,
}

impl Type {
    pub(crate) fn list(items: Type) -> Self {
        Self::List(Arc::new(items))
    }

    pub(crate) fn map(keys: Type, values: Type) -> Self {
        Self::Map(Arc::new([keys, values]))
    }

    pub(crate) fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Returns the type of this name.
    pub(super) fn named(name: &str) -> Option<Type> {
        Some(match name {
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "double" => Self::Double,
            "int" => Self::Int,
            "list" => Self::list(Self::Dyn),
            "map" => Self::map(Self::Dyn, Self::Dyn),
            "null_type" => Self::Null,
            "string" => Self::String,
            "type" => Self::Meta(Arc::new(Self::Dyn)),
            "uint" => Self::Uint,
            "optional_type" => Self::optional(Self::Dyn),
            "net.IP" => Self::Opaque("net.IP"),
            "net.CIDR" => Self::Opaque("net.CIDR"),
            "google.protobuf.Duration" => Self::Duration,
            "google.protobuf.Timestamp" => Self::Timestamp,
            _ => return None,
        })
    }

    /// Returns the type of the messages of this name.
    pub(super) fn message(name: &str) -> Option<Type> {
        match name {
            JSON_PATCH => Some(OPERATION.clone()),
            name if message::is_known(name) => Some(Self::Message(name.into())),
            _ => None,
        }
    }

    /// Returns the name of the type without its parameters.
    pub(in crate::cel) fn name(&self) -> String {
        match self {
            Self::List(_) => "list".to_owned(),
            Self::Map(_) => "map".to_owned(),
            Self::Optional(_) => "optional_type".to_owned(),
            Self::Meta(_) => "type".to_owned(),
            Self::Null => "null_type".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            other => other.to_string(),
        }
    }

    /// Returns whether the type isn't known before evaluation.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Unknown | Self::Dyn)
    }

    /// Returns whether an expression of this type can be null.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Timestamp
                | Self::Duration
                | Self::Object(_)
                | Self::Message(_)
                | Self::Opaque(_)
                | Self::Optional(_)
        )
    }

    /// Returns whether two types are the same as far as the checker knows them.
    pub(crate) fn is_exactly(&self, other: &Type) -> bool {
        match (self, other) {
            (Self::List(left), Type::List(right)) | (Self::Optional(left), Type::Optional(right)) => {
                left.is_exactly(right)
            }
            (Self::Map(left), Type::Map(right)) => left[0].is_exactly(&right[0]) && left[1].is_exactly(&right[1]),
            (Self::Object(left), Type::Object(right)) => left.name == right.name,
            (Self::Message(left), Type::Message(right)) => left == right,
            (Self::Opaque(left), Type::Opaque(right)) => left == right,
            (Self::Meta(left), Type::Meta(right)) => left.is_exactly(right),
            (Self::Parameter(left), Type::Parameter(right)) => left == right,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// The form that messages show, which is cel-go's.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown | Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::Meta(of) => return write!(f, "type({of})"),
            Self::List(items) => return write!(f, "list({items})"),
            Self::Map(entry) => return write!(f, "map({}, {})", entry[0], entry[1]),
            Self::Optional(value) => return write!(f, "optional_type({value})"),
            Self::Object(object) => object.name,
            Self::Message(name) => name,
            Self::Opaque(name) => name,
            Self::Parameter(name) => return write!(f, "{name}"),
        })
    }
}

/// The parameters of a signature, with the types that the arguments give them.
#[derive(Clone, Debug, Default)]
pub(super) struct Bindings(Vec<(char, Type)>);

impl Bindings {
    /// Returns whether an argument fits a parameter's type, and binds the type's parameters.
    pub(super) fn accept(&mut self, wanted: &Type, given: &Type) -> bool {
        match (wanted, given) {
            (Type::Parameter(name), _) => {
                let Some(place) = self.0.iter().position(|(known, _)| known == name) else {
                    self.0.push((*name, given.clone()));
                    return true;
                };
                let bound = self.0[place].1.clone();
                // The more general of two types is kept, and an open one gives way to a known one.
                if bound.is_open() || (matches!(bound, Type::Null) && given.is_nullable()) {
                    self.0[place].1 = given.clone();
                    return true;
                }
                self.accept(&bound, given)
            }
            (Type::Unknown | Type::Dyn, _) | (_, Type::Unknown | Type::Dyn | Type::Parameter(_)) => true,
            (wanted, Type::Null) => wanted.is_nullable(),
            (Type::List(wanted), Type::List(given)) | (Type::Optional(wanted), Type::Optional(given)) => {
                self.accept(wanted, given)
            }
            (Type::Map(wanted), Type::Map(given)) => {
                self.accept(&wanted[0], &given[0]) && self.accept(&wanted[1], &given[1])
            }
            (Type::Object(_), Type::Object(_)) | (Type::Meta(_), Type::Meta(_)) => true,
            (wanted, given) => wanted.is_exactly(given),
        }
    }

    /// Returns a type with the bound parameters in it.
    pub(super) fn apply(&self, of: &Type) -> Type {
        match of {
            Type::Parameter(name) => {
                let bound = self.0.iter().find(|(known, _)| known == name);
                bound.map_or(Type::Dyn, |(_, bound)| bound.clone())
            }
            Type::List(items) => Type::list(self.apply(items)),
            Type::Optional(value) => Type::optional(self.apply(value)),
            Type::Map(entry) => Type::map(self.apply(&entry[0]), self.apply(&entry[1])),
            Type::Meta(of) => Type::Meta(Arc::new(self.apply(of))),
            other => other.clone(),
        }
    }
}
