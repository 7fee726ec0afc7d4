use kubewright::conversion::Convert;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Hub {
    name: String,
}

#[derive(Serialize, Deserialize, Convert)]
#[convert(hub = Hub)]
struct Spoke {
    #[convert(renamed = "nmae")]
    title: String,
}

fn main() {}
