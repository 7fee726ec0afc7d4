use kubewright::conversion::Convert;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Hub {
    width: u8,
    height: u8,
}

#[derive(Serialize, Deserialize, Convert)]
#[convert(hub = Hub)]
struct Spoke {
    #[convert(split(width, height))]
    size: String,
}

fn main() {}
