//! The live view of the demo as a picture.

mod browser;
