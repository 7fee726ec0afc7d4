//! `#[derive(Convert)]`.
//!
//! The generated code constructs both structs without `..`, so rustc reports a field that is not accounted for, at the
//! path of the hub. It destructures the hub with `..`, so that the error is reported once.

mod parse;
#[cfg(test)]
mod tests;

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{DeriveInput, Ident, Result, spanned::Spanned};

use self::parse::{Field, How, HubOnly, Part, Place, Status};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let part = Part::parse(input)?;
    let name = &input.ident;
    let convert = part.convert(name);
    let kinds = part.convertible();
    let test = test(name);
    Ok(quote! { #convert #kinds #test })
}

/// The module whose items generated code uses.
fn krate() -> TokenStream {
    quote! { ::kubewright::conversion }
}

/// The variable for a field of the hub, distinct from the variables of the spoke's fields.
fn hub_variable(name: &Ident) -> Ident {
    format_ident!("__hub_{}", name, span = name.span())
}

impl Part {
    fn convert(&self, name: &Ident) -> TokenStream {
        let (krate, hub) = (krate(), &self.hub);
        let fields = self.fields.iter().map(|field| &field.name).collect::<Vec<_>>();
        let parts = self.parts();
        let direct = self.direct();
        let hub_only = self.hub_only.iter().map(|field| &field.name);
        let all = parts.iter().chain(&direct).chain(hub_only).collect::<Vec<_>>();
        let variables = all.iter().map(|field| hub_variable(field)).collect::<Vec<_>>();
        let begin = parts.iter().map(|part| begin(part, hub));
        let to = self.fields.iter().map(Field::to_hub);
        let from = self.fields.iter().map(Field::of_hub);
        let keep_parts = parts.iter().map(|part| self.keep_part(part));
        let only = self.hub_only.iter().map(|HubOnly { name, default }| {
            let default = default.as_ref().map_or_else(|| quote! { Default::default }, |path| quote! { #path });
            (name.to_string(), hub_variable(name), default)
        });
        let take_only = only.clone().map(|(text, variable, default)| {
            quote! { let #variable = __data.take(#text).unwrap_or_else(#default); }
        });
        let keep_only = only.map(|(text, variable, default)| quote! { __data.keep(#text, &#variable, &#default())?; });
        let error = quote! { #krate::ConversionError };
        // Fields become variables with the user's names.
        quote! {
            #[automatically_derived]
            #[allow(clippy::disallowed_names, clippy::many_single_char_names, clippy::similar_names)]
            impl #krate::Convert for #name {
                type Hub = #hub;

                fn into_hub(self, __data: &mut #krate::Data) -> ::std::result::Result<#hub, #error> {
                    let Self { #(#fields),* } = self;
                    #(#begin)*
                    #(#to)*
                    #(#take_only)*
                    ::std::result::Result::Ok(#hub { #(#all: #variables),* })
                }

                fn from_hub(__hub: #hub, __data: &mut #krate::Data) -> ::std::result::Result<Self, #error> {
                    let #hub { #(#all: #variables,)* .. } = __hub;
                    #(#from)*
                    #(#keep_parts)*
                    #(#keep_only)*
                    ::std::result::Result::Ok(Self { #(#fields),* })
                }
            }
        }
    }

    /// The parts of the hub that fields are moved into, without duplicates.
    fn parts(&self) -> Vec<Ident> {
        let mut parts: Vec<Ident> = Vec::new();
        for field in &self.fields {
            if let Place::Below(part, _) = &field.place
                && !parts.contains(part)
            {
                parts.push(part.clone());
            }
        }
        parts
    }

    /// The fields of the hub that belong to one field.
    fn direct(&self) -> Vec<Ident> {
        let places = self.fields.iter().flat_map(|field| match &field.place {
            Place::Field(name) => vec![name.clone()],
            Place::Several(names) => names.clone(),
            Place::Below(..) | Place::Nowhere => Vec::new(),
        });
        places.collect()
    }

    /// Keeps a part of the hub, unless the moved fields determine it.
    fn keep_part(&self, part: &Ident) -> TokenStream {
        let (variable, hub, krate) = (hub_variable(part), &self.hub, krate());
        let again = self.fields.iter().filter_map(|field| match &field.place {
            Place::Below(first, rest) if first == part => {
                Some(quote! { __again #(.#rest)* = #variable #(.#rest)*.clone(); })
            }
            _ => None,
        });
        let text = part.to_string();
        quote! {
            {
                let mut __again = #krate::default_of(|__hub: &#hub| &__hub.#part);
                #(#again)*
                __data.keep(#text, &#variable, &__again)?;
            }
        }
    }

    /// The conversion of whole objects.
    fn convertible(&self) -> Option<TokenStream> {
        let (kind, hub_kind) = self.kinds.as_ref()?;
        let krate = krate();
        let way = |kind: &syn::Path, source: TokenStream, convert: TokenStream| {
            let converted = |field: &str, value: TokenStream| {
                quote! { __data.within(#field, |__data| #krate::Convert::#convert(#value, __data))? }
            };
            let spec = converted("spec", quote! { #source.spec });
            let status = match self.status {
                None => None,
                Some(Status::Same) => Some(quote! { status: #source.status, }),
                Some(Status::Converted) => {
                    let status = converted("status", quote! { #source.status });
                    Some(quote! { status: #status, })
                }
            };
            quote! {
                let __made = #kind { metadata: ::std::default::Default::default(), #status spec: #spec };
                __data.close(&mut #source.metadata, &__from)?;
                ::std::result::Result::Ok(#kind { metadata: #source.metadata, ..__made })
            }
        };
        let to = way(hub_kind, quote! { self }, quote! { into_hub });
        let from = way(kind, quote! { __hub }, quote! { from_hub });
        let version = |kind: &syn::Path| quote! { <#kind as ::kubewright::kube::Resource>::version(&()) };
        let (own, other) = (version(kind), version(hub_kind));
        let error = quote! { #krate::ConversionError };
        Some(quote! {
            #[automatically_derived]
            impl #krate::Convertible for #kind {
                type Hub = #hub_kind;

                fn convert_to(mut self) -> ::std::result::Result<#hub_kind, #error> {
                    let (__from, __to) = (#own, #other);
                    let mut __data = #krate::Data::open(&mut self.metadata, &__to);
                    #to
                }

                fn convert_from(mut __hub: #hub_kind) -> ::std::result::Result<Self, #error> {
                    let (__from, __to) = (#other, #own);
                    let mut __data = #krate::Data::open(&mut __hub.metadata, &__to);
                    #from
                }
            }
        })
    }
}

/// The span of a user's token with the hygiene of generated code, so that lints ignore it.
fn here(span: Span) -> Span {
    span.resolved_at(Span::call_site())
}

/// A part of the hub: the kept value, or the default.
fn begin(part: &Ident, hub: &syn::Path) -> TokenStream {
    let (variable, krate, text) = (hub_variable(part), krate(), part.to_string());
    quote! {
        let mut #variable = #krate::default_of(|__hub: &#hub| &__hub.#part);
        if let ::std::option::Option::Some(kept) = __data.take(#text) {
            #variable = kept;
        }
    }
}

impl Field {
    fn to_hub(&self) -> TokenStream {
        let Self { name, place, how } = self;
        let (text, span) = (name.to_string(), here(name.span()));
        let value = how.to_hub(name);
        match place {
            Place::Field(hub) => {
                let variable = hub_variable(hub);
                quote_spanned! { span => let #variable = #value; }
            }
            Place::Below(part, rest) => {
                let variable = hub_variable(part);
                quote_spanned! { span => #variable #(.#rest)* = #value; }
            }
            Place::Several(names) => {
                let variables = names.iter().map(hub_variable);
                quote_spanned! { span => let (#(#variables),*) = #value; }
            }
            Place::Nowhere => quote_spanned! { span => __data.keep(#text, &#name, &Default::default())?; },
        }
    }

    fn of_hub(&self) -> TokenStream {
        let Self { name, place, how } = self;
        let (text, span) = (name.to_string(), here(name.span()));
        let value = match place {
            Place::Field(hub) => {
                let variable = hub_variable(hub);
                how.of_hub(&text, span, quote! { #variable })
            }
            Place::Below(part, rest) => {
                let variable = hub_variable(part);
                how.of_hub(&text, span, quote! { #variable #(.#rest)*.clone() })
            }
            Place::Several(names) => {
                let variables = names.iter().map(hub_variable);
                how.of_hub(&text, span, quote! { (#(#variables),*) })
            }
            Place::Nowhere => quote_spanned! { span => __data.take(#text).unwrap_or_default() },
        };
        quote_spanned! { span => let #name = #value; }
    }
}

impl How {
    fn to_hub(&self, name: &Ident) -> TokenStream {
        let (krate, text, span) = (krate(), name.to_string(), here(name.span()));
        match self {
            Self::Same => quote_spanned! { span => #name },
            Self::With(module) => {
                let to = quote_spanned! { here(module.span()) => #module::to };
                quote_spanned! { span =>
                    #to(#name).map_err(|error| #krate::ConversionError::from(error).of(#text))?
                }
            }
            Self::Nested => quote_spanned! { span =>
                __data.within(#text, |__data| #krate::Convert::into_hub(#name, __data))?
            },
        }
    }

    fn of_hub(&self, text: &str, span: Span, value: TokenStream) -> TokenStream {
        let krate = krate();
        match self {
            Self::Same => value,
            Self::With(module) => {
                let from = quote_spanned! { here(module.span()) => #module::from };
                quote_spanned! { span =>
                    #from(#value).map_err(|error| #krate::ConversionError::from(error).of(#text))?
                }
            }
            Self::Nested => quote_spanned! { span =>
                __data.within(#text, |__data| #krate::Convert::from_hub(#value, __data))?
            },
        }
    }
}

/// The property test, named after the struct.
fn test(name: &Ident) -> TokenStream {
    let mut snake = String::new();
    for letter in name.to_string().chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    let (krate, test) = (krate(), format_ident!("{snake}_round_trips"));
    quote! {
        #[cfg(test)]
        #[test]
        fn #test() {
            if let ::std::result::Result::Err(error) = #krate::testing::round_trip::<#name>() {
                panic!("{error}");
            }
        }
    }
}
