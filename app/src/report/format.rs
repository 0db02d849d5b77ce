//! Numbers for people.

/// `1234567` as `1 234 567`, with narrow no-break spaces.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Smaller numbers are told exactly.
const EXACT: u64 = 10_000;

/// Three digits and a prefix: `27.7 M`.
pub fn short(value: u64) -> String {
    if value < EXACT {
        return value.to_string();
    }
    scaled(
        value as f64,
        &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")],
        "",
    )
}

/// Bytes with a decimal prefix.
pub fn bytes(value: u64) -> String {
    if value < EXACT {
        return format!("{value} B");
    }
    scaled(value as f64, &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB")], "B")
}

/// Picojoules as joules with a prefix.
pub(crate) fn joules(pj: f64) -> String {
    scaled(
        pj,
        &[(1e12, "J"), (1e9, "mJ"), (1e6, "µJ"), (1e3, "nJ")],
        "pJ",
    )
}

fn scaled(value: f64, units: &[(f64, &str)], unit: &str) -> String {
    // What would round to 1000 takes the next prefix.
    let found = units.iter().find(|(size, _)| value >= size * 0.9995);
    let (value, unit) = found.map_or((value, unit), |(size, unit)| (value / size, *unit));
    let decimals = match value {
        v if found.is_none() && v.fract() == 0.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}").trim_end().to_owned()
}

/// The smallest of 1, 2 and 5 times a power of ten that isn't below a number above 0: a step of an axis.
pub(crate) fn round_step(least: f64) -> f64 {
    let power = 10f64.powi(least.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0].map(|m| m * power);
    let step = steps.into_iter().find(|step| *step >= least);
    step.unwrap_or(10.0 * power)
}

/// A round number with its prefix, as axes have it: at most two decimals, `2.5 M`.
pub fn round(value: f64) -> String {
    let units = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
    let found = units.into_iter().find(|(size, _)| value >= *size);
    let (size, prefix) = found.unwrap_or((1.0, ""));
    let text = format!("{:.2}", value / size);
    format!(
        "{}{prefix}",
        text.trim_end_matches('0').trim_end_matches('.')
    )
}

/// A share of 1 in percent.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p > 0.0 && p < 0.05 => "< 0.1 %".to_owned(),
        p => format!("{p:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        for (value, text) in [
            (0, "0"),
            (12, "12"),
            (999, "999"),
            (9999, "9999"),
            (10_000, "10.0 k"),
            (27_679_515, "27.7 M"),
            (999_900, "1.00 M"),
            (1_800_000_000, "1.80 G"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!([bytes(2048), bytes(20_480)], ["2048 B", "20.5 kB"]);
        assert_eq!(joules(2.5e9), "2.50 mJ");
        assert_eq!(percent(0.0001), "< 0.1 %");
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(0.0), "0.0 %");
    }
}
