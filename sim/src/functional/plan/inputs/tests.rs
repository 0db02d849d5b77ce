use proptest::prelude::*;
use vta_isa::Insn;
use vta_isa::resolve::{Resolved, Uops};

use super::*;

/// A load, the region that it reads, and where it begins there.
type Loading = (Load, usize, usize);

fn load() -> impl Strategy<Value = Loading> {
    let sizes = (0u16..40, 1u16..5, 1u16..4, 0u16..5);
    let pads = [0u8..3, 0u8..3, 0u8..3, 0u8..3];
    (sizes, pads, 0usize..2, 0usize..50).prop_map(|(sizes, pads, region, start)| {
        let load = Load {
            sram_base: sizes.0,
            x_size: sizes.1,
            y_size: sizes.2,
            x_stride: sizes.3,
            y_pad_0: pads[0],
            y_pad_1: pads[1],
            x_pad_0: pads[2],
            x_pad_1: pads[3],
            ..Load::default()
        };
        (load, region, start)
    })
}

/// Loads and lists of tiles that come after each other, often the same in another place.
#[derive(Clone, Debug)]
enum Event {
    Load(Loading),
    /// The same load from further on.
    Again(usize, usize),
    Find(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => load().prop_map(Event::Load),
        2 => (0usize..8, 0usize..50).prop_map(|(which, start)| Event::Again(which, start)),
        4 => (0usize..4).prop_map(Event::Find),
    ]
}

fn access(config: &Config, load: Load) -> LoadAccess {
    match Resolved::of(config, &Insn::Load(load), Uops::of(&[])) {
        Ok(Resolved::Load(access)) => access,
        other => panic!("{load:?} is {other:?}"),
    }
}

/// Where a tile comes from, one by one: padding, or region, byte and the operations before its load.
type Source = Option<(usize, usize, usize)>;

/// What the tiles of a list are, from what each tile is.
fn expected(
    held: &[Option<Source>],
    list: &[u32],
    lanes: usize,
) -> Option<(Vec<u32>, Span, usize)> {
    let sources: Vec<Source> = list
        .iter()
        .map(|&t| held[t as usize])
        .collect::<Option<_>>()?;
    let inside: Vec<_> = sources.iter().flatten().collect();
    let region = inside.first()?.0;
    if inside.iter().any(|s| s.0 != region) {
        return None;
    }
    let (low, high) = (
        inside.iter().map(|s| s.1).min()?,
        inside.iter().map(|s| s.1).max()?,
    );
    let places = sources
        .iter()
        .map(|s| s.map_or(PADDING, |s| s.1 as u32))
        .collect();
    let len = high - low + lanes;
    let span = Span {
        region,
        start: low,
        len,
    };
    Some((places, span, inside.iter().map(|s| s.2).min()?))
}

proptest! {
    #[test]
    fn tiles_lie_where_the_last_load_found_them(
        lists in prop::collection::vec(prop::collection::vec(0u32..60, 1..12), 4),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let config = Config::default();
        let lanes = config.lanes();
        let lists: Vec<Rc<[u32]>> = lists.into_iter().map(Rc::from).collect();
        let mut inputs = InputTiles::new(&config);
        let mut held: Vec<Option<Source>> = vec![None; config.depth(MemType::Inp)];
        let mut loads: Vec<Loading> = Vec::new();
        for (since, event) in events.into_iter().enumerate() {
            let (load, region, start) = match event {
                Event::Load(loading) => loading,
                Event::Again(which, start) => match loads.get(which) {
                    Some(&(load, region, _)) => (load, region, start),
                    None => continue,
                },
                Event::Find(which) => {
                    let list = &lists[which];
                    let (low, high) = (list.iter().min(), list.iter().max());
                    let ends = low.map_or(0, |t| *t as usize)..high.map_or(0, |t| *t as usize) + 1;
                    let found = inputs.find(list, &ends);
                    let found = found.map(|(places, span, since)| (places.iter().collect(), span, since));
                    prop_assert_eq!(found, expected(&held, list, lanes));
                    continue;
                }
            };
            loads.push((load, region, start));
            let load = Load { dram_base: start as u32, ..load };
            let access = access(&config, load);
            let rows = access.rows.span();
            // Regions lie at address 0.
            let span = Span { region, start: rows.start as usize, len: (rows.end - rows.start) as usize };
            inputs.load(&access, span, since);
            // Row by row, as the instruction is defined.
            let width = usize::from(load.x_pad_0) + usize::from(load.x_size) + usize::from(load.x_pad_1);
            for at in 0..load.sram_tiles() as usize {
                let (y, x) = (at / width, at % width);
                let y = y.checked_sub(load.y_pad_0.into()).filter(|y| *y < load.y_size.into());
                let x = x.checked_sub(load.x_pad_0.into()).filter(|x| *x < load.x_size.into());
                let tile = y.zip(x).map(|(y, x)| start + y * usize::from(load.x_stride) + x);
                let source = tile.map(|tile| (region, tile * lanes, since));
                held[usize::from(load.sram_base) + at] = Some(source);
            }
        }
    }
}
