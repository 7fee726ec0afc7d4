//! The demo's live view as it really runs, pictured.

mod browser;
