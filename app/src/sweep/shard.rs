//! One of the parts that a sweep is divided into, for machines that share nothing but files.

use std::str::FromStr;

use super::grid::MAX_POINTS;
use crate::error::Error;
use crate::options::names::said;

/// `I/N`: the points of a grid whose number, from 1, leaves the remainder of I when divided by N. So
/// neighbours, which often take equally long, are in different shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    of: usize,
}

impl Shard {
    /// How many shards there are.
    pub fn of(&self) -> usize {
        self.of
    }

    /// Whether the point of an index, from 0, belongs to it.
    pub fn has(&self, point: usize) -> bool {
        point % self.of == self.index - 1
    }
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, of)) if (1..=MAX_POINTS).contains(&of) && (1..=of).contains(&index) => {
                Ok(Self { index, of })
            }
            _ => Err(Error::Usage(said!(
                "'{text}' is no shard: write I/N with I from 1 to N and N from 1 to {MAX_POINTS}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_divide_the_points() {
        for of in [1, 3, 7] {
            let shards: Vec<Shard> = (1..=of)
                .map(|i| format!("{i}/{of}").parse().unwrap())
                .collect();
            for point in 0..20 {
                let having: Vec<usize> = (0..of).filter(|i| shards[*i].has(point)).collect();
                assert_eq!(having, [point % of]);
            }
        }
    }

    #[test]
    fn what_is_no_shard_names_the_range() {
        for text in [
            "0/4", "5/4", "4", "/", "1/0", "-1/4", "1/100001", "1/2/3", "a/b", "",
        ] {
            let error = text.parse::<Shard>().unwrap_err().to_string();
            let range = format!(
                "'{text}' is no shard: write I/N with I from 1 to N and N from 1 to 100000"
            );
            assert_eq!(error, range);
        }
    }
}
