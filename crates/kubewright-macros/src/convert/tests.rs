use syn::parse_quote;

use super::*;

fn refused(input: &DeriveInput, says: &str) {
    let error = expand(input).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn invalid_attributes_are_reported() {
    refused(
        &parse_quote!(
            struct A {
                a: u8,
            }
        ),
        "missing attribute: #[convert(hub = path::to::HubSpec)]",
    );
    refused(
        &parse_quote!(
            #[convert(hub = B)]
            enum A {
                B,
            }
        ),
        "structs with named fields",
    );
    refused(
        &parse_quote!(
            #[convert(hub = B)]
            struct A(u8);
        ),
        "structs with named fields",
    );
    refused(
        &parse_quote!(
            #[convert(hub = B)]
            struct A<T> {
                a: T,
            }
        ),
        "generic parameters",
    );
    refused(
        &parse_quote!(
            #[convert(hub = B, kind = C)]
            struct A {
                a: u8,
            }
        ),
        "must be given together",
    );
    refused(
        &parse_quote!(
            #[convert(hub = B, other)]
            struct A {
                a: u8,
            }
        ),
        "expected hub, kind, hub_kind, status or hub_only",
    );
    for (words, says) in [
        (quote!(renamed = "b", default), "exclude each other"),
        (quote!(with = m, nested), "`with` and `nested` exclude each other"),
        (quote!(default, nested), "isn't in the hub"),
        (quote!(moved = "a"), "use \"part.field\""),
        (quote!(moved = "a..b"), "expected identifier"),
        (quote!(split(a, b)), "`split` requires at least two fields, and `with`"),
        (quote!(split(a), with = m), "`split` requires at least two fields"),
        (quote!(renamd = "b"), "expected renamed, moved, default, with, split or nested"),
    ] {
        refused(
            &parse_quote!(
                #[convert(hub = B)]
                struct A {
                    #[convert(#words)]
                    a: u8,
                }
            ),
            says,
        );
    }
}

#[test]
fn what_makes_sense_is_rust() {
    let made = expand(&parse_quote! {
        #[convert(hub = v2::Spec, kind = Job, hub_kind = v2::Job, status = converted, hub_only(glass, tint = v2::no_tint))]
        struct JobSpec {
            same: u8,
            #[convert(renamed = "second")]
            first: u8,
            #[convert(moved = "part.field")]
            field: u8,
            #[convert(default)]
            gone: u8,
            #[convert(split(width, height), with = size)]
            size: String,
            #[convert(nested)]
            parts: Vec<Part>,
        }
    })
    .unwrap();
    let text = made.to_string();
    for part in
        ["Convert for JobSpec", "Convertible for Job", "fn job_spec_round_trips", "unwrap_or_else (v2 :: no_tint)"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}
