//! Generation of code whose line breaks depend on the length of names, in the style of rustfmt with default settings.

/// The maximum line width.
const WIDTH: usize = 100;

/// Formats `head(items)tail` on one line if it fits, otherwise with one line per item.
pub(crate) fn list(indent: usize, head: &str, items: &[&str], tail: &str) -> String {
    let (space, one) = (" ".repeat(indent), items.join(", "));
    let line = format!("{space}{head}({one}){tail}");
    if line.len() <= WIDTH {
        return line;
    }
    let items: String = items.iter().map(|item| format!("{space}    {item},\n")).collect();
    format!("{space}{head}(\n{items}{space}){tail}")
}

/// Formats a constant that includes the text of a file.
pub(crate) fn included(constant: &str, path: &str) -> String {
    let (head, call) = (format!("const {constant}: &str ="), format!("include_str!(\"{path}\");"));
    if head.len() + 1 + call.len() <= WIDTH {
        format!("{head} {call}")
    } else if 4 + call.len() <= WIDTH {
        format!("{head}\n    {call}")
    } else {
        format!("{head} include_str!(\n    \"{path}\"\n);")
    }
}

/// Formats the first line of an `impl` block, with its brace.
pub(crate) fn implementation(of: &str, by: &str) -> String {
    let line = format!("impl {of} for {by} {{");
    if line.len() <= WIDTH { line } else { format!("impl {of}\n    for {by}\n{{") }
}

/// Formats a method call at the end of a block.
pub(crate) fn chain(indent: usize, of: &str, call: &str) -> String {
    let space = " ".repeat(indent);
    let line = format!("{space}{of}{call}");
    if line.len() <= WIDTH { line } else { format!("{space}{of}\n{space}    {call}") }
}

/// Formats a group of imports within others, as many in a line as fit.
pub(crate) fn uses(indent: usize, module: &str, names: &[&str]) -> String {
    let space = " ".repeat(indent);
    let one = format!("{space}{module}::{{{}}},", names.join(", "));
    if one.len() <= WIDTH {
        return one;
    }
    let mut lines = vec![format!("{space}   ")];
    for name in names {
        let last = lines.len() - 1;
        if lines[last].len() + name.len() + 2 > WIDTH {
            lines.push(format!("{space}   "));
        }
        let last = lines.len() - 1;
        lines[last].push_str(&format!(" {name},"));
    }
    format!("{space}{module}::{{\n{}\n{space}}},", lines.join("\n"))
}

/// The width at which rustfmt breaks a chain of several calls.
const CHAIN_WIDTH: usize = 60;

/// Formats several method calls at the end of a block.
pub(crate) fn chained(indent: usize, of: &str, calls: &[String]) -> String {
    let space = " ".repeat(indent);
    let one = format!("{of}{}", calls.concat());
    if one.len() <= CHAIN_WIDTH {
        return format!("{space}{one}");
    }
    let calls: String = calls.iter().map(|call| format!("\n{space}    {call}")).collect();
    format!("{space}{of}{calls}")
}

/// Formats an awaited method call as a statement.
pub(crate) fn awaited(indent: usize, call: &str) -> String {
    let space = " ".repeat(indent);
    let one = format!("{call}.await");
    if one.len() <= CHAIN_WIDTH { format!("{space}{one};") } else { format!("{space}{call}\n{space}    .await;") }
}

/// Formats a builder call on the manager in `register`. The marker adds an indentation of four.
pub(crate) fn wiring(method: &str, argument: &str) -> String {
    given("manager", method, argument)
}

/// Formats a builder call on the variable `name`. The marker adds an indentation of four.
pub(crate) fn given(name: &str, method: &str, argument: &str) -> String {
    let call = format!(".{method}({argument});");
    if "    let  = ".len() + 2 * name.len() + call.len() <= WIDTH {
        format!("let {name} = {name}{call}")
    } else if "        ".len() + name.len() + call.len() <= WIDTH {
        format!("let {name} =\n    {name}{call}")
    } else if argument.is_empty() || "        ".len() + call.len() <= WIDTH {
        format!("let {name} = {name}\n    {call}")
    } else {
        format!("let {name} = {name}.{method}(\n    {argument},\n);")
    }
}

/// Indents lines by four spaces.
pub(crate) fn indented(lines: &str) -> String {
    lines.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
