//! The scaffolding of the command line: new projects, their files, and later changes.
//!
//! * [`name`] checks domains, groups, versions, kinds and project names, and converts them to Rust names;
//! * [`project`] reads and writes the `PROJECT` file, in kubebuilder's layout version 3;
//! * [`template`] fills in templates;
//! * [`marker`] inserts code into existing files, above marker comments;
//! * [`plan`] collects the changes of a command, and reports all obstacles together;
//! * [`command`] plans the changes of each command;
//! * [`generate`] finds the commands that scaffold a project from its `PROJECT` file;
//! * [`delete`] undoes `create api` and `create webhook`;
//! * [`external`] defines the requests and responses of external plugins;
//! * [`record`] keeps what was scaffolded, and [`update`](mod@update) merges a newer scaffold;
//! * [`write`](mod@write) writes all planned changes or none.
//!
//! All modules except [`write`](mod@write) are free of I/O: values in, values out. Nothing here prints, prompts, or
//! starts a program.

mod code;
pub mod command;
pub mod delete;
pub mod external;
pub mod generate;
pub mod marker;
pub mod name;
pub mod plan;
pub mod project;
pub mod record;
pub mod template;
pub mod update;
pub mod write;
