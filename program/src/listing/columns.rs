//! What an instruction touches, in words: tensor coordinates, DRAM, scratchpads.
//!
//! Inputs and weights are named by what was loaded last to the tiles that an instruction reads. Accumulators are
//! named by the outputs that are stored from them later, which a walk backward finds.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use vta_isa::resolve::{AffineTiles, AluAccess, GemmAccess, Resolved, Rows, TileSet, Uops};
use vta_isa::{AluOp, Config, Insn, Load, MemType, Uop};

use super::geometry::{Geometry, LayerForm, Role};
use super::model::{ListedLayer, Listing};
use vta_files::printable;

/// Steps of a two-operand instruction whose pairs are looked at one by one.
const MAX_PAIRS: u64 = 1 << 16;

/// The last columns of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Tensors with the box of coordinates: from, and one past the last.
    pub operands: String,
    /// Bytes.
    pub dram: String,
    /// Scratchpad entries.
    pub scratchpad: String,
}

/// From, and one past the last, in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hull {
    from: [u64; 5],
    to: [u64; 5],
}

impl Hull {
    fn at(place: [u64; 5]) -> Self {
        Self {
            from: place,
            to: place.map(|at| at + 1),
        }
    }

    fn join(&mut self, other: &Self) {
        for d in 0..5 {
            self.from[d] = self.from[d].min(other.from[d]);
            self.to[d] = self.to[d].max(other.to[d]);
        }
    }
}

/// Something with coordinates.
pub(crate) struct Space {
    /// Its name.
    pub name: String,
    /// Names of its dimensions, outermost first.
    pub axes: &'static [&'static str],
    /// Their sizes.
    pub sizes: [u64; 5],
    /// Its first byte, and how many an element has.
    pub start: u64,
    /// Bytes of an element.
    pub elem: u64,
}

impl Space {
    /// Coordinates of the element at an address.
    pub fn place(&self, addr: u64) -> Option<[u64; 5]> {
        let mut index = addr.checked_sub(self.start)? / self.elem;
        let mut place = [0; 5];
        for d in (0..self.axes.len()).rev() {
            let size = self.sizes[d].max(1);
            place[d] = index % size;
            index /= size;
        }
        (index == 0).then_some(place)
    }

    /// A place in words.
    pub fn show(&self, place: [u64; 5]) -> String {
        self.show_hull(&Hull::at(place))
    }

    fn show_hull(&self, hull: &Hull) -> String {
        let each = self.axes.iter().enumerate();
        let each = each.map(|(d, axis)| match hull.to[d] - hull.from[d] {
            1 => format!("{axis} {}", hull.from[d]),
            _ => format!("{axis} {}..{}", hull.from[d], hull.to[d]),
        });
        let all: Vec<String> = each.collect();
        format!("{}[{}]", self.name, all.join(", "))
    }
}

impl Listing {
    /// A tensor's tiles.
    pub(crate) fn tensor_space(&self, tensor: u32) -> Space {
        let tensor = &self.tensors[tensor as usize];
        let [blocks, rows, cols] = tensor.tiles.map(u64::from);
        Space {
            name: printable(&tensor.name).into_owned(),
            axes: &["block", "y", "x"],
            sizes: [blocks, rows, cols, 0, 0],
            start: tensor.start,
            elem: self.config.elem_bytes(MemType::Inp) as u64,
        }
    }

    /// A constant's elements, as a layer has them.
    pub(crate) fn constant_space(&self, geometry: &Geometry, role: Role, buffer: u32) -> Space {
        let listed = &self.buffers[buffer as usize];
        let output = &self.tensors[geometry.output as usize];
        let [blocks, rows, cols] = output.tiles.map(u64::from);
        let elem = self.config.elem_bytes(role.mem()) as u64;
        let count = listed.bytes / elem;
        let (axes, sizes): (&'static [&'static str], [u64; 5]) = match (role, &geometry.form) {
            (Role::Weights | Role::Weights4, LayerForm::Conv(conv)) => {
                let [ky, kx] = conv.window.kernel.map(u64::from);
                let parts = u64::from(conv.parts);
                let ci = count / (blocks * ky * kx * parts).max(1);
                (&["o", "i", "ky", "kx", "part"], [blocks, ci, ky, kx, parts])
            }
            (Role::Bias, LayerForm::Conv(conv)) => {
                let steps = u64::from(conv.bias_steps).max(1);
                let regions = (conv.regions.len() as u64).max(1);
                (&["o", "region", "step"], [blocks, regions, steps, 0, 0])
            }
            (Role::Vectors, _) => {
                let lists = count / blocks.max(1);
                (&["list", "o"], [lists, blocks, 0, 0, 0])
            }
            (Role::Constants, _) if count == rows * cols => (&["y", "x"], [rows, cols, 0, 0, 0]),
            (Role::Constants, _) => (&["o", "y", "x"], [blocks, rows, cols, 0, 0]),
            _ => (&["tile"], [count, 0, 0, 0, 0]),
        };
        Space {
            name: printable(&listed.name).into_owned(),
            axes,
            sizes,
            start: listed.start,
            elem,
        }
    }

    /// Everything of a layer with coordinates: first its output, then its inputs and constants.
    pub(crate) fn spaces(&self, layer: &ListedLayer) -> Vec<Space> {
        let of = |geometry: &Geometry| {
            let tensors = [geometry.output]
                .into_iter()
                .chain(geometry.inputs.iter().copied());
            let tensors = tensors.map(|tensor| self.tensor_space(tensor));
            let constants = geometry.constants.iter();
            let constants =
                constants.map(|&(role, buffer)| self.constant_space(geometry, role, buffer));
            tensors.chain(constants).collect::<Vec<_>>()
        };
        layer.geometry.all().flat_map(of).collect()
    }

    /// The micro-ops that an instruction names, if its kernel has them.
    pub(crate) fn uops(&self, insn: &Insn, kernel: Option<u32>) -> Option<&[Uop]> {
        let Some((bgn, end)) = vta_isa::resolve::uop_range(insn) else {
            return Some(&[]);
        };
        let kernel = self.kernels.get(kernel? as usize)?;
        kernel.get(usize::from(bgn)..usize::from(end))
    }
}

/// The space of elements of some bytes that has an address, by its number, and the place in it.
pub(crate) fn find(spaces: &[Space], addr: u64, elem: u64) -> Option<(usize, [u64; 5])> {
    let spaces = spaces.iter().enumerate();
    // The output comes last: what is read is mostly an input's.
    let mut order = spaces.clone().skip(1).chain(spaces.take(1));
    order.find_map(|(at, space)| {
        let place = (space.elem == elem).then(|| space.place(addr))?;
        Some((at, place?))
    })
}

/// What entries of a scratchpad are: places in a space, by the space's number.
type Entries = Vec<Option<(usize, [u64; 5])>>;

/// A layer that is being walked over.
struct Walk<'l> {
    config: &'l Config,
    spaces: Vec<Space>,
    inp: Entries,
    wgt: Entries,
}

impl Columns {
    /// Those of a layer's instructions.
    pub fn of(listing: &Listing, layer: &ListedLayer) -> Vec<Self> {
        let config = &listing.config;
        let mut walk = Walk {
            config,
            spaces: listing.spaces(layer),
            inp: vec![None; config.depth(MemType::Inp)],
            wgt: vec![None; config.depth(MemType::Wgt)],
        };
        let resolve = |at: usize| {
            let listed = layer.insns.get(at)?;
            let uops = listing.uops(&listed.insn, listed.kernel)?;
            Resolved::of(config, &listed.insn, Uops::of(uops)).ok()
        };
        let mut all: Vec<Self> = Vec::with_capacity(layer.insns.len());
        for at in 0..layer.insns.len() {
            all.push(match resolve(at) {
                Some(resolved) => walk.forward(&resolved),
                None => Self {
                    scratchpad: "outside".to_owned(),
                    ..Self::default()
                },
            });
        }
        let mut acc: Vec<Option<Hull>> = vec![None; config.depth(MemType::Acc)];
        for at in (0..layer.insns.len()).rev() {
            if let Some(resolved) = resolve(at) {
                let own = walk.backward(&resolved, &mut acc);
                let operands = &mut all[at].operands;
                if !own.is_empty() {
                    let between = if operands.is_empty() { "" } else { "; " };
                    *operands = format!("{own}{between}{operands}");
                }
            }
        }
        all
    }
}

impl Walk<'_> {
    fn show(&self, hulls: &BTreeMap<usize, Hull>) -> String {
        let all = hulls
            .iter()
            .map(|(at, hull)| self.spaces[*at].show_hull(hull));
        all.collect::<Vec<_>>().join(" and ")
    }

    /// What LOADs and STOREs move, and what GEMMs multiply.
    fn forward(&mut self, resolved: &Resolved<'_>) -> Columns {
        match resolved {
            Resolved::Sync => Columns::default(),
            Resolved::Load(access) => {
                let load = &access.load;
                let hulls = self.load(load);
                let mut operands = self.show(&hulls);
                let pads = [load.y_pad_0, load.x_pad_0, load.y_pad_1, load.x_pad_1];
                if pads != [0; 4] {
                    let [top, left, bottom, right] = pads;
                    let _ = write!(
                        operands,
                        " padded {top} above, {left} left, {bottom} below, {right} right"
                    );
                }
                Columns {
                    operands,
                    dram: dram(&access.rows),
                    scratchpad: format!(
                        "{} {}..{}",
                        load.mem.scratchpad(),
                        access.entries.start,
                        access.entries.end
                    ),
                }
            }
            Resolved::Store(access) => {
                let mut hulls = BTreeMap::new();
                let elem = self.config.elem_bytes(MemType::Out) as u64;
                for row in access.rows.iter() {
                    for addr in row.step_by(elem as usize) {
                        if let Some(place) = self.spaces[0].place(addr) {
                            add(&mut hulls, 0, &Hull::at(place));
                        }
                    }
                }
                let mut scratchpad = format!("acc {}..{}", access.tiles.start, access.tiles.end);
                for (name, tiles) in access.store.operands() {
                    scratchpad += &format!(", {name} {}..{}", tiles.start, tiles.end);
                }
                Columns {
                    operands: self.show(&hulls),
                    dram: dram(&access.rows),
                    scratchpad,
                }
            }
            Resolved::Gemm(access) => self.gemm(access),
            Resolved::Depthwise(access) => {
                let inputs = access.inputs();
                let runs = || inputs.runs();
                let ends = runs().next().map_or(0, |run| run.start)
                    ..runs().last().map_or(0, |run| run.end);
                let mut scratchpad = span("acc", &access.dst);
                let _ = write!(scratchpad, " inp {}..{}", ends.start, ends.end);
                scratchpad.push_str(&span(" wgt", &access.wgt));
                Columns {
                    operands: self.products(&inputs, &access.wgt.set()),
                    dram: String::new(),
                    scratchpad,
                }
            }
            Resolved::Alu(access) => {
                let mut scratchpad = span("acc", &access.dst);
                if let Some(src) = &access.src {
                    scratchpad.push_str(&span(" with acc", src));
                }
                Columns {
                    scratchpad,
                    ..Columns::default()
                }
            }
        }
    }

    fn load(&mut self, load: &Load) -> BTreeMap<usize, Hull> {
        let elem = self.config.elem_bytes(load.mem) as u64;
        let mut hulls = BTreeMap::new();
        for fill in load.fills(self.config) {
            for (at, entry) in fill.entries.enumerate() {
                let addr = fill.from.as_ref().map(|from| from.start + at as u64 * elem);
                let place = addr.and_then(|addr| find(&self.spaces, addr, elem));
                if let Some((space, place)) = place {
                    add(&mut hulls, space, &Hull::at(place));
                }
                let entries = match load.mem {
                    MemType::Inp => &mut self.inp,
                    MemType::Wgt | MemType::Wgt4 => &mut self.wgt,
                    MemType::Acc | MemType::Acc8 | MemType::Out | MemType::Uop => continue,
                };
                if let Some(entry) = entries.get_mut(entry) {
                    *entry = place;
                }
            }
        }
        hulls
    }

    fn gemm(&self, access: &GemmAccess<'_>) -> Columns {
        let mut scratchpad = span("acc", &access.dst);
        let mut operands = String::new();
        if let Some([inp, wgt]) = &access.operands {
            scratchpad.push_str(&span(" inp", inp));
            scratchpad.push_str(&span(" wgt", wgt));
            operands = self.products(&inp.set(), &wgt.set());
        }
        Columns {
            operands,
            dram: String::new(),
            scratchpad,
        }
    }

    /// What inputs and weights of products are.
    fn products(&self, inp: &TileSet, wgt: &TileSet) -> String {
        let of = |tiles: &TileSet, entries: &Entries| {
            let mut hulls = BTreeMap::new();
            for run in tiles.runs() {
                for &(space, place) in entries[run].iter().flatten() {
                    add(&mut hulls, space, &Hull::at(place));
                }
            }
            self.show(&hulls)
        };
        [of(inp, &self.inp), of(wgt, &self.wgt)].join(" times ")
    }

    /// The outputs that accumulators become.
    fn backward(&self, resolved: &Resolved<'_>, acc: &mut [Option<Hull>]) -> String {
        match resolved {
            Resolved::Sync => String::new(),
            Resolved::Load(access) => {
                if matches!(access.load.mem, MemType::Acc | MemType::Acc8) {
                    acc[access.entries.clone()].fill(None);
                }
                String::new()
            }
            Resolved::Store(access) => {
                let elem = self.config.elem_bytes(MemType::Out);
                let addrs = access.rows.iter().flat_map(|row| row.step_by(elem));
                for (tile, addr) in access.tiles.clone().zip(addrs) {
                    acc[tile] = self.spaces[0].place(addr).map(Hull::at);
                }
                String::new()
            }
            Resolved::Gemm(access) => {
                let becomes = self.becomes(&access.dst, acc);
                if access.operands.is_none() || access.gemm.overwrite {
                    for run in access.dst.set().runs() {
                        acc[run].fill(None);
                    }
                }
                becomes
            }
            Resolved::Depthwise(access) => {
                let becomes = self.becomes(&access.dst, acc);
                if access.insn.overwrite {
                    for run in access.dst.set().runs() {
                        acc[run].fill(None);
                    }
                }
                becomes
            }
            Resolved::Alu(access) => {
                let becomes = self.becomes(&access.dst, acc);
                if access.src.is_some() {
                    sources(access, acc);
                }
                if access.alu.op == AluOp::Mov {
                    for run in access.dst.set().runs() {
                        acc[run].fill(None);
                    }
                }
                becomes
            }
        }
    }

    fn becomes(&self, tiles: &AffineTiles<'_>, acc: &[Option<Hull>]) -> String {
        let mut hulls = BTreeMap::new();
        for run in tiles.set().runs() {
            for hull in acc[run].iter().flatten() {
                add(&mut hulls, 0, hull);
            }
        }
        if hulls.is_empty() {
            String::new()
        } else {
            format!("for {}", self.show(&hulls))
        }
    }
}

/// Second operands become what the first do.
fn sources(access: &AluAccess<'_>, acc: &mut [Option<Hull>]) {
    let trips = access.dst.loops.trips.map(u64::from);
    let steps = trips[0] * trips[1] * access.uops.known.len() as u64;
    if steps > MAX_PAIRS {
        return;
    }
    for (dst, src) in access.steps() {
        if let Some(hull) = acc[dst as usize]
            && dst != src
        {
            match &mut acc[src as usize] {
                Some(own) => own.join(&hull),
                own @ None => *own = Some(hull),
            }
        }
    }
}

fn add(hulls: &mut BTreeMap<usize, Hull>, space: usize, hull: &Hull) {
    hulls.entry(space).or_insert(*hull).join(hull);
}

fn span(name: &str, tiles: &AffineTiles<'_>) -> String {
    let span = tiles.span();
    format!("{name} {}..{}", span.start, span.end)
}

fn dram(rows: &Rows) -> String {
    let (span, count) = (rows.span(), rows.iter().count());
    let mut text = format!("0x{:x}..0x{:x}", span.start, span.end);
    let mut starts = rows.iter();
    if let (Some(first), Some(second)) = (starts.next(), starts.next()) {
        let (bytes, apart) = (first.end - first.start, second.start - first.start);
        if bytes != apart {
            let _ = write!(text, " {count} rows of {bytes} every {apart}");
        }
    }
    text
}
