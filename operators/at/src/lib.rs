//! The at operator.
