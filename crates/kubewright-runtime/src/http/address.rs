//! Addresses to listen on, written as in Go.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The address of a server: `host:port`, `:port` for all interfaces, or `0` to disable the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// No server.
    Disabled,
    /// All interfaces, IPv6 and IPv4.
    AllInterfaces(u16),
    /// One host name or address; IPv6 addresses without brackets.
    Host(String, u16),
}

impl BindAddress {
    /// Returns the port; `None` if the server is disabled or the system chooses the port.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Disabled => None,
            Self::AllInterfaces(port) | Self::Host(_, port) => Some(*port).filter(|port| *port != 0),
        }
    }
}

/// The error for a text that is not an address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid address {0:?}: use host:port, :port for all interfaces, or 0 for no server")]
pub struct AddressError(String);

impl FromStr for BindAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(text.into());
        if matches!(text, "" | "0") {
            return Ok(Self::Disabled);
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().map_err(|_| error())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match bracketed.unwrap_or(host) {
            "" => Ok(Self::AllInterfaces(port)),
            host if bracketed.is_none() && host.contains([':', '[', ']', '/', ' ']) => Err(error()),
            host => Ok(Self::Host(host.into(), port)),
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("0"),
            Self::AllInterfaces(port) => write!(f, ":{port}"),
            Self::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_in_go() {
        let host = |host: &str, port| Ok(BindAddress::Host(host.into(), port));
        for (text, expected) in [
            ("0", Ok(BindAddress::Disabled)),
            ("", Ok(BindAddress::Disabled)),
            (":8080", Ok(BindAddress::AllInterfaces(8080))),
            ("127.0.0.1:0", host("127.0.0.1", 0)),
            ("localhost:8081", host("localhost", 8081)),
            ("[::1]:8081", host("::1", 8081)),
        ] {
            assert_eq!(text.parse::<BindAddress>(), expected, "{text}");
            if let Ok(address) = expected
                && !text.is_empty()
            {
                assert_eq!(address.to_string(), text);
            }
        }
        for text in ["8080", ":http", ":65536", "::1:8081", "http://localhost:1", "localhost:", " :1"] {
            assert_eq!(text.parse::<BindAddress>(), Err(AddressError(text.into())), "{text}");
        }
    }
}
