//! Adds rendered templates to a plan.

use crate::{
    marker::InsertPosition,
    plan::Plan,
    template::{TemplateError, render},
};

/// The values for templates.
pub(super) type Values = Vec<(&'static str, String)>;

/// A plan, with the values for templates.
#[derive(Debug)]
pub(super) struct TemplatePlan<'p, 's> {
    plan: &'p mut Plan<'s>,
    /// The header of source files.
    head: String,
    values: Values,
}

impl<'p, 's> TemplatePlan<'p, 's> {
    pub(super) fn new(plan: &'p mut Plan<'s>, head: String, values: Values) -> Self {
        Self { plan, head, values }
    }

    /// Renders a template.
    pub(super) fn fill(&self, template: &str) -> Result<String, TemplateError> {
        let values: Vec<_> = self.values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        render(template, &values)
    }

    fn text(&self, path: &str, template: &str) -> Result<String, TemplateError> {
        let head = if path.ends_with(".rs") { self.head.as_str() } else { "" };
        Ok(format!("{head}{}", self.fill(template)?))
    }

    /// Creates a file.
    pub(super) fn create(&mut self, path: &str, template: &str) -> Result<&mut Self, TemplateError> {
        let text = self.text(path, template)?;
        self.plan.create(path, text);
        Ok(self)
    }

    /// Creates a file unless it exists.
    pub(super) fn create_if_missing(&mut self, path: &str, template: &str) -> Result<&mut Self, TemplateError> {
        let text = self.text(path, template)?;
        self.plan.create_if_missing(path, text);
        Ok(self)
    }

    /// Inserts code above a marker.
    pub(super) fn insert(&mut self, path: &str, marker: &str, fragment: &str) -> &mut Self {
        self.plan.insert(path, marker, fragment, InsertPosition::Last);
        self
    }

    /// Inserts a template above a marker, after an empty line.
    pub(super) fn insert_apart(
        &mut self,
        path: &str,
        marker: &str,
        template: &str,
    ) -> Result<&mut Self, TemplateError> {
        let fragment = self.fill(template)?;
        self.plan.insert(path, marker, &fragment, InsertPosition::Apart);
        Ok(self)
    }

    /// Replaces lines that occur once in a file.
    pub(super) fn swap(&mut self, path: &str, from: &str, to: &str) -> Result<&mut Self, TemplateError> {
        let (from, to) = (self.fill(from)?, self.fill(to)?);
        self.plan.swap(path, &from, &to);
        Ok(self)
    }

    /// Returns whether a file contains a rendered template.
    pub(super) fn has(&mut self, path: &str, text: &str) -> Result<bool, TemplateError> {
        let text = self.fill(text)?;
        Ok(self.plan.has(path, &text))
    }

    /// Inserts a line above a marker, sorted among similar lines.
    pub(super) fn insert_sorted(&mut self, path: &str, marker: &str, line: &str) -> &mut Self {
        self.plan.insert(path, marker, line, InsertPosition::Sorted);
        self
    }

    /// Adds a module declaration to a file, which is created from `template` if it is missing.
    pub(super) fn module(&mut self, path: &str, template: &str, line: &str) -> Result<&mut Self, TemplateError> {
        self.create_if_missing(path, template)?;
        Ok(self.insert_sorted(path, "modules", line))
    }
}
