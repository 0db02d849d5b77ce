//! `vta check` of a network: what becomes of its nodes, as tables and JSON.

use std::path::Path;

use serde_json::{Value, json};
use vta_app::check::{Cut, NetworkVerdict, NodeVerdict, Verdict, attributes};
use vta_app::report::{bytes, percent, short};
use vta_files::printable;

use crate::table::{Column, Table};

/// Up to so many nodes are listed one by one without being asked for.
const FEW: usize = 20;
/// Names that are told of refused nodes of one reason.
const NAMES: usize = 4;

/// The table and the totals.
pub fn text(network: &NetworkVerdict, every_node: bool) -> String {
    let mut out = if every_node || network.nodes.len() <= FEW {
        by_node(network)
    } else {
        by_operator(network)
    };
    out.push('\n');
    totals(network, &mut out);
    if let Some(cut) = &network.cut {
        let nodes = cut.device_nodes;
        out.push_str(&format!(
            "the largest part that the device can take has {nodes} nodes:\n"
        ));
    }
    out
}

/// The command that cuts, for a shell.
pub fn command(model: &Path, cut: &Cut) -> String {
    let mut words = vec!["vta cut".to_owned(), quoted(&model.display().to_string())];
    for (option, names) in [("--inputs", &cut.inputs), ("--outputs", &cut.outputs)] {
        // A comma would be one between names.
        let listed = if names.iter().any(|name| name.contains(',')) {
            names.clone()
        } else {
            vec![names.join(",")]
        };
        let given = listed
            .iter()
            .flat_map(|names| [option.to_owned(), quoted(names)]);
        words.extend(given);
    }
    words.push("-o part.onnx".to_owned());
    words.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", printable(word).replace('\'', "'\\''"))
}

fn macs(macs: u64) -> String {
    match macs {
        0 => String::new(),
        n => short(n),
    }
}

/// Every node, with its reason below the table: there are few, and no room beside the columns.
fn by_node(network: &NetworkVerdict) -> String {
    let mut table = Table::new([
        Column::name("node"),
        Column::words("operator"),
        Column::words("output"),
        Column::number("MACs"),
        Column::words("runs on"),
    ]);
    let mut reasons: Vec<&str> = Vec::new();
    for node in &network.nodes {
        let (place, reason) = node.place();
        let runs_on = if reason.is_empty() {
            place.to_owned()
        } else {
            let known = reasons.iter().position(|known| *known == reason);
            let index = known.unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            format!("{place} [{}]", index + 1)
        };
        let shape: Vec<String> = node.shape.iter().map(ToString::to_string).collect();
        table.row([
            node.name.clone(),
            node.operator.clone(),
            shape.join("x"),
            macs(node.macs),
            runs_on,
        ]);
    }
    let mut out = table.text();
    for (number, reason) in (1..).zip(reasons) {
        out.push_str(&format!("[{number}] {reason}\n"));
    }
    out
}

/// Why, without sizes, and the nodes of one operator of which that is said.
type Group<'n> = (String, Vec<&'n NodeVerdict>);

/// Nodes that are alike in one row: those of the device, of the host, refused ones.
fn by_operator(network: &NetworkVerdict) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for node in &network.nodes {
        let (place, reason) = node.place();
        let why = without_sizes(reason);
        let same = |(known, nodes): &&mut Group<'_>| {
            let first = nodes[0];
            (&first.operator, first.place().0, known) == (&node.operator, place, &why)
        };
        match groups.iter_mut().find(same) {
            Some((_, nodes)) => nodes.push(node),
            None => groups.push((why, vec![node])),
        }
    }
    groups.sort_by_key(|(_, nodes)| match nodes[0].verdict {
        Verdict::Device => 0,
        Verdict::Host { .. } => 1,
        Verdict::Refused { .. } => 2,
        Verdict::Behind => 3,
    });
    let mut table = Table::new([
        Column::words("operator"),
        Column::number("nodes"),
        Column::number("MACs"),
        Column::words("runs on"),
        Column::text("why"),
    ]);
    for (common, nodes) in &groups {
        let first = nodes[0];
        let (place, reason) = first.place();
        // Where they are the same everywhere, sizes help.
        let alike = nodes.iter().all(|node| node.verdict == first.verdict);
        let mut why = if alike { reason } else { common }.to_owned();
        if let Verdict::Refused { .. } = first.verdict {
            why.push_str(&format!(" ({})", names(nodes)));
        }
        let all = nodes.iter().map(|node| node.macs);
        table.row([
            first.operator.clone(),
            nodes.len().to_string(),
            macs(all.fold(0, u64::saturating_add)),
            place.to_owned(),
            why,
        ]);
    }
    table.text()
}

/// A reason with `[..]` for each shape, so that nodes that differ in nothing else are one group.
fn without_sizes(reason: &str) -> String {
    let mut out = String::new();
    let mut rest = reason;
    while let Some((before, behind)) = rest.split_once('[') {
        let Some((inside, after)) = behind.split_once(']') else {
            break;
        };
        let is_shape = inside
            .chars()
            .all(|c| c.is_ascii_digit() || ", ".contains(c));
        out.push_str(before);
        let kept = if is_shape { ".." } else { inside };
        out.push_str(&format!("[{kept}]"));
        rest = after;
    }
    out + rest
}

/// The names of some nodes, and how many more there are.
fn names(nodes: &[&NodeVerdict]) -> String {
    let told = nodes.iter().take(NAMES).map(|node| printable(&node.name));
    let mut text = told.collect::<Vec<_>>().join(", ");
    if nodes.len() > NAMES {
        text.push_str(&format!(" and {} more", nodes.len() - NAMES));
    }
    text
}

fn totals(network: &NetworkVerdict, out: &mut String) {
    let [device, host, refused, unknown] = network.counts();
    let mut counts = vec![format!("{device} on the device")];
    for (count, what) in [
        (host, "on the host"),
        (refused, "refused"),
        (unknown, "not judged, since they depend on refused ones"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let all = network.nodes.len() + network.unread;
    out.push_str(&format!("{all} nodes: {}\n", counts.join(", ")));
    let [of_device, macs] = network.macs();
    if macs > 0 {
        out.push_str(&format!(
            "{} of {} multiply-adds on the device ({})\n",
            short(of_device),
            short(macs),
            percent(of_device as f64 / macs as f64),
        ));
    }
    if !network.host.layers.is_empty() {
        let traffic = network.host.traffic();
        let layers = network.host.layers.len();
        out.push_str(&format!(
            "the host computes in {layers} segment{}, where --allow-host lets it; for each pass it \
             reads {} and writes {}\n",
            if layers == 1 { "" } else { "s" },
            bytes(traffic.read),
            bytes(traffic.written),
        ));
    }
    if !network.ends.is_empty() {
        let ends: Vec<_> = network.ends.iter().map(|name| printable(name)).collect();
        out.push_str(&format!(
            "the rest can be used: end the model at {}\n",
            ends.join(", ")
        ));
    }
    if network.is_float && refused == 0 {
        out.push_str(
            "the model is float: stand-ins were taken for the scales that vta quantize finds\n",
        );
    }
}

/// The keys `network` of `vta check --json`.
pub fn json(network: &NetworkVerdict) -> Value {
    let node = |node: &NodeVerdict| {
        let (place, reason) = node.place();
        let mut object = json!({
            "name": node.name,
            "operator": node.operator,
            "shape": node.shape,
            "macs": node.macs,
            "runs_on": place,
            "attributes": attributes(&node.attributes),
        });
        if !reason.is_empty() {
            object["why"] = json!(reason);
        }
        object
    };
    let [device, host, refused, unknown] = network.counts();
    let [of_device, macs] = network.macs();
    json!({
        "float": network.is_float,
        "nodes": network.nodes.iter().map(node).collect::<Vec<_>>(),
        "device_nodes": device,
        "host_nodes": host,
        "refused_nodes": refused,
        "unread_nodes": unknown,
        "ends": network.ends,
        "cut": network.cut.as_ref().map(|cut| json!({
            "inputs": cut.inputs, "outputs": cut.outputs, "device_nodes": cut.device_nodes,
            "device_macs": cut.device_macs,
        })),
        "macs": macs,
        "device_macs": of_device,
        "host_segments": network.host.layers.len(),
        "host": network.host.json(None),
    })
}
