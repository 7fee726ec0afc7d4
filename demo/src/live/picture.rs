//! An SVG picture of a buffer of cells.

use std::fmt::Write;

use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
};

/// The size of a cell in SVG units: as wide as a character of [`FONT_SIZE`] in common fonts, and as high as needed for
/// frames to join between rows.
const CELL: (f64, f64) = (8.0, 16.0);
const FONT_SIZE: f64 = 13.29;
/// The margin around the cells.
const MARGIN: f64 = 16.0;
const PAPER: &str = "#11151c";
const INK: &str = "#d8dee6";

/// Draws the cells as a terminal would.
pub(crate) fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (width, height) =
        (f64::from(area.width).mul_add(CELL.0, 2.0 * MARGIN), f64::from(area.height).mul_add(CELL.1, 2.0 * MARGIN));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\" aria-label=\"cargo demo\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" \
         fill=\"{PAPER}\"/>\n<g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"{FONT_SIZE}\" xml:space=\"preserve\">\n"
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let first = &buffer[(x, y)];
            let run = (x..area.width).take_while(|&next| looks_like(&buffer[(next, y)], first)).count();
            let end = x + u16::try_from(run).unwrap_or(1).max(1);
            let text: String = (x..end).map(|at| buffer[(at, y)].symbol()).collect();
            write_run(&mut svg, (x, y), end - x, &text, first);
            x = end;
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn looks_like(one: &Cell, other: &Cell) -> bool {
    (one.fg, one.bg, one.modifier) == (other.fg, other.bg, other.modifier)
}

/// Draws cells of one style. Their total length is specified, so that they are aligned in any font.
fn write_run(svg: &mut String, (x, y): (u16, u16), cells: u16, text: &str, style: &Cell) {
    let reversed = style.modifier.contains(Modifier::REVERSED);
    let (left, top) = (f64::from(x).mul_add(CELL.0, MARGIN), f64::from(y).mul_add(CELL.1, MARGIN));
    let width = f64::from(cells) * CELL.0;
    // Writing to a string can't fail.
    if reversed {
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{INK}\"/>",
            CELL.1
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let ink = if reversed { PAPER } else { colour(style.fg) };
    let weight = if style.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let opacity = if style.modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(' ', "\u{a0}");
    let _ = writeln!(
        svg,
        "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" fill=\"{ink}\"{weight}{opacity}>{text}</text>",
        top + 12.5
    );
}

fn colour(colour: Color) -> &'static str {
    match colour {
        Color::Green => "#7ccf8a",
        Color::Yellow => "#e3c069",
        Color::Red => "#ef7f7f",
        Color::Cyan => "#78c6d8",
        _ => INK,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::{layout::Rect, style::Style};

    use super::*;

    #[test]
    fn cells_stand_in_their_columns_and_text_is_escaped() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 2));
        buffer.set_string(2, 1, "a<b", Style::new().fg(Color::Green));
        let svg = svg(&buffer);
        assert!(
            svg.contains("<text x=\"32.0\" y=\"44.5\" textLength=\"24.0\" fill=\"#7ccf8a\">a&lt;b</text>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<text").count(), 1);
    }
}
