use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

use super::*;

/// Image i is [i]; notes how far ahead of `taken` images are asked for.
struct Numbers {
    count: usize,
    bad: usize,
    taken: AtomicUsize,
    farthest: AtomicUsize,
}

impl Numbers {
    fn new(count: usize, bad: usize) -> Self {
        Self {
            count,
            bad,
            taken: AtomicUsize::new(0),
            farthest: AtomicUsize::new(0),
        }
    }
}

impl Images for Numbers {
    fn count(&self) -> usize {
        self.count
    }

    fn image(&self, index: usize) -> Result<Cow<'_, [i16]>> {
        assert_ne!(index, self.bad, "a decoder that panics");
        let ahead = index.saturating_sub(self.taken.load(Ordering::SeqCst));
        self.farthest.fetch_max(ahead, Ordering::SeqCst);
        Ok(vec![index as i16].into())
    }
}

fn all(numbers: &Numbers, batch: usize, loaders: usize) -> Result<Vec<Vec<i16>>> {
    let supply = Supply::new(numbers, AHEAD_BYTES, batch, loaders);
    scope(|scope| {
        let _stop = supply.stop();
        for _ in 0..loaders {
            scope.spawn(|| supply.load());
        }
        let mut runs = Vec::new();
        while let Some((first, images)) = supply.take()? {
            assert_eq!(first, runs.len() * batch);
            runs.push(images.iter().map(|image| image[0]).collect());
            numbers.taken.store(first, Ordering::SeqCst);
        }
        Ok(runs)
    })
}

#[test]
fn runs_get_their_images_in_order_however_many_decode() {
    for (count, batch, loaders) in [(7, 1, 0), (7, 3, 0), (7, 3, 1), (40, 4, 5), (0, 2, 2)] {
        let numbers = Numbers::new(count, usize::MAX);
        let expected: Vec<i16> = (0..count as i16).collect();
        let expected: Vec<_> = expected.chunks(batch).map(<[i16]>::to_vec).collect();
        assert_eq!(all(&numbers, batch, loaders).unwrap(), expected);
        // What waits, the run that is taken meanwhile and the one before it.
        let most = 4 * batch + loaders;
        assert!(numbers.farthest.load(Ordering::SeqCst) <= most);
    }
}

#[test]
fn a_decoder_that_panics_ends_the_runs() {
    let numbers = Numbers::new(20, 9);
    assert!(all(&numbers, 2, 3).is_err());
}

#[test]
fn threads_end_when_nobody_takes() {
    let numbers = Numbers::new(1000, usize::MAX);
    let supply = Supply::new(&numbers, AHEAD_BYTES / 3, 1, 2);
    scope(|scope| {
        scope.spawn(|| supply.load());
        drop(supply.stop());
    });
    assert!(numbers.farthest.load(Ordering::SeqCst) <= 4);
}
