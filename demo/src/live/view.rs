//! Drawing of the live view: lines are input, cells are output.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line as Text, Span},
    widgets::{Block, Cell, Paragraph, Row, Table},
};

use super::{
    model::{EventLine, Line, Model},
    state::Health,
};

/// The parts of the view outside of the model.
pub(crate) struct ViewContext<'a> {
    /// The path of the kubeconfig.
    pub(crate) kubeconfig: &'a str,
    /// The time, for ages.
    pub(crate) now: jiff::Timestamp,
    /// The number of lines by which the tree is scrolled.
    pub(crate) scrolled: usize,
}

/// Draws the whole view.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, view: &ViewContext<'_>) {
    let tree = model.tree(view.now);
    let [head, resources, events, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(8),
        Constraint::Max(events_height(frame.area(), tree.len())),
        Constraint::Length(3),
    ])
    .areas(frame.area());
    frame.render_widget(heading(view), head);
    draw_tree(frame, &tree, view.scrolled, resources);
    draw_events(frame, model, events);
    frame.render_widget(footing(), foot);
}

/// Returns the height that the tree leaves for the events, at least a quarter of the area.
fn events_height(area: Rect, lines: usize) -> u16 {
    // The header, the footer, and the tree's frame and heading.
    let tree = u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2 + 3 + 3);
    area.height.saturating_sub(tree).max(area.height / 4)
}

fn heading(view: &ViewContext<'_>) -> Paragraph<'static> {
    Paragraph::new(vec![
        Text::from(vec![
            Span::from(" Kubewright ").bold().reversed(),
            Span::from("  five operators in one manager, on an embedded cluster"),
        ]),
        Text::from(format!(" export KUBECONFIG={}", view.kubeconfig)),
    ])
}

fn footing() -> Paragraph<'static> {
    let key = Style::new().add_modifier(Modifier::BOLD);
    Paragraph::new(vec![
        Text::from(" From another shell, for instance:"),
        Text::from(
            " kubectl scale podset.app.example.com/podset-sample --replicas=5    kubectl edit lolcow    kubectl describe tcj",
        ),
        Text::from(vec![
            Span::styled(" q", key),
            Span::from(" or "),
            Span::styled("Ctrl-C", key),
            Span::from(" ends, and nothing stays behind; "),
            Span::styled("↑ ↓", key),
            Span::from(" scroll"),
        ]),
    ])
}

fn draw_tree(frame: &mut Frame<'_>, lines: &[Line], scrolled: usize, area: Rect) {
    let rows = lines.iter().skip(scrolled).map(|line| {
        let style = Style::new().fg(colour(line.health));
        let name = if line.depth == 0 {
            Span::from(line.name.clone()).bold()
        } else {
            Span::from(format!("{}└ {}", "  ".repeat(line.depth), line.name))
        };
        Row::new([
            Cell::from(name),
            Cell::from(line.state.clone()).style(style),
            Cell::from(line.conditions.clone()),
            Cell::from(human_age(line.age)),
        ])
    });
    let widths = [Constraint::Length(38), Constraint::Fill(3), Constraint::Fill(2), Constraint::Length(4)];
    let table = Table::new(rows, widths)
        .header(Row::new(["NAME", "STATE", "CONDITIONS", "AGE"]).style(Style::new().dim()))
        .block(Block::bordered().title(" Resources and what they own "));
    frame.render_widget(table, area);
}

fn draw_events(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows =
        model.events().take(usize::from(area.height)).map(|EventLine { warning, about, reason, message, .. }| {
            let style = if *warning { Style::new().fg(Color::Yellow) } else { Style::new() };
            Row::new([about.clone(), reason.clone(), message.clone()]).style(style)
        });
    let widths = [Constraint::Length(38), Constraint::Length(20), Constraint::Fill(1)];
    let table = Table::new(rows, widths)
        .header(Row::new(["ABOUT", "REASON", "MESSAGE"]).style(Style::new().dim()))
        .block(Block::bordered().title(" Events, newest first "));
    frame.render_widget(table, area);
}

fn colour(health: Health) -> Color {
    match health {
        Health::Good => Color::Green,
        Health::Waiting => Color::Yellow,
        Health::Bad => Color::Red,
    }
}

fn human_age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}
