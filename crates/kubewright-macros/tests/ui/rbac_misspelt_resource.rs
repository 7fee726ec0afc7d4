use kubewright::rbac::{NamedResource, PolicyRule, Verb};

const CERTIFICATES: NamedResource = NamedResource::namespaced("cert-manager.io", "Certificates");

fn main() {
    let _ = PolicyRule::of_resource(CERTIFICATES, [Verb::Get]);
}
