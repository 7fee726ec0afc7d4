//! What the command line makes: projects, their files, and how later commands change them.
//!
//! * [`name`] says which domains, groups, versions, kinds and projects there may be, and what becomes of them in Rust;
//! * [`project`] reads and writes the file `PROJECT`, in kubebuilder's layout of version 3;
//! * [`template`] fills in the texts that files begin as;
//! * [`marker`] puts code into files that are there, at the comments that say where;
//! * [`plan`] gathers all that a command would write, and refuses it as a whole;
//! * [`command`] says what each command plans;
//! * [`external`] has the words in which plugins are asked that others write;
//! * [`record`] keeps what was scaffolded, and [`update`](mod@update) brings a newer scaffold into it;
//! * [`write`](mod@write) does it, or leaves everything as it was.
//!
//! All but the last are values in, values out. Nothing here prints, asks, or starts a program.

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
