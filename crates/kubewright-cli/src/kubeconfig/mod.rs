//! Kubeconfigs of embedded clusters.
//!
//! Each cluster has a kubeconfig [file](KubeconfigFile) of its own. With `--merge`, its context is also
//! [added](MergedContext) to the kubeconfig of the user.

mod edit;
mod file;
mod merge;

pub(crate) use self::{
    edit::{ContextNames, rename},
    file::KubeconfigFile,
    merge::{MergedContext, user_kubeconfig},
};

/// The name of the kubeconfig extension of kubewright, in a file and in a context.
const EXTENSION: &str = "kubewright";

/// Returns the address of an operator's traces, if a kubeconfig has one for a context. The default is the current one.
pub(crate) fn traces(kubeconfig: &kube::config::Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == name);
    let extensions = context.and_then(|context| context.context.as_ref()?.extensions.as_ref());
    let ours = extensions.into_iter().flatten().find(|extension| extension.name == EXTENSION)?;
    ours.extension["traces"].as_str().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_traces_is_that_of_the_context() {
        let text = "{apiVersion: v1, kind: Config, current-context: b, contexts: [{name: a, context: {cluster: a}}, \
            {name: b, context: {cluster: b, extensions: [{name: kubewright, extension: {traces: 'http://127.0.0.1:1'}}]}}]}";
        let read = kube::config::Kubeconfig::from_yaml(text).unwrap();
        assert_eq!(traces(&read, None).as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(traces(&read, Some("a")), None);
        assert_eq!(traces(&kube::config::Kubeconfig::default(), None), None);
    }
}
