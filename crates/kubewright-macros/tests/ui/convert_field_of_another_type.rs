use kubewright::conversion::Convert;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Hub {
    size: u16,
}

#[derive(Serialize, Deserialize, Convert)]
#[convert(hub = Hub)]
struct Spoke {
    size: u8,
}

fn main() {}
