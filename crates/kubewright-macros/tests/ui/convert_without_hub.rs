use kubewright::conversion::Convert;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Convert)]
struct Spoke {
    name: String,
}

fn main() {}
