//! The live view: what the cluster tells, on the screen, until Ctrl-C.

mod model;
mod picture;
mod state;
mod view;

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyModifiers};
use futures::StreamExt;
use kubewright_apimachinery::clock::Clock;
use kubewright_apiserver::{Change, ChangeKind, Feed};
use ratatui::{DefaultTerminal, Terminal, backend::TestBackend};

use self::{
    model::Model,
    view::{Surroundings, draw},
};
use crate::stage::Stage;

/// Ages move on even when nothing happens.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// Many changes come at once; more pictures a second than this nobody sees.
const SETTLE: Duration = Duration::from_millis(30);

/// The size of a picture, in cells.
const PICTURE: (u16, u16) = (150, 46);
/// How long the samples may take to settle, for a picture.
const PATIENCE: Duration = Duration::from_secs(90);

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
    let mut scrolled = 0_usize;
    loop {
        let now = stage.clock().now();
        scrolled = scrolled.min(model.tree(now).len().saturating_sub(1));
        let around = Surroundings { kubeconfig: &kubeconfig, now, scrolled };
        terminal.draw(|frame| draw(frame, &model, &around)).context("draw")?;
        tokio::select! {
            change = feed.next() => {
                take(&mut model, change);
                tokio::time::sleep(SETTLE).await;
                drain(&mut model, &mut feed);
            }
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) if ends(key) => return Ok(()),
                Some(Ok(Event::Key(KeyEvent { code: KeyCode::Up, .. }))) => scrolled = scrolled.saturating_sub(1),
                Some(Ok(Event::Key(KeyEvent { code: KeyCode::Down, .. }))) => scrolled += 1,
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

/// Writes a picture of the view, as it is once all samples are settled and the CronJob has run.
pub(crate) async fn snapshot(stage: &Stage, file: &Path) -> Result<()> {
    let mut model = Model::default();
    let mut feed = stage.cluster().api().feed();
    eprintln!("waiting for the samples to settle");
    // Its next run needn't be waited for.
    stage.to_the_next_minute()?;
    let settled = async {
        while !model.is_settled() {
            let change = feed.next().await;
            take(&mut model, change);
        }
    };
    let came = tokio::time::timeout(PATIENCE, settled).await;
    came.with_context(|| format!("the samples have not settled after {} s", PATIENCE.as_secs()))?;
    // What is under way is not cut in half.
    tokio::time::sleep(REDRAW_EVERY).await;
    drain(&mut model, &mut feed);
    let kubeconfig = stage.kubeconfig().display().to_string();
    let around = Surroundings { kubeconfig: &kubeconfig, now: stage.clock().now(), scrolled: 0 };
    let mut terminal = Terminal::new(TestBackend::new(PICTURE.0, PICTURE.1)).context("make a picture")?;
    terminal.draw(|frame| draw(frame, &model, &around)).context("draw")?;
    let picture = picture::svg(terminal.backend().buffer());
    tokio::fs::write(file, picture).await.with_context(|| format!("write {}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}
