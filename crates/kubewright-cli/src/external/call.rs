//! Calls of plugins: the request is JSON on standard input, and the response is JSON on standard output. Standard error
//! is passed through.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::external::{Request, Response};

use super::Plugin;

/// The maximum size of a response in bytes, about a thousand times the size of a project's files.
const LONGEST_RESPONSE: u64 = 64 << 20;

/// Calls a plugin in the directory of the project. If no directory is given, the plugin's standard error is discarded.
pub(super) fn call(plugin: &Plugin, request: &Request<'_>, folder: Option<&Path>) -> Result<Response> {
    let question = serde_json::to_vec(request).context("write the request")?;
    let mut command = Command::new(&plugin.program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    match folder {
        Some(folder) => command.current_dir(folder).stderr(Stdio::inherit()),
        None => command.stderr(Stdio::null()),
    };
    let mut child = command.spawn().with_context(|| format!("run {}", plugin.program.display()))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let mut printed = Vec::new();
    let read = thread::scope(|scope| {
        // Uses another thread, since a plugin may write before it has read everything. A plugin that reads nothing can
        // still respond.
        scope.spawn(move || input.map(|mut input| input.write_all(&question)));
        let read = output.map(|output| output.take(LONGEST_RESPONSE + 1).read_to_end(&mut printed));
        if printed.len() as u64 > LONGEST_RESPONSE {
            let _ = child.kill();
        }
        read.unwrap_or(Ok(0))
    });
    let status = child.wait().context("wait for the plugin")?;
    read.context("read the response")?;
    if printed.len() as u64 > LONGEST_RESPONSE {
        bail!("the response is longer than {} MiB; nothing was written", LONGEST_RESPONSE >> 20);
    }
    if !status.success() {
        bail!("the plugin failed with {status}; nothing was written");
    }
    let printed = String::from_utf8(printed).context("the response is not UTF-8; nothing was written")?;
    Response::read(&printed).context("nothing was written")
}
