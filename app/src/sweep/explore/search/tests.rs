use std::collections::HashSet;

use super::*;

/// Runs a search to its end: what it asked for.
fn run(
    search: &mut Search,
    excess: &Excess<'_>,
    figures: &dyn Fn(&[usize]) -> Option<Vec<f64>>,
) -> Vec<Genome> {
    let mut all = Vec::new();
    loop {
        let asked = search.ask(excess).to_vec();
        if asked.is_empty() {
            return all;
        }
        search.tell(asked.iter().map(|genome| figures(genome)).collect());
        all.extend(asked);
    }
}

/// Two figures that are in each other's way, with a valley for each gene.
fn figures(genome: &[usize]) -> Option<Vec<f64>> {
    let away = |to: usize| -> f64 {
        genome
            .iter()
            .map(|&g| (g.abs_diff(to) as f64).powi(2))
            .sum()
    };
    // Some points have none.
    (genome[0] + 2 * genome[1] != 7).then(|| vec![away(2), away(6)])
}

fn genes() -> Vec<Gene> {
    vec![Gene::ordered(9); 5]
}

#[test]
fn what_is_asked_fits_and_is_new_and_the_same_for_a_seed() {
    let fits = |genome: &[usize]| (genome.iter().sum::<usize>() as f64 - 18.0).max(0.0);
    let search = |seed| {
        let mut search = Search::new(genes(), Some(vec![8; 5]), 2, seed, 300);
        run(&mut search, &fits, &figures)
    };
    let asked = search(1);
    assert_eq!(asked.len(), 300);
    assert!(
        asked
            .iter()
            .all(|genome| fits(genome) == 0.0 && genome.iter().all(|&g| g < 9))
    );
    assert_eq!(asked.iter().collect::<HashSet<_>>().len(), 300);
    assert_eq!(search(1), asked);
    assert_ne!(search(2), asked);
}

#[test]
fn a_longer_search_begins_as_a_shorter_one() {
    let search = |points| {
        run(
            &mut Search::new(genes(), None, 2, 5, points),
            &|_| 0.0,
            &figures,
        )
    };
    let long = search(200);
    // The last generation of the shorter one is a part of one.
    assert_eq!(search(96)[..], long[..96]);
}

/// Of 59,049 points 1,000 are enough for what chance hardly finds: three times as much of the front.
#[test]
fn a_search_finds_more_of_the_front_than_chance() {
    let is_best = |genome: &[usize]| {
        // All genes lie between both valleys, and in two of them at most by one apart.
        let [low, high] = [genome.iter().min().unwrap(), genome.iter().max().unwrap()];
        *low >= 2 && *high <= 6 && high - low <= 1 && figures(genome).is_some()
    };
    let found = |all: &[Genome]| all.iter().filter(|genome| is_best(genome)).count();
    let search = run(
        &mut Search::new(genes(), None, 2, 3, 1000),
        &|_| 0.0,
        &figures,
    );
    let mut rng = Rng::new(3);
    let chance: Vec<Genome> = (0..1000)
        .map(|_| (0..5).map(|_| (rng.next_u64() % 9) as usize).collect())
        .collect();
    let (search, chance) = (found(&search), found(&chance));
    assert!(search > 20 && search > 3 * chance, "{search}, {chance}");
}

#[test]
fn a_small_space_is_asked_for_as_a_whole_and_ends() {
    let genes = vec![
        Gene::ordered(3),
        Gene::sets(&[0, 1, 2, 3]),
        Gene::ordered(1),
    ];
    let asked = run(
        &mut Search::new(genes, None, 1, 1, 1000),
        &|_| 0.0,
        &|genome| Some(vec![genome[0] as f64]),
    );
    assert_eq!(asked.len(), 12);
}

#[test]
fn what_cannot_be_is_never_asked_for() {
    let nowhere = |_: &[usize]| f64::INFINITY;
    assert!(
        Search::new(genes(), None, 2, 1, 100)
            .ask(&nowhere)
            .is_empty()
    );
    let mut genes = genes();
    genes[3].only(7);
    let asked = run(&mut Search::new(genes, None, 2, 1, 100), &|_| 0.0, &figures);
    assert!(asked.len() == 100 && asked.iter().all(|genome| genome[3] == 7));
}

#[test]
fn sets_are_near_that_differ_least() {
    let near = |sets: &[u64]| Gene::sets(sets).near;
    assert_eq!(near(&[0, 1, 2, 3]), [[1, 2], [0, 3], [0, 3], [1, 2]]);
    assert_eq!(near(&[0, 3, 7]), [vec![1], vec![2], vec![1]]);
    assert_eq!(near(&[5]), [vec![]; 1] as [Vec<usize>; 1]);
    assert_eq!(Gene::ordered(3).near, [vec![1], vec![0, 2], vec![1]]);
}
