use syn::parse_quote;

use super::*;

fn refused(input: &DeriveInput, says: &str) {
    let error = expand(input).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn what_makes_no_sense_is_told() {
    refused(
        &parse_quote!(
            struct A {
                a: u8,
            }
        ),
        "say what it converts to",
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
        "without parameters",
    );
    refused(
        &parse_quote!(
            #[convert(hub = B, kind = C)]
            struct A {
                a: u8,
            }
        ),
        "kind, hub_kind and status go together",
    );
    refused(
        &parse_quote!(
            #[convert(hub = B, other)]
            struct A {
                a: u8,
            }
        ),
        "use hub, kind, hub_kind, status or hub_only",
    );
    for (words, says) in [
        (quote!(renamed = "b", default), "a field has one place"),
        (quote!(with = m, nested), "converted in one way"),
        (quote!(default, nested), "what the hub can't say"),
        (quote!(moved = "a"), "use \"part.field\""),
        (quote!(moved = "a..b"), "expected identifier"),
        (quote!(split(a, b)), "split needs two fields or more, and `with`"),
        (quote!(split(a), with = m), "split needs two fields or more"),
        (quote!(renamd = "b"), "use renamed, moved, default, with, split or nested"),
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
        #[convert(hub = v2::Spec, kind = Job, hub_kind = v2::Job, status = converted, hub_only(glass))]
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
    for part in ["Convert for JobSpec", "Convertible for Job", "fn job_spec_round_trips"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}
