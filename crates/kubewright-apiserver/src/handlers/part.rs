//! The parts of an object that writes can change.

/// The part of an object that a write can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything except a status that is a subresource.
    Main,
    /// Only the status.
    Status,
    /// Only the approval of a certificate signing request, which is a part of its status.
    Approval,
    /// Only `spec.finalizers` of namespaces.
    Finalizers,
    /// What the kind's strategy lets a subresource of this name change.
    Other(&'static str),
}

impl Part {
    /// Returns the name of the subresource, empty for the object itself.
    pub(super) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Approval => "approval",
            Self::Finalizers => "finalize",
            Self::Other(subresource) => subresource,
        }
    }
}
