//! The addresses of Kubernetes' library (`k8s.io/apiserver/pkg/cel/library/{ip,cidr}.go`), in Go's stricter notation of
//! ranges.

use std::net::{IpAddr, Ipv6Addr};

use kube_cel::cel::Value;

use super::failure::{Evaluated, Failure};
use crate::go_format::quoted;

/// What precedes every error about a range.
const CONTEXT: &str = "network address parse error during conversion from string";

/// Calls one of these functions. `None` if it is another one, or one of `kube-cel` with valid arguments.
pub(super) fn call(function: &str, values: &[Value]) -> Option<Evaluated> {
    let refuse = |why: String| Some(Err(Failure::Error(why)));
    match (function, values) {
        ("isCIDR", [Value::String(text)]) => Some(Ok(check_range(text).is_ok().into())),
        ("cidr", [Value::String(text)]) | ("containsCIDR", [_, Value::String(text)]) => {
            check_range(text).err().and_then(|why| refuse(format!("{CONTEXT}: {why}")))
        }
        ("ip" | "ip.isCanonical", [Value::String(text)]) => check_address(text).err().and_then(refuse),
        ("containsIP", [_, Value::String(text)]) => check_address(text).err().map(|_| Err(Failure::no_such_overload())),
        _ => None,
    }
}

fn check_range(text: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{CONTEXT}: netip.ParsePrefix({}): {why}", quoted(text)));
    let Some((address, bits)) = text.rsplit_once('/') else { return wrong("no '/'") };
    let address = match parse(address) {
        Ok(address) => address,
        Err(why) => return wrong(&why),
    };
    let is_number = bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    if !is_number || bits.is_empty() {
        return wrong(&format!("bad bits after slash: {}", quoted(bits)));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    if bits.parse::<u32>().is_ok_and(|bits| bits > most) || bits.len() > 3 {
        return wrong("prefix length out of range");
    }
    refuse_mapped(text, address)
}

fn check_address(text: &str) -> Result<(), String> {
    let why = |why: String| format!("IP Address {} parse error during conversion from string: {why}", quoted(text));
    if let Some((address, zone)) = text.split_once('%')
        && address.parse::<Ipv6Addr>().is_ok()
        && !zone.is_empty()
    {
        return Err(format!("IP address {} with zone value is not allowed", quoted(text)));
    }
    refuse_mapped(text, parse(text).map_err(why)?)
}

fn refuse_mapped(text: &str, address: IpAddr) -> Result<(), String> {
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {} is not allowed", quoted(text)))
        }
        _ => Ok(()),
    }
}

/// Parses an address. Returns the errors about IPv4 addresses in Go's words.
fn parse(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        let why = match text.find(['.', ':', '%']).and_then(|place| text.get(place..)) {
            Some(rest) if rest.starts_with('.') => ipv4_error(text),
            _ => "unable to parse IP",
        };
        format!("ParseAddr({}): {why}", quoted(text))
    })
}

/// Returns what is wrong with an IPv4 address.
fn ipv4_error(text: &str) -> &'static str {
    let mut count = 0;
    for field in text.split('.') {
        count += 1;
        if field.is_empty() {
            return "IPv4 field must have at least one digit";
        } else if !field.bytes().all(|byte| byte.is_ascii_digit()) {
            return "unexpected character";
        } else if field.len() > 1 && field.starts_with('0') {
            return "IPv4 field has octet with leading zero";
        } else if field.parse::<u8>().is_err() {
            return "IPv4 field has value >255";
        } else if count > 4 {
            return "IPv4 address too long";
        }
    }
    "IPv4 address too short"
}
