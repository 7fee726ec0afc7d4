//! The addresses of pods. On Linux each pod has its own address in the host's loopback network, so that several pods
//! can use the same port.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use kubewright_apimachinery::random::Random;
use parking_lot::Mutex;

/// The base of the addresses. 127.0.0.0/16 is left to other programs on the host, and addresses above 127.95.0.0/16 are
/// reserved for services.
const BASE: u32 = u32::from_be_bytes([127, 1, 0, 0]);
/// The address of the node, if the pods are in the network of the host.
pub(crate) const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The number of addresses.
const COUNT: u32 = 0x005e_ffff;

/// The addresses in use. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(Arc<Mutex<AddressPool>>);

#[derive(Debug, Default)]
struct AddressPool {
    taken: BTreeSet<u32>,
    last: u32,
}

/// An address that is returned to the pool when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    offset: u32,
    addresses: Addresses,
}

impl Addresses {
    /// Creates a pool that starts at a random address, since other clusters on this host use the same range.
    pub(crate) fn from_somewhere(random: &Random) -> Self {
        let last = u32::try_from(random.u64() % u64::from(COUNT)).unwrap_or_default();
        Self(Arc::new(Mutex::new(AddressPool { last, ..AddressPool::default() })))
    }

    /// Takes an address. Returned addresses are reused last.
    pub(crate) fn take(&self) -> Lease {
        let mut used = self.0.lock();
        let mut offset = used.last;
        loop {
            offset = offset % COUNT + 1;
            // If all addresses are taken, sharing one is better than not running the pod.
            if used.taken.insert(offset) || used.taken.len() >= COUNT as usize {
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
        if cfg!(target_os = "linux") { Ipv4Addr::from(BASE + self.offset) } else { Ipv4Addr::LOCALHOST }
    }

    /// Formats the address.
    pub(crate) fn address(&self) -> String {
        self.ip().to_string()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.addresses.0.lock().taken.remove(&self.offset);
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
        assert_eq!(addresses.0.lock().taken.len(), 1);
        assert_eq!(addresses.take().offset, 3, "what was given back rests first");
    }
}
