//! The live view: what the cluster tells, on the screen, until Ctrl-C.

mod model;
mod view;

use std::time::Duration;

use anyhow::{Context, Result};
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyModifiers};
use futures::StreamExt;
use kubewright_apiserver::{Change, ChangeKind, Feed};
use ratatui::DefaultTerminal;

use self::{
    model::Model,
    view::{Surroundings, draw},
};
use crate::stage::Stage;

/// Ages move on even when nothing happens.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// Many changes come at once; more pictures a second than this nobody sees.
const SETTLE: Duration = Duration::from_millis(30);

/// Draws until the user ends it.
pub(crate) async fn view(stage: &Stage) -> Result<()> {
    // `init` also restores the terminal when something panics.
    let mut terminal = ratatui::try_init().context("take over the terminal")?;
    let outcome = watch(stage, &mut terminal).await;
    ratatui::try_restore().context("give the terminal back")?;
    outcome
}

async fn watch(stage: &Stage, terminal: &mut DefaultTerminal) -> Result<()> {
    let mut model = Model::default();
    let mut feed = stage.cluster().api().feed();
    let mut keys = EventStream::new();
    let mut tick = tokio::time::interval(REDRAW_EVERY);
    let kubeconfig = stage.kubeconfig().display().to_string();
    loop {
        let around = Surroundings { kubeconfig: &kubeconfig, now: stage.clock().now() };
        terminal.draw(|frame| draw(frame, &model, &around)).context("draw")?;
        tokio::select! {
            change = feed.next() => {
                take(&mut model, change);
                tokio::time::sleep(SETTLE).await;
                drain(&mut model, &mut feed);
            }
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if ends(key) => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error).context("read the keyboard"),
                None => return Ok(()),
            },
            _ = tick.tick() => {}
        }
    }
}

/// Raw mode hands Ctrl-C to us as a key.
fn ends(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

fn drain(model: &mut Model, feed: &mut Feed) {
    while let Some(change) = feed.try_next().transpose() {
        take(model, change);
    }
}

fn take(model: &mut Model, change: Result<Change, kubewright_apiserver::Lagged>) {
    match change {
        Ok(change) => model.take(&change.object, change.kind == ChangeKind::Deleted),
        // The feed begins anew with all that exists.
        Err(_) => *model = Model::default(),
    }
}

/// Without a terminal: a line for every change of a resource's or pod's state, until a signal comes.
pub(crate) async fn print(stage: &Stage) -> Result<()> {
    let mut model = Model::default();
    let mut feed = stage.cluster().api().feed();
    let mut shown = Vec::new();
    loop {
        let change = feed.next().await;
        take(&mut model, change);
        drain(&mut model, &mut feed);
        let lines: Vec<_> =
            model.tree(stage.clock().now()).into_iter().map(|line| format!("{} {}", line.name, line.state)).collect();
        for line in lines.iter().filter(|line| !shown.contains(*line)) {
            println!("{line}");
        }
        shown = lines;
    }
}
