use proptest::prelude::*;

use super::super::super::tile::Groups;
use super::*;
use crate::qgraph::window::Window;
use vta_program::listing::ResidualBy;

proptest! {
    /// Every weight lies where the layout says, and everything else is 0.
    #[test]
    fn packed_weights_lie_by_output_block_input_block_tap_part_and_lane(
        (group, inputs, outputs) in (1usize..6, 1usize..40, 1usize..20),
        kernel in [1usize..4, 1..4], parts in 1usize..3, block in prop::sample::select(vec![8usize, 16]),
    ) {
        let ([ci, co], area) = ([group * inputs, group * outputs], kernel[0] * kernel[1]);
        let groups = Groups::new(group, [co, ci], block);
        let shape = ConvShape {
            ci: groups.map_or(ci.div_ceil(block), |g| g.span()),
            co: co.div_ceil(block),
            input: kernel,
            output: [1, 1],
            window: Window::whole(kernel),
            alu_steps: 0,
            vectors: 0,
            entry: 0,
            residual: ResidualBy::None,
            bias: 0,
            pool: None,
            groups,
            regions: 0,
            plain: 0,
            weight_parts: parts,
            anew: false,
                        window_rows: 0,
                        pad_value: 0,
                        wgt4: false,
            ones: false,
        };
        let taps = inputs * area;
        let given: Vec<i8> = (0..parts * co * taps).map(|i| (i % 251) as u8 as i8).collect();
        let packed = weights(&given, [co, taps], &shape, block);
        let mut wanted = vec![0; shape.co * shape.ci * area * parts * block * block];
        for (at, &weight) in given.iter().enumerate() {
            let (part, o, c, k) = (at / taps / co, at / taps % co, at / area % inputs, at % area);
            let channel = o / outputs * inputs + c;
            let block_in = channel / block - shape.first_input(o / block);
            let tile = ((o / block * shape.ci + block_in) * area + k) * parts + part;
            wanted[(tile * block + o % block) * block + channel % block] = weight as u8;
        }
        prop_assert_eq!(packed, wanted);
    }
}

/// What one step can add, and two.
const REACH: [i32; 2] = [63 + 127 * 127 * 15, 63 + 2 * 127 * 127 * 15];

#[test]
fn digits_give_the_bias_back() {
    let input = bias_input(&Config::default());
    for (value, steps) in [
        (0, 1),
        (1, 1),
        (-1, 1),
        (63, 1),
        (64, 1),
        (-64, 1),
        (8128, 1),
        (-8129, 1),
        (200_000, 1),
        (REACH[0], 1),
        (-REACH[0], 1),
        (REACH[0] + 1, 2),
        (-REACH[0] - 1, 2),
        (REACH[1], 2),
        (-REACH[1], 2),
    ] {
        let mut bias = [7; 18];
        (bias[1], bias[17]) = (value, -3);
        let digits = bias_weights(&[&bias], 2, 16).unwrap();
        assert_eq!(digits.steps, steps, "{value}");
        let sum = |channel: usize| -> i32 {
            let dot = |step: usize| -> i32 {
                let tile = channel / 16 * steps + step;
                let row = &digits.tiles[(tile * 16 + channel % 16) * 16..][..16];
                let product = |(w, x): (&u8, &u8)| i32::from(*w as i8) * i32::from(*x as i8);
                row.iter().zip(&input).map(product).sum()
            };
            (0..steps).map(dot).sum()
        };
        for (channel, &value) in bias.iter().enumerate() {
            assert_eq!(sum(channel), value, "channel {channel}");
        }
        assert_eq!(sum(18), 0);
        assert!(digits.tiles.iter().all(|&w| w as i8 != -128));
    }
}

#[test]
fn a_bias_beyond_the_digits_is_left_to_the_alu() {
    for value in [REACH[1] + 1, -REACH[1] - 1, i32::MIN, i32::MAX] {
        assert_eq!(bias_weights(&[&[value]], 1, 16), None, "{value}");
    }
}
