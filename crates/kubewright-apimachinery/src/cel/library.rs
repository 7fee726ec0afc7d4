//! The functions of `kube-cel`, which take copies of their arguments.

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, IdedExpr, Value,
        common::ast::{CallExpr, Expr},
    },
};

thread_local! {
    /// The function library. It is too large to build for each call, and can't be shared between threads.
    static LIBRARY: Context<'static> = Context::default().with_all();
}

/// The variables that hold the arguments of a function.
const NAMES: [&str; 6] = ["@0", "@1", "@2", "@3", "@4", "@5"];

/// Calls a function, or a method of the first value.
pub(super) fn call(name: &str, method: bool, values: Vec<Value>) -> Result<Value, ExecutionError> {
    if values.len() > NAMES.len() {
        return Err(ExecutionError::InvalidArgumentCount { expected: NAMES.len(), actual: values.len() });
    }
    let variable = |name: &str| IdedExpr { id: 0, expr: Expr::Ident(name.to_owned()) };
    let mut arguments = NAMES.iter().take(values.len()).map(|name| variable(name));
    let (target, function) = match name.split_once('.') {
        Some((namespace, function)) => (Some(variable(namespace)), function),
        None if method => (arguments.next(), name),
        None => (None, name),
    };
    let call = CallExpr { func_name: function.to_owned(), target: target.map(Box::new), args: arguments.collect() };
    let call = IdedExpr { id: 0, expr: Expr::Call(call) };
    LIBRARY.with(|library| {
        let mut context = library.new_inner_scope();
        for (name, value) in NAMES.into_iter().zip(values) {
            context.add_variable_from_value(name, value);
        }
        context.resolve(&call)
    })
}

/// Calls a conversion of a string, such as `timestamp`. Returns `None` if the string is not in its format.
pub(crate) fn convert(function: &str, text: &str) -> Option<Value> {
    call(function, false, vec![text.into()]).ok()
}
