//! Where the roofline's numbers go: none on another text, a dot or the roof.

/// A box in the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// Width of a letter at the pictures' 12 pixels, at most; letters above and below the baseline.
const LETTER: f64 = 7.7;
const ASCENT: f64 = 9.5;
const DESCENT: f64 = 3.0;
/// What lies between a dot and its number.
const GAP: f64 = 2.5;

impl Area {
    /// The box of a text whose baseline's middle is given.
    pub fn of_text(text: &str, (x, baseline): (f64, f64)) -> Self {
        let half = width(text) / 2.0;
        Self {
            left: x - half,
            top: baseline - ASCENT,
            right: x + half,
            bottom: baseline + DESCENT,
        }
    }

    /// The box of a dot.
    pub fn of_dot((x, y): (f64, f64), radius: f64) -> Self {
        Self {
            left: x - radius,
            top: y - radius,
            right: x + radius,
            bottom: y + radius,
        }
    }

    /// Whether two boxes have a place in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn lies_in(&self, other: &Self) -> bool {
        self.left >= other.left
            && self.right <= other.right
            && self.top >= other.top
            && self.bottom <= other.bottom
    }
}

/// Width of a text, at most.
pub fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// The middle of a baseline for a dot's text that meets nothing that is taken and lies in
/// `within`: above the dot if it can be, else beside, below or across from it.
pub fn place(
    text: &str,
    (x, y): (f64, f64),
    radius: f64,
    within: &Area,
    taken: &[Area],
) -> Option<(f64, f64)> {
    let (up, down) = (y - radius - GAP - DESCENT, y + radius + GAP + ASCENT);
    let (level, beside) = (
        y + (ASCENT - DESCENT) / 2.0,
        radius + GAP + width(text) / 2.0,
    );
    let across = beside * 0.8;
    let places = [
        (x, up),
        (x + beside, level),
        (x - beside, level),
        (x, down),
        (x + across, up + 2.0),
        (x - across, up + 2.0),
        (x + across, down - 2.0),
        (x - across, down - 2.0),
    ];
    places.into_iter().find(|&place| {
        let area = Area::of_text(text, place);
        area.lies_in(within) && !taken.iter().any(|other| area.meets(other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round_what_is_taken() {
        let within = Area {
            left: 0.0,
            top: 0.0,
            right: 100.0,
            bottom: 100.0,
        };
        let dot = Area::of_dot((50.0, 50.0), 5.0);
        let mut taken = vec![dot];
        let mut found = Vec::new();
        while let Some(at) = place("12", (50.0, 50.0), 5.0, &within, &taken) {
            let area = Area::of_text("12", at);
            assert!(!taken.iter().any(|other| area.meets(other)));
            taken.push(area);
            found.push(at);
        }
        assert!(found.len() >= 4, "{found:?}");
        assert!(found[0].1 < 45.0, "above first");
        assert_eq!(place("12", (2.0, 2.0), 5.0, &within, &[within]), None);
    }
}
