//! Parsing of the attributes.

use syn::{
    Data, DataStruct, DeriveInput, Error, Fields, Ident, LitStr, Path, Result, Token,
    meta::ParseNestedMeta,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    spanned::Spanned,
};

/// A struct that derives `Convert`.
pub(super) struct Part {
    pub(super) hub: Path,
    pub(super) kinds: Option<(Path, Path)>,
    pub(super) status: Option<Status>,
    pub(super) hub_only: Vec<HubOnly>,
    pub(super) fields: Vec<Field>,
}

/// A field that only the hub has.
pub(super) struct HubOnly {
    pub(super) name: Ident,
    /// The function that returns its value for an object that was never stored in the hub's version; that of `Default`
    /// if it isn't given.
    pub(super) default: Option<Path>,
}

impl Parse for HubOnly {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        let is_given = input.parse::<Option<Token![=]>>()?.is_some();
        Ok(Self { name, default: if is_given { Some(input.parse()?) } else { None } })
    }
}

/// The conversion of the status.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Status {
    Same,
    Converted,
}

/// A field of the struct.
pub(super) struct Field {
    pub(super) name: Ident,
    pub(super) place: Place,
    pub(super) how: How,
}

/// The place of a field in the hub.
pub(super) enum Place {
    /// A field of the hub.
    Field(Ident),
    /// A field of a part of the hub.
    Below(Ident, Vec<Ident>),
    /// Several fields of the hub.
    Several(Vec<Ident>),
    /// The hub doesn't have it.
    Nowhere,
}

/// The conversion of a value.
pub(super) enum How {
    Same,
    With(Path),
    Nested,
}

#[derive(Default)]
struct Words {
    renamed: Option<LitStr>,
    moved: Option<LitStr>,
    default: bool,
    with: Option<Path>,
    split: Option<Vec<Ident>>,
    nested: bool,
}

impl Part {
    pub(super) fn parse(input: &DeriveInput) -> Result<Self> {
        let Data::Struct(DataStruct { fields: Fields::Named(named), .. }) = &input.data else {
            return Err(Error::new(input.ident.span(), "Convert can only be derived for structs with named fields"));
        };
        if !input.generics.params.is_empty() {
            return Err(Error::new(
                input.generics.span(),
                "Convert can't be derived for structs with generic parameters",
            ));
        }
        let (mut hub, mut kind, mut hub_kind, mut status, mut hub_only) = (None, None, None, None, Vec::new());
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("convert")) {
            attribute.parse_nested_meta(|meta| {
                match word(&meta)?.as_str() {
                    "hub" => hub = Some(meta.value()?.parse::<Path>()?),
                    "kind" => kind = Some(meta.value()?.parse::<Path>()?),
                    "hub_kind" => hub_kind = Some(meta.value()?.parse::<Path>()?),
                    "hub_only" => hub_only = list(&meta)?,
                    "status" if meta.input.peek(Token![=]) => {
                        let word: Ident = meta.value()?.parse()?;
                        if word != "converted" {
                            return Err(Error::new(word.span(), "expected `status` or `status = converted`"));
                        }
                        status = Some(Status::Converted);
                    }
                    "status" => status = Some(Status::Same),
                    _ => return Err(meta.error("unknown attribute: expected hub, kind, hub_kind, status or hub_only")),
                }
                Ok(())
            })?;
        }
        let missing = "missing attribute: #[convert(hub = path::to::HubSpec)]";
        let hub = hub.ok_or_else(|| Error::new(input.ident.span(), missing))?;
        let kinds = match (kind, hub_kind) {
            (Some(kind), Some(hub_kind)) => Some((kind, hub_kind)),
            (None, None) if status.is_none() => None,
            _ => {
                return Err(Error::new(
                    input.ident.span(),
                    "`kind` and `hub_kind` must be given together, and `status` only with them",
                ));
            }
        };
        let fields = named.named.iter().map(Field::parse).collect::<Result<_>>()?;
        Ok(Self { hub, kinds, status, hub_only, fields })
    }
}

impl Field {
    fn parse(field: &syn::Field) -> Result<Self> {
        let Some(name) = field.ident.clone() else {
            return Err(Error::new(field.span(), "Convert can only be derived for structs with named fields"));
        };
        let mut words = Words::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("convert")) {
            attribute.parse_nested_meta(|meta| {
                match word(&meta)?.as_str() {
                    "renamed" => words.renamed = Some(meta.value()?.parse()?),
                    "moved" => words.moved = Some(meta.value()?.parse()?),
                    "default" => words.default = true,
                    "with" => words.with = Some(meta.value()?.parse()?),
                    "split" => words.split = Some(list(&meta)?),
                    "nested" => words.nested = true,
                    _ => {
                        return Err(
                            meta.error("unknown attribute: expected renamed, moved, default, with, split or nested")
                        );
                    }
                }
                Ok(())
            })?;
        }
        words.read(name)
    }
}

impl Words {
    fn read(self, name: Ident) -> Result<Field> {
        let refuse = |why: &str| Err(Error::new(name.span(), why));
        let places = [self.renamed.is_some(), self.moved.is_some(), self.default, self.split.is_some()];
        if places.iter().filter(|is_given| **is_given).count() > 1 {
            return refuse("`renamed`, `moved`, `split` and `default` exclude each other");
        }
        let how = match (self.with, self.nested) {
            (Some(_), true) => return refuse("`with` and `nested` exclude each other"),
            (Some(with), false) => How::With(with),
            (None, true) => How::Nested,
            (None, false) => How::Same,
        };
        if self.default && !matches!(how, How::Same) {
            return refuse("a field with `default` isn't in the hub, so it can't have `with` or `nested`");
        }
        let place = if let Some(renamed) = self.renamed {
            Place::Field(renamed.parse()?)
        } else if let Some(moved) = self.moved {
            let path = moved.parse_with(Punctuated::<Ident, Token![.]>::parse_separated_nonempty)?;
            let mut steps = path.into_iter();
            match (steps.next(), steps.collect::<Vec<_>>()) {
                (Some(first), rest) if !rest.is_empty() => Place::Below(first, rest),
                _ => {
                    return Err(Error::new(
                        moved.span(),
                        "use \"part.field\", or renamed for a field of the hub itself",
                    ));
                }
            }
        } else if let Some(split) = self.split {
            if !matches!(how, How::With(_)) || split.len() < 2 {
                return refuse("`split` requires at least two fields, and `with`");
            }
            Place::Several(split)
        } else if self.default {
            Place::Nowhere
        } else {
            Place::Field(name.clone())
        };
        Ok(Field { name, place, how })
    }
}

fn word(meta: &ParseNestedMeta<'_>) -> Result<String> {
    meta.path.get_ident().map(ToString::to_string).ok_or_else(|| meta.error("expected an identifier"))
}

fn list<T: Parse>(meta: &ParseNestedMeta<'_>) -> Result<Vec<T>> {
    let content;
    syn::parenthesized!(content in meta.input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}
