//! The HTML of the page. Pure. It works without JavaScript.

use std::fmt::{self, Display, Formatter};

use jiff::tz::TimeZone;

use super::{
    Settings,
    book::{Book, Entry, EntryError, MAX_ENTRIES, MAX_LENGTH},
};
use crate::api::v1::Alias;

/// The result of the guest's last action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Notice {
    /// No action.
    #[default]
    None,
    /// The entry is in the book.
    Thanks,
    /// The entry was refused; its text stays in the form.
    Refused(EntryError, String),
    /// The request isn't a form, or is much too large.
    Unreadable,
}

/// The labels of the form.
struct FormText {
    label: &'static str,
    hint: &'static str,
    attributes: &'static str,
    entry: &'static str,
}

fn words(alias: Alias) -> FormText {
    match alias {
        Alias::Phone => FormText {
            label: "Your phone number",
            hint: "For example +1 415 555 0132. Everybody who visits can read it.",
            attributes: r#"type="tel" inputmode="tel" autocomplete="tel""#,
            entry: "phone number",
        },
        Alias::Address => FormText {
            label: "Your address",
            hint: "For example 221B Baker Street, London. Everybody who visits can read it.",
            attributes: r#"type="text" autocomplete="street-address""#,
            entry: "address",
        },
        Alias::Name => FormText {
            label: "Your name",
            hint: "Everybody who visits can read it.",
            attributes: r#"type="text" autocomplete="name""#,
            entry: "name",
        },
    }
}

/// Returns the whole page.
pub(super) fn page(settings: &Settings, book: &Book, notice: &Notice) -> String {
    let words = words(settings.alias);
    let title = Escaped(&settings.title);
    let prefix = match notice {
        Notice::None => "",
        Notice::Thanks => "Thank you · ",
        Notice::Refused(..) | Notice::Unreadable => "Error · ",
    };
    format!(
        r##"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{prefix}{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#entries">Skip to the entries</a>
<header>
<p class="ornament" aria-hidden="true">❦</p>
<h1>{title}</h1>
<p class="greeting">{greeting}</p>
</header>
<main>
{form}
{entries}
</main>
<footer><p>{served}Entries are shown to every visitor.</p></footer>
</body>
</html>
"##,
        style = include_str!("style.css"),
        greeting = Escaped(&settings.greeting),
        form = form(&words, book, notice),
        entries = entries(book),
        served = ServedBy(&settings.pod_name),
    )
}

fn form(words: &FormText, book: &Book, notice: &Notice) -> String {
    let (error, value) = match notice {
        Notice::Refused(refusal, value) => (Some(message(*refusal, words.entry)), value.as_str()),
        Notice::Unreadable => (Some("That could not be read as an entry. Please try again.".to_owned()), ""),
        Notice::None | Notice::Thanks => (None, ""),
    };
    let said = match (&error, notice) {
        (Some(error), _) => format!(r#"<p class="notice error" role="alert" id="error">{}</p>"#, Escaped(error)),
        (None, Notice::Thanks) => {
            r#"<p class="notice thanks" role="status" tabindex="-1" autofocus>Thank you! Your entry is in the book.</p>"#.into()
        }
        _ => r#"<p class="notice" role="status"></p>"#.into(),
    };
    if error.is_none() && book.len() >= MAX_ENTRIES {
        return format!(
            r#"<section aria-labelledby="sign"><h2 id="sign">Sign the book</h2>{said}<p>This book is full: its {MAX_ENTRIES} lines are all written.</p></section>"#
        );
    }
    let invalid = if error.is_some() { r#" aria-invalid="true" autofocus"# } else { "" };
    let described = if error.is_some() { "error hint" } else { "hint" };
    format!(
        r#"<section aria-labelledby="sign">
<h2 id="sign">Sign the book</h2>
{said}
<form method="post" action="/entries">
<label for="entry">{label}</label>
<p class="hint" id="hint">{hint}</p>
<div class="field"><input id="entry" name="entry" {attributes} value="{value}" required aria-describedby="{described}"{invalid}>
<button type="submit">Sign</button></div>
</form>
</section>"#,
        label = words.label,
        hint = words.hint,
        attributes = words.attributes,
        value = Escaped(value),
    )
}

fn message(refusal: EntryError, entry: &str) -> String {
    match refusal {
        EntryError::Empty => format!("Please write your {entry} first."),
        EntryError::TooLong(length) => {
            format!("That has {length} characters; there is room for {MAX_LENGTH}. Please shorten it.")
        }
        EntryError::Full => format!("This book is full: its {MAX_ENTRIES} lines are all written."),
    }
}

fn entries(book: &Book) -> String {
    let count = match book.len() {
        0 => "No entries yet".into(),
        1 => "1 entry".into(),
        count => format!("{count} entries"),
    };
    let lines: String = book.newest().map(line).collect();
    let list = if book.is_empty() {
        r#"<p class="empty">The first line is yours.</p>"#.to_owned()
    } else {
        format!("<ol reversed>{lines}</ol>")
    };
    format!(
        r#"<section id="entries" aria-labelledby="count" tabindex="-1">
<h2 id="count">{count}</h2>
{list}
</section>"#
    )
}

fn line(entry: &Entry) -> String {
    let at = entry.at.to_zoned(TimeZone::UTC);
    format!(
        "<li><span class=\"text\" dir=\"auto\">{}</span> <time datetime=\"{}\">{}</time></li>\n",
        Escaped(&entry.text),
        at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        at.strftime("%-d %b %Y, %H:%M UTC"),
    )
}

struct ServedBy<'a>(&'a str);

impl Display for ServedBy<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "Served by <code>{}</code>. ", Escaped(self.0)) }
    }
}

/// Text escaped for HTML elements and quoted attributes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(alias: Alias) -> Settings {
        Settings {
            alias,
            title: "Tom & <Jerry>".into(),
            greeting: "\"Hi\"".into(),
            pod_name: "book-a".into(),
            service: None,
        }
    }

    fn book(texts: &[&str]) -> Book {
        let mut book = Book::default();
        for (number, text) in (0..).zip(texts) {
            book.add(jiff::Timestamp::from_second(1_580_378_520 + number).unwrap(), 0, text).unwrap();
        }
        book
    }

    #[test]
    fn user_content_is_escaped() {
        let evil = "<script>alert('x')</script>\" onfocus=\"x";
        let refused = Notice::Refused(EntryError::Full, evil.into());
        let page = page(&settings(Alias::Name), &book(&[evil]), &refused);
        assert!(!page.contains("<script") && !page.contains("\" onfocus"), "{page}");
        assert_eq!(page.matches("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot; onfocus=&quot;x").count(), 2);
        assert!(page.contains("<h1>Tom &amp; &lt;Jerry&gt;</h1>") && page.contains("&quot;Hi&quot;"), "{page}");
        assert!(page.contains("Served by <code>book-a</code>"));
    }

    #[test]
    fn the_field_is_the_aliass() {
        let check = |alias: Alias, parts: [&str; 2]| {
            let page = page(&settings(alias), &book(&[]), &Notice::None);
            assert!(parts.iter().all(|part| page.contains(part)), "{page}");
        };
        check(Alias::Phone, ["type=\"tel\"", "<label for=\"entry\">Your phone number</label>"]);
        check(Alias::Address, ["autocomplete=\"street-address\"", "<label for=\"entry\">Your address</label>"]);
        check(Alias::Name, ["autocomplete=\"name\"", "<label for=\"entry\">Your name</label>"]);
    }

    #[test]
    fn a_refusal_keeps_what_was_written_and_is_announced() {
        let refused = Notice::Refused(EntryError::TooLong(201), "Ada".into());
        let page = page(&settings(Alias::Name), &book(&["Bob"]), &refused);
        assert!(page.contains("<title>Error · "));
        assert!(page.contains("role=\"alert\" id=\"error\">That has 201 characters; there is room for 200."), "{page}");
        assert!(
            page.contains("value=\"Ada\"") && page.contains("aria-describedby=\"error hint\" aria-invalid=\"true\"")
        );
    }

    #[test]
    fn entries_come_newest_first_with_their_time() {
        let page = page(&settings(Alias::Name), &book(&["Ada", "Bob"]), &Notice::Thanks);
        assert!(page.contains("<h2 id=\"count\">2 entries</h2>") && page.contains("<title>Thank you · "));
        assert!(page.find("Bob").unwrap() < page.find("Ada").unwrap());
        assert!(page.contains("<time datetime=\"2020-01-30T10:02:00Z\">30 Jan 2020, 10:02 UTC</time>"), "{page}");
    }

    #[test]
    fn an_empty_or_full_book_has_a_message() {
        let empty = page(&settings(Alias::Name), &book(&[]), &Notice::None);
        assert!(empty.contains("No entries yet") && empty.contains("The first line is yours."));
        let full = page(&settings(Alias::Name), &book(&["x"; MAX_ENTRIES]), &Notice::None);
        assert!(full.contains("This book is full") && !full.contains("<form"));
    }
}
