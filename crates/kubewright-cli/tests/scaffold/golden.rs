//! The golden projects in `testdata` are the output of the commands. They are members of the workspace, so they are
//! compiled, linted and tested like all other packages.
//!
//! `cargo xtask generate` regenerates them.

use std::{collections::BTreeMap, fs, path::Path};

use kubewright_scaffold::{
    project,
    record::{self, Record},
};

use crate::folder::{Folder, files};

/// The files that `kubewright manifests` generates; `cargo xtask generate` compares them.
const GENERATED: &[&str] =
    &["config/crd/bases/", "config/rbac/role.yaml", "config/webhook/manifests.yaml", "config/webhook/role.yaml"];

/// Returns whether `kubewright manifests` generates a file.
pub(crate) fn is_generated(path: &str) -> bool {
    GENERATED.iter().any(|generated| path.starts_with(generated))
}

/// Scaffolds a project, and compares it with the committed one, or replaces that.
fn check(name: &str, lines: &[&str]) {
    let folder = Folder::new(name);
    for line in lines {
        folder.run(line);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name);
    let is_ours = |path: &String| !is_generated(path);
    let mut made = files(&folder.path(), false);
    check_record(&mut made);
    if std::env::var_os("KUBEWRIGHT_GENERATE").is_some() {
        fs::create_dir_all(&root).unwrap();
        for (path, text) in files(&root, false) {
            // Generated files are already there.
            if is_ours(&path) {
                fs::remove_file(root.join(path)).unwrap();
            } else {
                made.insert(path, text);
            }
        }
        for (path, text) in made {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        return;
    }
    let mut kept = files(&root, false);
    made.retain(|path, _| is_ours(path));
    kept.retain(|path, _| is_ours(path));
    for (path, text) in &made {
        assert_eq!(kept.get(path), Some(text), "{name}/{path}: run cargo xtask generate");
    }
    let too_many: Vec<_> = kept.keys().filter(|path| !made.contains_key(*path)).collect();
    assert!(too_many.is_empty(), "{name} has {too_many:?}, which no command creates: run cargo xtask generate");
}

/// Removes the record, whose content must be that of the files.
fn check_record(made: &mut BTreeMap<String, String>) {
    let record = made.remove(record::FILE).unwrap();
    let record = Record::read(&record).unwrap();
    let mut scaffolded = made.clone();
    assert_eq!(record.repeat().unwrap(), scaffolded);
    scaffolded.remove(project::FILE);
    assert_eq!(record.files, scaffolded);
}

#[test]
fn golden_project() {
    check(
        "project",
        &[
            "init --domain testproject.org --license apache2 --owner Kubewright --repo github.com/kubewright/project",
            "create api --group crew --version v1 --kind Captain",
            "create api --group crew --version v1 --kind FirstMate",
            "create api --group crew --version v1 --kind Admiral --plural admirales --namespaced=false",
            "create api --group apps --version v1 --kind Deployment --resource=false",
            "create webhook --group crew --version v1 --kind Captain --defaulting --programmatic-validation",
            "create webhook --group crew --version v1 --kind FirstMate --programmatic-validation",
            "create webhook --group crew --version v1 --kind Admiral --defaulting",
            "create webhook --group core --version v1 --kind Pod --defaulting",
        ],
    );
}

#[test]
fn golden_project_of_several_groups() {
    check(
        "project-multigroup",
        &[
            "init --domain testproject.org --multigroup",
            "create api --group crew --version v1 --kind Captain",
            "create api --group ship --version v1beta1 --kind Frigate",
            "create api --group ship --version v1 --kind Destroyer --namespaced=false",
            "create api --group sea-creatures --version v1beta1 --kind Kraken",
            "create api --group foo.policy --version v1 --kind HealthCheckPolicy",
            "create api --version v1 --kind Lakers",
            "create api --group apps --version v1 --kind Deployment --resource=false",
            "create api --group app --version v1alpha1 --kind PodSet --external-api-domain example.com \
             --external-api-path podset_operator::api::app::v1alpha1 --external-api-module podset-operator@0.1",
            "create webhook --group crew --version v1 --kind Captain --defaulting",
            "create webhook --group crew --version v1 --kind Captain --programmatic-validation",
            "create webhook --group ship --version v1 --kind Destroyer --defaulting",
            "create webhook --group app --version v1alpha1 --kind PodSet --programmatic-validation",
        ],
    );
}

#[test]
fn golden_project_of_several_versions() {
    check(
        "project-conversion",
        &[
            "init --domain testproject.org",
            "create api --group crew --version v1 --kind FirstMate",
            "create api --group crew --version v2 --kind FirstMate --controller=false",
            "create webhook --group crew --version v1 --kind FirstMate --conversion --spoke v2",
            "create api --group crew --version v1beta1 --kind Captain",
            "create api --group crew --version v1 --kind Captain --controller=false",
            "create api --group crew --version v2alpha1 --kind Captain --controller=false",
            "create webhook --group crew --version v1 --kind Captain --defaulting --conversion --spoke v1beta1,v2alpha1",
        ],
    );
}

#[test]
fn golden_project_with_plugins() {
    check(
        "project-with-plugins",
        &[
            "init --domain testproject.org",
            "create api --group cache --version v1 --kind Memcached --plugins deploy-image/v1-alpha --image memcached:1.6-alpine \
             --image-container-command memcached,--memory-limit=64,-o,modern,-v --image-container-port 11211 --run-as-user 1001",
            "create api --group cache --version v1 --kind Busybox --plugins deploy-image --image busybox:1.37",
            "create api --group cache --version v1 --kind Settings --controller=false",
            "edit --plugins grafana",
        ],
    );
}

#[test]
fn golden_project_of_one_namespace() {
    check(
        "project-namespaced",
        &[
            "init --domain testproject.org --namespaced",
            "create api --group crew --version v1 --kind Captain",
            "create webhook --group crew --version v1 --kind Captain --defaulting --programmatic-validation",
        ],
    );
}
