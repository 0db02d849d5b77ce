//! Lane-wise steps on the sums of a product.

use std::borrow::Cow;

use vta_isa::AluOp;

pub(in crate::kernels) use self::floors::Floors;
use self::floors::{Numbers, Stages};
use super::super::{COLUMN, MAX_COLUMNS};

/// The second operand of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operand {
    Imm(i32),
    /// For each column, the accumulator tile's lanes, in int32.
    Tiles([u32; MAX_COLUMNS]),
    /// For each column, the values of its lanes, the same in every row.
    Lanes(Box<[[i32; COLUMN]]>),
    /// The product's residual, sign-extended, times each column's values. It is always added.
    Scaled(Box<[[i32; COLUMN]]>),
}

/// One lane-wise step on the sums. Shifts by an immediate have amounts of 0 to 31.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub op: AluOp,
    pub operand: Operand,
}

impl Step {
    /// An immediate step with shift amounts brought into 0..32.
    pub fn immediate(op: AluOp, imm: i32) -> Self {
        Self::immediate_times(op, imm, 1)
    }

    /// What an immediate step does that is done so many times in a row, at least once, as one.
    pub fn immediate_times(op: AluOp, imm: i32, times: u32) -> Self {
        let (op, imm) = match (op, imm < 0) {
            (AluOp::Shr, true) => (AluOp::Shl, imm.wrapping_neg() & 31),
            (AluOp::Shl, true) => (AluOp::Shr, imm.wrapping_neg() & 31),
            (AluOp::Shr | AluOp::Shl, false) => (op, imm & 31),
            (AluOp::Min | AluOp::Max | AluOp::Add | AluOp::Mul | AluOp::Clip | AluOp::Mov, _) => {
                (op, imm)
            }
        };
        let (op, imm) = match op {
            AluOp::Min | AluOp::Max | AluOp::Clip | AluOp::Mov => (op, imm),
            AluOp::Add => (op, imm.wrapping_mul(times as i32)),
            AluOp::Mul => (op, imm.wrapping_pow(times)),
            // After 31 places only the sign is left.
            AluOp::Shr => (op, (imm as u32).saturating_mul(times).min(31) as i32),
            AluOp::Shl => match (imm as u32).saturating_mul(times) {
                places @ 0..32 => (op, places as i32),
                _ => (AluOp::Mul, 0),
            },
        };
        let operand = Operand::Imm(imm);
        Self { op, operand }
    }

    /// A step, or the two that a CLIP by what is known is: ends of sums have such.
    fn apart(self) -> impl Iterator<Item = Self> {
        let bound = |at: usize, op| {
            let of = |y| AluOp::clip_bounds(y)[at];
            let operand = match &self.operand {
                Operand::Imm(y) => Operand::Imm(of(*y)),
                Operand::Lanes(all) => Operand::Lanes(all.iter().map(|y| y.map(of)).collect()),
                Operand::Tiles(_) | Operand::Scaled(_) => return None,
            };
            (self.op == AluOp::Clip).then_some(Self { op, operand })
        };
        let pair = bound(1, AluOp::Min).zip(bound(0, AluOp::Max));
        let [first, second] = match pair {
            Some((min, max)) => [min, max].map(Some),
            None => [Some(self), None],
        };
        first.into_iter().chain(second)
    }
}

/// The residual times factors, in two digits: `((sum + high * residual) >> shift) + low * residual`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Digits {
    /// Factors of each column.
    pub high: Box<[[i32; COLUMN]]>,
    /// 0 to 31.
    pub shift: i32,
    /// Factors of each column; zeros if there is one digit.
    pub low: Box<[[i32; COLUMN]]>,
}

/// What each column has for its lanes.
type Lanes<'a> = Cow<'a, [[i32; COLUMN]]>;

/// What one has, as a line of the caches.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Lane(pub [i32; COLUMN]);

/// How sums usually end: a residual, then clamp, multiply, shift, clamp, multiply, add, shift and clamp, each of which
/// may be missing. A kernel does it all to a sum at once, in registers. Lanes are places among those of the [`Steps`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Requantize<L = usize> {
    pub residual: Option<Digits>,
    /// Lower and upper bounds before the first of two multiplications.
    pub bounds: Option<[L; 2]>,
    /// The factors of that.
    pub first: Option<L>,
    /// Arithmetic shift right before the multiplication, 0 to 31.
    pub shift: i32,
    /// Bounds before the multiplication; those of an int32 if there are none.
    pub clamp: [i32; 2],
    /// The factors; without them there is nothing of all that before.
    pub factors: Option<L>,
    /// What is added to the products.
    pub added: Option<L>,
    /// As above, after the multiplication.
    pub last_shift: i32,
    pub last_clamp: [i32; 2],
    /// Where saturating to int8 loses nothing: what is left of the last clamp behind it.
    pub bytes: Option<[i8; 2]>,
    /// What a sum that is stored as a byte may go through instead of all but the residual.
    pub floors: Option<Floors<L>>,
}

/// Steps in order, and how they end.
#[derive(Debug)]
pub(crate) struct Steps {
    list: Box<[Step]>,
    /// How many of them `end` doesn't cover.
    before_end: usize,
    end: Requantize,
    /// Those of the end, all columns of each one behind the other.
    lanes: Box<[Lane]>,
    most_tile: u32,
    /// How many columns steps have values for; `None` if none has.
    columns: Option<usize>,
    reads_residual: bool,
}

impl Steps {
    pub fn new(list: Vec<Step>) -> Self {
        let list: Vec<Step> = if list.iter().any(|step| step.op == AluOp::Clip) {
            list.into_iter().flat_map(Step::apart).collect()
        } else {
            list
        };
        let tiles = list.iter().filter_map(|step| match &step.operand {
            Operand::Tiles(tiles) => tiles.iter().copied().max(),
            Operand::Imm(_) | Operand::Lanes(_) | Operand::Scaled(_) => None,
        });
        let most_tile = tiles.max().unwrap_or(0);
        let (before_end, end) = Requantize::of(&list);
        let (end, lanes) = end.pack();
        let operands = || list.iter().map(|step| &step.operand);
        let columns = operands().filter_map(|operand| match operand {
            Operand::Lanes(values) | Operand::Scaled(values) => Some(values.len()),
            Operand::Imm(_) | Operand::Tiles(_) => None,
        });
        // Steps that don't agree fit no product.
        let columns = columns.reduce(|a, b| if a == b { a } else { usize::MAX });
        let reads_residual = operands().any(|operand| matches!(operand, Operand::Scaled(_)));
        Self {
            columns,
            reads_residual,
            list: list.into(),
            before_end,
            end,
            lanes,
            most_tile,
        }
    }

    /// All steps.
    pub fn list(&self) -> &[Step] {
        &self.list
    }

    /// Steps and how it goes on: together the same as [`Self::list`].
    pub fn parts(&self) -> (&[Step], &Requantize) {
        (&self.list[..self.before_end], &self.end)
    }

    /// What the end's lanes are, each of all columns.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The largest tile that one names.
    pub fn most_tile(&self) -> u32 {
        self.most_tile
    }

    /// Whether one scales the residual.
    pub fn reads_residual(&self) -> bool {
        self.reads_residual
    }

    /// Whether all have values for that many columns.
    pub fn fit(&self, columns: usize) -> bool {
        self.columns.is_none_or(|c| c == columns)
    }

    /// The factors of each column if all there is is a multiplication by them.
    #[cfg(target_arch = "x86_64")]
    pub fn factors(&self) -> Option<&[[i32; COLUMN]]> {
        match &self.list[..] {
            [step] if step.op == AluOp::Mul => match &step.operand {
                Operand::Lanes(factors) => Some(factors),
                Operand::Imm(_) | Operand::Tiles(_) | Operand::Scaled(_) => None,
            },
            _ => None,
        }
    }
}

impl<'a> Requantize<Lanes<'a>> {
    /// The longest end of the list that has the form; how many steps are before it.
    fn of(list: &'a [Step]) -> (usize, Self) {
        let (list, last_clamp) = take_clamp(list);
        let (list, last_shift) = take_shift(list);
        let mut end = Self {
            residual: None,
            bounds: None,
            first: None,
            shift: 0,
            clamp: UNBOUNDED,
            factors: None,
            added: None,
            last_shift,
            last_clamp,
            bytes: byte_bounds(last_clamp),
            floors: None,
        };
        let (products, added) = match last_lanes(list, AluOp::Add) {
            Some((before, added)) => (before, Some(added)),
            None => (list, None),
        };
        let Some((before, factors)) = last_lanes(products, AluOp::Mul) else {
            let (before, residual) = take_residual(list);
            end.residual = residual;
            return (before.len(), end);
        };
        let (before, clamp) = take_clamp(before);
        let (mut before, shift) = take_shift(before);
        (end.clamp, end.shift) = (clamp, shift);
        // Neither sign nor size is lost in the multiplication.
        let fits = |&factor: &i32| factor >= 0 && factor.checked_mul(clamp[1]).is_some();
        if added.is_none() && clamp[0] >= 0 && factors.as_flattened().iter().all(fits) {
            // What is never negative needs no lower bound.
            end.bytes = byte_bounds([last_clamp[0].max(0), last_clamp[1]]);
        }
        if let Some((rest, first)) = last_lanes(before, AluOp::Mul) {
            (before, end.bounds) = take_bounds(rest, first.len());
            end.first = Some(first);
        }
        (end.added, end.factors) = (added, Some(factors));
        let (before, residual) = take_residual(before);
        end.residual = residual;
        if end.bytes.is_none() && end.ends_in_bytes() {
            end.bytes = byte_bounds([last_clamp[0].max(-128), last_clamp[1].min(127)]);
        }
        let lanes = end.numbers().map(Iterator::collect::<Vec<_>>);
        if let (Some(lanes), Some(bytes)) = (lanes, end.bytes)
            && let Some((floors, bytes)) = Floors::of(&end.stages(), &lanes, bytes)
        {
            (end.floors, end.bytes) = (Some(floors.map(Lanes::from)), Some(bytes));
        }
        (before.len(), end)
    }

    /// The same with its lanes in one list.
    fn pack(self) -> (Requantize, Box<[Lane]>) {
        let mut lanes = Vec::new();
        let mut place = |all: Lanes<'_>| {
            let place = lanes.len();
            lanes.extend(all.iter().map(|lane| Lane(*lane)));
            place
        };
        let packed = Requantize {
            residual: self.residual,
            bounds: self.bounds.map(|bounds| bounds.map(&mut place)),
            first: self.first.map(&mut place),
            shift: self.shift,
            clamp: self.clamp,
            factors: self.factors.map(&mut place),
            added: self.added.map(&mut place),
            last_shift: self.last_shift,
            last_clamp: self.last_clamp,
            bytes: self.bytes,
            floors: self.floors.map(|floors| floors.map(&mut place)),
        };
        (packed, lanes.into())
    }

    /// Whether bounds before the first multiplication keep the end a byte, whatever the sum is: nothing wraps, and so
    /// each operation takes an interval to the one between what it makes of the ends.
    fn ends_in_bytes(&self) -> bool {
        let Some(mut lanes) = self.numbers() else {
            return false;
        };
        let stages = self.stages();
        let byte = |x, lane: &Numbers| stages.unwrapped(x, lane).map(i8::try_from);
        lanes.all(|lane| {
            lane.bounds
                .iter()
                .all(|&x| matches!(byte(x, &lane), Some(Ok(_))))
        })
    }

    /// Each lane's numbers if there are bounds and two multiplications.
    fn numbers(&self) -> Option<impl Iterator<Item = Numbers>> {
        let [low, high] = self
            .bounds
            .as_ref()?
            .each_ref()
            .map(|all| all.as_flattened());
        let first = self.first.as_ref()?.as_flattened();
        let factors = self.factors.as_ref()?.as_flattened();
        let added = self.added.as_ref().map(|all| all.as_flattened());
        let others = [low, high, factors, added.unwrap_or(first)];
        let same = others.iter().all(|all| all.len() == first.len());
        let numbers = move |lane: usize| Numbers {
            bounds: [low[lane], high[lane]],
            first: first[lane],
            factor: factors[lane],
            added: added.map_or(0, |added| added[lane]),
        };
        same.then(|| (0..first.len()).map(numbers))
    }

    fn stages(&self) -> Stages {
        Stages {
            shift: self.shift,
            clamp: self.clamp,
            last_shift: self.last_shift,
        }
    }
}

/// Bounds of a clamp that are those of a byte, too.
fn byte_bounds(clamp: [i32; 2]) -> Option<[i8; 2]> {
    let [low, high] = clamp.map(|bound| i8::try_from(bound).ok());
    low.zip(high).map(|(low, high)| [low, high])
}

fn last_scaled(list: &[Step]) -> Option<(&[Step], &[[i32; COLUMN]])> {
    match list {
        [before @ .., step] => match &step.operand {
            Operand::Scaled(factors) => Some((before, factors)),
            Operand::Imm(_) | Operand::Tiles(_) | Operand::Lanes(_) => None,
        },
        [] => None,
    }
}

/// One or two scaled residuals at the end, with a shift between them.
fn take_residual(list: &[Step]) -> (&[Step], Option<Digits>) {
    let Some((before, last)) = last_scaled(list) else {
        return (list, None);
    };
    let (first, shift) = take_shift(before);
    if let Some((rest, high)) = last_scaled(first) {
        let digits = Digits {
            high: high.into(),
            shift,
            low: last.into(),
        };
        return (rest, Some(digits));
    }
    let digits = Digits {
        high: last.into(),
        shift: 0,
        low: vec![[0; COLUMN]; last.len()].into(),
    };
    (before, Some(digits))
}

fn last_lanes(list: &[Step], op: AluOp) -> Option<(&[Step], Lanes<'_>)> {
    match list {
        [before @ .., step] if step.op == op => match &step.operand {
            Operand::Lanes(lanes) => Some((before, Cow::Borrowed(lanes))),
            Operand::Imm(_) | Operand::Tiles(_) | Operand::Scaled(_) => None,
        },
        _ => None,
    }
}

/// MIN and MAX at the end as bounds of each lane of so many columns, in either order as for [`take_clamp`].
fn take_bounds(list: &[Step], columns: usize) -> (&[Step], Option<[Lanes<'_>; 2]>) {
    let (mut rest, mut low, mut high) = (list, None, None);
    for _ in 0..2 {
        for (op, bound) in [(AluOp::Min, &mut high), (AluOp::Max, &mut low)] {
            let all = |(before, imm)| (before, Lanes::from(vec![[imm; COLUMN]; columns]));
            let found = last_lanes(rest, op).or_else(|| last_immediate(rest, op).map(all));
            if bound.is_none()
                && let Some((before, lanes)) = found
            {
                (rest, *bound) = (before, Some(lanes));
            }
        }
    }
    if low.is_none() && high.is_none() {
        return (list, None);
    }
    let [least, most] = UNBOUNDED.map(|bound| vec![[bound; COLUMN]; columns].into());
    let [low, high] = [low.unwrap_or(least), high.unwrap_or(most)];
    let mut pairs = low.as_flattened().iter().zip(high.as_flattened());
    if low.len() != high.len() || pairs.any(|(low, high)| low > high) {
        return (list, None);
    }
    (rest, Some([low, high]))
}

fn last_immediate(list: &[Step], op: AluOp) -> Option<(&[Step], i32)> {
    match list {
        [before @ .., step] if step.op == op => match step.operand {
            Operand::Imm(imm) => Some((before, imm)),
            Operand::Tiles(_) | Operand::Lanes(_) | Operand::Scaled(_) => None,
        },
        _ => None,
    }
}

/// Bounds of a clamp that is none.
pub(in crate::kernels) const UNBOUNDED: [i32; 2] = [i32::MIN, i32::MAX];

/// MIN and MAX at the end, in either order: bounds in either order are the same unless they
/// cross, which is left alone.
fn take_clamp(list: &[Step]) -> (&[Step], [i32; 2]) {
    let (mut rest, mut low, mut high) = (list, None, None);
    while low.is_none() || high.is_none() {
        if let (Some((before, imm)), None) = (last_immediate(rest, AluOp::Min), high) {
            (rest, high) = (before, Some(imm));
        } else if let (Some((before, imm)), None) = (last_immediate(rest, AluOp::Max), low) {
            (rest, low) = (before, Some(imm));
        } else {
            break;
        }
    }
    let bounds = [low.unwrap_or(UNBOUNDED[0]), high.unwrap_or(UNBOUNDED[1])];
    if bounds[0] > bounds[1] {
        return (list, UNBOUNDED);
    }
    (rest, bounds)
}

fn take_shift(list: &[Step]) -> (&[Step], i32) {
    last_immediate(list, AluOp::Shr).unwrap_or((list, 0))
}

mod floors;
#[cfg(test)]
mod tests;
