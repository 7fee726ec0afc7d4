//! The macros of Kubewright.
//!
//! Use them through the crate `kubewright`: generated code refers to its paths.

mod apply_configuration;
mod convert;
mod scenario;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, ItemFn, parse_macro_input};

/// Implements `kubewright::conversion::Convert`: converts a part of an object to the hub's type and back.
///
/// Attributes of the struct, which is the spec of a spoke or a part of it:
///
/// | attribute | meaning |
/// |---|---|
/// | `hub = v2::CronJobSpec` | the hub's struct; required |
/// | `kind = CronJob, hub_kind = v2::CronJob` | also implements `Convertible` for `CronJob`, the whole object |
/// | `status` | with `kind`: both versions have the same status type; `status = converted` if the status derives `Convert` too |
/// | `hub_only(field, …)` | fields of the hub that this version doesn't have; `field = function` names what returns its default, as `#[serde(default = "function")]` does |
///
/// Attributes of a field whose name or type differs in the hub:
///
/// | attribute | meaning |
/// |---|---|
/// | `renamed = "other"` | its name in the hub |
/// | `moved = "part.field"` | it is a field of a part of the hub; that part implements `Default` |
/// | `default` | the hub doesn't have it |
/// | `with = module` | `module::to(value)` and `module::from(value)` convert it; both are fallible |
/// | `split(one, other)` | with `with`: it is several fields in the hub, which `to` returns and `from` accepts as a tuple |
/// | `nested` | its type derives `Convert` too; also inside an `Option` or a `Vec` |
///
/// A field that only one side has must implement `Default`, or be given a function: a default of serde or of the schema
/// isn't used. Its value is kept in an annotation of the other version, so
/// that a round trip loses nothing. A field that neither side accounts for is a compile error, at the field or at the
/// path of the hub.
///
/// Under `cfg(test)` the macro generates the test `<struct>_round_trips`, which converts values generated from the
/// schemas. Both types must implement `JsonSchema` for it.
#[proc_macro_derive(Convert, attributes(convert))]
pub fn convert(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    convert::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes the apply configuration of a struct: `<struct>ApplyConfiguration`, which has the same fields, all of them
/// optional, and a setter for each. A server-side apply of it sends and owns only the fields that are set.
///
/// ```ignore
/// #[derive(CustomResource, ApplyConfiguration, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "app.example.com", version = "v1", kind = "PodSet", namespaced)]
/// #[apply_configuration(kind = PodSet)]
/// struct PodSetSpec {
///     replicas: i32,
///     #[apply_configuration(nested)]
///     limits: Limits, // derives ApplyConfiguration, too
/// }
///
/// let spec = PodSetSpecApplyConfiguration::default().replicas(3);
/// ctx.apply(&PodSetApplyConfiguration::new("web").spec(spec)).await?;
/// ```
///
/// For a kind of another crate, such as a built-in one, derive it for a struct with those of its fields that the
/// operator applies, and with `kind = Deployment`.
///
/// | attribute | meaning |
/// |---|---|
/// | `kind = PodSet` | also makes `PodSetApplyConfiguration`, of the whole object, of which the struct is `spec` |
/// | `part = "status"` | with `kind`: it is this field of the object |
/// | `nested` of a field | its type derives `ApplyConfiguration` too; also inside an `Option`, a `Vec` or a map |
/// | `skip` of a field | it isn't in the configuration |
///
/// Of serde's attributes `rename_all`, `rename`, `flatten` and `alias` count. The crate needs `serde` as a dependency.
#[proc_macro_derive(ApplyConfiguration, attributes(apply_configuration))]
pub fn apply_configuration(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    apply_configuration::expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a test of a scenario of the simulator, `kubewright::simulation`: an `async fn` that plays the user.
///
/// ```ignore
/// use kubewright::simulation::{Sim, scenario};
///
/// #[scenario(operator = crate::register)]
/// async fn scales(sim: &Sim) {
///     sim.apply(include_str!("../config/samples/app_v1_podset.yaml")).await;
///     sim.until("it is ready", |world| world.get::<PodSet>("sample").is_some_and(|set| is_ready(&set))).await;
/// }
/// ```
///
/// | argument | meaning |
/// |---|---|
/// | `operator = path` | the function that `main` passes its manager to; required |
/// | `pods = none` | the cluster has no node. By default, `simulate`: pods become running without a process |
/// | `replicas = 2` | the number of replicas, which elect a leader if there are several |
/// | `shards = 2` | the number of replicas, which divide the objects among themselves |
/// | `upgrade = path` | the function that adds the version before: it runs until the first `until`, or a fault replaces it earlier |
/// | `webhooks = none` | the operator's webhooks and conversions aren't called. By default, `call` |
/// | `certificates` | each process makes and renews the certificate of its webhooks, and the API server verifies it |
/// | `unconditional` | the conditions hold also if pods fail, the clock jumps, the user creates objects again or changes a status, or two processes work at the same time |
/// | `omit(hot_loop = "reason")` | leaves an oracle out, for a reason |
///
/// The test is `simulation` in a module with the name of the function. So `cargo test simulation` runs all scenarios of
/// a project, and `cargo test scales` this one. It panics with the story of the first run in which something is wrong;
/// see `Scenario::test`.
#[proc_macro_attribute]
pub fn scenario(arguments: TokenStream, input: TokenStream) -> TokenStream {
    let mut read = scenario::Arguments::default();
    let parser = syn::meta::parser(|meta| read.read(&meta));
    parse_macro_input!(arguments with parser);
    let user = parse_macro_input!(input as ItemFn);
    read.expand(&user).unwrap_or_else(Error::into_compile_error).into()
}
