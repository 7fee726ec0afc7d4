//! The addresses of pods. On Linux each pod has its own address in the host's loopback network, so that several pods
//! can use the same port.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use kubewright_apimachinery::{cidr::Cidr, random::Random};
use parking_lot::Mutex;

/// The base of the loopback addresses. 127.0.0.0/16 is left to other programs on the host, and addresses above
/// 127.95.0.0/16 are reserved for services.
const LOOPBACK_BASE: u32 = u32::from_be_bytes([127, 1, 0, 0]);
/// The number of loopback addresses.
const LOOPBACK_COUNT: u32 = 0x005e_ffff;
/// The address of the node, if the pods are in the network of the host.
pub(crate) const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The lengths of a range for pods.
const LENGTHS: std::ops::RangeInclusive<u8> = 8..=28;

/// The addresses in use. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The address before the first one.
    base: u32,
    count: u32,
    pool: Arc<Mutex<AddressPool>>,
}

#[derive(Debug, Default)]
struct AddressPool {
    taken: BTreeSet<u32>,
    last: u32,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { base: LOOPBACK_BASE, count: LOOPBACK_COUNT, pool: Arc::default() }
    }
}

/// An address that is returned to the pool when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    offset: u32,
    addresses: Addresses,
}

impl Addresses {
    /// Creates a pool of loopback addresses that starts at a random one, since other clusters on this host use the
    /// same range.
    pub(crate) fn from_somewhere(random: &Random) -> Self {
        let addresses = Self::default();
        addresses.pool.lock().last = u32::try_from(random.u64() % u64::from(LOOPBACK_COUNT)).unwrap_or_default();
        addresses
    }

    /// Creates a pool with the addresses of a range.
    ///
    /// # Errors
    /// Returns the reason why pods can't have them.
    pub(crate) fn of_range(range: Cidr) -> Result<Self, String> {
        match range.aligned().address {
            IpAddr::V4(network) if LENGTHS.contains(&range.length) => {
                let count = (u32::MAX >> range.length) - 1;
                Ok(Self { base: network.to_bits(), count, pool: Arc::default() })
            }
            _ => Err(format!(
                "the range of pods' addresses {range} is not one of IPv4 with a length from {} to {}",
                LENGTHS.start(),
                LENGTHS.end()
            )),
        }
    }

    /// Takes an address. Returned addresses are reused last.
    pub(crate) fn take(&self) -> Lease {
        let mut used = self.pool.lock();
        let mut offset = used.last;
        loop {
            offset = offset % self.count + 1;
            // If all addresses are taken, sharing one is better than not running the pod.
            if used.taken.insert(offset) || used.taken.len() >= self.count as usize {
                break;
            }
        }
        used.last = offset;
        drop(used);
        Lease { offset, addresses: self.clone() }
    }
}

impl Lease {
    /// Returns the address.
    pub(crate) fn ip(&self) -> Ipv4Addr {
        if cfg!(target_os = "linux") { Ipv4Addr::from(self.addresses.base + self.offset) } else { Ipv4Addr::LOCALHOST }
    }

    /// Formats the address.
    pub(crate) fn address(&self) -> String {
        self.ip().to_string()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.addresses.pool.lock().taken.remove(&self.offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_has_its_own() {
        let addresses = Addresses::default();
        let (one, two) = (addresses.take(), addresses.take());
        assert_ne!(one.address(), two.address());
        drop(one);
        assert_eq!(addresses.pool.lock().taken.len(), 1);
        assert_eq!(addresses.take().offset, 3, "what was given back rests first");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_range_has_all_addresses_but_the_first_and_the_last() {
        let range = |text: &str| Cidr::parse(text).map(Addresses::of_range).expect("a range");
        let addresses = range("10.244.0.17/28").expect("a pool");
        let leases: Vec<_> = (0..14).map(|_| addresses.take()).collect();
        assert_eq!(leases[0].address(), "10.244.0.17");
        assert_eq!(leases[13].address(), "10.244.0.30");
        for text in ["10.0.0.0/7", "10.0.0.0/29", "fd00::/16"] {
            let why = range(text).expect_err("refused");
            assert!(why.contains(text), "{why}");
        }
    }
}
