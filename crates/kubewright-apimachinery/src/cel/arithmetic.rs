//! Arithmetic on numbers and times, with cel-go's errors.

use kube_cel::cel::Value;

use super::{
    expression::Operator,
    failure::{Evaluated, Failure},
    time,
};

/// Calculates the result of an arithmetic operator on integers of one type.
macro_rules! integer {
    ($operator:expr, $left:expr, $right:expr, $value:path, $overflow:literal) => {{
        let result = match $operator {
            Operator::Add => $left.checked_add(*$right),
            Operator::Subtract => $left.checked_sub(*$right),
            Operator::Multiply => $left.checked_mul(*$right),
            Operator::Divide if *$right == 0 => return Err(Failure::error("division by zero")),
            Operator::Divide => $left.checked_div(*$right),
            Operator::Remainder if *$right == 0 => return Err(Failure::error("modulus by zero")),
            Operator::Remainder => $left.checked_rem(*$right),
            _ => return Err(Failure::no_such_overload()),
        };
        result.map($value).ok_or_else(|| Failure::error($overflow))
    }};
}

/// Calculates the result of an arithmetic operator.
pub(super) fn calculate(operator: Operator, left: &Value, right: &Value) -> Evaluated {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => integer!(operator, left, right, Value::Int, "integer overflow"),
        (Value::UInt(left), Value::UInt(right)) => {
            integer!(operator, left, right, Value::UInt, "unsigned integer overflow")
        }
        (Value::Float(left), Value::Float(right)) => match operator {
            Operator::Add => Ok(Value::Float(left + right)),
            Operator::Subtract => Ok(Value::Float(left - right)),
            Operator::Multiply => Ok(Value::Float(left * right)),
            Operator::Divide => Ok(Value::Float(left / right)),
            _ => Err(Failure::no_such_overload()),
        },
        (Value::Duration(left), Value::Duration(right)) => match operator {
            Operator::Add => time::checked_duration(left.checked_add(right)),
            Operator::Subtract => time::checked_duration(left.checked_sub(right)),
            _ => Err(Failure::no_such_overload()),
        },
        (Value::Timestamp(time), Value::Duration(by)) if matches!(operator, Operator::Add | Operator::Subtract) => {
            time::shift(time, by, operator == Operator::Subtract)
        }
        (Value::Duration(by), Value::Timestamp(time)) if operator == Operator::Add => time::shift(time, by, false),
        (Value::Timestamp(left), Value::Timestamp(right)) if operator == Operator::Subtract => {
            time::checked_duration(Some(left.signed_duration_since(*right)))
        }
        _ => Err(Failure::no_such_overload()),
    }
}
