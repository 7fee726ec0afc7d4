//! The files under `config`.

use std::{fs, path::PathBuf};

use at_operator::api::v1alpha1::{At, AtSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

fn config(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_crds_are_those_of_the_types() {
    for crd in at_operator::crds() {
        let file = format!("crd/bases/{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let committed: CustomResourceDefinition = serde_saphyr::from_str(&config(&file)).unwrap();
        assert!(committed == crd, "{file} differs from the types: run cargo xtask generate");
    }
}

#[test]
fn the_sample_is_that_of_the_source() {
    let sample: At = serde_saphyr::from_str(&config("samples/cnat_v1alpha1_at.yaml")).unwrap();
    let expect = AtSpec { schedule: "2020-01-30T10:02:00Z".into(), command: "echo YAY".into(), ..AtSpec::default() };
    assert_eq!(sample.spec, expect);
}
