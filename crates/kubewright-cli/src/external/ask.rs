//! A plugin asked: JSON to its standard input, JSON from its standard output. What it tells people goes to standard error as it is.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, bail};
use kubewright_scaffold::external::{Request, Response};

use super::Plugin;

/// How many bytes an answer may have. A project's files come near a thousandth of it.
const LONGEST: u64 = 64 << 20;

/// Asks, in the project's folder. Without one it is only a question, and what it tells people is not for them.
pub(super) fn ask(plugin: &Plugin, request: &Request<'_>, folder: Option<&Path>) -> Result<Response> {
    let question = serde_json::to_vec(request).context("put the question")?;
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
        // Beside reading: a plugin may print before it has read all. One that reads nothing has its reasons: its answer counts.
        scope.spawn(move || input.map(|mut input| input.write_all(&question)));
        let read = output.map(|output| output.take(LONGEST + 1).read_to_end(&mut printed));
        if printed.len() as u64 > LONGEST {
            let _ = child.kill();
        }
        read.unwrap_or(Ok(0))
    });
    let status = child.wait().context("wait for it")?;
    read.context("read its answer")?;
    if printed.len() as u64 > LONGEST {
        bail!("its answer is longer than {} MiB. Nothing was written", LONGEST >> 20);
    }
    if !status.success() {
        bail!("it ended with {status}. Nothing was written");
    }
    let printed = String::from_utf8(printed).context("its answer is no text. Nothing was written")?;
    Response::read(&printed).context("nothing was written")
}
