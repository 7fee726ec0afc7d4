//! The levels and versions that the labels of a namespace ask for.

use std::fmt;

use kubewright_apimachinery::status::Cause;
use serde_json::{Value, json};

/// The prefix of the labels.
const PREFIX: &str = "pod-security.kubernetes.io/";
/// The errors about a malformed level and version.
pub(super) const MALFORMED_LEVEL: &str = "must be one of privileged, baseline, restricted";
pub(super) const MALFORMED_VERSION: &str = "must be \"latest\" or \"v1.x\"";

/// A Pod Security Standard, from the weakest to the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Privileged, Self::Baseline, Self::Restricted].into_iter().find(|level| level.as_str() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The version of Kubernetes whose standard is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// `v1.N`.
    Minor(u32),
    Latest,
}

impl Version {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_number = minor == "0" || !minor.starts_with('0') && minor.bytes().all(|byte| byte.is_ascii_digit());
        minor.parse().ok().filter(|_| is_number).map(Self::Minor)
    }
}

/// A level, and the version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    /// The level that nothing violates.
    const PRIVILEGED: Self = Self { level: Level::Privileged, version: Version::Latest };

    pub(super) fn is_privileged(self) -> bool {
        self.level == Level::Privileged
    }
}

/// Formats as in messages: `restricted:latest`, `baseline:v1.30`.
impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Version::Minor(minor) => write!(f, "{}:v1.{minor}", self.level.as_str()),
            Version::Latest => write!(f, "{}:latest", self.level.as_str()),
        }
    }
}

/// What a namespace asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The level that pods must not violate.
    pub(super) enforce: LevelVersion,
    /// The level whose violation is recorded in the audit log.
    pub(super) audit: LevelVersion,
    /// The level about whose violation clients are warned.
    pub(super) warn: LevelVersion,
}

/// A policy that allows everything.
impl Default for Policy {
    fn default() -> Self {
        Self { enforce: LevelVersion::PRIVILEGED, audit: LevelVersion::PRIVILEGED, warn: LevelVersion::PRIVILEGED }
    }
}

impl Policy {
    /// Returns whether the policy allows everything silently.
    pub(crate) fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].into_iter().all(LevelVersion::is_privileged)
    }

    /// Returns the level that is enforced, as in the audit log.
    pub(crate) fn enforced(&self) -> String {
        self.enforce.to_string()
    }

    /// Returns the policy of a namespace, with defaults for what its labels don't say, and the errors about its labels.
    /// A malformed level is enforced as the strictest one, and causes no warnings; a malformed version is the latest.
    pub(crate) fn read(namespace: &Value, defaults: &Self) -> (Self, Vec<Cause>) {
        let labels = namespace["metadata"]["labels"].as_object();
        let mut errors = Vec::new();
        let Some(labels) = labels.filter(|labels| labels.keys().any(|name| name.starts_with(PREFIX))) else {
            return (*defaults, errors);
        };
        let mut mode = |mode: &str, default: LevelVersion, malformed: Level| {
            let text = |suffix: &str| labels.get(&format!("{PREFIX}{mode}{suffix}")).and_then(Value::as_str);
            let mut error = |suffix: &str, text: &str, why: &str| {
                let field = format!("metadata.labels[{PREFIX}{mode}{suffix}]");
                errors.push(Cause::invalid(field, &json!(text), why));
            };
            let level = text("").map(|text| Level::parse(text).ok_or_else(|| error("", text, MALFORMED_LEVEL)));
            let version = text("-version").map(|text| {
                Version::parse(text).unwrap_or_else(|| {
                    error("-version", text, MALFORMED_VERSION);
                    Version::Latest
                })
            });
            let given = level.map_or(default.level, |level| level.unwrap_or(malformed));
            (LevelVersion { level: given, version: version.unwrap_or(default.version) }, level, version)
        };
        let (enforce, enforced, _) = mode("enforce", defaults.enforce, Level::Restricted);
        let (audit, _, _) = mode("audit", defaults.audit, Level::Privileged);
        let (warn, warned, warned_version) = mode("warn", defaults.warn, Level::Privileged);
        let mut policy = Self { enforce, audit, warn };
        // Without a level of its own, warnings follow what is enforced: objects with templates aren't refused.
        if warned.is_none() && matches!(enforced, Some(Ok(_))) && enforce.level > warn.level {
            policy.warn.level = enforce.level;
            if warned_version.is_none() {
                policy.warn.version = enforce.version;
            }
        }
        (policy, errors)
    }

    /// Returns what the labels of a namespace ask for, in the form of messages.
    pub(super) fn shown(&self, namespace: &Value) -> String {
        let modes = [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)];
        let is_set = |mode: &str| {
            let labels = &namespace["metadata"]["labels"];
            ["", "-version"].iter().any(|suffix| labels.get(format!("{PREFIX}{mode}{suffix}")).is_some())
        };
        let set = modes.into_iter().filter(|(mode, level)| !level.is_privileged() && is_set(mode));
        set.map(|(mode, level)| format!("{mode}={level}")).collect::<Vec<_>>().join(", ")
    }
}
