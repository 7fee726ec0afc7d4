//! The costs of operators and functions, without those of the target.

use kube_cel::cel::common::ast::operators;

use super::{
    LIST, Part, Place,
    span::{Span, divided},
};
use crate::cel::{check::Type, macros::SORT};

/// The cost of a check of a permission.
const CHECK: Span = Span::exactly(350_000);
/// The units for each character of a regular expression.
const PATTERN: f64 = 0.25;
/// The length that the pattern of a named format is assumed to have.
const FORMAT_PATTERN: f64 = 128.0;
/// The size of an address in bytes.
const ADDRESS: Span = Span { min: 4, max: 16 };

/// A cost with the size of the result, if that is known.
struct Cost(Span, Option<Span>);

/// Returns what is known about the result of a call.
pub(super) fn called<'l>(name: &str, target: Option<&Part<'l>>, arguments: &[Part<'l>], of: Type) -> Part<'l> {
    let sum = arguments.iter().fold(Span::ZERO, |sum, argument| sum.plus(argument.cost));
    match (name, arguments) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [first, ..]) => {
            return Part::new(Span { min: first.cost.min, max: sum.max }, Type::Bool);
        }
        (operators::CONDITIONAL, [condition, yes, no]) => {
            let cost = condition.cost.plus(yes.cost.or(no.cost));
            let entries = yes.entries.zip(no.entries).map(|(yes, no)| yes.or(no));
            return Part { size: Some(yes.size().or(no.size())), entries, ..Part::new(cost, of) };
        }
        (operators::ADD, [left, right]) => return added(left, right, sum, of),
        _ => {}
    }
    let own = library(name, target, arguments).unwrap_or_else(|| language(name, target, arguments));
    Part { size: own.1, ..Part::new(own.0.plus(sum), of) }
}

/// Adds texts, lists or numbers. What has no known type may be each of them.
fn added<'l>(left: &Part<'l>, right: &Part<'l>, sum: Span, of: Type) -> Part<'l> {
    let size = left.size().plus(right.size());
    let known = if left.of.is_open() { &right.of } else { &left.of };
    let cost = match known {
        Type::String | Type::Bytes => size.traversed(),
        known if known.is_open() => size.traversed().or(Span::ONE),
        _ => Span::ONE,
    };
    let has_size = known.is_open() || matches!(known, Type::String | Type::Bytes | Type::List(_));
    let entries = left.entries.zip(right.entries).map(|(left, right)| left.or(right));
    Part { size: has_size.then_some(size), entries, ..Part::new(cost.plus(sum), of) }
}

/// Returns the cost of a function of the language.
fn language(name: &str, target: Option<&Part<'_>>, arguments: &[Part<'_>]) -> Cost {
    let only = |cost| Cost(cost, None);
    match (name, target, arguments) {
        ("format", Some(target), _) => only(target.size().traversed()),
        ("strings.quote", _, [text]) => {
            let Span { min, max } = text.size();
            let size = Span { min: min.saturating_add(2), max: max.saturating_mul(2).saturating_add(2) };
            Cost(text.size().traversed(), Some(size))
        }
        ("bytes", _, [text]) if matches!(text.of, Type::String) => {
            let Span { min, max } = text.size();
            Cost(text.size().traversed(), Some(Span { min, max: max.saturating_mul(4) }))
        }
        ("string", _, [bytes]) if matches!(bytes.of, Type::Bytes) || bytes.of.is_open() => {
            let Span { min, max } = bytes.size();
            let one = if bytes.of.is_open() { Span::ONE } else { bytes.size().traversed() };
            Cost(bytes.size().traversed().or(one), Some(Span { min: min / 4, max }))
        }
        ("startsWith" | "endsWith", Some(_), [text]) => only(text.size().traversed()),
        (operators::IN, _, [_, list]) => only(match &list.of {
            Type::List(_) => list.size(),
            open if open.is_open() => list.size().or(Span::ONE),
            _ => Span::ONE,
        }),
        ("matches", Some(target), [pattern]) => only(matched(target, pattern)),
        ("contains", Some(target), [text]) => only(target.size().traversed().times(text.size().traversed())),
        (operators::EQUALS | operators::NOT_EQUALS, _, [left, right]) => only(compared(left, right)),
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            _,
            [left, right],
        ) => {
            let known = if left.of.is_open() { &right.of } else { &left.of };
            only(match known {
                Type::String | Type::Bytes => compared(left, right),
                open if open.is_open() => compared(left, right).or(Span::ONE),
                _ => Span::ONE,
            })
        }
        ("sets.contains" | "sets.intersects", _, [left, right]) => {
            only(left.size().times(right.size()).plus(Span::ONE))
        }
        ("sets.equivalent", _, [left, right]) => only(left.size().times(right.size()).by(2.0).plus(Span::ONE)),
        _ => only(Span::ONE),
    }
}

/// Returns the cost of matching a regular expression. An empty text counts as one character.
fn matched(text: &Part<'_>, pattern: &Part<'_>) -> Span {
    text.size().plus(Span::ONE).traversed().times(pattern.size().by(PATTERN))
}

/// Returns the cost of a comparison of two values: at most the shorter one is read.
fn compared(left: &Part<'_>, right: &Part<'_>) -> Span {
    let max = left.size().max.min(right.size().max);
    Span { min: max.min(1), max }.traversed()
}

/// Returns the cost of a function of Kubernetes' library.
fn library(name: &str, target: Option<&Part<'_>>, arguments: &[Part<'_>]) -> Option<Cost> {
    let only = |cost| Some(Cost(cost, None));
    match (name, target, arguments) {
        ("check", ..) => only(CHECK),
        ("fieldSelector" | "labelSelector", _, [text]) => only(text.size().traversed()),
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
            only(match items(target) {
                Some(Type::String | Type::Bytes) => target.size().times(Span::ONE.plus(item_size(target).traversed())),
                Some(_) => target.size(),
                None => target.size().traversed(),
            })
        }
        ("url" | "jsonpatch.escapeKey", _, [text]) => Some(Cost(text.size().traversed(), Some(text.size()))),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
            Some(Cost(target.size().traversed(), Some(target.size())))
        }
        ("replace", Some(target), [from, to, ..]) => {
            Some(Cost(target.size().by(0.2), Some(replaced(target.size(), from.size(), to.size()))))
        }
        ("split", Some(target), _) => Some(Cost(target.size().by(0.2), Some(Span::up_to(target.size().max)))),
        ("join", Some(target), _) => {
            let listed = target.size();
            let text = items(target).map_or(Span::ZERO, |_| listed.times(item_size(target)));
            let between = Span { min: listed.min.saturating_sub(1), max: listed.max.saturating_sub(1) };
            let size = text.plus(arguments.first().map_or(Span::ZERO, |separator| separator.size().times(between)));
            Some(Cost(size.traversed(), Some(size)))
        }
        ("find" | "findAll", Some(target), [pattern, ..]) => {
            Some(Cost(matched(target, pattern), Some(Span::up_to(target.size().max))))
        }
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", None, [text, ..]) => {
            only(text.size().traversed())
        }
        ("ip.isCanonical", _, [text, ..]) => only(text.size().by(0.2)),
        ("containsIP", _, [other, ..]) => only(ADDRESS.plus(ADDRESS).traversed().plus(parsed(other))),
        ("containsCIDR", _, [other, ..]) => {
            only(ADDRESS.plus(ADDRESS).traversed().plus(ADDRESS.traversed()).plus(Span::ONE).plus(parsed(other)))
        }
        ("validate", _, [text, ..]) => only(text.size().traversed().by(FORMAT_PATTERN * PATTERN)),
        ("lists.range", ..) | ("slice" | "reverse" | "flatten" | "distinct" | "sort", Some(_), _) => {
            lists(name, target, arguments)
        }
        (SORT, _, [keys]) => lists("sort", Some(keys), &[]),
        (operators::EQUALS, _, [left, right]) => match (&left.of, &right.of) {
            // Formats are compared by their text.
            (Type::Opaque("kubernetes.NamedFormat"), Type::Opaque(_)) => only(Span { min: 1, max: 64 }.traversed()),
            (Type::Opaque(one), Type::Opaque(other)) if one == other => only(Span::ONE),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the cost of a function that makes a list. Its result has the size that counts.
fn lists(name: &str, target: Option<&Part<'_>>, arguments: &[Part<'_>]) -> Option<Cost> {
    let size = target.map_or(Span::UNKNOWN, Part::size);
    let number = |index: usize| arguments.get(index).and_then(|argument| argument.number);
    let (factor, size) = match name {
        "lists.range" => (1.0, Span::exactly(number(0).unwrap_or(u64::MAX))),
        "slice" => {
            let end = number(1).unwrap_or(size.max);
            // As in cel-go, the size wraps if the end is before the start.
            (1.0, Span::exactly(end.wrapping_sub(number(0).unwrap_or_default())))
        }
        "reverse" => (1.0, size),
        "flatten" => (if arguments.is_empty() { 1.0 } else { depth(number(0)) }, size),
        "distinct" => (2.0, size.times(size)),
        _ => match target.and_then(items) {
            Some(Type::String | Type::Bytes) => (2.1, size.times(size)),
            _ => (2.0, size.times(size)),
        },
    };
    Some(Cost(size.by(factor).plus(Span::ONE).plus(LIST), Some(size)))
}

#[expect(clippy::cast_precision_loss, reason = "a depth is small, and one that isn't known is great in any precision")]
fn depth(number: Option<u64>) -> f64 {
    number.unwrap_or(u64::MAX) as f64
}

/// Returns the cost of parsing an argument that may be text.
fn parsed(argument: &Part<'_>) -> Span {
    if matches!(argument.of, Type::String) { argument.size().traversed() } else { Span::ZERO }
}

/// Returns the type of the items of a list.
fn items<'p>(list: &'p Part<'_>) -> Option<&'p Type> {
    match &list.of {
        Type::List(items) => Some(items),
        _ => None,
    }
}

/// Returns the size of the items of a list.
fn item_size(list: &Part<'_>) -> Span {
    match list.place {
        Place::At(limits) => limits.items.as_ref().map_or(Span::UNKNOWN, |items| Span::up_to(items.greatest)),
        _ => Span::UNKNOWN,
    }
}

/// Returns the size of a text in which one text is replaced by another: the least if the longest are replaced by the
/// shortest, and the greatest the other way round.
fn replaced(text: Span, from: Span, to: Span) -> Span {
    let size = |text: u64, from: u64, to: u64, keeps: bool| match from {
        // An empty text is found around each character.
        0 => text.saturating_add(1).saturating_mul(to).saturating_add(text),
        _ if keeps => text,
        _ => divided(text, from).saturating_mul(to),
    };
    Span {
        min: size(text.min, from.max, to.min, from.max <= to.min),
        max: size(text.max, from.min, to.max, to.max <= from.min),
    }
}
