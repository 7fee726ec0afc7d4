use kubewright::conversion::Convert;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Hub {
    name: String,
}

#[derive(Serialize, Deserialize, Convert)]
#[convert(hub = Hub)]
struct Spoke {
    name: String,
    size: u8,
}

fn main() {}
