//! What was probably meant, for errors about names.

use std::path::{Path, PathBuf};

/// Names of a folder that are compared with one that isn't there.
const MAX_NAMES: usize = 4096;

/// The candidate that a misspelt name is nearest to: a third of its letters may differ, rounded up.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let distance = |candidate: &str| edits(&lower, &candidate.to_lowercase());
    let best = candidates.into_iter().min_by_key(|c| distance(c))?;
    let longer = name.chars().count().max(best.chars().count());
    (distance(best) <= longer.div_ceil(3)).then_some(best)
}

/// `; did you mean X?`, or nothing.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, candidates) {
        Some(best) => format!("; did you mean {best}?"),
        None => String::new(),
    }
}

/// The folder of a file: one without lies in the current one.
pub fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// The file with the nearest name beside a path of nothing.
pub fn nearest_file(path: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder(path)).ok()?.take(MAX_NAMES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    // Of equally near names it is the same one everywhere.
    names.sort();
    let near = nearest(
        path.file_name()?.to_str()?,
        names.iter().map(String::as_str),
    );
    Some(path.with_file_name(near?))
}

/// Letters to insert, drop or replace on the way from one text to the other. Names of any length
/// are compared by their first letters only.
fn edits(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let first = |text: &str| -> String { text.chars().take(LONGEST).collect() };
    strsim::levenshtein(&first(a), &first(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_have_one_meaning_and_others_none() {
        let names = ["sim", "cycle", "oracle"];
        for (name, expected) in [
            ("cycl", Some("cycle")),
            ("Sim", Some("sim")),
            ("orcale", Some("oracle")),
            ("toaster", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names), expected, "{name}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(did_you_mean("cycel", names), "; did you mean cycle?");
        assert_eq!(did_you_mean("zzzzzz", names), "");
    }
}
