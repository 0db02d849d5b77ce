//! Numbers for people.

/// `1234567` as `1 234 567`, with narrow no-break spaces.
pub fn grouped(value: u64) -> String {
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

/// Three digits and a prefix: `27.7 M`.
pub fn short(value: f64) -> String {
    scaled(
        value,
        &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")],
        "",
    )
}

/// Bytes with a decimal prefix.
pub fn bytes(value: u64) -> String {
    scaled(value as f64, &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB")], "B")
}

/// Picojoules as joules with a prefix.
pub fn joules(pj: f64) -> String {
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
            (0.0, "0"),
            (12.0, "12"),
            (999.0, "999"),
            (1000.0, "1.00 k"),
            (27_679_515.0, "27.7 M"),
            (999_900.0, "1.00 M"),
            (1.8e9, "1.80 G"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(bytes(2048), "2.05 kB");
        assert_eq!(joules(2.5e9), "2.50 mJ");
        assert_eq!(percent(0.0001), "< 0.1 %");
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(0.0), "0.0 %");
    }
}
