"""What rows of scripts/coverage say: of one in a line, of CI's which bounds are missed, of all in docs/coverage.md."""

import re

from compared import bullet, escaped, paragraph

PEERS = ["S8S8", "U8U8"]
# How much farther from float than the better of onnxruntime's an output may be, by the mean cosine.
WORSE = 0.02
VARIES = 0.01


def stopped(row):
    """Why `vta` gives no result; nothing where it does."""
    return f"took longer than {row['slow']} s" if "slow" in row else row.get("failed") or row.get("vta", {}).get("failed")


def told(row):
    """Of each part whose cosine says something: its label, ours, and the better of onnxruntime's, least and mean."""
    for label, found in row["vta"]["ours"].items():
        peers = [row[kind]["peer"][label] for kind in PEERS if "peer" in row.get(kind, {})]
        peers = [peer for peer in peers if peer[1] == peer[1]]
        if row["varies"][label] >= VARIES:
            yield label, found, max(peers, key=lambda peer: peer[1], default=None)


def worse(row):
    """The parts that are farther from float than onnxruntime's: label, ours and its mean cosines."""
    if stopped(row) or "exporter" in row:
        return []
    # Not a number is worse than any.
    return [(label, found, peer) for label, found, peer in told(row) if peer and not found[1] >= peer[1] - WORSE]


def line(row):
    """A row in short."""
    if "exporter" in row:
        return f"not exported: {row['exporter']}"
    if stopped(row):
        return f"FAILED: {stopped(row)}"
    shown = sorted(told(row), key=lambda part: part[1][1] - (part[2] or [0, 0])[1])[:1]
    figures = "".join(f"{label} {found[1]:.4f}, onnxruntime {f'{peer[1]:.4f}' if peer else 'none'}" for label, found, peer in shown)
    said = f"{row['vta']['host_ops']} on the host, " + (figures or "outputs are constant")
    if worse(row):
        said += ", WORSE" + ("" if row["vta"]["warnings"] else " SILENTLY")
    unread = {kind: row[kind].get("failed") or row[kind].get("unread") for kind in ["vta", *PEERS] if row[kind].get("failed") or row[kind].get("unread")}
    return said + (f" {unread}" if unread else "")


def faults(row):
    """The bounds of CI that a row misses."""
    if stopped(row):
        return [stopped(row)]
    found = []
    for kind, file in row.items():
        if not isinstance(file, dict) or kind == "varies":
            continue
        if "failed" in file or "unread" in file:
            found.append(f"{kind}: {file.get('failed') or file['unread']}")
            continue
        if not file["cycle_equal"]:
            found.append(f"{kind}: cycle gives other values than sim")
        most = row["host_most"]
        if file["host_ops"] > most:
            found.append(f"{kind}: {file['host_ops']} operators on the host, more than {most}")
        for label, between in file["between"].items():
            if not between[0] >= row["least_to_peer"]:
                found.append(f"{kind}: {label} has cosine {between[0]:.4f} to onnxruntime, less than {row['least_to_peer']}")
            if not file["ours"][label][0] >= file["peer"][label][0] - 0.005:
                found.append(f"{kind}: {label} is farther from float than onnxruntime by {file['peer'][label][0] - file['ours'][label][0]:.4f}")
    return found + [f"{label} has cosine {ours[1]:.4f} to float, onnxruntime's int8 {peer[1]:.4f}" for label, ours, peer in worse(row)]


def label(known, name):
    """The exporter's row whose output or part is farthest behind onnxruntime's, and that part; nothing where none says
    something."""
    found = []
    for exporter, row in known[name]["rows"].items():
        if not stopped(row) and "exporter" not in row:
            found += [((ours[1] - (peer or [0, 0])[1], ours[1]), exporter, row, part, ours, peer) for part, ours, peer in told(row)]
    return min(found, default=None, key=lambda entry: entry[0])


def cell(figures):
    return f"{figures[1]:.4f} ({figures[0]:.4f})" if figures else ""


def network_line(known, name):
    """A network's line of the table."""
    made, remarks = known[name], []
    rows = made["rows"]
    for exporter, row in rows.items():
        if "exporter" in row:
            remarks.append(f"{exporter} can't export it")
        elif "slow" in row:
            remarks.append(f"{exporter} not measured")
        elif stopped(row):
            remarks.append(f"{exporter} refused")
        elif worse(row):
            remarks.append(f"{exporter} worse, " + ("warned of" if row["vta"]["warnings"] else "silently"))
    ran = [row for row in rows.values() if "host_ops" in row.get("vta", {})]
    host = " / ".join(str(row["vta"]["host_ops"]) for row in ran)
    found = label(known, name)
    if found is None:
        return f"| {name} | {made['family'].split(' ', 1)[1]} | {host} | | | {', '.join(remarks + ['constant'] * bool(ran))} |"
    _, _, _, _, ours, peer = found
    return f"| {name} | {made['family'].split(' ', 1)[1]} | {host} | {cell(ours)} | {cell(peer)} | {', '.join(remarks)} |"


def group(family):
    return family.split()[0]


def counted(known, names):
    """The figures of some networks: files exported, files measured, those that run, those worse, and those silently."""
    rows = [row for name in names for row in known[name]["rows"].values()]
    exported = [row for row in rows if "exporter" not in row]
    measured = [row for row in exported if "slow" not in row]
    ran = [row for row in measured if not stopped(row)]
    behind = [row for row in ran if worse(row)]
    return len(exported), len(measured), len(ran), len(behind), sum(not row["vta"]["warnings"] for row in behind)


def plain(text):
    """Without escapes of terminals, and without what PyTorch says of where a value comes from."""
    return escaped(re.sub(r"\x1b\[[0-9;]*m", "", text).split(" [Caused by")[0])


def reasons(known, wanted):
    """Lines that name the files of rows for which `wanted` gives a reason."""
    return [line for name, made in known.items() for exporter, row in made["rows"].items() if (text := wanted(row))
            for line in bullet(f"{name}, {exporter}: {plain(text)}")]


def exactness(known):
    rows = [row["vta"] for made in known.values() for row in made["rows"].values() if "between" in row.get("vta", {})]
    parts = [(file["ours"][part], file["peer"][part], between) for file in rows for part, between in file["between"].items()]
    near = [part for part in parts if part[1][0] >= 0.99]
    held = sum(between[0] >= 0.99 for _, _, between in near)
    gaps = [ours[1] - peer[1] for ours, peer, _ in parts]
    return (
        f"On the file that `vta quantize` wrote, `vta run` and onnxruntime without graph optimisation were compared, too: {len(rows)} files "
        f"with {len(parts)} outputs and parts. Where onnxruntime's cosine to float is at least 0.99, `vta run` has at least 0.99 to "
        f"onnxruntime in {held} of {len(near)}. By more than 0.005 of the mean cosine, {sum(gap < -0.005 for gap in gaps)} are farther from "
        f"float than onnxruntime, {sum(gap > 0.005 for gap in gaps)} nearer ([Exactness](exactness.md))."
    )


def origin(known):
    """Which packages and how many builds made the rows."""
    newest = max(known.values(), key=lambda made: made["when"])
    earlier = [name for name, made in known.items() if made["vta"] != newest["vta"]]
    text = f"Packages: {newest['packages']}."
    return text + (f" An earlier build of the same version measured {len(earlier)} of the networks." if earlier else "")


def page(known, listed):
    names = [name for name in listed if name in known]
    exported, measured, ran, behind, silent = counted(known, names)
    lines = [
        "# Which networks run",
        "",
        *paragraph(
            f"`scripts/coverage` writes this page. {len(names)} networks were chosen by a rule: of each module of timm's registry, and of torchvision's, the "
            "one with the fewest parameters at its default input size; those of torchaudio; and some that are written in plain PyTorch. Both "
            f"exporters of PyTorch wrote them, {exported} files. `vta quantize` without options and `vta run --allow-host` on `sim` stand beside "
            "the better of onnxruntime's S8S8 and U8U8, calibrated with the same samples."
        ),
        f"- {ran} of {measured} files run, {100 * ran / max(measured, 1):.1f} %." + (f" {exported - measured} more took too long to be measured." if exported > measured else ""),
        f"- In {behind} an output or a part of one is farther from float than onnxruntime's by more than {WORSE}; `vta quantize` warned of {behind - silent}.",
        "",
        "| networks of | networks | files | measured | run | worse | worse without a warning |",
        "|---|---|---|---|---|---|---|",
    ]
    for family in dict.fromkeys(group(known[name]["family"]) for name in names):
        own = [name for name in names if group(known[name]["family"]) == family]
        lines.append(f"| {'this page' if family == 'written' else family} | {len(own)} | " + " | ".join(map(str, counted(known, own))) + " |")
    rest = [name for name in listed if name not in known]
    lines += [
        "",
        *(paragraph(f"The rule gives {len(rest)} more, whose size is beyond what was computed yet: {', '.join(rest)}.") if rest else []),
        *paragraph(
            "Weights are random, from a seed, and scaled so that no layer's results fade away or explode; BatchNormalization has the statistics of "
            "16 samples. Such networks amplify a step of one value more than trained ones do ([accuracy](accuracy.md) has those)."
        ),
        "## Networks",
        "",
        *paragraph(
            "Each output, and each input of a Concat that makes one, is compared by itself, on 8 samples (4 of large networks) of another "
            "seed and finer grain than the 16 (8) of the calibration. A line has the one that is farthest behind onnxruntime's, of both "
            "exporters' files: the mean of its cosine to float over the samples, and the least."
        ),
        "| network | module | on the host, classic / dynamo | ours | onnxruntime | |",
        "|---|---|---|---|---|---|",
        *(network_line(known, name) for name in names),
        "",
        *paragraph("*Constant* is an output that varies less than 1 % between samples, so that its cosine says nothing."),
        "## What falls short",
        "",
    ]
    kinds = {
        "Refused:": lambda row: None if "slow" in row or "exporter" in row else stopped(row),
        "Not exported by PyTorch, so that there was nothing to run:": lambda row: row.get("exporter"),
        f"Farther from float than onnxruntime by more than {WORSE}:": lambda row: "; ".join(
            f"{part} {ours[1]:.4f}, onnxruntime {peer[1]:.4f}" for part, ours, peer in worse(row)[:3]) + ("" if not worse(row) else ", warned of" if row["vta"]["warnings"] else ", silently"),
        "Not measured, since it took too long:": lambda row: f"{row['slow']} s" if "slow" in row else None,
    }
    for title, wanted in kinds.items():
        found = reasons({name: known[name] for name in names}, wanted)
        lines += [title, "", *found, ""] if found else []
    return "\n".join([*lines, "## Exactness", "", *paragraph(exactness(known)), *paragraph(origin(known))]).rstrip("\n") + "\n"
