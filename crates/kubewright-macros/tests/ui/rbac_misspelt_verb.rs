use kubewright::{
    k8s_openapi::api::core::v1::Secret,
    rbac::{PolicyRule, Verb},
};

fn main() {
    let _ = PolicyRule::of::<Secret>([Verb::Get, Verb::Lisst]);
}
