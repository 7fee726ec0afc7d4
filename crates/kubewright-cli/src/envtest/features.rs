//! The flags of `kube-apiserver` that turn features, admission plugins and API versions on and off. Most of them can't
//! be changed here; the functions return a warning for each setting without an effect.

use anyhow::{Context, Result, bail};
use kubewright_apiserver::{AdmissionPlugin, registry::Registry};

use super::flags::Flags;

/// The feature gates of Kubernetes, with their defaults, and ` locked` behind those that can't be changed.
const FEATURE_GATES: &str = include_str!("feature-gates.txt");

/// The admission plugins that are on by default.
const DEFAULT_PLUGINS: &[&str] = &[
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "JobValidation",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceLifecycle",
    "NodeDeclaredFeatureValidator",
    "PersistentVolumeClaimResize",
    "PodGroupProtection",
    "PodGroupWorkloadExists",
    "PodResizeValidator",
    "PodSecurity",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// The plugins that aren't on by default, and that are missing here but for `NodeRestriction`.
const OTHER_PLUGINS: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// Returns a warning for each setting of `--feature-gates` that has no effect.
///
/// # Errors
/// If a gate doesn't exist, has no boolean value, or can't be changed in Kubernetes either.
pub(super) fn feature_gates(flags: &Flags) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for setting in flags.list("feature-gates") {
        let (gate, wanted) = setting.split_once('=').context("a value of --feature-gates is no NAME=BOOLEAN")?;
        // The name may follow that of a component.
        let gate = gate.split_once(':').map_or(gate, |(_, gate)| gate).trim();
        let wanted = boolean(wanted).with_context(|| format!("read --feature-gates={setting}"))?;
        let gates = FEATURE_GATES.lines().filter_map(|line| line.split_once('='));
        let Some((_, known)) = gates.into_iter().find(|(name, _)| *name == gate) else {
            bail!("--feature-gates={setting} names no feature gate of Kubernetes 1.36");
        };
        let (default, is_locked) = known.split_once(' ').map_or((known, false), |(default, _)| (default, true));
        if wanted.to_string() == default {
            continue;
        }
        if is_locked {
            bail!("--feature-gates={setting} is not possible: {gate} is always {default}");
        }
        warnings.push(format!("--feature-gates={setting} has no effect: {gate} is always {default} here"));
    }
    Ok(warnings)
}

/// The admission plugins that are on or off by flags.
pub(super) struct Plugins {
    pub(super) service_account: bool,
    pub(super) node_restriction: bool,
    /// The others that are turned off.
    pub(super) off: Vec<AdmissionPlugin>,
    /// A warning for each setting that has no effect.
    pub(super) warnings: Vec<String>,
}

impl Plugins {
    /// Returns whether a plugin is turned off.
    pub(super) fn is_off(&self, name: &str) -> bool {
        self.off.iter().any(|plugin| plugin.name() == name)
    }
}

/// Returns the plugins of `--enable-admission-plugins` and `--disable-admission-plugins`.
///
/// # Errors
/// If a plugin doesn't exist, or is in both flags.
pub(super) fn plugins(flags: &Flags) -> Result<Plugins> {
    let is_changeable = |plugin: &str| {
        ["ServiceAccount", "NodeRestriction"].contains(&plugin) || AdmissionPlugin::from_name(plugin).is_some()
    };
    let [enabled, disabled] = ["enable-admission-plugins", "disable-admission-plugins"].map(|flag| flags.list(flag));
    for &plugin in enabled.iter().chain(&disabled) {
        if !DEFAULT_PLUGINS.contains(&plugin) && !OTHER_PLUGINS.contains(&plugin) {
            bail!("{plugin} is no admission plugin of Kubernetes 1.36");
        }
        if enabled.contains(&plugin) && disabled.contains(&plugin) {
            bail!("{plugin} is in --enable-admission-plugins and --disable-admission-plugins");
        }
    }
    let without_effect = |flag: &str, plugins: &[&str], here: &[&str], is: &str| {
        let mut wanted = plugins.to_vec();
        wanted.retain(|plugin| here.contains(plugin) && !is_changeable(plugin));
        let flag = flag.to_owned();
        let is = is.to_owned();
        wanted.into_iter().map(move |plugin| format!("--{flag}={plugin} has no effect: it is {is}")).collect::<Vec<_>>()
    };
    let mut warnings = without_effect("enable-admission-plugins", &enabled, OTHER_PLUGINS, "missing");
    warnings.extend(without_effect("disable-admission-plugins", &disabled, DEFAULT_PLUGINS, "always on"));
    Ok(Plugins {
        service_account: !disabled.contains(&"ServiceAccount"),
        node_restriction: enabled.contains(&"NodeRestriction"),
        off: disabled.iter().filter_map(|plugin| AdmissionPlugin::from_name(plugin)).collect(),
        warnings,
    })
}

/// Returns why the configuration of a plugin has no effect, or none but for the plugins that are configured here.
pub(super) fn why_not_configurable(plugin: &str) -> &'static str {
    if DEFAULT_PLUGINS.contains(&plugin) || plugin == "NodeRestriction" {
        "it needs none"
    } else if OTHER_PLUGINS.contains(&plugin) {
        "it is missing"
    } else {
        "Kubernetes 1.36 has no such plugin"
    }
}

/// Returns a warning for each setting of `--runtime-config` that has no effect. The same versions are always served.
///
/// # Errors
/// If a value is no `VERSION=BOOLEAN`.
pub(super) fn versions(flags: &Flags, registry: &Registry) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for setting in flags.list("runtime-config") {
        let (version, wanted) = setting.split_once('=').unwrap_or((setting, "true"));
        let wanted = boolean(wanted).with_context(|| format!("read --runtime-config={setting}"))?;
        let mut parts = version.splitn(3, '/');
        let (group, number, plural) = match (parts.next(), parts.next(), parts.next()) {
            (Some(number), None, _) => ("", number, None),
            (group, number, plural) => (group.unwrap_or_default(), number.unwrap_or_default(), plural),
        };
        let is_served = registry.all().iter().any(|resource| {
            *resource.group == *group
                && *resource.version == *number
                && plural.is_none_or(|plural| *resource.plural == *plural)
        });
        if is_served != wanted || group == "api" {
            warnings.push(format!("--runtime-config={setting} has no effect: the versions on by default are served"));
        }
    }
    Ok(warnings)
}

/// Reads a boolean as Go does.
pub(super) fn boolean(text: &str) -> Result<bool> {
    match text.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => bail!("{other:?} is neither true nor false"),
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apiserver::ApiServer;

    use super::*;
    use crate::envtest::flags::Known;

    fn flags(arguments: &[&str]) -> Flags {
        let all = "feature-gates\nenable-admission-plugins\ndisable-admission-plugins\nruntime-config";
        let known = Known { program: "p", all, used: &[], accepted: &[] };
        known.parse(arguments.iter().map(ToString::to_string)).unwrap()
    }

    #[test]
    fn a_feature_that_cannot_be_changed_is_a_warning_or_an_error() {
        let gates = |value: &str| feature_gates(&flags(&[&format!("--feature-gates={value}")]));
        assert_eq!(gates("AllAlpha=false,kube:AllBeta=f,APIServerTracing=true").unwrap(), Vec::<String>::new());
        let warnings = gates("AllAlpha=1").unwrap();
        assert_eq!(warnings, ["--feature-gates=AllAlpha=1 has no effect: AllAlpha is always false here"]);
        for (value, expect) in [
            ("APIServerTracing=false", "APIServerTracing is always true"),
            ("Nope=true", "names no feature gate"),
            ("AllAlpha", "no NAME=BOOLEAN"),
            ("AllAlpha=x", "\"x\" is neither true nor false"),
        ] {
            let error = format!("{:#}", gates(value).unwrap_err());
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn plugins_that_cannot_be_changed_are_warnings() {
        let found = plugins(&flags(&[
            "--enable-admission-plugins=NodeRestriction,AlwaysPullImages,Priority",
            "--disable-admission-plugins=ServiceAccount,LimitRanger,EventRateLimit,JobValidation",
        ]));
        let found = found.unwrap();
        assert!(!found.service_account && found.node_restriction);
        assert_eq!(found.off, [AdmissionPlugin::LimitRanger]);
        let expect = [
            "--enable-admission-plugins=AlwaysPullImages has no effect: it is missing",
            "--disable-admission-plugins=JobValidation has no effect: it is always on",
        ];
        assert_eq!(found.warnings, expect);
        for (arguments, expect) in [
            (["--enable-admission-plugins=Nope"].as_slice(), "Nope is no admission plugin"),
            (&["--enable-admission-plugins=Priority", "--disable-admission-plugins=Priority"], "Priority is in"),
        ] {
            let error = plugins(&flags(arguments)).err().unwrap().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn versions_that_are_not_served_are_warnings() {
        let api = ApiServer::builder().build();
        let versions = |value: &str| versions(&flags(&[&format!("--runtime-config={value}")]), api.registry());
        assert_eq!(versions("apps/v1=true,v1,apps/v1/deployments=1,apps/v1beta1=false").unwrap(), Vec::<String>::new());
        for value in ["api/all=true", "apps/v1=false", "apps/v1beta1=true", "apps/v1/deployments=false"] {
            let warnings = versions(value).unwrap();
            assert_eq!(warnings.len(), 1, "{value}: {warnings:?}");
        }
        assert!(versions("apps/v1=x").is_err());
    }
}
