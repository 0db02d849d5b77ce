use super::*;

const DEPTHS: [u32; 3] = [16, 16, 16];

#[test]
fn segments_know_the_last_writer_of_each_tile() {
    let mut written = Written::new(16, Writer(0));
    let mut expected = [Writer(0); 16];
    let mut seed = 1u32;
    for writer in (1..2000).map(Writer) {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
        let (a, b) = (seed >> 16 & 15, seed >> 20 & 15);
        let range = a.min(b)..a.max(b) + u32::from(seed >> 24 & 1 == 1);
        written.set(&range, writer);
        expected[range.start as usize..range.end as usize].fill(writer);
        for tile in 0..16 {
            let over = written.over(&(tile..tile + 1));
            assert_eq!(over.len(), 1);
            assert_eq!(over[0].writer, expected[tile as usize], "{written:?}");
            let around = written.around(&(tile..tile + 1));
            assert!(around.contains(&tile) && around.end <= 16);
            let of = |tile: u32| written.over(&(tile..tile + 1))[0].first;
            assert!(around.clone().all(|other| of(other) == of(tile)));
        }
        let starts: Vec<u32> = written.over(&(0..16)).iter().map(|s| s.first).collect();
        assert!(starts[0] == 0 && starts.is_sorted_by(|a, b| a < b));
    }
}

/// The shifts of writes of input tiles, with `room` tiles beyond home.
fn shifts(room: u32, writes: &[Range<u32>], reads: &[(usize, &[Range<u32>])]) -> Vec<u32> {
    let mut versions = Versions::new(DEPTHS);
    for (step, write) in writes.iter().enumerate() {
        versions.write(Scratchpad::Inp, std::slice::from_ref(write), step);
        for (_, spans) in reads.iter().filter(|r| r.0 == step) {
            versions.join(Scratchpad::Inp, spans.iter().cloned(), step);
        }
    }
    let mut places = versions.places([room, 0, 0]);
    let write = |(step, run): (usize, &Range<u32>)| {
        let shift = places.write(Scratchpad::Inp, std::slice::from_ref(run), step);
        assert_eq!(places.shift(Scratchpad::Inp, run.start), shift);
        shift
    };
    writes.iter().enumerate().map(write).collect()
}

#[test]
fn what_is_overwritten_gets_a_place_and_what_is_left_stays() {
    assert_eq!(shifts(16, &[0..4, 0..4, 0..4], &[]), [16, 20, 0]);
    assert_eq!(shifts(16, &[0..4, 8..12, 0..4], &[]), [16, 0, 0]);
    assert_eq!(shifts(16, &[0..4, 0..3], &[]), [0, 0], "tile 3 is left");
    assert_eq!(shifts(3, &[0..4, 0..4], &[]), [0, 0], "no room");
}

#[test]
fn tiles_that_are_read_together_move_together() {
    let writes = [4..6, 8..10, 0..16];
    assert_eq!(
        shifts(16, &writes, &[(1, &[4..6]), (1, &[8..10])]),
        [12, 10, 0]
    );
    assert_eq!(shifts(16, &writes, &[(1, &[4..6, 8..10])]), [12, 12, 0]);
    // A span over tiles that the batch found.
    assert_eq!(shifts(16, &writes, &[(1, &[4..10])]), [0, 0, 0]);
    let beside = [4..6, 6..8, 0..16];
    assert_eq!(shifts(16, &beside, &[(1, &[5..7])]), [12, 12, 0]);
}

#[test]
fn a_place_is_used_again_only_when_its_group_is_done() {
    let writes = [0..8, 8..16, 0..8, 0..8, 0..16];
    // Two places of 8 tiles; the first two writes are read until the third step.
    let reads: [(usize, &[Range<u32>]); 2] = [(1, &[0..8]), (2, &[8..16])];
    assert_eq!(shifts(16, &writes, &reads), [16, 16, 16, 24, 0]);
    assert_eq!(shifts(8, &writes, &reads), [16, 0, 16, 16, 0]);
}

/// Some range of the scratchpad's tiles, which isn't empty.
fn span(seed: &mut u32) -> Range<u32> {
    *seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
    let (a, b) = (*seed >> 16 & 15, *seed >> 20 & 15);
    a.min(b)..a.max(b).min(a.min(b) + 3) + 1
}

#[test]
fn many_spans_and_tiles_at_once_are_as_one_by_one() {
    let mut seed = 1;
    for _ in 0..500 {
        let [mut each, mut together] = [(); 2].map(|()| Versions::new(DEPTHS));
        let writes: Vec<_> = (0..8).map(|_| span(&mut seed)).collect();
        for (step, write) in writes.iter().enumerate() {
            let spans: Vec<_> = (0..4).map(|_| span(&mut seed)).collect();
            for versions in [&mut each, &mut together] {
                versions.write(Scratchpad::Inp, std::slice::from_ref(write), step);
            }
            for span in &spans {
                each.join(Scratchpad::Inp, [span.clone()], step);
            }
            together.join_each(Scratchpad::Inp, spans, step);
        }
        let [mut each, mut together] = [each, together].map(|v| v.places([64, 0, 0]));
        for (step, write) in writes.iter().enumerate() {
            let runs = std::slice::from_ref(write);
            let shift = each.write(Scratchpad::Inp, runs, step);
            assert_eq!(together.write(Scratchpad::Inp, runs, step), shift);
            let tiles: Vec<u32> = (0..4).flat_map(|_| span(&mut seed)).collect();
            let mut shifts = together.shifts(Scratchpad::Inp);
            let shift = |tile: &u32| each.shift(Scratchpad::Inp, *tile);
            let expected: Vec<u32> = tiles.iter().map(shift).collect();
            assert_eq!(
                tiles.into_iter().map(&mut shifts).collect::<Vec<_>>(),
                expected
            );
        }
    }
}
