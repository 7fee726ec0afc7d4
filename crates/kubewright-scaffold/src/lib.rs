//! The scaffold of the command line: new projects, their files, and later changes to them.
//!
//! * [`name`] checks domains, groups, versions, kinds and project names, and converts them to Rust names;
//! * [`project`] reads and writes the `PROJECT` file, in kubebuilder's layout version 3;
//! * [`template`] fills in templates;
//! * [`marker`] inserts code into existing files, above marker comments;
//! * [`plan`] collects the changes of a command, and reports all obstacles together;
//! * [`command`] plans the changes of each command;
//! * [`external`] has the requests and responses of external plugins;
//! * [`record`] keeps what was scaffolded, and [`update`](mod@update) merges a newer scaffold;
//! * [`write`](mod@write) writes all planned changes or none.
//!
//! Except for the last, these modules have values in and values out. Nothing here prints, prompts, or starts a program.

mod code;
pub mod command;
pub mod external;
pub mod marker;
pub mod name;
pub mod plan;
pub mod project;
pub mod record;
pub mod template;
pub mod update;
pub mod write;
