//! The live view of the demo as a picture, and its clusters.

mod browser;
mod clusters;
