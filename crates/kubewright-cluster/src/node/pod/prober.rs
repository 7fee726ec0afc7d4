//! Execution of a container's probes and lifecycle hooks.

use std::{io, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{ChildStderr, ChildStdout},
    time::{sleep, timeout},
};

use super::{
    grpc,
    http_target::{ProbeResponse, Target, connect},
    probe::ProbeResult,
};
use crate::node::process::{CommandLine, Processes, exit_code};

/// The maximum length of a command's output in messages, as in the kubelet.
const OUTPUT: u64 = 10 << 10;
/// The timeout of a hook: none. The end of its pod or container ends it.
const HOOK: Duration = Duration::MAX;
/// The user agents of probes and hooks, by which programs tell them from other requests.
pub(super) const PROBE_AGENT: &str = "kube-probe/1.36";
const LIFECYCLE_AGENT: &str = "kube-lifecycle/1.36";
/// The number of requests after which redirects aren't followed any more.
const REDIRECTS: usize = 10;

/// Runs the probes and hooks of a container.
#[derive(Clone, Debug)]
pub(crate) struct Prober {
    /// Starts commands.
    pub(crate) processes: Processes,
    /// The container.
    pub(crate) container: Container,
    /// The environment, working directory and namespaces of commands in the container; each has other arguments.
    pub(crate) line: CommandLine,
    /// The pod's address.
    pub(crate) address: String,
}

impl Prober {
    /// Runs a probe.
    pub(crate) async fn probe(&self, probe: &Probe) -> ProbeResult {
        let limit =
            Duration::from_secs(probe.timeout_seconds.and_then(|limit| limit.try_into().ok()).unwrap_or(1).max(1));
        if let Some(exec) = &probe.exec {
            return self.exec(exec.command.as_deref().unwrap_or_default(), limit).await;
        }
        if let Some(get) = &probe.http_get {
            return self.http_get(get, limit).await;
        }
        if let Some(socket) = &probe.tcp_socket {
            return self.tcp_socket(socket.host.as_deref(), &socket.port, limit).await;
        }
        match &probe.grpc {
            Some(action) => {
                let place = format!("{}:{}", self.address, action.port);
                grpc::check(&place, action.service.as_deref().unwrap_or_default(), limit).await
            }
            None => ProbeResult::Unknown("the probe has no handler".into()),
        }
    }

    /// Executes a hook. The error is meant for the pod's events.
    pub(crate) async fn hook(&self, hook: &LifecycleHandler) -> Result<(), String> {
        let outcome = if let Some(exec) = &hook.exec {
            self.exec(exec.command.as_deref().unwrap_or_default(), HOOK).await
        } else if let Some(get) = &hook.http_get {
            // Any response is a success.
            match self.exchange(get, LIFECYCLE_AGENT, HOOK).await {
                Ok(_) => ProbeResult::Success,
                Err(result) => result,
            }
        } else if let Some(pause) = &hook.sleep {
            sleep(Duration::from_secs(pause.seconds.try_into().unwrap_or_default())).await;
            ProbeResult::Success
        } else {
            ProbeResult::Unknown("unsupported kind of hook".into())
        };
        match outcome {
            ProbeResult::Success | ProbeResult::Warning(_) => Ok(()),
            ProbeResult::Failure(why) | ProbeResult::Unknown(why) => Err(why),
        }
    }

    /// Runs a command in the container's environment.
    async fn exec(&self, command: &[String], limit: Duration) -> ProbeResult {
        let line = CommandLine { argv: command.to_vec(), ..self.line.clone() };
        let (process, stdout, stderr) = match self.processes.spawn(&line) {
            Ok(spawned) => spawned,
            Err(error) => return ProbeResult::Unknown(format!("failed to exec in container: {error}")),
        };
        let run = async {
            let (mut text, mut rest) = (Vec::new(), Vec::new());
            let (stdout, stderr) = (ChildStdout::from_std(stdout)?, ChildStderr::from_std(stderr)?);
            let read = async { tokio::join!(read_some(stdout, &mut text), read_some(stderr, &mut rest)) };
            // The output ends with the process, since the rest of its process group is killed then.
            let (_, status) = tokio::join!(read, process.ended());
            text.append(&mut rest);
            Ok::<_, io::Error>((exit_code(status?), String::from_utf8_lossy(&text).into_owned()))
        };
        match timeout(limit, run).await {
            Ok(Ok((0, _))) => ProbeResult::Success,
            Ok(Ok((_, text))) => ProbeResult::Failure(text),
            Ok(Err(error)) => ProbeResult::Unknown(format!("failed to exec in container: {error}")),
            Err(_) => {
                let command = command.join(" ");
                ProbeResult::Failure(format!("command timed out: {command:?} timed out after {}s", limit.as_secs()))
            }
        }
    }

    async fn tcp_socket(&self, host: Option<&str>, port: &IntOrString, limit: Duration) -> ProbeResult {
        let Some(port) = self.port(port) else { return unknown_port(port) };
        let place = format!("{}:{port}", self.host(host));
        match timeout(limit, connect(&place)).await {
            Ok(Ok(_)) => ProbeResult::Success,
            Ok(Err(why)) => ProbeResult::Failure(why),
            Err(_) => ProbeResult::Failure(format!("dial tcp {place}: i/o timeout")),
        }
    }

    /// Executes an HTTP probe. Status codes from 200 to 299 count as success, and others below 400 as a success with a
    /// warning: these are redirects to another host.
    async fn http_get(&self, get: &HTTPGetAction, limit: Duration) -> ProbeResult {
        match self.exchange(get, PROBE_AGENT, limit).await {
            Ok(answer) if (200..300).contains(&answer.code) => ProbeResult::Success,
            Ok(answer) if (300..400).contains(&answer.code) => {
                ProbeResult::Warning(format!("Probe terminated redirects, Response body: {}", answer.body))
            }
            Ok(answer) => ProbeResult::Failure(format!("HTTP probe failed with statuscode: {}", answer.code)),
            Err(result) => result,
        }
    }

    /// Sends an HTTP request, and follows redirects as long as they name the same host. Certificates are not verified.
    async fn exchange(&self, get: &HTTPGetAction, agent: &str, limit: Duration) -> Result<ProbeResponse, ProbeResult> {
        let Some(port) = self.port(&get.port) else { return Err(unknown_port(&get.port)) };
        let path = get.path.as_deref().unwrap_or("/");
        let mut target = Target {
            tls: get.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
            host: self.host(get.host.as_deref()).to_owned(),
            port,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        };
        let follow = async {
            for _ in 0..REDIRECTS {
                let answer = target.get(get, agent).await?;
                match answer.location.as_deref().and_then(|location| target.resolve(location)) {
                    Some(next) if next.host == target.host => target = next,
                    _ => return Ok(answer),
                }
            }
            Err(format!("stopped after {REDIRECTS} redirects"))
        };
        let result = timeout(limit, follow).await.unwrap_or_else(|_| {
            Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into())
        });
        result.map_err(|why| ProbeResult::Failure(format!("Get {:?}: {why}", target.url())))
    }

    fn host<'a>(&'a self, asked: Option<&'a str>) -> &'a str {
        asked.filter(|host| !host.is_empty()).unwrap_or(&self.address)
    }

    /// Returns a port by its number, or by its name among the container's.
    fn port(&self, port: &IntOrString) -> Option<u16> {
        let number = match port {
            IntOrString::Int(number) => *number,
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port);
                named.or_else(|| name.parse().ok())?
            }
        };
        u16::try_from(number).ok().filter(|number| *number != 0)
    }
}

fn unknown_port(port: &IntOrString) -> ProbeResult {
    match port {
        IntOrString::Int(number) => ProbeResult::Unknown(format!("invalid port number: {number}")),
        IntOrString::String(name) => ProbeResult::Unknown(format!("couldn't find port: {name:?}")),
    }
}

/// Reads to the end, and keeps only the beginning.
async fn read_some(stream: impl AsyncRead + Unpin, text: &mut Vec<u8>) {
    let mut head = stream.take(OUTPUT);
    // Output that can't be read is omitted.
    let _read = head.read_to_end(text).await;
    let _rest = tokio::io::copy(&mut head.into_inner(), &mut tokio::io::sink()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agents_have_the_version_of_kubernetes() {
        let version = kubewright_apiserver::VERSION;
        for agent in [PROBE_AGENT, LIFECYCLE_AGENT] {
            let (_, shown) = agent.split_once('/').expect("a version");
            assert!(version.starts_with(&format!("v{shown}.")), "{agent} {version}");
        }
    }
}
