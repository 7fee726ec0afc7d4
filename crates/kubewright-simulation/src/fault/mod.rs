//! What goes wrong, in the form in which Kubernetes shows it. There is one file for each thing that it is done to.

mod event;
mod process;
mod write;

use serde::{Deserialize, Serialize};

pub(crate) use self::event::DELAY;
pub(crate) use self::process::PAUSE;
pub(crate) use self::write::Refusal;
pub use self::{event::EventFault, process::ProcessFault, write::WriteFault};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// At a write of the operator.
    Write(WriteFault),
    /// At an event that the operator receives.
    Event(EventFault),
    /// Of the process, at one of its requests.
    Process(ProcessFault),
}
