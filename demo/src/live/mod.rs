//! The live view of the cluster, until Ctrl-C.

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
    view::{ViewContext, draw},
};
use crate::environment::Environment;

/// The interval in which ages are updated.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// The delay between a change and drawing the view, since many changes arrive at once.
const SETTLE: Duration = Duration::from_millis(30);

/// The size of a picture in cells.
const PICTURE: (u16, u16) = (150, 46);
/// The timeout for the samples to settle, for a picture.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Draws until the user quits.
pub(crate) async fn view(environment: &Environment) -> Result<()> {
    // `init` also restores the terminal after a panic.
    let mut terminal = ratatui::try_init().context("take over the terminal")?;
    let outcome = watch(environment, &mut terminal).await;
    ratatui::try_restore().context("give the terminal back")?;
    outcome
}

async fn watch(environment: &Environment, terminal: &mut DefaultTerminal) -> Result<()> {
    let mut model = Model::default();
    let mut feed = environment.cluster().api().feed();
    let mut keys = EventStream::new();
    let mut tick = tokio::time::interval(REDRAW_EVERY);
    let kubeconfig = environment.kubeconfig().display().to_string();
    let mut scrolled = 0_usize;
    loop {
        let now = environment.clock().now();
        scrolled = scrolled.min(model.tree(now).len().saturating_sub(1));
        let view = ViewContext { kubeconfig: &kubeconfig, now, scrolled };
        terminal.draw(|frame| draw(frame, &model, &view)).context("draw")?;
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

/// Returns whether a key quits the view. In raw mode Ctrl-C is an ordinary key.
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
        Ok(change) => model.take(change.object(), change.kind == ChangeKind::Deleted),
        // The feed restarts with a snapshot.
        Err(_) => *model = Model::default(),
    }
}

/// Prints a line for every change of a resource's or pod's state, without a terminal, until a signal arrives.
pub(crate) async fn print(environment: &Environment) -> Result<()> {
    let mut model = Model::default();
    let mut feed = environment.cluster().api().feed();
    let mut shown = Vec::new();
    loop {
        let change = feed.next().await;
        take(&mut model, change);
        drain(&mut model, &mut feed);
        let lines: Vec<_> = model
            .tree(environment.clock().now())
            .into_iter()
            .map(|line| format!("{} {}", line.name, line.state))
            .collect();
        for line in lines.iter().filter(|line| !shown.contains(*line)) {
            println!("{line}");
        }
        shown = lines;
    }
}

/// Processes changes until the model meets a condition.
async fn wait_until(model: &mut Model, feed: &mut Feed, condition: fn(&Model) -> bool) {
    while !condition(model) {
        let change = feed.next().await;
        take(model, change);
    }
}

/// Writes a picture of the view once all samples are settled and the CronJob has run.
pub(crate) async fn snapshot(environment: &Environment, file: &Path) -> Result<()> {
    let mut model = Model::default();
    let mut feed = environment.cluster().api().feed();
    eprintln!("waiting for the samples to settle");
    let settled = async {
        wait_until(&mut model, &mut feed, Model::is_ready).await;
        // Advances the clock to the CronJob's next run. Anything created after that would look younger than the rest.
        environment.to_the_next_minute()?;
        wait_until(&mut model, &mut feed, Model::has_cronjob_run).await;
        anyhow::Ok(())
    };
    let came = tokio::time::timeout(TIMEOUT, settled).await;
    came.with_context(|| format!("the samples have not settled after {} s", TIMEOUT.as_secs()))??;
    // Waits for changes in progress.
    tokio::time::sleep(REDRAW_EVERY).await;
    drain(&mut model, &mut feed);
    let kubeconfig = environment.kubeconfig().display().to_string();
    let view = ViewContext { kubeconfig: &kubeconfig, now: environment.clock().now(), scrolled: 0 };
    let mut terminal = Terminal::new(TestBackend::new(PICTURE.0, PICTURE.1)).context("make a picture")?;
    terminal.draw(|frame| draw(frame, &model, &view)).context("draw")?;
    let picture = picture::svg(terminal.backend().buffer());
    tokio::fs::write(file, picture).await.with_context(|| format!("write {}", file.display()))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}
