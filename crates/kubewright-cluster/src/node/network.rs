//! The network of pods: that of the host, or a network namespace for each pod.
//!
//! In a namespace, a pod has its own ports and its own 127.0.0.1, as in Kubernetes. A pair of virtual Ethernet devices
//! connects it with the host. By default its address is still one of the loopback network: where `route_localnet`
//! allows it, Linux routes packets with such addresses, so that the host, the pods and the Services reach each other as
//! they do without namespaces, and no address of another network is taken. Pods and Services may have other ranges
//! ([`AddressRanges`]), which the host doesn't use. Connections to other machines are made by the node ([`egress`]).
//! Pods with such a namespace have their own for inter-process communication, too.
//!
//! `ip`, `nsenter`, `unshare` and a shell do the work, which only root can do. A process, the pod's *sandbox*, keeps
//! the namespace until the pod is gone. It ends with this process, whatever ends that, and the devices and routes end
//! with the namespace.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod};
use kubewright_apimachinery::{cidr::Cidr, clock::SharedClock, random::Random};
use tokio::{io::AsyncReadExt, process::Command, sync::OnceCell, time::timeout};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{
    address::{Addresses, HOST_ADDRESS, Lease},
    dns::DnsServer,
    egress,
    namespace::NetworkNamespace,
    network_policy::{Enforcement, NetworkPolicies},
    process::{CommandLine, Process, Processes},
    process_streams::Stdin,
    proxy::{ListenerContext, Place, Protocol, Route, ServiceListener},
    service_network::ServiceNetwork,
    sysctl,
    view::find_program,
};
use crate::events::{ObjectEvent, Recorder};

/// The network of the pods of a node that runs them as processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodNetwork {
    /// That of the host. Each pod has an address of its own in the loopback network, but two programs can't listen on
    /// the same port of all addresses, and 127.0.0.1 is the same for all pods.
    #[default]
    Host,
    /// A network namespace for each pod whose `hostNetwork` isn't true, as in Kubernetes, with the kernel parameters of
    /// `sysctls`, and an IPC namespace unless `hostIPC` is true. Requires Linux, root, and the programs `ip` (of
    /// iproute2), `nsenter` and `unshare` (of util-linux). Pods reach each other, Services, what listens on the
    /// addresses of this machine except 127.0.0.1, and with the program `nft` (of nftables) other machines, by TCP over
    /// IPv4. There is DNS for all. A pod starts some 20 ms later. Addresses are those of the loopback network unless
    /// ranges are given; programs that refuse such addresses need ranges.
    Namespaces,
}

/// The loopback network.
const LOOPBACK: Cidr = Cidr { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), length: 8 };

/// The ranges of addresses of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRanges {
    /// The range of the pods' addresses; `None` for loopback addresses.
    pub(crate) pods: Option<Cidr>,
    pub(crate) services: Cidr,
}

impl AddressRanges {
    /// Returns the ranges outside of the loopback network. The host routes them into the network namespaces.
    pub(crate) fn others(self) -> impl Iterator<Item = Cidr> {
        let ranges = self.pods.into_iter().chain([self.services]);
        ranges.filter(|range| !range.address.is_loopback()).map(Cidr::aligned)
    }

    /// Returns the ranges of all addresses that are not those of other machines.
    fn inside(self) -> Vec<Cidr> {
        std::iter::once(LOOPBACK).chain(self.others()).collect()
    }
}

/// The addresses of a node and its pods, and what makes them reachable.
pub(crate) struct NodeNetwork {
    pub(crate) addresses: Addresses,
    /// Makes the network namespaces of pods; `None` if they share the host's.
    pub(crate) pods: Option<Arc<PodNetworks>>,
    /// The network namespace for Services; `None` if they are in the network of the host.
    pub(crate) services: Option<ServiceNetwork>,
    /// The server for the queries of pods with namespaces. Without, they find Services by `/etc/hosts` only.
    pub(crate) dns: Option<DnsServer>,
}

impl NodeNetwork {
    /// Prepares the network of a node.
    ///
    /// # Errors
    /// Returns the reason why pods can't have network namespaces, or addresses of a range, if they should.
    pub(crate) async fn open(
        kind: PodNetwork,
        ranges: AddressRanges,
        processes: &Processes,
        random: &Random,
    ) -> Result<Self, String> {
        let local = Addresses::from_somewhere(random);
        let addresses = ranges.pods.map_or_else(|| Ok(local.clone()), Addresses::of_range)?;
        let mut network = Self { addresses, pods: None, services: None, dns: None };
        if kind == PodNetwork::Host {
            return match ranges.pods {
                Some(range) => Err(format!("only pods with network namespaces have addresses of a range ({range})")),
                None => Ok(network),
            };
        }
        let networks = PodNetworks::open(processes.clone(), ranges, local.take(), &network.addresses).await?;
        let networks = Arc::new(networks);
        network.services = match ServiceNetwork::open(networks.clone(), local.take()).await {
            Ok(services) => Some(services),
            Err(why) if ranges.others().next().is_some() => return Err(why),
            Err(why) => {
                tracing::warn!(
                    why,
                    "Services are in the network of the host: what listens on all addresses takes their ports"
                );
                None
            }
        };
        network.pods = Some(networks);
        let server = DnsServer::bind(network.address()).await;
        let server = server.inspect_err(|error| tracing::warn!(%error, "pods have no DNS: port 53 can't be used"));
        network.dns = server.ok();
        Ok(network)
    }

    /// Returns the address of the node, as pods see it.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.pods.as_ref().map_or(HOST_ADDRESS, |networks| networks.node())
    }
}

/// Sets up the network of a pod, and reports `ready`. The arguments are the programs `ip` and `nsenter`, the addresses
/// of the pod and of the node, the name of the host's device, the hardware addresses of the pod's and of the host's
/// device, the program `nft`, if there is one, with its rules, and the ranges of addresses inside of the cluster. Both
/// ends know the hardware address of the other, so that none is asked for: Linux doesn't answer for loopback addresses
/// by default. Without rules there is no route to other machines, to which packets with an address of a pod must not
/// get. The rest of the arguments are files of kernel parameters, each followed by its value.
const SETUP: &str = r#"set -e
"$1" -batch - <<END
link set lo up
address del 127.0.0.1/8 dev lo
address add 127.0.0.1/32 dev lo
link add eth0 address $6 type veth peer name $5 address $7 netns $PPID
END
echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet
[ ! -e /proc/sys/net/ipv6/conf/eth0 ] || echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6
"$1" -batch - <<END
link set eth0 up
address add $3/32 dev eth0
neighbour replace $4 lladdr $7 dev eth0 nud permanent
route add $4/32 dev eth0 src $3
END
for range in ${10}; do "$1" route add $range via $4 src $3; done
[ -z "$8" ] || { "$8" "$9" && "$1" route add default via $4 src $3; }
"$2" --net=/proc/$PPID/ns/net -- "$0" -ec '
[ ! -e /proc/sys/net/ipv6/conf/$5 ] || echo 1 >/proc/sys/net/ipv6/conf/$5/disable_ipv6
echo 1 >/proc/sys/net/ipv4/conf/$5/route_localnet
echo 1 >/proc/sys/net/ipv4/conf/$5/forwarding
"$1" -batch - <<END
link set $5 up
neighbour replace $3 lladdr $6 dev $5 nud permanent
route add $3/32 dev $5 src $4 table local
END' "$0" "$@"
shift 10
while [ $# -gt 0 ]; do
echo "$2" >"/proc/sys/$1"
shift 2
done
echo ready
exec cat >/dev/null 2>&1"#;

/// The time after which the setup of a pod's network fails.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which the trial of a connection fails.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// Makes the network namespaces of a node's pods.
#[derive(Debug)]
pub(crate) struct PodNetworks {
    pub(super) ip: PathBuf,
    pub(super) nsenter: PathBuf,
    /// Redirects connections to other machines; `None` if pods reach none.
    nft: Option<PathBuf>,
    unshare: PathBuf,
    pub(super) shell: PathBuf,
    processes: Processes,
    ranges: AddressRanges,
    /// The address of the node, as pods see it.
    node: Lease,
    /// The policies for the pods; `None` if they can't be enforced.
    policies: Option<Arc<NetworkPolicies>>,
}

impl PodNetworks {
    /// Finds the programs, and tries to connect two pods with each other and with the host, which takes some 20 ms.
    /// `addresses` are those of pods.
    ///
    /// # Errors
    /// Returns the reason why pods can't have network namespaces.
    pub(crate) async fn open(
        processes: Processes,
        ranges: AddressRanges,
        node: Lease,
        addresses: &Addresses,
    ) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("only Linux has them".into());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("only root can connect them: run the command with sudo".into());
        }
        let program = |name: &str, package: &str| {
            find_program(name).ok_or_else(|| format!("the program `{name}` is missing: install {package}"))
        };
        let mut networks = Self {
            ip: program("ip", "iproute2")?,
            nsenter: program("nsenter", "util-linux")?,
            nft: find_program("nft"),
            unshare: program("unshare", "util-linux")?,
            shell: program("sh", "a shell")?,
            processes,
            ranges,
            node,
            policies: None,
        };
        networks.check_ranges().await?;
        if let Err(why) = networks.try_out(addresses).await {
            let Some(_) = networks.nft.take() else { return Err(why) };
            networks.try_out(addresses).await?;
            tracing::warn!(why, "pods reach no other machine, since connections can't be redirected");
        }
        networks.policies = networks.nft.clone().map(|nft| Arc::new(NetworkPolicies::new(nft, networks.node())));
        Ok(networks)
    }

    /// Returns the address of the node, as pods see it.
    pub(crate) fn node(&self) -> Ipv4Addr {
        self.node.ip()
    }

    /// Returns the policies for the pods; `None` if they can't be enforced, since `nft` doesn't work.
    pub(crate) fn policies(&self) -> Option<&Arc<NetworkPolicies>> {
        self.policies.as_ref()
    }

    /// Returns the ranges of addresses outside of the loopback network.
    pub(super) fn other_ranges(&self) -> impl Iterator<Item = Cidr> {
        self.ranges.others()
    }

    /// Finds out whether the host, or another cluster on it, uses a part of the ranges.
    async fn check_ranges(&self) -> Result<(), String> {
        for range in self.ranges.others() {
            // Routes within the range, and those that contain it.
            for selector in ["root", "match"] {
                let mut command = Command::new(&self.ip);
                command.args(["-4", "-oneline", "route", "show", "table", "all", selector, &range.to_string()]);
                let output = command.kill_on_drop(true).output().await.map_err(|error| error.to_string())?;
                let routes = String::from_utf8_lossy(&output.stdout);
                let is_default = |route: &&str| route.split_whitespace().any(|word| word == "default");
                if let Some(route) = routes.lines().find(|route| !is_default(route)) {
                    return Err(format!(
                        "this host uses addresses of {range} already, with the route `{}`: choose another range",
                        route.trim()
                    ));
                }
            }
        }
        Ok(())
    }

    async fn try_out(&self, addresses: &Addresses) -> Result<(), String> {
        let (one, two) = (addresses.take(), addresses.take());
        let lacking = |why: String| {
            format!(
                "{why} (it takes the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN, and a /proc/sys that can be written)"
            )
        };
        let from = self.create(one.ip(), &Pod::default()).await.map_err(lacking)?;
        let to = self.create(two.ip(), &Pod::default()).await.map_err(lacking)?;
        let listen = |ip: Ipv4Addr| {
            let listener = TcpListener::bind((ip, 0))?;
            listener.set_nonblocking(true)?;
            io::Result::Ok(listener)
        };
        let at_host = listen(self.node());
        let in_pod = to.namespace.run(move || listen(Ipv4Addr::UNSPECIFIED)).await;
        for (listener, ip, what) in [(at_host, self.node(), "the host"), (in_pod, two.ip(), "another pod")] {
            let greeting = async {
                let listener = tokio::net::TcpListener::from_std(listener?)?;
                let address = SocketAddr::from((ip, listener.local_addr()?.port()));
                let (connected, accepted) = tokio::join!(from.namespace.connect(address), listener.accept());
                connected.and(accepted)
            };
            let result = timeout(TRIAL_TIMEOUT, greeting).await;
            if let Err(error) = result.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into())) {
                return Err(format!("a pod can't connect to {what}: {error}; a firewall may be in the way"));
            }
        }
        Ok(())
    }

    /// Makes the namespaces of a pod with this address.
    pub(super) async fn create(&self, address: Ipv4Addr, pod: &Pod) -> Result<Sandbox, String> {
        let [a, b, c, d] = address.octets();
        let hardware = |end: u8| format!("{end:02x}:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        let inside = self.ranges.inside();
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let has_ipc = pod.spec.as_ref().is_none_or(|spec| spec.host_ipc != Some(true));
        let mut argv = vec![text(&self.unshare), "--net".into()];
        argv.extend(has_ipc.then(|| "--ipc".into()));
        argv.extend(["--".into(), text(&self.shell), "-c".into(), SETUP.into()]);
        argv.extend([&self.shell, &self.ip, &self.nsenter].map(text));
        // Locally administered addresses.
        argv.extend([address.to_string(), self.node().to_string(), device(address), hardware(0x02), hardware(0x06)]);
        argv.extend([self.nft.as_ref().map(text).unwrap_or_default(), egress::rules(&inside)]);
        argv.push(inside.iter().map(Cidr::to_string).collect::<Vec<_>>().join(" "));
        argv.extend(sysctl::files(pod).flat_map(|(file, value)| [file, value]));
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".into());
        let environment = vec![("PATH".to_owned(), path)];
        let line = CommandLine::of_node(argv, environment, "/".into());
        let (process, mut streams) =
            self.processes.spawn_with_streams(&line, true, false).map_err(|error| error.to_string())?;
        let mut report = String::new();
        // It ends when the network is ready, or with the process.
        let read = timeout(SETUP_TIMEOUT, streams.stdout.read_to_string(&mut report)).await;
        read.map_err(|_elapsed| "the network isn't ready in time")?.map_err(|error| error.to_string())?;
        if report != "ready\n" {
            let mut why = String::new();
            if let Some(mut stderr) = streams.stderr {
                stderr.read_to_string(&mut why).await.map_err(|error| error.to_string())?;
            }
            return Err(why.trim().replace('\n', "; "));
        }
        let path = |name: &str| PathBuf::from(format!("/proc/{}/ns/{name}", process.id()));
        let ipc = has_ipc.then(|| path("ipc"));
        let namespace = Arc::new(NetworkNamespace { nsenter: self.nsenter.clone(), path: path("net"), ipc });
        Ok(Sandbox { namespace, _process: process, _stdin: streams.stdin })
    }
}

/// Returns the name of the host's device that leads to the namespace with an address.
pub(super) fn device(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("kw{a:02x}{b:02x}{c:02x}{d:02x}")
}

/// A process that keeps a network namespace. Dropping it ends the namespace, once no other process is in it.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) namespace: Arc<NetworkNamespace>,
    _process: Process,
    /// The process ends with its input.
    _stdin: Option<Stdin>,
}

/// The network of one pod, which is made when its first container starts. Dropping it closes the host ports and, once
/// its processes have ended, the namespace.
#[derive(Debug)]
pub(crate) struct PodSandbox {
    networks: Arc<PodNetworks>,
    address: Ipv4Addr,
    parts: OnceCell<NetworkParts>,
}

/// The parts of a pod's network.
#[derive(Debug)]
struct NetworkParts {
    sandbox: Sandbox,
    _policies: Option<Enforcement>,
    _host_ports: Vec<ServiceListener>,
    /// Passes on connections to other machines.
    _egress: Option<AbortOnDropHandle<()>>,
}

/// What the host ports of a pod need.
pub(crate) struct HostPortContext<'a> {
    pub(crate) clock: &'a SharedClock,
    pub(crate) events: &'a Recorder,
    pub(crate) tasks: &'a TaskTracker,
}

impl PodSandbox {
    /// Creates the network of a pod that has no namespace yet.
    pub(crate) fn new(networks: Arc<PodNetworks>, address: Ipv4Addr) -> Self {
        Self { networks, address, parts: OnceCell::new() }
    }

    /// Returns the namespace of the pod. The first call makes it, and opens the host ports.
    pub(crate) async fn namespace(
        &self,
        pod: &Pod,
        host: HostPortContext<'_>,
    ) -> Result<Arc<NetworkNamespace>, String> {
        let make = async {
            let sandbox = self.networks.create(self.address, pod).await?;
            let egress = match &self.networks.nft {
                Some(_) => Some(self.serve_egress(&sandbox, host.tasks).await.map_err(|error| error.to_string())?),
                None => None,
            };
            let policies = match self.networks.policies() {
                Some(policies) => {
                    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                    Some(policies.enforce(uid, self.address, sandbox.namespace.clone()).await?)
                }
                None => None,
            };
            let host_ports = self.open_host_ports(pod, host);
            Ok::<_, String>(NetworkParts { sandbox, _policies: policies, _host_ports: host_ports, _egress: egress })
        };
        self.parts.get_or_try_init(|| make).await.map(|parts| parts.sandbox.namespace.clone())
    }

    /// Passes on connections to other machines.
    async fn serve_egress(&self, sandbox: &Sandbox, tasks: &TaskTracker) -> io::Result<AbortOnDropHandle<()>> {
        let listener = tokio::net::TcpListener::from_std(sandbox.namespace.run(egress::bind).await?)?;
        Ok(AbortOnDropHandle::new(tasks.spawn(egress::serve(listener))))
    }

    /// Opens the host ports of a pod, which lead to its container ports. They are at the node's address and at
    /// 127.0.0.1, if the pod doesn't choose an address.
    fn open_host_ports(&self, pod: &Pod, host: HostPortContext<'_>) -> Vec<ServiceListener> {
        let ports = host_ports(pod, [Ipv4Addr::LOCALHOST, self.networks.node()]).into_iter();
        ports
            .map(|(protocol, address, port)| {
                let route = Route { endpoints: vec![SocketAddr::from((self.address, port))], affinity: None };
                let (events, pod) = (host.events.clone(), pod.clone());
                let on_failure = move |error: &io::Error| {
                    let message =
                        format!("failed to listen on the host port {address}: {error}. Retrying every few seconds");
                    events.record(ObjectEvent::of_pod(&pod, true, "PortNotAvailable", message));
                };
                let policies = self.networks.policies().cloned();
                let context = ListenerContext { clock: host.clock.clone(), tasks: host.tasks.clone(), policies };
                ServiceListener::open((protocol, address), Place::Host, route, context, on_failure)
            })
            .collect()
    }
}

/// Returns the addresses of a pod's host ports, with the container port of each.
fn host_ports(pod: &Pod, node: [Ipv4Addr; 2]) -> Vec<(Protocol, SocketAddr, u16)> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let all = init.iter().chain(main).flat_map(ports);
    all.flat_map(|port| {
        let protocol = match port.protocol.as_deref() {
            None | Some("TCP") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some(_) => None,
        };
        let number = |port: i32| u16::try_from(port).ok().filter(|port| *port != 0);
        let ports = port.host_port.and_then(number).zip(number(port.container_port)).zip(protocol);
        let given: Option<IpAddr> = port.host_ip.as_deref().and_then(|ip| ip.parse().ok());
        let at = given.filter(|ip| !ip.is_unspecified()).map_or_else(|| node.map(IpAddr::from).to_vec(), |ip| vec![ip]);
        let to = move |((outer, inner), protocol), ip| (protocol, SocketAddr::new(ip, outer), inner);
        at.into_iter().filter_map(move |ip| ports.map(|ports| to(ports, ip)))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn host_ports_lead_to_container_ports() {
        let spec = json!({"containers": [
            {"name": "web", "ports": [
                {"containerPort": 80, "hostPort": 8080}, {"containerPort": 81},
                {"containerPort": 82, "hostPort": 8082, "protocol": "UDP"},
                {"containerPort": 83, "hostPort": 8083, "hostIP": "127.0.0.9"},
            ]},
        ]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let found = host_ports(&pod, [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 5, 0, 1)]);
        let found: Vec<_> =
            found.iter().map(|(protocol, address, port)| format!("{protocol:?} {address} {port}")).collect();
        assert_eq!(
            found,
            [
                "Tcp 127.0.0.1:8080 80",
                "Tcp 127.5.0.1:8080 80",
                "Udp 127.0.0.1:8082 82",
                "Udp 127.5.0.1:8082 82",
                "Tcp 127.0.0.9:8083 83",
            ]
        );
    }
}
