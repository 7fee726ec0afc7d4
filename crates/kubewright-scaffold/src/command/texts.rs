//! Templates filled in and put into a plan.

use crate::{
    marker::Place,
    plan::Plan,
    template::{TemplateError, render},
};

/// What templates are filled in with.
pub(super) type Values = Vec<(&'static str, String)>;

/// Fills in templates for a plan.
#[derive(Debug)]
pub(super) struct Texts<'p, 's> {
    plan: &'p mut Plan<'s>,
    /// What stands above each source.
    head: String,
    values: Values,
}

impl<'p, 's> Texts<'p, 's> {
    pub(super) fn new(plan: &'p mut Plan<'s>, head: String, values: Values) -> Self {
        Self { plan, head, values }
    }

    /// A template, filled in.
    pub(super) fn fill(&self, template: &str) -> Result<String, TemplateError> {
        let values: Vec<_> = self.values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        render(template, &values)
    }

    fn text(&self, path: &str, template: &str) -> Result<String, TemplateError> {
        let head = if path.ends_with(".rs") { self.head.as_str() } else { "" };
        Ok(format!("{head}{}", self.fill(template)?))
    }

    /// A new file, which no other may have written.
    pub(super) fn create(&mut self, path: &str, template: &str) -> Result<&mut Self, TemplateError> {
        let text = self.text(path, template)?;
        self.plan.create(path, text);
        Ok(self)
    }

    /// A file that others may have made and changed.
    pub(super) fn create_if_missing(&mut self, path: &str, template: &str) -> Result<&mut Self, TemplateError> {
        let text = self.text(path, template)?;
        self.plan.create_if_missing(path, text);
        Ok(self)
    }

    /// Something right above a marker.
    pub(super) fn insert(&mut self, path: &str, marker: &str, fragment: &str) -> &mut Self {
        self.plan.insert(path, marker, fragment, Place::Last);
        self
    }

    /// A template, filled in, right above a marker, with an empty line before.
    pub(super) fn insert_apart(
        &mut self,
        path: &str,
        marker: &str,
        template: &str,
    ) -> Result<&mut Self, TemplateError> {
        let fragment = self.fill(template)?;
        self.plan.insert(path, marker, &fragment, Place::Apart);
        Ok(self)
    }

    /// Other lines, filled in, in the place of some that are in a file once.
    pub(super) fn swap(&mut self, path: &str, from: &str, to: &str) -> Result<&mut Self, TemplateError> {
        let (from, to) = (self.fill(from)?, self.fill(to)?);
        self.plan.swap(path, &from, &to);
        Ok(self)
    }

    /// Whether a file has this text, filled in.
    pub(super) fn has(&mut self, path: &str, text: &str) -> Result<bool, TemplateError> {
        let text = self.fill(text)?;
        Ok(self.plan.has(path, &text))
    }

    /// A line among those of its sort above a marker.
    pub(super) fn insert_sorted(&mut self, path: &str, marker: &str, line: &str) -> &mut Self {
        self.plan.insert(path, marker, line, Place::Sorted);
        self
    }

    /// A module, in a file of modules that begins as `template`.
    pub(super) fn module(&mut self, path: &str, template: &str, line: &str) -> Result<&mut Self, TemplateError> {
        self.create_if_missing(path, template)?;
        Ok(self.insert_sorted(path, "modules", line))
    }
}
