//! The attribute `scenario`: a test that searches with a scenario of the simulator.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Error, ItemFn, LitInt, LitStr, Path, Result, meta::ParseNestedMeta, spanned::Spanned};

/// The arguments of the attribute.
#[derive(Default)]
pub(crate) struct Arguments {
    operator: Option<Path>,
    pods: Option<Ident>,
    /// `replicas` or `shards`, and their number.
    replicas: Option<(Ident, LitInt)>,
    upgrade: Option<Path>,
    has_no_webhooks: bool,
    has_certificates: bool,
    is_unconditional: bool,
    /// The names of oracles, with reasons.
    omitted: Vec<(String, LitStr)>,
}

impl Arguments {
    /// Reads one argument.
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("operator") {
            self.operator = Some(meta.value()?.parse()?);
            return Ok(());
        }
        if meta.path.is_ident("pods") {
            let pods: Ident = meta.value()?.parse()?;
            if pods != "simulate" && pods != "none" {
                return Err(Error::new(pods.span(), "expected `simulate` or `none`"));
            }
            self.pods = Some(pods);
            return Ok(());
        }
        if meta.path.is_ident("replicas") || meta.path.is_ident("shards") {
            self.replicas = Some((meta.path.require_ident()?.clone(), meta.value()?.parse()?));
            return Ok(());
        }
        if meta.path.is_ident("upgrade") {
            self.upgrade = Some(meta.value()?.parse()?);
            return Ok(());
        }
        if meta.path.is_ident("webhooks") {
            let webhooks: Ident = meta.value()?.parse()?;
            if webhooks != "call" && webhooks != "none" {
                return Err(Error::new(webhooks.span(), "expected `call` or `none`"));
            }
            self.has_no_webhooks = webhooks == "none";
            return Ok(());
        }
        if meta.path.is_ident("certificates") {
            self.has_certificates = true;
            return Ok(());
        }
        if meta.path.is_ident("unconditional") {
            self.is_unconditional = true;
            return Ok(());
        }
        if meta.path.is_ident("omit") {
            return meta.parse_nested_meta(|oracle| {
                let name = oracle.path.require_ident()?.to_string().replace('_', "-");
                let reason: LitStr = oracle.value()?.parse()?;
                if reason.value().trim().is_empty() {
                    return Err(Error::new(reason.span(), "an oracle is left out for a reason"));
                }
                self.omitted.push((name, reason));
                Ok(())
            });
        }
        Err(meta.error(
            "expected `operator = path`, `pods = simulate`, `pods = none`, `replicas = 2`, `shards = 2`, `upgrade = path`, \
             `webhooks = none`, `certificates`, `unconditional` or `omit(oracle = \"reason\")`",
        ))
    }

    /// Returns the function, and a module of the same name with the test `simulation`.
    pub(crate) fn expand(self, user: &ItemFn) -> Result<TokenStream> {
        let signature = &user.sig;
        if signature.asyncness.is_none() || signature.inputs.len() != 1 {
            return Err(Error::new(signature.span(), "a scenario is an `async fn` with one parameter, `&Sim`"));
        }
        let Some(operator) = self.operator else {
            let message = "a scenario needs `operator = path`, the function that `main` passes its manager to";
            return Err(Error::new(signature.ident.span(), message));
        };
        let name = &signature.ident;
        let text = name.to_string();
        let pods = self.pods.map(|pods| if pods == "none" { quote!(.without_pods()) } else { quote!() });
        let replicas = self.replicas.map(|(option, replicas)| quote!(.#option(#replicas)));
        let upgrade = self.upgrade.map(|old| quote!(.upgrade(#old)));
        let webhooks = self.has_no_webhooks.then(|| quote!(.without_webhooks()));
        let certificates = self.has_certificates.then(|| quote!(.certificates()));
        let unconditional = self.is_unconditional.then(|| quote!(.unconditional()));
        let omitted = self.omitted.iter().map(|(oracle, reason)| quote!(.omit(#oracle, #reason)));
        Ok(quote! {
            #user

            #[cfg(test)]
            mod #name {
                #[allow(unused_imports)]
                use super::*;

                #[test]
                fn simulation() {
                    ::kubewright::simulation::Scenario::new(#text, #operator, super::#name)
                        #pods #replicas #upgrade #webhooks #certificates #unconditional #(#omitted)* .test();
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;

    use super::*;

    fn expand(arguments: &str, function: &str) -> String {
        let mut read = Arguments::default();
        let parsed = syn::meta::parser(|meta| read.read(&meta)).parse_str(arguments);
        let expanded = parsed.and_then(|()| read.expand(&syn::parse_str(function)?));
        expanded.map_or_else(|error| error.to_string(), |tokens| tokens.to_string())
    }

    #[test]
    fn a_scenario_is_a_test() {
        let arguments = r#"operator = crate::register, pods = none, replicas = 2, upgrade = crate::old, webhooks = none, certificates, unconditional, omit(hot_loop = "it polls")"#;
        let expanded = expand(arguments, "async fn scales(sim: &Sim) {}");
        for part in [
            "mod scales",
            "# [test] fn simulation ()",
            "without_pods ()",
            "replicas (2)",
            "upgrade (crate :: old)",
            "without_webhooks ()",
            "certificates ()",
            "unconditional ()",
            r#"omit ("hot-loop" , "it polls")"#,
        ] {
            assert!(expanded.contains(part), "{part} in {expanded}");
        }
        let expanded = expand("operator = crate::register, shards = 3", "async fn scales(sim: &Sim) {}");
        assert!(expanded.contains("shards (3)"), "{expanded}");
    }

    #[test]
    fn mistakes_are_reported() {
        let scenario = "async fn scales(sim: &Sim) {}";
        for (arguments, function, expected) in [
            ("pods = none", scenario, "a scenario needs `operator = path`"),
            ("operator = register", "fn scales(sim: &Sim) {}", "a scenario is an `async fn` with one parameter"),
            ("operator = register, pods = some", scenario, "expected `simulate` or `none`"),
            ("operator = register, webhooks = all", scenario, "expected `call` or `none`"),
            ("operator = register, omit(quiet = \"\")", scenario, "an oracle is left out for a reason"),
            ("operators = register", scenario, "expected `operator = path`"),
        ] {
            let error = expand(arguments, function);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
