//! Spans of DRAM: whether they meet, and what they are together.

use vta_driver::Span;

/// Whether two spans share a byte.
pub(super) fn overlap(a: &Span, b: &Span) -> bool {
    a.region == b.region && a.start < b.start + b.len && b.start < a.start + a.len
}

/// The smallest span over both, which are of one region.
pub(super) fn join(a: &Span, b: &Span) -> Span {
    let start = a.start.min(b.start);
    let end = (a.start + a.len).max(b.start + b.len);
    Span {
        region: a.region,
        start,
        len: end - start,
    }
}

/// Sorts spans and joins those that touch.
pub(super) fn merge(spans: &mut Vec<Span>) {
    spans.sort_unstable_by_key(|s| (s.region, s.start, s.len));
    let mut merged: Vec<Span> = Vec::new();
    for span in spans.drain(..) {
        match merged.last_mut() {
            Some(last) if last.region == span.region && span.start <= last.start + last.len => {
                last.len = last.len.max(span.start + span.len - last.start);
            }
            _ => merged.push(span),
        }
    }
    *spans = merged;
}

/// Whether a span shares a byte with one of a list, which is [`merge`]d.
pub(super) fn meets_any(merged: &[Span], span: &Span) -> bool {
    let at = merged.partition_point(|s| (s.region, s.start + s.len) <= (span.region, span.start));
    merged.get(at).is_some_and(|s| overlap(span, s))
}
