//! The ASCII cow and its balloon, in the layout of `cowsay`.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The maximum number of columns in a line of the balloon, as with `cowsay`.
pub const COLUMNS: usize = 40;

/// The cow, with the line to the balloon on the left.
const COW: &str = r"      \
       \   ^__^
        \  (oo)________
           (..)        )~.
             ||---ww--||  *
             ^^       ^^
";

/// The wrapped text and its width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balloon {
    lines: Vec<String>,
    width: usize,
}

impl Balloon {
    /// Wraps a text to [`COLUMNS`] columns, at spaces if possible. Line breaks in the text are kept, and every other
    /// control character counts as a space.
    pub fn of(text: &str) -> Self {
        let text = text.replace("\r\n", "\n").replace('\t', "    ");
        let mut lines: Vec<_> = text.trim_end().split('\n').flat_map(wrapped).collect();
        // Empty lines at the beginning are kept, and those at the end are dropped.
        lines.truncate(lines.iter().rposition(|line| !line.is_empty()).map_or(1, |last| last + 1));
        let width = lines.iter().map(|line| line.width()).max().unwrap_or(0);
        Self { lines, width }
    }

    /// Returns the lines without padding.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// Returns the width of the widest line on a terminal.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the left and right edge of each line: `< >` for a single one, `/ \`, `| |` and `\ /` for several.
    pub fn edges(&self) -> impl Iterator<Item = (char, char)> {
        let last = self.lines.len().saturating_sub(1);
        (0..=last).map(move |line| match line {
            _ if last == 0 => ('<', '>'),
            0 => ('/', '\\'),
            _ if line == last => ('\\', '/'),
            _ => ('|', '|'),
        })
    }

    /// Returns the upper edge.
    pub fn top(&self) -> String {
        format!(" {} ", "_".repeat(self.width + 2))
    }

    /// Returns the lower edge.
    pub fn bottom(&self) -> String {
        format!(" {} ", "-".repeat(self.width + 2))
    }

    /// Returns the cow below the balloon.
    pub fn cow(&self) -> &'static str {
        COW
    }

    /// Returns balloon and cow as lines for a terminal.
    pub fn drawing(&self) -> String {
        let lines = self.lines().zip(self.edges()).map(|(line, (left, right))| {
            let padding = " ".repeat(self.width - line.width());
            format!("{left} {line}{padding} {right}\n")
        });
        format!("{}\n{}{}\n{COW}", self.top(), lines.collect::<String>(), self.bottom())
    }
}

/// Wraps one line of a text.
fn wrapped(line: &str) -> Vec<String> {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut lines = vec![String::new()];
    // A word with the spaces after it. Spaces at the end of a line are dropped.
    for word in line.trim_end().split_inclusive(' ') {
        let fits = |lines: &[String], width: usize| lines.last().is_some_and(|last| last.width() + width <= COLUMNS);
        let bare = word.trim_end();
        if !fits(&lines, bare.width()) && bare.width() <= COLUMNS {
            lines.push(String::new());
        }
        for grapheme in word.graphemes(true) {
            if !fits(&lines, grapheme.width()) {
                if grapheme == " " {
                    continue;
                }
                lines.push(String::new());
            }
            if let Some(last) = lines.last_mut() {
                last.push_str(grapheme);
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        Balloon::of(text).lines().map(str::to_owned).collect()
    }

    #[test]
    fn one_line() {
        let expected = [" _______ ", "< Hello >", " ------- "].join("\n") + "\n" + COW;
        assert_eq!(Balloon::of("Hello").drawing(), expected);
        assert_eq!(Balloon::of("").drawing().lines().nth(1), Some("<  >"));
    }

    #[test]
    fn several_lines() {
        let text = "Hello, this is a message from the lolcow! It has more to say than one line can hold, and moos.";
        let drawing = Balloon::of(text).drawing();
        let balloon: Vec<_> = drawing.lines().take(5).collect();
        let expected = [
            " __________________________________________ ",
            "/ Hello, this is a message from the        \\",
            "| lolcow! It has more to say than one line |",
            "\\ can hold, and moos.                      /",
            " ------------------------------------------ ",
        ];
        assert_eq!(balloon, expected);
    }

    #[test]
    fn words_that_are_too_long_are_broken() {
        assert_eq!(lines(&"m".repeat(COLUMNS)), ["m".repeat(COLUMNS)]);
        assert_eq!(lines(&"m".repeat(COLUMNS * 2 + 1)), ["m".repeat(COLUMNS), "m".repeat(COLUMNS), "m".into()]);
        assert_eq!(lines(&format!("a {}", "m".repeat(COLUMNS))), ["a".into(), "m".repeat(COLUMNS)]);
        let long = lines(&format!("ab {}", "m".repeat(COLUMNS + 1)));
        assert_eq!(long, [format!("ab {}", "m".repeat(COLUMNS - 3)), "mmmm".into()]);
    }

    #[test]
    fn breaks_and_odd_characters() {
        assert_eq!(lines("one\ntwo\r\n\nthree\n\n"), ["one", "two", "", "three"]);
        assert_eq!(lines("a\u{7}b\tc\u{1b}[31m"), ["a b    c [31m"]);
        assert_eq!(lines("\n"), [""]);
        assert_eq!(lines("  indented"), ["  indented"]);
    }

    #[test]
    fn every_line_is_as_wide_as_the_edges() {
        for text in [
            "漢字かな交じり文の牛は、四十桁で折り返されるべきである。モー。",
            "👩‍👩‍👧‍👦 a family 🇨🇭 a flag, e\u{301} an accent",
            "مرحبا من البقرة",
            &"🐮".repeat(1000),
            &"e\u{301}".repeat(100),
            "a \u{200b}zero width\u{feff}",
        ] {
            let balloon = Balloon::of(text);
            assert!(balloon.width() <= COLUMNS, "{text}");
            let widths: Vec<_> = balloon.drawing().lines().take(balloon.lines.len() + 2).map(|it| it.width()).collect();
            assert!(widths.iter().all(|width| *width == balloon.width() + 4), "{text}: {widths:?}");
        }
    }

    #[test]
    fn characters_that_belong_together_stay_together() {
        let family = "👩‍👩‍👧‍👦";
        let text = format!("{}{family}", "m".repeat(COLUMNS - 1));
        assert_eq!(lines(&text), ["m".repeat(COLUMNS - 1), family.into()]);
    }
}
