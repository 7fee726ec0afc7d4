use kubewright::{
    k8s_openapi::api::core::v1,
    rights::{Rights, Verb},
};

fn main() {
    let _ = Rights::to::<v1::Secrets>([Verb::Get]);
}
