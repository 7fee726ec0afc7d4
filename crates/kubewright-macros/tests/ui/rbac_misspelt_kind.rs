use kubewright::{
    k8s_openapi::api::core::v1,
    rbac::{PolicyRule, Verb},
};

fn main() {
    let _ = PolicyRule::of::<v1::Secrets>([Verb::Get]);
}
