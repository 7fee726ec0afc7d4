use kubewright::rights::{NamedResource, Rights, Verb};

const CERTIFICATES: NamedResource = NamedResource::namespaced("cert-manager.io", "Certificates");

fn main() {
    let _ = Rights::to_resource(CERTIFICATES, [Verb::Get]);
}
