use kubewright::{
    k8s_openapi::api::core::v1::Pod,
    rights::{Rights, Subresource, Verb},
};

fn main() {
    let _ = Rights::to::<Pod>([Verb::Create]).on(Subresource::Evict);
}
