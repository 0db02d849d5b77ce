//! Which files of a crate use which others: for the rule that they stand in layers.
//!
//! A file uses another where a path of its code ends at something that the other defines, wherever
//! a facade re-exports it; `pub use` itself is no use. What macros make belongs to the file that
//! a path names before it. Tests inside a file don't count. Calls of
//! methods name no file, so that they aren't seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

type ModulePath = Vec<String>;

/// One file, a module of its crate.
#[derive(Default)]
struct Module {
    file: PathBuf,
    defined: BTreeSet<String>,
    /// Whether macros may define something here.
    calls_macros: bool,
    children: BTreeSet<String>,
    /// What `use` brings in, by the name that it has here.
    imported: BTreeMap<String, ModulePath>,
    globs: Vec<ModulePath>,
    /// Paths of the code, as they are written.
    paths: BTreeSet<ModulePath>,
}

/// The files of a crate and what each uses.
pub struct Imports {
    modules: BTreeMap<ModulePath, Module>,
}

impl Imports {
    /// Reads a crate from its root file, `lib.rs` or `main.rs`.
    ///
    /// # Panics
    /// When a file can't be read or isn't Rust: a test can't go on.
    pub fn read(root: &Path) -> Self {
        let mut imports = Self {
            modules: BTreeMap::new(),
        };
        imports.add(Vec::new(), root);
        imports
    }

    fn add(&mut self, path: ModulePath, file: &Path) {
        let text =
            std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        let mut collector = Collector {
            module: &mut module,
        };
        collector.visit_file(&parsed);
        let folder = match file.file_stem().and_then(|s| s.to_str()) {
            Some("lib" | "main" | "mod") => file.with_file_name(""),
            _ => file.with_extension(""),
        };
        let children = module.children.clone();
        self.modules.insert(path.clone(), module);
        for child in children {
            let beside = folder.join(format!("{child}.rs"));
            let file = match beside.exists() {
                true => beside,
                false => folder.join(&child).join("mod.rs"),
            };
            let path = path.iter().cloned().chain([child]).collect();
            self.add(path, &file);
        }
    }

    /// Groups of files that use each other in a circle, each sorted, smallest first file first.
    pub fn circles(&self) -> Vec<Vec<&Path>> {
        let paths: Vec<&ModulePath> = self.modules.keys().collect();
        let number: BTreeMap<&ModulePath, usize> =
            paths.iter().enumerate().map(|(i, p)| (*p, i)).collect();
        let mut reaches = vec![vec![false; paths.len()]; paths.len()];
        for (from, path) in paths.iter().enumerate() {
            for to in self.uses(path) {
                reaches[from][number[&to]] = true;
            }
        }
        for via in 0..paths.len() {
            let further = reaches[via].clone();
            for row in &mut reaches {
                if row[via] {
                    row.iter_mut().zip(&further).for_each(|(a, b)| *a |= b);
                }
            }
        }
        let mut circles: Vec<Vec<&Path>> = Vec::new();
        let mut seen = vec![false; paths.len()];
        for first in 0..paths.len() {
            let both = |&other: &usize| reaches[first][other] && reaches[other][first];
            let circle: Vec<usize> = (0..paths.len()).filter(both).collect();
            if circle.len() > 1 && !seen[first] {
                circle.iter().for_each(|&i| seen[i] = true);
                let file = |&i: &usize| self.modules[paths[i]].file.as_path();
                circles.push(circle.iter().map(file).collect());
            }
        }
        circles
    }

    /// The other modules whose definitions a module names.
    fn uses(&self, path: &ModulePath) -> BTreeSet<ModulePath> {
        let found = self.modules[path].paths.iter();
        let found = found.filter_map(|written| self.definer(path, written, 0));
        found.filter(|found| found != path).collect()
    }

    /// The module that defines what a path means where it is written; `None` outside the crate
    /// and for modules themselves.
    fn definer(&self, at: &ModulePath, written: &[String], depth: usize) -> Option<ModulePath> {
        // Imports of imports end; names that import each other don't compile.
        if depth > 16 {
            return None;
        }
        let (first, rest) = written.split_first()?;
        match first.as_str() {
            "crate" => return self.inside(&Vec::new(), rest, depth),
            "self" => return self.inside(at, rest, depth),
            "super" => return self.definer(&at[..at.len().max(1) - 1].to_vec(), rest, depth),
            _ => {}
        }
        self.inside(at, written, depth)
    }

    fn inside(&self, at: &ModulePath, rest: &[String], depth: usize) -> Option<ModulePath> {
        let module = self.modules.get(at)?;
        let (first, further) = rest.split_first()?;
        if first == "super" || first == "self" {
            return self.definer(at, rest, depth);
        }
        if module.children.contains(first) {
            let child: ModulePath = at.iter().cloned().chain([first.clone()]).collect();
            let found = self.inside(&child, further, depth);
            return found.or_else(|| self.made_by_macro(child, further));
        }
        if module.defined.contains(first) {
            return Some(at.clone());
        }
        if let Some(full) = module.imported.get(first) {
            let path: ModulePath = full.iter().chain(further).cloned().collect();
            // `use name;` of another crate names itself.
            return match path.first() == Some(first) && full.len() == 1 {
                true => None,
                false => self.definer(at, &path, depth + 1),
            };
        }
        let through = |glob: &ModulePath| {
            let path: ModulePath = glob.iter().chain(rest).cloned().collect();
            self.definer(at, &path, depth + 1)
        };
        module.globs.iter().find_map(through)
    }
}

impl Imports {
    /// A module that a path leads into by name, if its macros may have made what the path goes
    /// on with: nothing that is written out there has that name.
    fn made_by_macro(&self, at: ModulePath, rest: &[String]) -> Option<ModulePath> {
        let module = self.modules.get(&at)?;
        let written =
            |name: &String| module.children.contains(name) || module.imported.contains_key(name);
        let made = module.calls_macros && !rest.first().is_none_or(written);
        made.then_some(at)
    }
}

struct Collector<'a> {
    module: &'a mut Module,
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        let of_cfg = a.path().is_ident("cfg");
        let list = a.meta.require_list();
        a.path().is_ident("test")
            || of_cfg && list.is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl Collector<'_> {
    fn import(&mut self, prefix: &ModulePath, tree: &UseTree, public: bool) {
        let with = |name: &syn::Ident| -> ModulePath {
            let own = (name != "self").then(|| name.to_string());
            prefix.iter().cloned().chain(own).collect()
        };
        match tree {
            UseTree::Path(path) => self.import(&with(&path.ident), &path.tree, public),
            UseTree::Group(group) => {
                let trees = group.items.iter();
                trees.for_each(|tree| self.import(prefix, tree, public));
            }
            UseTree::Name(name) => {
                let path = with(&name.ident);
                let known = path.last().cloned();
                self.bring(known, path, public);
            }
            UseTree::Rename(rename) => {
                let path = with(&rename.ident);
                self.bring(Some(rename.rename.to_string()), path, public);
            }
            UseTree::Glob(_) => self.module.globs.push(prefix.clone()),
        }
    }

    fn bring(&mut self, name: Option<String>, path: ModulePath, public: bool) {
        if !public {
            self.module.paths.insert(path.clone());
        }
        if let Some(name) = name {
            self.module.imported.insert(name, path);
        }
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Macro(item) => match &item.ident {
                Some(name) => name,
                None => return self.module.calls_macros = true,
            },
            _ => return,
        };
        self.module.defined.insert(name.to_string());
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Tokens without what stands between quotation marks, where comments are, too.
fn without_texts(tokens: &str) -> String {
    let mut rest = String::new();
    let tokens = tokens.replace("'\"'", "");
    let mut characters = tokens.chars();
    let mut inside = false;
    while let Some(c) = characters.next() {
        match c {
            '\\' if inside => drop(characters.next()),
            '"' => inside = !inside,
            _ if inside => {}
            _ => rest.push(c),
        }
    }
    rest
}

impl<'a> Visit<'a> for Collector<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if is_test(attributes(item)) {
            return;
        }
        self.define(item);
        match item {
            Item::Mod(child) if child.content.is_none() => {
                self.module.children.insert(child.ident.to_string());
            }
            Item::Use(item) => {
                let public = !matches!(item.vis, Visibility::Inherited);
                self.import(&Vec::new(), &item.tree, public);
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string());
        self.module.paths.insert(segments.collect());
        visit::visit_path(self, path);
    }

    /// What stands in a macro's brackets isn't parsed; its paths are found as words between `::`,
    /// those of texts and comments left out.
    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let text = without_texts(&call.tokens.to_string()).replace(" :: ", "::");
        let word = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
        for path in text.split(word).filter(|path| path.contains("::")) {
            let segments = path.split("::").map(str::to_owned);
            self.module.paths.insert(segments.collect());
        }
        visit::visit_macro(self, call);
    }
}
