//! The derive macros of Kubewright: thin entries, whose expansion is a [`syn::Result`].
//!
//! Users have them, and what they say, from the crate `kubewright`: generated code names its paths.

mod convert;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, parse_macro_input};

/// Converts a part of an object to the hub's part and back: the trait `kubewright::conversion::Convert`.
///
/// On the struct, a spoke's spec (or a part of it):
///
/// | word | says |
/// |---|---|
/// | `hub = v2::CronJobSpec` | the hub's struct; must be there |
/// | `kind = CronJob, hub_kind = v2::CronJob` | converts the whole object, too: `Convertible` for `CronJob` |
/// | `status` | with `kind`: both versions have the same type of status; `status = converted` if it derives this, too |
/// | `hub_only(field, …)` | fields of the hub that this version can't say |
///
/// On a field that is not just the same there, in name and type:
///
/// | word | says |
/// |---|---|
/// | `renamed = "other"` | the hub calls it so |
/// | `moved = "part.field"` | it is a field of a part of the hub, which has a default |
/// | `default` | the hub can't say it |
/// | `with = module` | `module::to(value)` and `module::from(value)` convert it, and may fail |
/// | `split(one, other)` | with `with`: it is several fields there, which `to` returns as a tuple, and `from` takes so |
/// | `nested` | its type derives this, too; also in an `Option` or a `Vec` |
///
/// What only one side can say must have a default and is kept in an annotation of the other, so that nothing gets lost. A field that neither side
/// accounts for is a compile error: here at the field, in the hub at its name.
///
/// With both types `JsonSchema`, `cfg(test)` has a test `<struct>_round_trips`, which tries values made from the schemas.
#[proc_macro_derive(Convert, attributes(convert))]
pub fn convert(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    convert::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}
