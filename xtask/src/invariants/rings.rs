//! The modules of a crate import each other in one direction: a module that can be read alone doesn't lead back to
//! itself.
//!
//! A *ring* is a set of files each of which reaches each other one by `use` declarations and paths. A parent that
//! declares and re-exports its children, and children that use what their parent defines, are no ring by themselves:
//! the direction from a parent to what is below it isn't counted. Names that a parent re-exports lead to the file that
//! defines them.
//!
//! A ring of a few files in one folder is one thing in several files. Larger ones are refused, except for those in
//! [`ALLOWED`], a list that only shrinks.
//!
//! The source is read as text. What macros make, and glob imports of re-exported names, are not seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};

/// The maximum number of files of a ring in one folder.
const MOST: usize = 5;
/// The file with the larger rings.
const ALLOWED: &str = "xtask/allowed-rings.txt";
/// The first line of that file.
const HEADER: &str =
    "# Module rings that are larger than the rest may be: see src/invariants/rings.rs. This list only shrinks.";
/// The directories of crates with a `src`.
const PARENTS: [&str; 2] = ["crates", "operators"];

/// A module: the names from the crate's root, which itself is the empty path.
type Module = Vec<String>;

/// Files of one crate that import each other, relative to the repository, in order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ring(Vec<String>);

impl Ring {
    /// Returns whether it is small, and in one folder.
    fn is_small(&self) -> bool {
        self.0.len() <= MOST && self.folder().is_some()
    }

    /// The folder that all modules are in. A module with a folder of its own may count to that and to the one above.
    fn folder(&self) -> Option<String> {
        let folders = |file: &String| -> BTreeSet<String> {
            let folder = Path::new(file).parent().unwrap_or(Path::new(""));
            let above = folder.parent().filter(|_| file.ends_with("/mod.rs"));
            [Some(folder), above].into_iter().flatten().map(|path| path.display().to_string()).collect()
        };
        self.0.iter().map(folders).reduce(|all, some| &all & &some)?.pop_last()
    }
}

/// A large ring that is allowed for now.
#[derive(Debug, Default)]
struct Allowed {
    why: String,
    files: BTreeSet<String>,
}

/// Prints the allowed rings and the reasons. With `prune`, removes files from the list that are in no large ring.
///
/// # Errors
///
/// Names the rings that aren't allowed.
pub(crate) fn print(prune: bool) -> Result<()> {
    let (mut allowed, rings) = (allowed()?, all()?);
    if prune {
        let needed = large(&rings).flat_map(|ring| &ring.0).collect::<BTreeSet<_>>();
        allowed.iter_mut().for_each(|one| one.files.retain(|file| needed.contains(file)));
        allowed.retain(|one| !one.files.is_empty());
        write(&allowed)?;
    }
    let small = rings.iter().filter(|ring| ring.is_small()).count();
    println!("{small} module rings of at most {MOST} files in one folder");
    for one in &allowed {
        println!("\nallowed: {} files: {}", one.files.len(), one.why);
        one.files.iter().for_each(|file| println!("  {file}"));
    }
    let wrong = violations(&allowed, &rings);
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}

fn large(rings: &[Ring]) -> impl Iterator<Item = &Ring> {
    rings.iter().filter(|ring| !ring.is_small())
}

/// The rings that are too large and not allowed, and the files that are listed for no reason.
fn violations(allowed: &[Allowed], rings: &[Ring]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for ring in large(rings) {
        let files = ring.0.iter().cloned().collect::<BTreeSet<_>>();
        if !allowed.iter().any(|one| files.is_subset(&one.files)) {
            wrong.push(format!("these files import each other in a ring: {}", ring.0.join(", ")));
        }
        needed.extend(files);
    }
    for file in allowed.iter().flat_map(|one| &one.files).filter(|file| !needed.contains(*file)) {
        wrong.push(format!(
            "{file} is in no large ring any more: cargo xtask invariants --prune removes it from the list"
        ));
    }
    wrong
}

/// The large rings that are allowed: a line with the reason, and below it the files, indented.
fn allowed() -> Result<Vec<Allowed>> {
    let path = crate::root().join(ALLOWED);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut allowed: Vec<Allowed> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("  "), allowed.last_mut()) {
            (Some(file), Some(last)) => drop(last.files.insert(file.to_owned())),
            _ => allowed.push(Allowed { why: line.to_owned(), ..Allowed::default() }),
        }
    }
    Ok(allowed)
}

fn write(allowed: &[Allowed]) -> Result<()> {
    let mut text = format!("{HEADER}\n");
    for one in allowed {
        text += &format!("\n{}\n", one.why);
        text.extend(one.files.iter().map(|file| format!("  {file}\n")));
    }
    let path = crate::root().join(ALLOWED);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The rings of all crates.
fn all() -> Result<Vec<Ring>> {
    let mut rings = Vec::new();
    for parent in PARENTS {
        let parent = crate::root().join(parent);
        for entry in fs::read_dir(&parent).with_context(|| format!("read {}", parent.display()))? {
            let folder = entry?.path().join("src");
            if folder.is_dir() {
                rings.extend(Crate::read(&folder)?.rings());
            }
        }
    }
    rings.sort();
    Ok(rings)
}

/// The modules of a crate, and where their paths lead.
#[derive(Debug, Default)]
struct Crate {
    modules: BTreeMap<Module, Source>,
}

#[derive(Debug)]
struct Source {
    file: String,
    /// The paths of this crate that it names, from the root.
    paths: BTreeSet<Module>,
    /// The names it re-exports, and where they come from.
    exports: BTreeMap<String, Module>,
}

impl Crate {
    fn read(folder: &Path) -> Result<Self> {
        let mut sources = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(inner) = folders.pop() {
            for entry in fs::read_dir(&inner).with_context(|| format!("read {}", inner.display()))? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(module) = module_of(folder, &path) {
                    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                    let file = path.strip_prefix(crate::root()).unwrap_or(&path).display().to_string();
                    sources.insert(module, (file, text));
                }
            }
        }
        Ok(Self::new(sources))
    }

    /// Creates a crate from the file and the text of each module.
    fn new(sources: BTreeMap<Module, (String, String)>) -> Self {
        let names = sources.keys().cloned().collect::<BTreeSet<_>>();
        let read = |(module, (file, text)): (Module, (String, String))| {
            let code = code(&text);
            let (mut paths, mut exports) = (BTreeSet::new(), BTreeMap::new());
            let (uses, rest) = uses(&code);
            for (is_public, tree) in uses {
                for (path, name) in expand(tree) {
                    if let Some(path) = absolute(&names, &module, &path) {
                        if is_public {
                            exports.insert(name, path.clone());
                        }
                        paths.insert(path);
                    }
                }
            }
            paths.extend(inline_paths(&rest).filter_map(|path| absolute(&names, &module, &path)));
            (module, Source { file, paths, exports })
        };
        Self { modules: sources.into_iter().map(read).collect() }
    }

    /// Returns the module of a path, through re-exports.
    fn target(&self, path: &[String], steps: usize) -> &[String] {
        let known = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length])).unwrap_or(0);
        let (module, rest) = path.split_at(known);
        let export = rest.first().and_then(|name| self.modules.get(module)?.exports.get(name));
        match export {
            // The last step is for a name that is re-exported from itself.
            Some(from) if from != path && steps > 0 => {
                let further = from.iter().chain(&rest[1..]).cloned().collect::<Vec<_>>();
                let module = self.target(&further, steps - 1).to_vec();
                self.modules.get_key_value(&module).map_or(&[], |(module, _)| module)
            }
            _ => self.modules.get_key_value(module).map_or(&[], |(module, _)| module),
        }
    }

    /// The modules that a module leads to. From a parent to what is below it isn't counted, nor is the root, which
    /// declares all.
    fn leads_to(&self, module: &[String]) -> BTreeSet<&[String]> {
        let Some(source) = self.modules.get(module) else { return BTreeSet::new() };
        let targets = source.paths.iter().map(|path| self.target(path, 8));
        targets.filter(|target| !target.is_empty() && !target.starts_with(module)).collect()
    }

    /// The sets of modules that reach each other, each by its files.
    fn rings(&self) -> Vec<Ring> {
        let edges = self.modules.keys().map(|module| (module.as_slice(), self.leads_to(module)));
        let edges = edges.collect::<BTreeMap<_, _>>();
        let reached = edges.keys().map(|module| (*module, reach(&edges, module))).collect::<BTreeMap<_, _>>();
        let mut rings = BTreeSet::new();
        for (module, seen) in &reached {
            // It reaches itself: all that it reaches and that reach it are its ring.
            if seen.contains(module) {
                let members = seen.iter().filter(|other| reached[*other].contains(module));
                let mut files = members.map(|member| self.modules[*member].file.clone()).collect::<Vec<_>>();
                files.sort();
                rings.insert(Ring(files));
            }
        }
        rings.into_iter().filter(|ring| ring.0.len() > 1).collect()
    }
}

/// The modules that lead from one to others, however far.
fn reach<'a>(edges: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>, from: &'a [String]) -> BTreeSet<&'a [String]> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        open.extend(edges[module].iter().copied().filter(|next| seen.insert(*next)));
    }
    seen
}

/// The module of a file, unless it holds tests.
fn module_of(folder: &Path, file: &Path) -> Option<Module> {
    let inside = file.strip_prefix(folder).ok()?.with_extension("");
    let mut names = inside.iter().map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>();
    if file.extension()? != "rs" || names.iter().any(|name| name == "tests" || name == "bin") {
        return None;
    }
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    Some(names)
}

/// The text without comments and without its test module.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The trees of the `use` declarations, each with whether it is a re-export, and the text without them.
fn uses(code: &str) -> (Vec<(bool, &str)>, String) {
    let (mut uses, mut rest, mut left) = (Vec::new(), String::new(), code);
    while let Some(at) = left.find("use ") {
        let before = &left[..at];
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        let declares = line.is_empty() || line == "pub" || line.starts_with("pub(") && line.ends_with(')');
        let after = &left[at + "use ".len()..];
        rest.push_str(before);
        match after.split_once(';') {
            Some((tree, behind)) if declares => {
                uses.push((!line.is_empty(), tree));
                left = behind;
            }
            _ => left = after,
        }
    }
    rest.push_str(left);
    (uses, rest)
}

/// The paths of a tree, each with the name that it is imported by.
fn expand(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some((prefix, inner)) = tree.split_once('{') {
        let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
        let prefix = names(prefix);
        let joined = split(inner).into_iter().flat_map(expand).map(|(path, name)| {
            // `self` in braces is the path in front of them.
            let path = if path == ["self"] { prefix.clone() } else { [prefix.clone(), path].concat() };
            let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name };
            (path, name)
        });
        return joined.collect();
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
    let path = names(path);
    let name = alias.map(str::to_owned).or_else(|| path.last().cloned());
    name.map(|name| (path, name)).into_iter().collect()
}

/// The parts between commas that are not in braces.
fn split(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().filter(|part| !part.trim().is_empty()).collect()
}

fn names(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The paths in expressions and types that begin with `crate`, `self` or `super`.
fn inline_paths(code: &str) -> impl Iterator<Item = Vec<String>> {
    let is_part = |character: char| !(character.is_alphanumeric() || character == '_' || character == ':');
    let words =
        code.split(is_part).filter(|word| ["crate::", "self::", "super::"].iter().any(|start| word.starts_with(start)));
    words.map(names)
}

/// A path from the crate's root, or `None` if it leads to another crate.
fn absolute(modules: &BTreeSet<Module>, module: &Module, path: &[String]) -> Option<Module> {
    let (mut base, mut rest) = (module.clone(), path);
    match path.first()?.as_str() {
        "crate" => return Some(path[1..].to_vec()),
        "self" => rest = &path[1..],
        "super" => {
            while let Some(("super", further)) = rest.split_first().map(|(first, further)| (first.as_str(), further)) {
                base.pop();
                rest = further;
            }
        }
        child => {
            base.push(child.to_owned());
            return modules.contains(&base).then(|| [base, path[1..].to_vec()].concat());
        }
    }
    Some([base, rest.to_vec()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files below `src`.
    fn rings(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = Path::new("src");
        let read = |(file, text): &(&str, &str)| {
            Some((module_of(folder, &folder.join(file))?, ((*file).to_owned(), (*text).to_owned())))
        };
        let sources = files.iter().filter_map(read).collect();
        Crate::new(sources).rings().into_iter().map(|ring| ring.0).collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_ring() {
        let found = rings(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;"),
            ("a.rs", "use crate::b::B;\npub struct A;"),
            ("b.rs", "use crate::{c::{self, C}, other::D};"),
            ("c.rs", "fn f() { super::a::g::<u8>() }"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn a_parent_and_its_children_are_no_ring() {
        let found = rings(&[
            ("lib.rs", "mod a;\nuse crate::a::A;"),
            ("a/mod.rs", "mod one;\nmod two;\npub use self::one::One;\nuse two::Two;\npub struct A;"),
            ("a/one.rs", "use super::A;"),
            ("a/two.rs", "use crate::a::A;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_re_exported_name_leads_to_its_file() {
        // `x` uses of `a` only what the leaf `one` defines; `two` uses `x`.
        let found = rings(&[
            ("a/mod.rs", "mod one;\nmod two;\npub(crate) use self::one::One;\npub(crate) use two::Two as Second;"),
            ("a/one.rs", "pub(crate) struct One;"),
            ("a/two.rs", "use crate::x::X;"),
            ("x.rs", "use crate::a::One;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
        let found = rings(&[
            ("a/mod.rs", "mod two;\npub(crate) use two::Two as Second;"),
            ("a/two.rs", "use crate::x::X;"),
            ("x.rs", "use crate::a::Second;"),
        ]);
        assert_eq!(found, [["a/two.rs", "x.rs"]]);
    }

    #[test]
    fn comments_and_tests_import_nothing() {
        let found = rings(&[
            ("a.rs", "// use crate::b::B;\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}"),
            ("b.rs", "use crate::a::f;"),
            ("b/tests.rs", "use crate::a::f;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_ring_is_small_when_its_few_files_are_in_one_folder() {
        let ring = |files: &[&str]| Ring(files.iter().map(|file| (*file).to_owned()).collect());
        assert!(ring(&["src/a/b.rs", "src/a/c.rs", "src/a/d/mod.rs"]).is_small());
        assert!(ring(&["src/a/mod.rs", "src/a/c.rs"]).is_small());
        assert!(!ring(&["src/a/b.rs", "src/c/d.rs"]).is_small());
        assert!(!ring(&["a/1.rs", "a/2.rs", "a/3.rs", "a/4.rs", "a/5.rs", "a/6.rs"]).is_small());
    }

    #[test]
    fn the_list_of_allowed_rings_only_shrinks() {
        let ring = |files: &[&str]| Ring(files.iter().map(|file| (*file).to_owned()).collect());
        let allowed = |files: &[&str]| Allowed {
            why: String::new(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        let large = ring(&["a/b.rs", "c/d.rs"]);
        assert_eq!(violations(&[], std::slice::from_ref(&large)).len(), 1);
        assert!(violations(&[allowed(&["a/b.rs", "c/d.rs"])], std::slice::from_ref(&large)).is_empty());
        let stale = violations(&[allowed(&["a/b.rs", "c/d.rs", "e.rs"])], &[large]);
        assert!(stale.len() == 1 && stale[0].starts_with("e.rs is in no large ring"), "{stale:?}");
    }

    #[test]
    fn modules_import_each_other_in_one_direction() {
        let wrong = violations(&allowed().unwrap(), &all().unwrap());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
