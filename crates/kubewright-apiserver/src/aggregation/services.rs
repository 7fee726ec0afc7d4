//! The APIServices of the cluster.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine, engine::general_purpose::STANDARD};
use kubewright_apimachinery::watch;
use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use serde_json::Value;

use super::documents::Documents;
use crate::fields::{flag, int, list, text};

/// The API server of a version, with what is known of it.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(super) namespace: String,
    pub(super) service: String,
    pub(super) port: u16,
    /// True if any certificate is accepted.
    pub(super) insecure: bool,
    /// The certificates of the authorities that may have signed that of the server, in PEM.
    pub(super) authority: Option<Vec<u8>>,
    pub(super) config: Mutex<Option<Arc<ClientConfig>>>,
    pub(super) documents: Mutex<Documents>,
}

/// An APIService.
#[derive(Clone, Debug)]
pub(crate) struct ApiService {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    /// True if its condition `Available` is.
    pub(crate) is_available: bool,
    /// The server, unless it is this one.
    pub(crate) remote: Option<Arc<Remote>>,
    spec: Value,
}

impl ApiService {
    fn new(object: &Value, before: Option<&Self>) -> Self {
        let spec = &object["spec"];
        let kept = before.filter(|before| before.spec == *spec).and_then(|before| before.remote.clone());
        let service = spec.get("service").filter(|service| service.is_object());
        let remote = service.map(|service| {
            let bundle = Some(text(spec, "/caBundle")).filter(|bundle| !bundle.is_empty());
            kept.unwrap_or_else(|| {
                Arc::new(Remote {
                    namespace: text(service, "/namespace").to_owned(),
                    service: text(service, "/name").to_owned(),
                    port: u16::try_from(int(service, "/port")).unwrap_or(443),
                    insecure: flag(spec, "/insecureSkipTLSVerify"),
                    authority: bundle.map(|bundle| STANDARD.decode(bundle).unwrap_or_default()),
                    config: Mutex::default(),
                    documents: Mutex::default(),
                })
            })
        });
        let conditions = list(object, "/status/conditions");
        Self {
            name: text(object, "/metadata/name").to_owned(),
            group: text(spec, "/group").to_owned(),
            version: text(spec, "/version").to_owned(),
            group_priority: int(spec, "/groupPriorityMinimum"),
            version_priority: int(spec, "/versionPriority"),
            is_available: conditions
                .iter()
                .any(|one| text(one, "/type") == "Available" && text(one, "/status") == "True"),
            remote,
            spec: spec.clone(),
        }
    }

    /// Returns the path of the version.
    pub(super) fn path(&self) -> String {
        match &*self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// All APIServices, by name.
#[derive(Debug)]
pub(crate) struct ApiServices {
    all: RwLock<BTreeMap<String, Arc<ApiService>>>,
    /// True if any of them names a Service. Each request reads it.
    has_remote: AtomicBool,
    /// The same, for a task that waits for the first one.
    any_remote: watch::Sender<bool>,
}

impl Default for ApiServices {
    fn default() -> Self {
        Self { all: RwLock::default(), has_remote: AtomicBool::new(false), any_remote: watch::Sender::new(false) }
    }
}

impl ApiServices {
    /// Replaces an APIService.
    pub(crate) fn replace(&self, before: Option<&Value>, after: Option<&Value>) {
        let mut all = self.all.write();
        if let Some(object) = after {
            let name = text(object, "/metadata/name");
            let service = ApiService::new(object, all.get(name).map(|present| &**present));
            all.insert(name.to_owned(), Arc::new(service));
        } else if let Some(object) = before {
            all.remove(text(object, "/metadata/name"));
        }
        let any = all.values().any(|service| service.remote.is_some());
        self.has_remote.store(any, Ordering::Release);
        self.any_remote.send_if_modified(|present| std::mem::replace(present, any) != any);
    }

    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.any_remote.subscribe()
    }

    /// Returns the APIServices that name a Service.
    pub(super) fn remote(&self) -> Vec<Arc<ApiService>> {
        if !self.has_remote.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.all.read().values().filter(|service| service.remote.is_some()).cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<ApiService>> {
        self.all.read().get(name).cloned()
    }

    /// Returns the APIService of a path, if that names a Service. Without any, this is one load.
    pub(crate) fn remote_of(&self, path: &str) -> Option<Arc<ApiService>> {
        if !self.has_remote.load(Ordering::Acquire) {
            return None;
        }
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let mut first = segments.next()?;
        if first == "openapi" && segments.next() == Some("v3") {
            first = segments.next()?;
        }
        let (group, version) = (segments.next().filter(|_| first == "apis")?, segments.next()?);
        self.get(&format!("{version}.{group}")).filter(|service| service.remote.is_some())
    }

    /// Returns the priorities of a group and of its versions: the greatest one of the group, and that of each version.
    pub(crate) fn priorities(&self) -> BTreeMap<(String, String), (i64, i64)> {
        let all = self.all.read();
        let priorities = |service: &Arc<ApiService>| (service.group_priority, service.version_priority);
        all.values().map(|one| ((one.group.clone(), one.version.clone()), priorities(one))).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_remote_versions_are_found() {
        let services = ApiServices::default();
        let remote = json!({
            "metadata": {"name": "v1.g.example.com"},
            "spec": {"group": "g.example.com", "version": "v1", "service": {"namespace": "n", "name": "s", "port": 443}},
        });
        let local =
            json!({"metadata": {"name": "v2.g.example.com"}, "spec": {"group": "g.example.com", "version": "v2"}});
        services.replace(None, Some(&local));
        assert!(services.remote().is_empty() && !*services.watch().borrow());
        services.replace(None, Some(&remote));
        for path in ["/apis/g.example.com/v1", "/apis/g.example.com/v1/things", "/openapi/v3/apis/g.example.com/v1"] {
            assert_eq!(services.remote_of(path).unwrap().name, "v1.g.example.com", "{path}");
        }
        for path in ["/apis/g.example.com/v2", "/apis/g.example.com", "/apis/v1", "/api/v1", "/", "/openapi/v3"] {
            assert!(services.remote_of(path).is_none(), "{path}");
        }
        services.replace(Some(&remote), None);
        assert!(services.remote_of("/apis/g.example.com/v1").is_none());
    }

    #[test]
    fn a_change_of_the_status_keeps_what_is_known_of_the_server() {
        let services = ApiServices::default();
        let mut object = json!({
            "metadata": {"name": "v1.g"},
            "spec": {"group": "g", "version": "v1", "service": {"namespace": "n", "name": "s", "port": 443}},
        });
        services.replace(None, Some(&object));
        let before = services.get("v1.g").unwrap();
        object["status"] = json!({"conditions": [{"type": "Available", "status": "True"}]});
        services.replace(None, Some(&object));
        let after = services.get("v1.g").unwrap();
        assert!(!before.is_available && after.is_available);
        assert!(Arc::ptr_eq(before.remote.as_ref().unwrap(), after.remote.as_ref().unwrap()));
        object["spec"]["service"]["name"] = "t".into();
        services.replace(None, Some(&object));
        assert_eq!(services.get("v1.g").unwrap().remote.as_ref().unwrap().service, "t");
    }
}
