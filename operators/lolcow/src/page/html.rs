//! The page: the balloon and the ASCII cow above an animated picture.
//!
//! A single document without scripts or external resources.

use super::cow::Balloon;

const STYLE: &str = include_str!("page.css");
const PICTURE: &str = include_str!("picture.svg");

/// Returns the document for a text and its balloon.
pub(super) fn document(text: &str, balloon: &Balloon) -> String {
    let label = escaped(&format!("A cow says: {}", text.split_whitespace().collect::<Vec<_>>().join(" ")));
    let title = escaped(&balloon.lines().next().unwrap_or_default().chars().take(60).collect::<String>());
    let (cow, columns, width) = (drawing(balloon), balloon.width() + 4, balloon.width());
    format!(
        r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="dark">
<meta name="theme-color" content="#14103a">
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ctext y='13' font-size='13'%3E🐮%3C/text%3E%3C/svg%3E">
<title>Lolcow: {title}</title>
<style>
{STYLE}</style>
</head>
<body>
<header>
<h1>Lolcow</h1>
</header>
<main>
<pre class="cow" role="img" aria-label="{label}" style="--columns:{columns};--text:{width}">{cow}</pre>
<input type="checkbox" id="still"><label for="still">Hold the picture still</label>
<div class="picture">
{PICTURE}</div>
</main>
<footer>
<p>Moo.</p>
</footer>
</body>
</html>
"##
    )
}

/// Returns the ASCII cow as HTML. Each line of text has a box of its own, of the same width as the others, since no
/// font has a fixed width for all scripts. It also has its own text direction.
fn drawing(balloon: &Balloon) -> String {
    let lines = balloon.lines().zip(balloon.edges()).map(|(line, (left, right))| {
        let edge = |edge: char| escaped(&edge.to_string());
        format!("{} <bdi>{}</bdi> {}\n", edge(left), escaped(line), edge(right))
    });
    let lines: String = lines.collect();
    format!("{}\n{lines}{}\n{}", balloon.top(), balloon.bottom(), escaped(balloon.cow()))
}

/// Escapes a text for an element or a quoted attribute.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> String {
        document(text, &Balloon::of(text))
    }

    #[test]
    fn the_greeting_is_escaped_everywhere() {
        let page = page(r#"</pre><script>alert("1")</script>'&amp;"#);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains(r"&lt;/pre&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&#39;&amp;amp;"));
        assert_eq!(page.matches("</pre>").count(), 1);
    }

    #[test]
    fn it_stands_alone_and_can_be_read_aloud() {
        let page = page("Moo to\nyou");
        for part in
            ["<html lang=\"en\">", "<main>", "<header>", "<footer>", "name=\"viewport\"", "prefers-reduced-motion"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains(r#"role="img" aria-label="A cow says: Moo to you""#), "{page}");
        for foreign in ["<script", "src=", "@import", "url(http", "https:"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn each_line_has_a_box_of_the_same_width() {
        let page = page("漢字 and\nmore");
        assert!(page.contains("style=\"--columns:12;--text:8\""), "{page}");
        assert!(page.contains("/ <bdi>漢字 and</bdi> \\\n\\ <bdi>more</bdi> /\n"), "{page}");
    }
}
