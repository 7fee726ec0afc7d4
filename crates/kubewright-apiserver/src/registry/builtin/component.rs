//! `componentstatuses`: whether the parts of the control plane work. They are computed for each request
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/component-status-v1/>).

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::columns::string;
use crate::{
    fields::{list, text},
    registry::{Column, Strategy},
};

/// The components that Kubernetes reports.
const COMPONENTS: [&str; 3] = ["controller-manager", "etcd-0", "scheduler"];

/// The components that run in this process.
#[derive(Debug, Default)]
pub(crate) struct Components(Mutex<BTreeSet<String>>);

impl Components {
    /// Adds a running component.
    pub(crate) fn add(&self, name: String) {
        self.0.lock().insert(name);
    }
}

/// The strategy of component statuses.
#[derive(Debug)]
pub(super) struct ComponentStatusStrategy(pub(super) Arc<Components>);

impl Strategy for ComponentStatusStrategy {
    fn computed(&self) -> Option<Vec<Value>> {
        let running = self.0.0.lock();
        let status = |name: &&str| {
            // The store is part of the server.
            let (status, message) = match *name == "etcd-0" || running.contains(*name) {
                true => ("True", "ok".to_owned()),
                false => ("False", format!("the {name} doesn't run in the process of the API server")),
            };
            json!({
                "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
                "conditions": [{"type": "Healthy", "status": status, "message": message}],
            })
        };
        Some(COMPONENTS.iter().map(status).collect())
    }
}

pub(super) fn columns() -> Vec<Column> {
    fn healthy<'a>(object: &'a Value, field: &str) -> &'a str {
        let condition = list(object, "/conditions").iter().find(|condition| text(condition, "/type") == "Healthy");
        condition.map_or("", |condition| condition[field].as_str().unwrap_or_default())
    }
    vec![
        string("Status", |object, _| match healthy(object, "status") {
            "True" => "Healthy".into(),
            "False" => "Unhealthy".into(),
            _ => "Unknown".into(),
        }),
        string("Message", |object, _| healthy(object, "message").into()),
        string("Error", |object, _| healthy(object, "error").into()),
    ]
}
