//! Images that were cut, changed, or made to do harm.

use vta_isa::{Insn, MemType};
use vta_rt::{Image, Runtime, Status, Visibility};

use crate::model::Model;
use crate::{BUS, demo};

/// CRC-32, a bit at a time: not the runtime's own.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

fn word(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

/// Makes the checksum of the tables right.
fn seal(image: &mut [u8]) {
    let constants = word(image, 24) as usize;
    if (16..=image.len()).contains(&constants) {
        let crc = crc32(&image[16..constants]);
        image[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn an_image_that_is_cut_anywhere_is_refused() {
    let image = &demo().layers;
    for len in 0..image.len() {
        let fault = Image::read(&image[..len]).unwrap_err();
        assert_eq!((fault.status, fault.value), (Status::ImageCut, len as u64));
        let needed = if len < 128 { 128 } else { image.len() };
        assert_eq!(fault.limit, needed as u64);
    }
    // What is behind it is none of it.
    let mut longer = image.clone();
    longer.extend([7; 100]);
    Image::read(&longer).unwrap();
}

#[test]
fn a_changed_byte_is_seen() {
    let image = &demo().layers;
    let mut changed = image.clone();
    for at in (0..image.len()).step_by(997).chain(0..130) {
        changed[at] ^= 0x10;
        let fault = Image::read(&changed).unwrap_err();
        let expected = match at {
            0..8 => Status::ImageMagic,
            8..12 => Status::ImageVersion,
            _ => Status::ImageChecksum,
        };
        // Sizes and where the constants begin say themselves that they can't be.
        let early = (20..32).contains(&at);
        assert!(fault.status == expected || early, "{at}: {fault:?}");
        changed[at] ^= 0x10;
    }
    assert_eq!(changed, *image);
}

/// Numbers that repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// Whether all that moves stays in the window, and nothing is stored behind the buffers.
fn stays(insns: &[Insn], config: &vta_isa::Config, work: u64, all: u64) {
    for insn in insns {
        let (mem, base, y, x, stride, limit) = match insn {
            Insn::Load(l) if !l.is_sync() => {
                (l.mem, l.dram_base, l.y_size, l.x_size, l.x_stride, all)
            }
            Insn::Store(s) if !s.is_sync() => (
                MemType::Out,
                s.dram_base,
                s.y_size,
                s.x_size,
                s.x_stride,
                work,
            ),
            _ => continue,
        };
        let elem = config.elem_bytes(mem) as u64;
        let from = u64::from(base) * elem;
        let rows = u64::from(y - 1) * u64::from(stride) + u64::from(x);
        let to = from + rows * elem;
        let bus = u64::from(BUS);
        assert!(from >= bus && to <= bus + limit, "{insn:?}");
    }
}

#[test]
fn an_image_made_to_do_harm_is_refused_or_stays_in_its_window() {
    let demo = demo();
    let config = &demo.program.config;
    let head = word(&demo.layers, 24) as usize;
    // Constants don't matter to what is checked; without them checksums are quick.
    let mut small = demo.layers[..head].to_vec();
    small.resize(head + word(&demo.layers, 28) as usize, 0);
    let crc = crc32(&small[head..]);
    small[16..20].copy_from_slice(&crc.to_le_bytes());
    let tables = word(&small, 44) as usize;
    let mut random = Random(11);
    let (mut refused, mut opened) = (0, 0);
    for round in 0..600 {
        let mut image = small.clone();
        for _ in 0..=random.below(2) {
            // The header, then instructions, then tables, by turns.
            let at = match round % 3 {
                0 => 16 + random.below(112),
                1 => 128 + random.below(tables - 128),
                _ => tables + random.below(head - tables),
            };
            image[at] = match random.below(3) {
                0 => 0xff,
                1 => 0,
                _ => random.below(256) as u8,
            };
        }
        seal(&mut image);
        let Ok(read) = Image::read(&image) else {
            refused += 1;
            continue;
        };
        let needs = read.needs(Visibility::Copied);
        if needs.window_bytes > 1 << 24 {
            continue;
        }
        let board = Model::new(config, BUS, needs.window_bytes);
        let Ok(mut runtime) = Runtime::open(&image, board, Visibility::Copied) else {
            refused += 1;
            continue;
        };
        opened += 1;
        for index in 0..2 {
            let len = runtime.input(index).map_or(0, |t| t.len());
            if len < 1 << 20 {
                let _ = runtime.write_input(index, 0, &vec![1; len as usize]);
            }
            let len = runtime.output(index).map_or(0, |t| t.len());
            if len < 1 << 20 {
                let _ = runtime.read_output(index, 0, &mut vec![1; len as usize]);
            }
        }
        let count = word(&image, 40);
        let at = BUS + (needs.window_bytes as u32 - 16 * count);
        let memory = &runtime.board().accelerator.memory;
        let bytes = memory.read(at.into(), 16 * u64::from(count)).unwrap();
        let words = bytes.chunks_exact(16);
        let words = words.map(|w| u128::from_le_bytes(w.try_into().unwrap()));
        let insns: Vec<_> = words.filter_map(|w| Insn::decode(w).ok()).collect();
        let (work, all) = (word(&image, 32), needs.window_bytes);
        // A changed matrix unit has tiles of another size.
        if word(&image, 64) == 0 && word(&image, 68) == 4 {
            stays(&insns, config, work.into(), all);
        }
    }
    assert!(refused > 150 && opened > 50, "{refused} {opened}");
}
