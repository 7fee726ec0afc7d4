//! The signatures of operators and functions: those of the language and of Kubernetes' library
//! (<https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries>).

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use super::types::{Bindings, Type};

/// One signature.
#[derive(Debug)]
struct Signature {
    /// For a method, the first one is the type of the target. `None` accepts any arguments.
    arguments: Option<Vec<Type>>,
    result: Type,
}

/// The signatures of the operators, and of functions and methods whose arguments are checked.
///
/// Each line has names, and signatures: `f` for a function and `m` for a method, argument types, `->`, and the result.
/// `_` is a type that isn't checked, and `A` and `B` are parameters. `*` in place of the arguments accepts any. Spaces
/// separate types.
const TABLE: &str = "\
_+_: f int int -> int | f uint uint -> uint | f double double -> double | f string string -> string | f bytes bytes -> bytes \
 | f list(A) list(A) -> list(A) | f timestamp duration -> timestamp | f duration timestamp -> timestamp \
 | f duration duration -> duration
_-_: f int int -> int | f uint uint -> uint | f double double -> double | f timestamp timestamp -> duration \
 | f timestamp duration -> timestamp | f duration duration -> duration
_*_ _/_: f int int -> int | f uint uint -> uint | f double double -> double
_%_: f int int -> int | f uint uint -> uint
-_: f int -> int | f double -> double
!_: f bool -> bool
_==_ _!=_: f A A -> bool
_<_ _<=_ _>_ _>=_: f bool bool -> bool | f int int -> bool | f uint uint -> bool | f double double -> bool \
 | f int uint -> bool | f int double -> bool | f uint int -> bool | f uint double -> bool | f double int -> bool \
 | f double uint -> bool | f string string -> bool | f bytes bytes -> bool | f timestamp timestamp -> bool \
 | f duration duration -> bool
_?_:_: f bool A A -> A
_[_]: f list(A) int -> A | f map(A,B) A -> B | f optional(list(A)) int -> optional(A) \
 | f optional(map(A,B)) A -> optional(B)
_[?_]: f list(A) int -> optional(A) | f map(A,B) A -> optional(B) | f optional(list(A)) int -> optional(A) \
 | f optional(map(A,B)) A -> optional(B)
@in: f A list(A) -> bool | f A map(A,B) -> bool
size: f string -> int | f bytes -> int | f list(A) -> int | f map(A,B) -> int | m string -> int | m bytes -> int \
 | m list(A) -> int | m map(A,B) -> int
int: f int -> int | f uint -> int | f double -> int | f string -> int | f timestamp -> int | f duration -> int
uint: f uint -> uint | f int -> uint | f double -> uint | f string -> uint
double: f double -> double | f int -> double | f uint -> double | f string -> double
string: f string -> string | f bool -> string | f int -> string | f uint -> string | f double -> string \
 | f bytes -> string | f timestamp -> string | f duration -> string | f net.IP -> string | f net.CIDR -> string
bytes: f bytes -> bytes | f string -> bytes
bool: f bool -> bool | f string -> bool
timestamp: f timestamp -> timestamp | f string -> timestamp | f int -> timestamp
duration: f duration -> duration | f string -> duration | f int -> duration
dyn: f A -> dyn
type: f A -> type(A)
contains startsWith endsWith: m string string -> bool
matches: m string string -> bool | f string string -> bool
getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear: m timestamp -> int | m timestamp string -> int
getHours getMinutes getSeconds getMilliseconds: m timestamp -> int | m timestamp string -> int | m duration -> int
charAt: m string int -> string
indexOf lastIndexOf: m string string -> int | m string string int -> int | m list(A) A -> int
join: m list(string) -> string | m list(string) string -> string
lowerAscii upperAscii trim: m string -> string
replace: m string string string -> string | m string string string int -> string
split: m string string -> list(string) | m string string int -> list(string)
substring: m string int -> string | m string int int -> string
format: m string list(_) -> string
strings.quote: f string -> string
find: m string string -> string
findAll: m string string -> list(string) | m string string int -> list(string)
isSorted: m list(_) -> bool
sum: m list(int) -> int | m list(uint) -> uint | m list(double) -> double | m list(duration) -> duration
min max: m list(int) -> int | m list(uint) -> uint | m list(double) -> double | m list(duration) -> duration \
 | m list(timestamp) -> timestamp | m list(string) -> string | m list(bool) -> bool | m list(bytes) -> bytes
sets.contains sets.equivalent sets.intersects: f list(A) list(A) -> bool
optional.of: f A -> optional(A)
optional.ofNonZeroValue: f A -> optional(A)
optional.none: f -> optional(_)
hasValue: m optional(A) -> bool
value: m optional(A) -> A
or: m optional(A) optional(A) -> optional(A)
orValue: m optional(A) A -> A
url: f string -> kubernetes.URL
isURL: f string -> bool
getScheme getHost getHostname getPort getEscapedPath: m kubernetes.URL -> string
getQuery: m kubernetes.URL -> map(string,list(string))
isIP isCIDR isQuantity: f string -> bool
ip: f string -> net.IP | m net.CIDR -> net.IP
ip.isCanonical: f string -> bool
family: m net.IP -> int
isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast: m net.IP -> bool
cidr: f string -> net.CIDR
containsIP: m net.CIDR net.IP -> bool | m net.CIDR string -> bool
containsCIDR: m net.CIDR net.CIDR -> bool | m net.CIDR string -> bool
prefixLength: m net.CIDR -> int
masked: m net.CIDR -> net.CIDR
quantity: f string -> kubernetes.Quantity
sign: f kubernetes.Quantity -> int
isInteger: m kubernetes.Quantity -> bool
asInteger: m kubernetes.Quantity -> int
asApproximateFloat: m kubernetes.Quantity -> double
add sub: m kubernetes.Quantity kubernetes.Quantity -> kubernetes.Quantity | m kubernetes.Quantity int -> kubernetes.Quantity
isLessThan isGreaterThan: m kubernetes.Quantity kubernetes.Quantity -> bool | m kubernetes.Semver kubernetes.Semver -> bool
compareTo: m kubernetes.Quantity kubernetes.Quantity -> int | m kubernetes.Semver kubernetes.Semver -> int
isSemver: f string -> bool | f string bool -> bool
semver: f string -> kubernetes.Semver | f string bool -> kubernetes.Semver
major minor: m kubernetes.Semver -> int
patch: m kubernetes.Semver -> int
jsonpatch.escapeKey: f string -> string
path: m kubernetes.authorization.Authorizer string -> kubernetes.authorization.PathCheck
group: m kubernetes.authorization.Authorizer string -> kubernetes.authorization.GroupCheck
serviceAccount: m kubernetes.authorization.Authorizer string string -> kubernetes.authorization.Authorizer
resource: m kubernetes.authorization.GroupCheck string -> kubernetes.authorization.ResourceCheck
subresource namespace name fieldSelector labelSelector: m kubernetes.authorization.ResourceCheck string \
 -> kubernetes.authorization.ResourceCheck
check: m kubernetes.authorization.PathCheck string -> kubernetes.authorization.Decision \
 | m kubernetes.authorization.ResourceCheck string -> kubernetes.authorization.Decision
allowed errored: m kubernetes.authorization.Decision -> bool
reason error: m kubernetes.authorization.Decision -> string
distinct reverse: m list(A) -> list(A)
sort: m list(int) -> list(int) | m list(uint) -> list(uint) | m list(double) -> list(double) | m list(bool) -> list(bool) \
 | m list(duration) -> list(duration) | m list(timestamp) -> list(timestamp) | m list(string) -> list(string) \
 | m list(bytes) -> list(bytes)
flatten: m list(list(A)) -> list(A) | m list(list(A)) int -> list(_)
slice: m list(A) int int -> list(A)
first last: m list(A) -> optional(A)
lists.range: f int -> list(int)
cel.@mapInsert: f map(A,B) A B -> map(A,B) | f map(A,B) map(A,B) -> map(A,B)
@sortByAssociatedKeys: m list(A) list(int) -> list(A) | m list(A) list(uint) -> list(A) | m list(A) list(double) -> list(A) \
 | m list(A) list(bool) -> list(A) | m list(A) list(duration) -> list(A) | m list(A) list(timestamp) -> list(A) \
 | m list(A) list(string) -> list(A) | m list(A) list(bytes) -> list(A)
validate: m kubernetes.NamedFormat string -> optional(list(string))
format.named: f string -> optional(kubernetes.NamedFormat)
format.byte format.date format.datetime format.dns1035Label format.dns1035LabelPrefix: f -> kubernetes.NamedFormat
format.dns1123Label format.dns1123LabelPrefix format.dns1123Subdomain: f -> kubernetes.NamedFormat
format.dns1123SubdomainPrefix format.labelValue format.qualifiedName format.uri format.uuid: f -> kubernetes.NamedFormat
not_strictly_false: f * -> _";

/// The signatures, by whether they are methods and by name.
static SIGNATURES: LazyLock<HashMap<(bool, &'static str), Vec<Signature>>> = LazyLock::new(|| {
    let mut signatures: HashMap<_, Vec<_>> = HashMap::new();
    for line in TABLE.lines() {
        let (names, rest) = line.split_once(": ").expect("each line of the table has names");
        for text in rest.split(" | ") {
            let (kind, text) = text.trim().split_at(1);
            for name in names.split(' ') {
                signatures.entry((kind == "m", name)).or_default().push(signature(text));
            }
        }
    }
    signatures
});

fn signature(text: &'static str) -> Signature {
    let (arguments, result) = text.split_once("->").expect("a signature has a result");
    let arguments = arguments.trim();
    let arguments = (arguments != "*").then(|| arguments.split_whitespace().map(parse).collect());
    Signature { arguments, result: parse(result.trim()) }
}

fn parse(text: &'static str) -> Type {
    let inner = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')');
    if let Some(items) = inner("list(") {
        return Type::list(parse(items));
    }
    if let Some(of) = inner("type(") {
        return Type::Meta(Arc::new(parse(of)));
    }
    if let Some(value) = inner("optional(") {
        return Type::optional(parse(value));
    }
    if let Some((key, value)) = inner("map(").and_then(|entry| entry.split_once(',')) {
        return Type::map(parse(key), parse(value));
    }
    match text {
        "_" => Type::Unknown,
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "A" => Type::Parameter('A'),
        "B" => Type::Parameter('B'),
        // The other types have no fields.
        name if name.contains('.') => Type::Opaque(name),
        other => unreachable!("the table has no type {other:?}"),
    }
}

/// Why a call has no result.
#[derive(Debug)]
pub(in crate::cel) enum NoOverload {
    /// There is no function or method of this name.
    Undeclared,
    /// No signature accepts the arguments.
    NoMatch,
}

/// Returns the type of the result of a call.
pub(in crate::cel) fn resolve(name: &str, method: bool, arguments: &[Type]) -> Result<Type, NoOverload> {
    // A name that is only declared in the other form is declared, but has no signature for this call.
    let known = SIGNATURES.get(&(method, name)).or_else(|| SIGNATURES.get(&(!method, name)).map(|_| &EMPTY));
    let signatures = known.ok_or(NoOverload::Undeclared)?;
    let is_unknown = arguments.iter().any(|argument| matches!(argument, Type::Unknown));
    let mut result: Option<Type> = None;
    for signature in signatures {
        let mut bindings = Bindings::default();
        if let Some(wanted) = &signature.arguments
            && (wanted.len() != arguments.len()
                || !wanted.iter().zip(arguments).all(|(wanted, given)| bindings.accept(wanted, given)))
        {
            continue;
        }
        let found = bindings.apply(&signature.result);
        result = Some(match result {
            None => found,
            Some(before) if before.is_exactly(&found) => before,
            Some(_) if is_unknown => Type::Unknown,
            Some(_) => Type::Dyn,
        });
    }
    result.ok_or(NoOverload::NoMatch)
}

static EMPTY: Vec<Signature> = Vec::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, method: bool, arguments: &[Type], expect: Option<&str>) {
        let result = resolve(name, method, arguments).ok().map(|result| result.to_string());
        assert_eq!(result.as_deref(), expect, "{name}");
    }

    #[test]
    fn calls_have_types() {
        let strings = Type::list(Type::String);
        check("_+_", false, &[Type::Int, Type::Int], Some("int"));
        check("_+_", false, &[Type::Int, Type::String], None);
        check("_+_", false, &[Type::Dyn, Type::String], Some("string"));
        check("_+_", false, &[Type::Dyn, Type::Dyn], Some("dyn"));
        check("_==_", false, &[Type::Int, Type::Double], None);
        check("_==_", false, &[Type::Timestamp, Type::Null], Some("bool"));
        check("_==_", false, &[Type::Int, Type::Null], None);
        check("_==_", false, &[strings.clone(), Type::list(Type::Int)], None);
        check("_==_", false, &[strings.clone(), Type::list(Type::Unknown)], Some("bool"));
        check("_[_]", false, &[Type::map(Type::String, Type::Bool), Type::String], Some("bool"));
        check("_[_]", false, &[strings.clone(), Type::String], None);
        check("size", true, &[strings], Some("int"));
        check("size", false, &[Type::Int], None);
        check("startsWith", false, &[Type::String, Type::String], None);
        check("optional.none", false, &[], Some("optional_type(dyn)"));
        check("nothing", false, &[], None);
    }
}
