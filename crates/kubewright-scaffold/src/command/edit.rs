//! `kubewright edit`: changes the settings of a project.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::grafana::{self, GrafanaError};
use crate::{
    marker::InsertPosition,
    plan::Plan,
    project::{self, Project, ProjectError},
};

/// The file with the environment of the manager.
const MANAGER: &str = "config/manager/manager.yaml";
const WATCH_NAMESPACE: &str = include_str!("../../templates/edit/watch_namespace.yaml.in");

/// By file, the lines of a role and its binding: for all namespaces, and for one namespace.
const RIGHTS: [(&str, &str, &str); 2] = [
    (
        "config/rbac/role.yaml",
        "kind: ClusterRole\nmetadata:\n  name: manager-role\n",
        "kind: Role\nmetadata:\n  name: manager-role\n  namespace: system\n",
    ),
    (
        "config/rbac/role_binding.yaml",
        "kind: ClusterRoleBinding\nmetadata:\n  name: manager-rolebinding\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n",
        "kind: RoleBinding\nmetadata:\n  name: manager-rolebinding\n  namespace: system\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: Role\n",
    ),
];

/// A failure to edit a project. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EditError {
    /// No flag was given.
    #[error("nothing to do: set --multigroup, --namespaced, --license, --owner or --plugins grafana")]
    Nothing,
    /// The project has several groups.
    #[error("the project has the groups {0}, which need the multigroup layout: keep --multigroup")]
    Groups(String),
    /// The list of the operator's own metrics is invalid.
    #[error(transparent)]
    Grafana(#[from] GrafanaError),
    /// `PROJECT` cannot be written.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

/// The settings to change. Settings that are `None` stay unchanged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Edit {
    /// Whether sources of new kinds are in directories by group. Existing sources stay where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multigroup: Option<bool>,
    /// Whether the operator watches only chosen namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaced: Option<bool>,
    /// The licence in the header of new files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The copyright holder in the header of new files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether to write the dashboards of the plugin `grafana`.
    #[serde(default, skip_serializing_if = "crate::project::is_false")]
    pub grafana: bool,
}

impl Edit {
    /// Returns whether no setting changes.
    pub fn is_empty(&self) -> bool {
        let Self { multigroup, namespaced, license, owner, grafana } = self;
        multigroup.is_none() && namespaced.is_none() && license.is_none() && owner.is_none() && !grafana
    }

    /// Plans the changes of files, including `PROJECT`.
    ///
    /// # Errors
    /// Returns an error if the change is not possible.
    pub fn plan(&self, project: &Project, plan: &mut Plan<'_>) -> Result<(), EditError> {
        let mut project = project.clone();
        let was_namespaced = project.namespaced;
        self.note(&mut project)?;
        if project.namespaced != was_namespaced {
            namespaced(project.namespaced, plan);
        }
        if self.grafana {
            grafana::plan(&project, plan)?;
        }
        plan.replace(project::FILE, project.write()?);
        Ok(())
    }

    /// Changes the settings in the project.
    ///
    /// # Errors
    /// Returns an error if the change is not possible; the project is unchanged.
    pub fn note(&self, project: &mut Project) -> Result<(), EditError> {
        let Self { multigroup, namespaced, license, owner, grafana: _ } = self;
        if self.is_empty() {
            return Err(EditError::Nothing);
        }
        if *multigroup == Some(false) {
            let groups: BTreeSet<_> = project.resources.iter().map(|resource| resource.group.as_str()).collect();
            if groups.len() > 1 {
                return Err(EditError::Groups(groups.into_iter().collect::<Vec<_>>().join(", ")));
            }
        }
        project.multigroup = multigroup.unwrap_or(project.multigroup);
        project.namespaced = namespaced.unwrap_or(project.namespaced);
        for (name, value) in [("license", license), ("owner", owner)] {
            if let Some(value) = value {
                project.set(name, value);
            }
        }
        if self.grafana {
            grafana::note(project);
        }
        Ok(())
    }
}

/// Limits the operator to its own namespace, or removes the limit.
fn namespaced(is_namespaced: bool, plan: &mut Plan<'_>) {
    for (path, all, one) in RIGHTS {
        if is_namespaced {
            plan.swap(path, all, one)
        } else {
            plan.swap(path, one, all)
        };
    }
    if is_namespaced {
        plan.insert(MANAGER, "managerenv", WATCH_NAMESPACE, InsertPosition::Last);
    } else {
        let lines = WATCH_NAMESPACE.lines().map(|line| format!("        {line}\n"));
        plan.swap(MANAGER, &lines.collect::<String>(), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Key;

    fn project() -> Project {
        Project::new("my-operator".parse().unwrap(), None)
    }

    #[test]
    fn unset_options_change_nothing() {
        let mut project = project();
        let mut edit = Edit { multigroup: Some(true), owner: Some("Jane".into()), ..Edit::default() };
        edit.note(&mut project).unwrap();
        (edit.multigroup, edit.owner, edit.namespaced) = (None, None, Some(true));
        edit.note(&mut project).unwrap();
        assert!(project.multigroup && project.namespaced);
        assert_eq!((project.setting("owner"), project.setting("license")), (Some("Jane"), None));
        assert_eq!(Edit::default().note(&mut project), Err(EditError::Nothing));
    }

    #[test]
    fn several_groups_need_the_multigroup_layout() {
        let mut project = project();
        project.multigroup = true;
        for group in ["ship", "crew"] {
            project.resource_mut(&Key { group, domain: "", version: "v1", kind: "Captain" });
        }
        let edit = Edit { multigroup: Some(false), ..Edit::default() };
        assert!(edit.note(&mut project).unwrap_err().to_string().contains("crew, ship"));
        project.resources.pop();
        edit.note(&mut project).unwrap();
        assert!(!project.multigroup);
    }
}
