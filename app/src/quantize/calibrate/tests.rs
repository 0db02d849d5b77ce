//! How images are split.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn images_are_split_the_same_way_each_time_and_have_one_use(
        count in 1usize..2000,
        held in prop::option::of(0usize..2000),
    ) {
        let Ok(split) = Split::new(count, held) else {
            prop_assert!(held.is_some_and(|held| held >= count));
            return Ok(());
        };
        prop_assert_eq!(&split, &Split::new(count, held).unwrap());
        let set = |of: &[usize]| of.iter().copied().collect::<BTreeSet<usize>>();
        let [calibrate, choose, compare] =
            [&split.calibrate, &split.choose, &split.compare].map(|of| set(of));
        let wanted = held.unwrap_or(count / 5);
        prop_assert_eq!(calibrate.len(), count - wanted);
        // Few images are compared with some of the calibration beside them.
        let again = compare.intersection(&calibrate).count();
        prop_assert_eq!(again, split.again);
        if (1..4).contains(&wanted) {
            prop_assert_eq!(compare.len(), count.min(4));
            prop_assert_eq!(choose, compare);
            return Ok(());
        }
        prop_assert!(choose.is_disjoint(&calibrate));
        prop_assert!(choose.len() <= CHOOSING);
        prop_assert!([&split.calibrate, &split.choose, &split.compare]
            .iter()
            .all(|of| of.is_sorted()));
        if wanted == 0 {
            prop_assert!(choose.is_empty() && compare.is_subset(&calibrate));
            return Ok(());
        }
        prop_assert!(compare.is_disjoint(&calibrate));
        prop_assert_eq!(choose.is_disjoint(&compare), wanted > CHOOSING);
        prop_assert_eq!(choose.union(&compare).count(), wanted);
        // No run of images without one that is kept out, wherever the list is cut into them.
        let out: Vec<usize> = choose.union(&compare).copied().collect();
        let run = count.div_ceil(wanted);
        prop_assert!(out.windows(2).all(|two| two[1] - two[0] < 2 * run));
        prop_assert!(out[0] < run && out[wanted - 1] + run >= count);
    }
}

#[test]
fn no_class_of_a_list_that_goes_round_is_left_out() {
    for classes in [2, 5, 10] {
        let split = Split::new(500, None).unwrap();
        let of = |images: &[usize]| images.iter().map(|i| i % classes).collect::<BTreeSet<_>>();
        assert_eq!(of(&split.calibrate).len(), classes);
        assert_eq!(
            of(&[&split.choose[..], &split.compare].concat()).len(),
            classes
        );
    }
}
