use kubewright::conversion::Convert;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Hub {
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Curtain {
    colour: String,
}

#[derive(Serialize, Deserialize, Convert)]
#[convert(hub = Hub)]
struct Spoke {
    name: String,
    #[convert(default)]
    curtain: Curtain,
}

fn main() {}
