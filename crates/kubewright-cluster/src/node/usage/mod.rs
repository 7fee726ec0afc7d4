//! What the node and its containers use, for `metrics.k8s.io`.
//!
//! * [`host`]: processes of this host, from `/proc`
//! * [`simulated`]: pods without processes, which use what a test says

mod host;
mod proc;
mod simulated;

pub(crate) use self::{
    host::{HostUsage, sample},
    simulated::SimulatedUsage,
};
