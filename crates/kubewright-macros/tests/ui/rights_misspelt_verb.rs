use kubewright::{
    k8s_openapi::api::core::v1::Secret,
    rights::{Rights, Verb},
};

fn main() {
    let _ = Rights::to::<Secret>([Verb::Get, Verb::Lisst]);
}
