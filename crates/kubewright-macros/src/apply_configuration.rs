//! `#[derive(ApplyConfiguration)]`: a second struct with the same fields, all of them optional.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, GenericArgument, Ident, LitStr, Meta, Path, PathArguments,
    Result, Token, Type, Visibility, punctuated::Punctuated, spanned::Spanned,
};

/// The attributes of the struct.
#[derive(Default)]
struct Container {
    /// The kind of which the struct is a part.
    kind: Option<Path>,
    /// The field of the object in which it is.
    part: Option<LitStr>,
}

/// The attributes of a field.
#[derive(Default)]
struct Options {
    nested: bool,
    skip: bool,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let only_structs = "ApplyConfiguration can be derived for structs with named fields and without generics";
    let Data::Struct(data) = &input.data else { return Err(Error::new(input.ident.span(), only_structs)) };
    let Fields::Named(fields) = &data.fields else { return Err(Error::new(input.ident.span(), only_structs)) };
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), only_structs));
    }
    let container = Container::read(&input.attrs)?;
    let (original, vis, name) = (&input.ident, &input.vis, named(&input.ident));
    let serde = kept(&input.attrs, &["rename_all"])?;
    let all = fields.named.iter().filter_map(|field| field.ident.as_ref()).collect::<Vec<_>>();
    let fields = fields.named.iter().map(Applied::read).collect::<Result<Vec<_>>>()?;
    let fields = fields.into_iter().flatten().collect::<Vec<_>>();
    let (declared, setters) = (fields.iter().map(Applied::declare), fields.iter().map(Applied::setter));
    let doc = format!("The apply configuration of `{original}`: fields that aren't set are neither sent nor owned.");
    let object = container.kind.as_ref().map(|kind| object(kind, container.part.as_ref(), vis, &name));
    Ok(quote! {
        #[doc = #doc]
        #[derive(Clone, Debug, Default, ::serde::Serialize, ::serde::Deserialize)]
        #serde
        #vis struct #name { #(#declared)* }

        impl #name { #(#setters)* }

        #[automatically_derived]
        impl ::kubewright::apply_configuration::Applicable for #original {
            type ApplyConfiguration = #name;
        }

        // A struct that only describes a configuration would count as unused.
        const _: () = {
            #[allow(dead_code)]
            fn same(it: #original) -> #original {
                let #original { #(#all),* } = it;
                #original { #(#all),* }
            }
        };

        #object
    })
}

fn named(original: &Ident) -> Ident {
    format_ident!("{original}ApplyConfiguration")
}

/// A field of the configuration.
struct Applied<'a> {
    field: &'a Field,
    name: &'a Ident,
    /// The type without `Option`.
    of: TokenStream,
    serde: TokenStream,
}

impl<'a> Applied<'a> {
    fn read(field: &'a Field) -> Result<Option<Self>> {
        let options = Options::read(&field.attrs)?;
        let (Some(name), false) = (&field.ident, options.skip || is_left_out(&field.attrs)?) else { return Ok(None) };
        let inner = optional(&field.ty).unwrap_or(&field.ty);
        let of = match options.nested {
            true => quote!(<#inner as ::kubewright::apply_configuration::Applicable>::ApplyConfiguration),
            false => quote!(#inner),
        };
        let serde = kept(&field.attrs, &["rename", "flatten", "alias"])?;
        Ok(Some(Self { field, name, of, serde }))
    }

    fn declare(&self) -> TokenStream {
        let Self { field, name, of, serde } = self;
        let vis = &field.vis;
        let docs = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
        quote! {
            #(#docs)*
            #serde
            #[serde(default, skip_serializing_if = "::core::option::Option::is_none")]
            #vis #name: ::core::option::Option<#of>,
        }
    }

    fn setter(&self) -> TokenStream {
        let Self { field, name, of, .. } = self;
        let vis = &field.vis;
        let doc = format!("Sets `{name}`.");
        quote! {
            #[doc = #doc]
            #[must_use]
            #[allow(dead_code)]
            #vis fn #name(mut self, #name: #of) -> Self {
                self.#name = ::core::option::Option::Some(#name);
                self
            }
        }
    }
}

/// Returns the configuration of the whole object.
fn object(kind: &Path, part: Option<&LitStr>, vis: &Visibility, of: &Ident) -> TokenStream {
    let Some(last) = kind.segments.last() else { return TokenStream::new() };
    let name = named(&last.ident);
    let key = part.map_or_else(|| "spec".to_owned(), LitStr::value);
    let field = format_ident!("r#{key}");
    let doc = format!("The apply configuration of a `{}`, for `ctx.apply`, `ctx.apply_child` and clients.", last.ident);
    let (doc_new, doc_part) =
        (format!("Creates the configuration of the {} with this name.", last.ident), format!("Sets `{key}`."));
    quote! {
        #[doc = #doc]
        #[derive(Clone, Debug, Default, ::serde::Deserialize)]
        #vis struct #name {
            /// The metadata, of which only fields that are set are applied.
            #[serde(default)]
            pub metadata: ::kubewright::kube::api::ObjectMeta,
            /// The applied fields.
            #[serde(default, rename = #key)]
            pub #field: ::core::option::Option<#of>,
        }

        #[allow(dead_code)]
        impl #name {
            #[doc = #doc_new]
            #[must_use]
            pub fn new(name: &str) -> Self {
                let mut configuration = Self::default();
                configuration.metadata.name = ::core::option::Option::Some(name.into());
                configuration
            }

            /// Sets the namespace.
            #[must_use]
            pub fn namespace(mut self, namespace: &str) -> Self {
                self.metadata.namespace = ::core::option::Option::Some(namespace.into());
                self
            }

            /// Adds a label.
            #[must_use]
            pub fn label(mut self, name: &str, value: &str) -> Self {
                self.metadata.labels.get_or_insert_default().insert(name.into(), value.into());
                self
            }

            #[doc = #doc_part]
            #[must_use]
            pub fn #field(mut self, #field: #of) -> Self {
                self.#field = ::core::option::Option::Some(#field);
                self
            }
        }

        #[automatically_derived]
        impl ::serde::Serialize for #name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> ::core::result::Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeStruct as _;
                let mut object = serializer.serialize_struct(stringify!(#name), 3 + usize::from(self.#field.is_some()))?;
                object.serialize_field("apiVersion", &<#kind as ::kubewright::kube::Resource>::api_version(&()))?;
                object.serialize_field("kind", &<#kind as ::kubewright::kube::Resource>::kind(&()))?;
                object.serialize_field("metadata", &self.metadata)?;
                if let ::core::option::Option::Some(part) = &self.#field {
                    object.serialize_field(#key, part)?;
                }
                object.end()
            }
        }

        #[automatically_derived]
        impl ::kubewright::kube::Resource for #name {
            type DynamicType = ();
            type Scope = <#kind as ::kubewright::kube::Resource>::Scope;

            fn kind(_: &()) -> ::std::borrow::Cow<'_, str> {
                <#kind as ::kubewright::kube::Resource>::kind(&())
            }

            fn group(_: &()) -> ::std::borrow::Cow<'_, str> {
                <#kind as ::kubewright::kube::Resource>::group(&())
            }

            fn version(_: &()) -> ::std::borrow::Cow<'_, str> {
                <#kind as ::kubewright::kube::Resource>::version(&())
            }

            fn plural(_: &()) -> ::std::borrow::Cow<'_, str> {
                <#kind as ::kubewright::kube::Resource>::plural(&())
            }

            fn meta(&self) -> &::kubewright::kube::api::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::kubewright::kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    }
}

impl Container {
    fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut read = Self::default();
        for attribute in ours(attributes) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("kind") {
                    read.kind = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("part") {
                    read.part = Some(meta.value()?.parse()?);
                } else {
                    return Err(meta.error("unknown argument: expected `kind = Type` or `part = \"status\"`"));
                }
                Ok(())
            })?;
        }
        match (&read.kind, &read.part) {
            (None, Some(part)) => Err(Error::new(part.span(), "`part` needs `kind`, the object of which it is a part")),
            _ => Ok(read),
        }
    }
}

impl Options {
    fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut read = Self::default();
        for attribute in ours(attributes) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("nested") {
                    read.nested = true;
                } else if meta.path.is_ident("skip") {
                    read.skip = true;
                } else {
                    return Err(meta.error("unknown argument: expected `nested` or `skip`"));
                }
                Ok(())
            })?;
        }
        Ok(read)
    }
}

fn ours(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("apply_configuration"))
}

/// Returns the arguments of serde's attributes.
fn serde_arguments(attributes: &[Attribute]) -> Result<Vec<Meta>> {
    let mut found = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        found.extend(attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?);
    }
    Ok(found)
}

/// Returns serde's attribute with these arguments of the original. Those that describe absent values are left out,
/// since all may be absent.
fn kept(attributes: &[Attribute], names: &[&str]) -> Result<TokenStream> {
    let mut kept = Vec::new();
    for argument in serde_arguments(attributes)? {
        let is = |names: &[&str]| names.iter().any(|name| argument.path().is_ident(name));
        if is(names) {
            kept.push(argument);
        } else if is(&["with", "serialize_with"]) {
            let why = "a field with a serializer of its own can't be optional: leave it out by `#[apply_configuration(skip)]`, or give its type a Serialize";
            return Err(Error::new(argument.span(), why));
        }
    }
    Ok(if kept.is_empty() { TokenStream::new() } else { quote!(#[serde(#(#kept),*)]) })
}

/// Whether serde doesn't write the field, or an attribute leaves it out.
fn is_left_out(attributes: &[Attribute]) -> Result<bool> {
    let arguments = serde_arguments(attributes)?;
    Ok(arguments.iter().any(|argument| ["skip", "skip_serializing"].iter().any(|name| argument.path().is_ident(name))))
}

/// Returns the type in an `Option`.
fn optional(of: &Type) -> Option<&Type> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn refused(input: &DeriveInput) -> String {
        expand(input).expect_err("it is refused").to_string()
    }

    #[test]
    fn mistakes_are_named() {
        let only = "ApplyConfiguration can be derived for structs with named fields and without generics";
        assert_eq!(
            refused(&parse_quote!(
                enum A {
                    B,
                }
            )),
            only
        );
        assert_eq!(
            refused(&parse_quote!(
                struct A(i32);
            )),
            only
        );
        assert_eq!(
            refused(&parse_quote!(
                struct A<T> {
                    t: T,
                }
            )),
            only
        );
        let serializer = parse_quote!(
            struct A {
                #[serde(with = "m")]
                a: i32,
            }
        );
        assert!(refused(&serializer).starts_with("a field with a serializer of its own can't be optional"));
        let misspelt = parse_quote!(
            struct A {
                #[apply_configuration(nestd)]
                a: i32,
            }
        );
        assert_eq!(refused(&misspelt), "unknown argument: expected `nested` or `skip`");
        let homeless = parse_quote!(
            #[apply_configuration(part = "status")]
            struct A {
                a: i32,
            }
        );
        assert_eq!(refused(&homeless), "`part` needs `kind`, the object of which it is a part");
        let serializer = parse_quote!(
            struct A {
                #[serde(with = "m")]
                #[apply_configuration(skip)]
                a: i32,
            }
        );
        assert!(expand(&serializer).is_ok());
    }

    #[test]
    fn options_are_not_nested() {
        let made = expand(&parse_quote!(
            struct A {
                a: Option<i32>,
                b: Vec<Option<i32>>,
            }
        ))
        .expect("it is made");
        let made = made.to_string().replace(' ', "");
        assert!(made.contains("a:::core::option::Option<i32>") && !made.contains("Option<Option"), "{made}");
        assert!(made.contains("b:::core::option::Option<Vec<Option<i32>>>"), "{made}");
    }
}
