//! The files under `config`.

use std::{fs, path::Path};

#[test]
fn the_crds_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/crd/bases");
    for crd in guestbook_operator::crds() {
        let path = folder.join(format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural));
        let generated = serde_saphyr::to_string(&crd).unwrap();
        if std::env::var_os("KUBEWRIGHT_GENERATE").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        assert!(fs::read_to_string(&path).unwrap() == generated, "run cargo xtask generate");
    }
}
