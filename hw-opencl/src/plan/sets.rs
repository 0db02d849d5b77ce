//! Disjoint sets of numbers, each known by its least.

/// Numbers from 0 on, of which some belong together.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    /// Of each number: itself, or a smaller one of its set.
    parent: Vec<u32>,
}

impl Sets {
    /// Numbers below `count`, each on its own.
    pub fn new(count: u32) -> Self {
        Self {
            parent: (0..count).collect(),
        }
    }

    /// How many numbers there are.
    pub fn len(&self) -> u32 {
        self.parent.len() as u32
    }

    /// The next number, on its own.
    pub fn push(&mut self) -> u32 {
        let number = self.len();
        self.parent.push(number);
        number
    }

    /// The least number of the set.
    pub fn least(&mut self, mut number: u32) -> u32 {
        while self.parent[number as usize] != number {
            let up = self.parent[number as usize];
            self.parent[number as usize] = self.parent[up as usize];
            number = up;
        }
        number
    }

    /// Makes one of two sets: the least number of each, that of the whole first.
    pub fn unite(&mut self, a: u32, b: u32) -> [u32; 2] {
        let (a, b) = (self.least(a), self.least(b));
        let (least, other) = (a.min(b), a.max(b));
        self.parent[other as usize] = least;
        [least, other]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_known_by_its_least_number() {
        let mut sets = Sets::new(6);
        assert_eq!(sets.unite(4, 2), [2, 4]);
        assert_eq!(sets.unite(5, 3), [3, 5]);
        assert_eq!(sets.unite(5, 4), [2, 3]);
        assert_eq!(sets.unite(3, 2), [2, 2]);
        assert_eq!((sets.push(), sets.len()), (6, 7));
        assert_eq!(sets.unite(6, 0), [0, 6]);
        let least: Vec<u32> = (0..7).map(|n| sets.least(n)).collect();
        assert_eq!(least, [0, 1, 2, 2, 2, 2, 0]);
    }
}
