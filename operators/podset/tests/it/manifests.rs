//! The files under `config`.

use std::{fs, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use podset_operator::api::{app, k8stest};

fn config(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_crds_are_those_of_the_types() {
    for crd in podset_operator::crds() {
        let file = format!("crd/bases/{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let committed: CustomResourceDefinition = serde_saphyr::from_str(&config(&file)).unwrap();
        assert!(committed == crd, "{file} differs from the types: run cargo xtask generate");
    }
}

#[test]
fn the_samples_are_those_of_the_sources() {
    let first: k8stest::v1alpha1::PodSet =
        serde_saphyr::from_str(&config("samples/k8stest_v1alpha1_podset.yaml")).unwrap();
    assert_eq!(first.spec.replicas, 2);
    let second: app::v1alpha1::PodSet = serde_saphyr::from_str(&config("samples/app_v1alpha1_podset.yaml")).unwrap();
    assert_eq!(second.spec.replicas, 3);
}
