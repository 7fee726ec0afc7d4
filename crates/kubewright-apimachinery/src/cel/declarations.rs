//! The variables of the expressions of webhooks, admission policies, authorizers and authenticators.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    check::{ACCESS_REVIEW, Environment, Expected, Fields, NAMESPACE, REQUEST, Type, USER},
    message::JSON_PATCH,
    program::{self, Typed},
};

/// The variable that checks permissions, and that of the check for the resource of the request, whose name has a dot.
const AUTHORIZER: &str = "authorizer";
const REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// The variables of the expressions of webhooks, admission policies, authorizers and authenticators, with their types.
///
/// Objects and parameters can be of any kind. Their fields are checked only after
/// [`declare_object`](crate::schema::rules::declare_object) and
/// [`declare_parameters`](crate::schema::rules::declare_parameters) have declared the kind.
#[derive(Clone, Debug)]
pub struct PolicyDeclarations {
    environment: Environment,
    /// The composed variables, once they can be used.
    variables: Option<BTreeMap<String, Type>>,
}

impl PolicyDeclarations {
    /// Returns the variables of a webhook: `object`, `oldObject`, `request` and `authorizer`.
    pub fn of_webhook() -> Self {
        let environment = Environment::default()
            .with("object", Type::Dyn)
            .with("oldObject", Type::Dyn)
            .with("namespaceObject", NAMESPACE.clone())
            .with("request", REQUEST.clone())
            .with(AUTHORIZER, Type::Opaque("kubernetes.authorization.Authorizer"))
            .with(REQUEST_RESOURCE, Type::Opaque("kubernetes.authorization.ResourceCheck"));
        Self { environment, variables: None }
    }

    /// Returns the variable of an authorizer: `request`, the `spec` of a SubjectAccessReview.
    pub fn of_authorizer() -> Self {
        let environment = Environment::default().with("request", ACCESS_REVIEW.clone());
        Self { environment, variables: None }
    }

    /// Returns the variable of the mappings of an authenticator: `claims`, those of a token.
    pub fn of_claims() -> Self {
        let environment = Environment::default().with("claims", Type::map(Type::String, Type::Dyn));
        Self { environment, variables: None }
    }

    /// Returns the variable of the rules of an authenticator: `user`, a UserInfo.
    pub fn of_user() -> Self {
        Self { environment: Environment::default().with("user", USER.clone()), variables: None }
    }

    /// Returns the variables of the match conditions of a policy, which may have parameters. Composed variables are
    /// declared by [`Self::compose`] and [`Self::declare`].
    pub fn of_policy(has_parameters: bool) -> Self {
        let mut declarations = Self::of_webhook();
        if has_parameters {
            declarations.environment = declarations.environment.with("params", Type::Dyn);
        }
        declarations
    }

    /// Returns the variables of an expression that may construct `Object{…}` and `JSONPatch{…}`.
    #[must_use]
    pub fn with_messages(&self) -> Self {
        let mut declarations = self.clone();
        declarations.environment.messages = true;
        declarations
    }

    /// Returns the variables of the expression of a message, which can't use `authorizer`.
    #[must_use]
    pub fn without_authorizer(&self) -> Self {
        let mut declarations = self.clone();
        declarations.environment.variables.retain(|(name, _)| ![AUTHORIZER, REQUEST_RESOURCE].contains(name));
        declarations
    }

    /// Returns the variables, of which some have this type.
    #[must_use]
    pub(crate) fn of_type(&self, variables: &[&str], object: &Type) -> Self {
        let mut declarations = self.clone();
        for (name, of) in &mut declarations.environment.variables {
            if variables.contains(name) {
                *of = object.clone();
            }
        }
        declarations
    }

    /// Declares `variables`, which has no fields yet.
    pub fn compose(&mut self) {
        self.variables.get_or_insert_default();
    }

    /// Checks the expression of a composed variable, and declares the variable.
    ///
    /// # Errors
    /// The reason why Kubernetes refuses the expression. The variable is declared in any case.
    pub fn declare(&mut self, name: &str, expression: &str) -> Result<(), Refusal> {
        self.compose();
        let found = self.type_of(expression);
        let of = found.as_ref().map_or(Type::Dyn, |found| as_variable(&found.of));
        self.variables.get_or_insert_default().insert(name.to_owned(), of);
        found?.finished()
    }

    /// Checks an expression.
    ///
    /// # Errors
    /// The reason why Kubernetes refuses the expression: it can't be parsed, uses undeclared variables or fields, or is
    /// of another type than expected.
    pub fn check(&self, expression: &str, expected: Expected) -> Result<(), Refusal> {
        let found = self.type_of(expression)?;
        expected.accept(&found.of).map_err(Refusal::Expression)?;
        // The items of a list are open if it is empty, or if the checker can't tell their type.
        if expected == Expected::Patches && matches!(found.of, Type::List(_)) && !expression.contains(JSON_PATCH) {
            return Err(Refusal::Expression("must evaluate to list(JSONPatch) but got list(dyn)".to_owned()));
        }
        found.finished()
    }

    fn type_of(&self, expression: &str) -> Result<Typed, Refusal> {
        let mut environment = self.environment.clone();
        if let Some(variables) = &self.variables {
            let fields = Fields { name: "kubernetes.variables", fields: variables.clone() };
            environment = environment.with("variables", Type::Object(Arc::new(fields)));
        }
        let found = program::type_of(expression, &environment);
        found.map_err(|why| Refusal::Expression(format!("compilation failed: {why}")))
    }
}

/// Returns the type that a composed variable has if its expression has this one: simple types, and lists and maps of
/// them. Others are open, so that the fields of a variable aren't checked.
fn as_variable(of: &Type) -> Type {
    match of {
        Type::List(items) => Type::list(as_variable(items)),
        Type::Map(entry) => Type::map(as_variable(&entry[0]), as_variable(&entry[1])),
        Type::Object(_) | Type::Optional(_) | Type::Opaque(_) | Type::Message(_) | Type::Meta(_) => Type::Dyn,
        simple => simple.clone(),
    }
}

/// The reason why Kubernetes refuses an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The expression can't be parsed, or has a wrong type or parts with wrong types.
    Expression(String),
    /// No program can be made of the expression, because a literal in it can't be converted or isn't a pattern.
    /// Kubernetes calls this an internal error.
    Program(String),
}

impl Typed {
    /// Returns an error if no program can be made of the expression.
    fn finished(self) -> Result<(), Refusal> {
        match self.invalid_literal {
            Some(why) => Err(Refusal::Program(format!("program instantiation failed: {why}"))),
            None => Ok(()),
        }
    }
}
