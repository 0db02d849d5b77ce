//! What was probably meant, for errors about names.

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
