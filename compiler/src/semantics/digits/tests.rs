use proptest::prelude::*;

use super::super::apply;
use super::*;

/// A sum with its bias, from its digits.
fn told(numbers: Numbers, digits: Digits, biases: &[i64], sum: Interval, x: i64) -> i64 {
    let bits = numbers.bits() as usize;
    let digit = |place: usize| {
        let zero = if place + 1 == digits.count {
            digits.zero
        } else {
            0
        };
        let ops = plan_digit(place, zero, biases, &[sum; 2][..biases.len()], numbers).unwrap();
        let mut lane = [x as i32];
        for op in &ops {
            apply(op, 0, &mut lane).unwrap();
        }
        // As a store keeps it.
        (i64::from(numbers.stored(lane[0], false)) - i64::from(zero)) << (bits * place)
    };
    (0..digits.count).map(digit).sum()
}

#[test]
fn sums_have_as_few_digits_as_hold_them() {
    let of =
        |low: i64, high: i64| Digits::of(&[(low, high)], Numbers::Int8).map(|d| (d.count, d.zero));
    assert_eq!(of(-128, 127), Some((1, 0)));
    assert_eq!(of(0, 255), Some((1, -128)));
    assert_eq!(of(0, 256), Some((2, 0)));
    // A mean of 13x13 values of uint8.
    assert_eq!(of(0, 43_095), Some((2, -41)));
    assert_eq!(of(-32_896, 32_639), Some((2, 0)));
    assert_eq!(of(-32_896, 32_640), Some((3, 0)));
    assert_eq!(of(100_000, 100_001), Some((3, 0)));
    assert_eq!(of(-(1 << 31), 0), Some((4, 0)));
    assert_eq!(of(0, (1 << 31) - 1), None);
    assert_eq!(of(i64::MIN, i64::MAX), None);
    assert_eq!(Digits::of(&[], Numbers::Int8), None);
    let of =
        |low: i64, high: i64| Digits::of(&[(low, high)], Numbers::Int16).map(|d| (d.count, d.zero));
    assert_eq!(of(-32768, 32767), Some((1, 0)));
    assert_eq!(of(0, 65535), Some((1, -32768)));
    assert_eq!(of(0, 65536), Some((2, 0)));
    assert_eq!(of(-(1 << 31), 0), Some((2, 0)));
    assert_eq!(of(0, (1 << 31) - 1), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn digits_tell_the_sum(
        size in 0u32..31, ends in [-1.0f64..1.0, -1.0f64..1.0], at in 0.0f64..=1.0, bias in -40_000i64..40_000,
        wide in any::<bool>(),
    ) {
        let numbers = if wide { Numbers::Int16 } else { Numbers::Int8 };
        let bits = numbers.bits();
        let far = f64::from(size).exp2();
        let [a, b] = ends.map(|end| (end * far) as i64);
        let (low, high) = (a.min(b), a.max(b));
        let x = low + ((high - low) as f64 * at) as i64;
        let Some(digits) = Digits::of(&[(low + bias, high + bias)], numbers) else { return Ok(()); };
        for x in [x, low, high] {
            prop_assert_eq!(told(numbers, digits, &[bias], (low, high), x), x + bias, "{:?}", digits);
        }
        // Of several channels with biases of their own.
        let Some(both) = Digits::of(&[(low + bias, high + bias), (low, high)], numbers) else { return Ok(()); };
        prop_assert_eq!(told(numbers, both, &[bias, 0], (low, high), x), x + bias, "{:?}", both);
        // Fewer hold fewer values than there are.
        let fewer = 1i64 << (bits * (digits.count as u32 - 1));
        let wide = high - low > fewer - (fewer >> bits);
        prop_assert!(digits.count == 1 || wide || low + bias > 0 || high + bias < 0);
    }

    #[test]
    fn any_sums_get_digits_or_none(low in any::<i64>(), high in any::<i64>(), place in 0usize..9, zero in any::<i16>(), bias in any::<i64>(), wide in any::<bool>()) {
        let numbers = if wide { Numbers::Int16 } else { Numbers::Int8 };
        let sum = (low.min(high), low.max(high));
        let _ = Digits::of(&[sum], numbers);
        let small = (sum.0 >> 33, sum.1 >> 33);
        let _ = plan_digit(place, zero.into(), &[bias, bias >> 32], &[small; 2], numbers);
    }
}
