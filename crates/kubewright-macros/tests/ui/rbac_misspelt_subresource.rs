use kubewright::{
    k8s_openapi::api::core::v1::Pod,
    rbac::{PolicyRule, Subresource, Verb},
};

fn main() {
    let _ = PolicyRule::of::<Pod>([Verb::Create]).subresource(Subresource::Evict);
}
