//! NonMaxSuppression: of boxes that cover each other much, the one of the highest score.

use super::asked::Asked;
use crate::engine::Tensor;
use crate::graph::Data;

/// Image, class and box of all that are chosen, by images, then classes, then falling scores.
pub(super) fn compute(of: &Asked<'_>) -> Result<Vec<Tensor>, String> {
    let (boxes, scores) = (of.required(0)?, of.required(1)?);
    let (&[images, count, 4], &[others, classes, scored]) = (boxes.shape, scores.shape) else {
        let text = format!(
            "boxes of shape {:?}, scores {:?}",
            boxes.shape, scores.shape
        );
        return Err(text);
    };
    if (images, count) != (others, scored) {
        return Err(format!(
            "{images} x {count} boxes, {others} x {scored} scores"
        ));
    }
    let missing = || "it has no boxes or scores".to_owned();
    let (boxes, scores) = (
        of.floats(0)?.ok_or_else(missing)?,
        of.floats(1)?.ok_or_else(missing)?,
    );
    let number =
        |argument: usize| Ok::<_, String>(of.floats(argument)?.and_then(|v| v.first().copied()));
    let most = of
        .input(2)
        .and_then(|lent| lent.data.integers()?.first().copied());
    let most = usize::try_from(most.unwrap_or(0)).unwrap_or(0);
    let (overlap, least) = (number(3)?.unwrap_or(0.0), number(4)?);
    let is_center = of.int("center_point_box", 0) != 0;
    let boxes: Vec<Area> = boxes
        .chunks_exact(4)
        .map(|b| Area::new(b, is_center))
        .collect();
    let mut chosen = Vec::new();
    let all = (0..images).flat_map(|image| (0..classes).map(move |class| (image, class)));
    for (image, class) in all {
        let own = &boxes[image * count..][..count];
        let scores = &scores[(image * classes + class) * count..][..count];
        let mut kept: Vec<usize> = Vec::new();
        for at in by_score(scores, least) {
            if kept.len() == most {
                break;
            }
            if kept
                .iter()
                .all(|&other| !own[at].covers(&own[other], overlap))
            {
                kept.push(at);
            }
        }
        let row = |at: &usize| [image, class, *at].map(|v| v as i32);
        chosen.extend(kept.iter().flat_map(row));
    }
    Ok(vec![Tensor {
        shape: vec![chosen.len() / 3, 3],
        data: Data::I32(chosen),
    }])
}

/// Boxes above the least score, the highest first; of equal ones the first.
fn by_score(scores: &[f32], least: Option<f32>) -> Vec<usize> {
    let above = |at: &usize| least.is_none_or(|least| scores[*at] > least);
    let mut order: Vec<usize> = (0..scores.len()).filter(above).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

/// A box by its lower and upper corner.
struct Area {
    low: [f32; 2],
    high: [f32; 2],
}

impl Area {
    fn new(of: &[f32], is_center: bool) -> Self {
        let [a, b, c, d] = [of[0], of[1], of[2], of[3]];
        if is_center {
            let (low, high) = ([a - c / 2.0, b - d / 2.0], [a + c / 2.0, b + d / 2.0]);
            return Self { low, high };
        }
        // Either corner may come first.
        Self {
            low: [a.min(c), b.min(d)],
            high: [a.max(c), b.max(d)],
        }
    }

    fn size(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// Whether the share of both that both cover is above a bound.
    fn covers(&self, other: &Self, bound: f32) -> bool {
        let side = |d: usize| self.high[d].min(other.high[d]) - self.low[d].max(other.low[d]);
        let (height, width) = (side(0), side(1));
        if height <= 0.0 || width <= 0.0 {
            return false;
        }
        let both = height * width;
        let (own, others) = (self.size(), other.size());
        let union = own + others - both;
        own > 0.0 && others > 0.0 && union > 0.0 && both / union > bound
    }
}
