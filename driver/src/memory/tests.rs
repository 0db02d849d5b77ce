use super::*;

#[test]
fn accesses_stay_inside_one_region() {
    let mut m = DeviceMemory::new();
    m.map(0x1000, 16).unwrap();
    m.map(0x1010, 16).unwrap();
    m.write(0x1004, 4).unwrap().copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(m.read(0x1003, 6).unwrap(), [0, 1, 2, 3, 4, 0]);
    for (addr, len) in [
        (0xfff, 1),
        (0x1008, 9),
        (0x1020, 1),
        (u64::MAX, 2),
        (0x1000, u64::MAX),
        (0x1008, 25),
    ] {
        let crosses = matches!((addr, len), (0x1008, 9));
        match m.read(addr, len) {
            Err(MemoryError::OutOfBounds { .. }) => assert!(!crosses, "{addr:#x}"),
            Err(MemoryError::Crosses { boundary, .. }) => {
                assert!(crosses && boundary == 0x1010, "{addr:#x}");
            }
            other => panic!("{addr:#x}: {other:?}"),
        }
        assert!(m.write(addr, len).is_err());
    }
}

#[test]
fn overlapping_and_outside_maps_are_refused() {
    let mut m = DeviceMemory::new();
    m.map(0x1000, 16).unwrap();
    for (addr, size) in [
        (0x1000, 1),
        (0xff8, 9),
        (0x100f, 4),
        (u32::MAX, 2),
        (0, u64::MAX),
        (1, u64::MAX),
    ] {
        assert!(m.map(addr, size).is_err(), "{addr:#x} {size}");
    }
    m.map(0xff8, 8).unwrap();
    assert!(m.unmap(0x1000) && !m.unmap(0x1000));
    m.map(0x1000, 1).unwrap();
}

#[test]
fn layouts_and_versions_change_with_what_they_name() {
    let mut m = DeviceMemory::new();
    m.map(0x2000, 16).unwrap();
    let first = m.layout();
    m.map(0x1000, 16).unwrap();
    assert_ne!(first, m.layout());
    let span = m.span(0x2004, 4).unwrap();
    assert_eq!((span.region, span.start, span.len), (1, 4, 4));
    let version = m.version(span.region);
    assert_eq!(m.read(0x2004, 4).unwrap(), [0; 4]);
    assert_eq!(m.version(span.region), version);
    m.write(0x2004, 1).unwrap()[0] = 9;
    assert_ne!(m.version(span.region), version);
    assert_eq!(m.region(1)[4], 9);
    let layout = m.layout();
    assert!(m.unmap(0x1000));
    assert_ne!(layout, m.layout());
    assert!(m.region(7).is_empty() && m.region_mut(7).is_empty());
    let mut other = DeviceMemory::new();
    other.map(0x2000, 16).unwrap();
    assert_ne!(other.layout(), m.layout());
}

#[test]
fn an_excerpt_has_the_same_places_and_only_the_bytes_that_were_asked_for() {
    let mut memory = DeviceMemory::new();
    memory.map(0x1000, 16).unwrap();
    memory.map(0x4000, 1 << 17).unwrap();
    memory.write(0x1000, 16).unwrap().fill(7);
    memory.write(0x4000, 1 << 17).unwrap().fill(9);
    let spans = [(0x1004, 3), (0x4000 + 70_000, 5)].map(|(at, len)| memory.span(at, len).unwrap());
    let excerpt = memory.excerpt(&spans).unwrap();
    assert_eq!(excerpt.read(0x1003, 5).unwrap(), [0, 7, 7, 7, 0]);
    let bytes = excerpt.read(0x4000, 1 << 17).unwrap();
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, b)| *b == 9 * u8::from((70_000..70_005).contains(&at)))
    );
    assert_eq!(excerpt.layout(), memory.layout());
    assert_eq!(excerpt.version(1), memory.version(1));
    assert!(excerpt.has_regions_of(&memory));
    memory.map(0x9_0000, 1).unwrap();
    assert!(!excerpt.has_regions_of(&memory));
    let outside = Span {
        region: 0,
        start: 10,
        len: 7,
    };
    assert!(memory.excerpt(&[outside]).is_none());
    assert!(
        memory
            .excerpt(&[Span {
                start: usize::MAX,
                ..outside
            }])
            .is_none()
    );
}
