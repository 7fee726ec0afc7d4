//! Ranges of costs and sizes.

/// The least and the greatest cost in units, or size in characters, bytes, items or entries. What doesn't fit is the
/// greatest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cel) struct Span {
    pub(in crate::cel) min: u64,
    pub(in crate::cel) max: u64,
}

impl Span {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    pub(super) const ZERO: Self = Self::exactly(0);
    pub(super) const ONE: Self = Self::exactly(1);

    pub(super) const fn exactly(number: u64) -> Self {
        Self { min: number, max: number }
    }

    pub(super) const fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Returns the span that contains both.
    pub(super) fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// Multiplies by a factor and rounds up.
    pub(super) fn by(self, factor: f64) -> Self {
        Self { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    /// Returns the cost of reading text of this size.
    pub(super) fn traversed(self) -> Self {
        self.by(TRAVERSAL)
    }
}

/// The units for each character or byte of a text that is read.
const TRAVERSAL: f64 = 0.1;

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates are calculated in floating point, as in cel-go, and conversions saturate"
)]
fn scaled(number: u64, factor: f64) -> u64 {
    (number as f64 * factor).ceil() as u64
}

/// Divides and rounds up.
pub(super) fn divided(number: u64, by: u64) -> u64 {
    if by == 0 { u64::MAX } else { number.div_ceil(by) }
}
