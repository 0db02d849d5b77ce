//! Constants that a generator gives: known by where it stands, made when they are needed.

use rayon::prelude::*;

use super::rng::Rng;

/// Values that one task makes.
const TASK: usize = 1 << 14;

/// What a drawn int8 stands for.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    /// Its product.
    Times(f32),
    /// Its quotient.
    Over(f32),
}

impl Scale {
    pub(super) fn of(self, value: f32) -> f32 {
        match self {
            Self::Times(step) => value * step,
            Self::Over(steps) => value / steps,
        }
    }
}

/// Values of a generator, one after another.
pub(super) struct Draw {
    /// Where the generator stands before them.
    pub start: Rng,
    pub count: usize,
    pub scale: Scale,
}

impl Draw {
    /// All of them.
    pub(super) fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.count];
        let tasks = values.par_chunks_mut(TASK).enumerate();
        tasks.for_each(|(task, values)| {
            let mut rng = self.start.clone();
            rng.skip((task * TASK) as u64);
            for value in values {
                *value = self.scale.of(rng.int8().into());
            }
        });
        values
    }
}
