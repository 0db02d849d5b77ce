//! Many refused nodes in one line: by reason, each with how many nodes and the names of a few.

/// Reasons that are told.
const REASONS: usize = 6;
/// Names that are told of each.
const NAMES: usize = 3;

/// Errors of nodes in one line, those with equal words together, in the order in which they come
/// first. Each is a node's name, if it is of one, and the whole message, `node NAME` and why.
pub(crate) fn together<'e>(errors: impl Iterator<Item = (Option<&'e str>, String)>) -> String {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for (node, message) in errors {
        let own = node.and_then(|name| Some((name, message.strip_prefix("node ")?)));
        let why = own.and_then(|(name, rest)| Some((name, rest.strip_prefix(name)?)));
        let (name, why) = match why {
            Some((name, why)) => (Some(name), why.to_owned()),
            None => (None, message),
        };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.extend(name),
            None => reasons.push((why, name.into_iter().collect())),
        }
    }
    let told = reasons
        .iter()
        .take(REASONS)
        .map(|(why, names)| named(names) + why);
    let mut text = told.collect::<Vec<_>>().join("; ");
    let left: usize = reasons
        .iter()
        .skip(REASONS)
        .map(|(_, n)| n.len().max(1))
        .sum();
    if left > 0 {
        text.push_str(&format!("; and {left} more"));
    }
    text
}

/// `node a`, `nodes a, b` or `nodes a, b, c and 5 more`; nothing without a name.
pub(crate) fn named(names: &[&str]) -> String {
    let told = names
        .iter()
        .take(NAMES)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len() {
        0 => String::new(),
        1 => format!("node {told}"),
        2..=NAMES => format!("nodes {told}"),
        n => format!("nodes {told} and {} more", n - NAMES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_reason_stand_together() {
        let errors = |list: &[(&'static str, &str)]| {
            let of =
                |(name, why): &(&'static str, &str)| (Some(*name), format!("node {name}{why}"));
            together(list.iter().map(of))
        };
        assert_eq!(
            errors(&[("a", ": x"), ("b", " (Add): y")]),
            "node a: x; node b (Add): y"
        );
        let many = [
            ("a", ": x"),
            ("b", ": y"),
            ("c", ": x"),
            ("d", ": x"),
            ("e", ": x"),
        ];
        assert_eq!(errors(&many), "nodes a, c, d and 1 more: x; node b: y");
        let whole = [
            (None, "the network".to_owned()),
            (Some("a"), "node a: z".to_owned()),
        ];
        assert_eq!(together(whole.into_iter()), "the network; node a: z");
        let all: Vec<String> = (0..9).map(|i| format!(": {i}")).collect();
        let all: Vec<(&str, &str)> = all.iter().map(|why| ("n", &why[..])).collect();
        assert!(
            errors(&all).ends_with("node n: 5; and 3 more"),
            "{}",
            errors(&all)
        );
    }
}
