//! The podset operator.
