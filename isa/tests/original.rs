//! The original's layouts, against what its own header was measured to do.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use vta_isa::original::{Layout, UopCopies};
use vta_isa::{Config, ConfigError, Deps, Field, Insn, Load, MemType, Opcode, Uop, asm};

const GOLDEN: &str = include_str!("original.txt");

/// What was measured for one configuration.
#[derive(Debug, Default)]
struct Measured<'t> {
    config: &'t str,
    /// By kind (`mem`, `gemm`, `alu`, `uop`), first bit and width of each field.
    places: BTreeMap<&'t str, Vec<(u32, u32)>>,
    /// Bit fields that had no bit.
    none: Vec<&'t str>,
    /// Sizes of what is no word.
    wide: bool,
}

/// The names of the fields by kind, and all configurations.
fn golden() -> (
    BTreeMap<&'static str, Vec<&'static str>>,
    Vec<Measured<'static>>,
) {
    let (mut names, mut all) = (BTreeMap::new(), Vec::<Measured>::new());
    for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
        let (kind, rest) = line.split_once(' ').unwrap();
        let words = rest.split(' ');
        match kind {
            "fields" => {
                let mut words =
                    words.map(|name| name.trim_end_matches("_reg").trim_end_matches("_idx"));
                names.insert(words.next().unwrap(), words.collect());
            }
            "config" => all.push(Measured {
                config: rest,
                ..Measured::default()
            }),
            "none" => all.last_mut().unwrap().none = words.collect(),
            "bytes" => all.last_mut().unwrap().wide = true,
            kind => {
                let place = |word: &str| {
                    let (first, bits) = word.split_once('+').unwrap();
                    (first.parse().unwrap(), bits.parse().unwrap())
                };
                let places = words.map(place).collect();
                all.last_mut().unwrap().places.insert(kind, places);
            }
        }
    }
    (names, all)
}

#[test]
fn fields_lie_where_the_header_of_the_original_has_them_in_20_configurations() {
    let (names, measured) = golden();
    let mut compared = 0;
    for case in measured.iter().filter(|case| !case.places.is_empty()) {
        let layout = Layout::of(&Config::from_json(case.config).unwrap()).unwrap();
        let kinds = [
            ("mem", layout.fields(Opcode::Load)),
            ("gemm", layout.fields(Opcode::Gemm)),
            ("alu", layout.fields(Opcode::Alu)),
            ("uop", layout.uop_fields()),
        ];
        for (kind, fields) in kinds {
            let found = fields.iter().map(|f| (f.name, (f.first_bit, f.bits)));
            let expected = names[kind].iter().copied().zip(case.places[kind].clone());
            assert!(found.eq(expected), "{}: {kind}: {fields:?}", case.config);
        }
        // A STORE has the fields of a LOAD, as far as it has any.
        let load = layout.fields(Opcode::Load);
        assert!(
            layout
                .fields(Opcode::Store)
                .iter()
                .all(|f| load.contains(f))
        );
        let same = case.places == measured[0].places;
        assert_eq!(layout.is_ours(), same, "{}", case.config);
        compared += 1;
    }
    assert_eq!(compared, 20);
}

#[test]
fn configurations_for_which_the_original_has_no_words_are_refused_by_name() {
    let (_, measured) = golden();
    let refused: Vec<_> = measured
        .iter()
        .filter(|case| case.places.is_empty())
        .collect();
    assert_eq!(refused.len(), 8);
    let default: serde_json::Value = serde_json::from_str(measured[0].config).unwrap();
    for case in refused {
        let keys: serde_json::Value = serde_json::from_str(case.config).unwrap();
        let (changed, _) = keys
            .as_object()
            .unwrap()
            .iter()
            .find(|(key, value)| default[key] != **value)
            .unwrap();
        match Config::from_json(case.config) {
            Err(ConfigError::Depth { key, .. }) => {
                assert!(case.wide, "{}", case.config);
                assert_eq!(key, changed);
            }
            config => {
                let error = Layout::of(&config.unwrap()).unwrap_err();
                assert_eq!(error.key, changed);
                assert!(case.none.contains(&error.field), "{error}");
                assert!(error.to_string().contains(error.key), "{error}");
            }
        }
    }
}

/// Every configuration, as far as layouts know it: by the logarithms of the depths.
fn config(depths: [u32; 4]) -> Config {
    let keys = ["UOP", "INP", "WGT", "ACC"]
        .into_iter()
        .zip([2, 4, 8, 6])
        .zip(depths);
    let keys = keys.map(|((name, elem), log)| format!("\"LOG_{name}_BUFF_SIZE\":{}", elem + log));
    let keys: Vec<String> = keys.collect();
    Config::from_json(&format!("{{{}}}", keys.join(","))).unwrap()
}

/// Words lose nothing: all fields lie apart in 128 and 32 bits, and none is wider than in ours.
#[test]
fn every_configuration_has_a_layout_that_fits() {
    let apart = |fields: &[Field], start: u32, end: u32, unit: u32, ours: &[Field]| {
        let mut at = start;
        for field in fields {
            let last = field.first_bit + field.bits - 1;
            assert!(field.first_bit >= at && last < end, "{field:?}");
            assert_eq!(field.first_bit / unit, last / unit, "{field:?}");
            let own = ours.iter().find(|own| own.name == field.name);
            assert!(own.is_none_or(|own| own.bits >= field.bits), "{field:?}");
            at = last + 1;
        }
    };
    for uop in 1..=13 {
        for (inp, wgt, acc) in
            (1..=11).flat_map(|i| (1..=10).flat_map(move |w| (1..=11).map(move |a| (i, w, a))))
        {
            let layout = Layout::of(&config([uop, inp, wgt, acc])).unwrap();
            apart(
                &layout.fields(Opcode::Gemm),
                7,
                128,
                64,
                Opcode::Gemm.fields(),
            );
            apart(
                &layout.fields(Opcode::Alu),
                7,
                128,
                64,
                Opcode::Alu.fields(),
            );
            apart(&layout.uop_fields(), 0, 32, 32, Uop::LIST);
        }
    }
}

fn depths() -> impl Strategy<Value = [u32; 4]> {
    (1u32..=13, 1u32..=11, 1u32..=10, 1u32..=11).prop_map(|(u, i, w, a)| [u, i, w, a])
}

/// Values of fields by their places in a word, zero around them: what an encoder of the original
/// writes, and what one of this project does.
fn word(fields: &[Field], values: &BTreeMap<&str, u64>) -> u128 {
    fields.iter().fold(0, |word, field| {
        word | field.put(values[field.name]).unwrap()
    })
}

/// A value of each field of the original: 0, the largest, or any.
fn values(fields: Vec<Field>) -> impl Strategy<Value = BTreeMap<&'static str, u64>> {
    let value = |field: &Field| prop_oneof![Just(0), Just(field.max()), 0..=field.max()];
    let all: Vec<_> = fields.iter().map(value).collect();
    all.prop_map(move |values| fields.iter().map(|f| f.name).zip(values).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_the_original_encodes_is_what_ours_encodes(
        (layout, (opcode, fields), deps, values, garbage) in depths().prop_flat_map(|depths| {
            let layout = Layout::of(&config(depths)).unwrap();
            prop::sample::select(Opcode::ALL.to_vec()).prop_flat_map(move |opcode| {
                // A flag of ours among the bits of the opcode is one there, too.
                let flags = opcode.fields().iter().filter(|field| field.first_bit < 7);
                let fields: Vec<Field> = flags.copied().chain(layout.fields(opcode)).collect();
                let values = values(fields.clone());
                (Just(layout.clone()), Just((opcode, fields)), 0u128..16, values, any::<u128>())
            })
        })
    ) {
        let head = u128::from(opcode.code()) | deps << Deps::FIELDS.pop_prev.first_bit;
        let theirs = head | word(&fields, &values);
        let ours = head | word(opcode.fields(), &values);
        let covered = layout.fields(opcode).iter().fold(0x7f, |all, field| all | field.mask());
        // The original has no LOAD of memory type 4, of which the bit is ours.
        let extended = Load::FIELDS.memory_type.get(theirs) == u64::from(MemType::PADDED);
        let ours_alone = if opcode == Opcode::Load && extended { Load::WGT4.mask() } else { 0 };
        let found = layout.to_ours(theirs | garbage & !covered & !ours_alone);
        prop_assert!(Insn::same_word(found, ours), "{found:#x} {ours:#x}");
        // The bit that GEMM's reset has in an ALU is no field of ours.
        let reset = values.get("reset").filter(|_| opcode == Opcode::Alu).map_or(0, |set| u128::from(*set) << 7);
        prop_assert_eq!(layout.of_ours(ours | reset), Ok(theirs));
    }

    #[test]
    fn micro_ops_translate_both_ways(
        (layout, values, garbage) in depths().prop_flat_map(|depths| {
            let layout = Layout::of(&config(depths)).unwrap();
            let values = values(layout.uop_fields());
            (Just(layout), values, any::<u32>())
        })
    ) {
        let theirs = word(&layout.uop_fields(), &values) as u32;
        let covered = layout.uop_fields().iter().fold(0, |all, field| all | field.mask() as u32);
        let uop = Uop::decode(layout.uop_to_ours(theirs | garbage & !covered));
        let found = [uop.dst, uop.src, uop.wgt].map(u64::from);
        prop_assert_eq!(found, ["dst", "src", "wgt"].map(|name| values[name]));
        prop_assert_eq!(layout.uop_of_ours(uop.encode().unwrap()), Ok(theirs));
    }

    /// One more than a field holds: the value, the field and the bound are in the error.
    #[test]
    fn what_the_original_has_no_room_for_is_refused(depths in depths(), gemm in any::<bool>()) {
        let layout = Layout::of(&config(depths)).unwrap();
        let opcode = if gemm { Opcode::Gemm } else { Opcode::Alu };
        for field in layout.fields(opcode) {
            let own = opcode.fields().iter().find(|own| own.name == field.name);
            let Some(own) = own.filter(|own| own.bits > field.bits) else { continue };
            let word = u128::from(opcode.code()) | own.put(field.max() + 1).unwrap();
            let error = layout.of_ours(word).unwrap_err();
            prop_assert_eq!((error.field, error.value, error.bits), (own.name, field.max() + 1, field.bits));
        }
        for (own, field) in Uop::LIST.iter().zip(layout.uop_fields()) {
            if own.bits > field.bits {
                let word = own.put(field.max() + 1).unwrap() as u32;
                prop_assert_eq!(layout.uop_of_ours(word).unwrap_err().field, own.name);
            }
        }
    }

    #[test]
    fn a_layout_that_is_ours_changes_no_instruction(word in any::<u128>(), uop in any::<u32>()) {
        let layout = Layout::of(&Config::default()).unwrap();
        prop_assert!(Insn::same_word(layout.to_ours(word), word));
        prop_assert!(layout.of_ours(word).is_ok_and(|there| Insn::same_word(there, word)));
        prop_assert_eq!((layout.uop_to_ours(uop), layout.uop_of_ours(uop)), (uop, Ok(uop)));
    }
}

#[test]
fn a_copy_holds_each_row_of_micro_ops_once() {
    let text = "load.uop sram_base=2 dram_base=100 y_size=2 x_size=3 x_stride=8\n\
                load.inp dram_base=7 y_size=1 x_size=1\n\
                load.uop dram_base=40 y_size=1 x_size=1\n\
                load.uop sram_base=5 dram_base=100 y_size=2 x_size=3 x_stride=8\n\
                load.uop sram_base=8190 dram_base=0 y_size=1 x_size=3\n\
                load.uop dram_base=9 x_size=3\n\
                finish";
    let (config, mut insns) = (Config::default(), asm::parse(text).unwrap());
    let copies = UopCopies::of(&config, &insns).unwrap();
    let rows: Vec<_> = copies.rows().collect();
    assert_eq!(rows, [(0, 400..412), (0, 432..444), (2, 160..164)]);
    assert_eq!(copies.size_bytes(), 28);
    copies.redirect(&mut insns, 0x1000);
    let expected = "load.uop sram_base=2 dram_base=1024 y_size=2 x_size=3 x_stride=3\n\
                    load.inp dram_base=7 y_size=1 x_size=1\n\
                    load.uop dram_base=1030 y_size=1 x_size=1 x_stride=1\n\
                    load.uop sram_base=5 dram_base=1024 y_size=2 x_size=3 x_stride=3\n\
                    load.uop sram_base=8190 dram_base=0 y_size=1 x_size=3\n\
                    load.uop dram_base=9 x_size=3\n\
                    finish";
    assert_eq!(insns, asm::parse(expected).unwrap());
}

#[test]
fn micro_ops_that_the_program_stores_are_no_copy() {
    // Output tiles of 16 bytes: the second row of the STORE is bytes 64 to 80.
    for (dram_base, refused) in [(15, false), (16, true), (19, true), (20, false)] {
        let text = format!(
            "load.uop dram_base={dram_base} y_size=1 x_size=1\n\
             store y_size=2 x_size=1 x_stride=4\nstore y_size=65535 x_size=65535\nfinish"
        );
        let insns = asm::parse(&text).unwrap();
        let error = UopCopies::of(&Config::default(), &insns).map_err(|e| e.to_string());
        let expected = "instruction 1 (store sram_base=0 dram_base=0 y_size=2 x_size=1 x_stride=4): it stores to micro-ops";
        assert_eq!(error.is_err(), refused, "{error:?}");
        assert!(error.map_or_else(|e| e.starts_with(expected), |_| true));
    }
}

#[test]
fn a_copy_is_bounded() {
    let config = Config::default();
    let load = |dram_base| {
        let insn = asm::parse(&format!(
            "load.uop dram_base={dram_base} y_size=1 x_size=8192"
        ))
        .unwrap();
        insn[0]
    };
    let mut insns: Vec<Insn> = (0..2048).map(load).collect();
    assert_eq!(config.depth(MemType::Uop), 8192);
    assert_eq!(
        UopCopies::of(&config, &insns).unwrap().size_bytes(),
        1 << 26
    );
    // The same rows again are no more of them.
    insns.push(load(0));
    assert!(UopCopies::of(&config, &insns).is_ok());
    insns.push(load(2048));
    let error = UopCopies::of(&config, &insns).unwrap_err();
    assert_eq!(error.index, 2049);
}
