//! `cargo bench -p vta-compiler --bench linear`: processor time of each step of a compilation for networks of
//! 1,000, 4,000 and 16,000 nodes, in microseconds a node, medians with quartiles. It grows little where the step
//! is linear, sixteen-fold where it is quadratic.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/common/growth.rs"]
mod growth;

use std::hint::black_box;
use std::time::{Duration, Instant};

const NODES: [usize; 3] = [1_000, 4_000, 16_000];
const ROUNDS: usize = 5;

/// Processor time of this thread; wall time where the system doesn't say.
fn now() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = text.ok().and_then(|t| t.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| start.elapsed(), Duration::from_nanos)
}

fn time(step: &mut dyn FnMut()) -> Duration {
    let start = now();
    step();
    now().saturating_sub(start)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return; // `cargo test --benches` only wants to know that it starts.
    }
    println!(
        "| network | step | {} |",
        NODES.map(|n| format!("{n} nodes")).join(" | ")
    );
    println!("|---|---|---|---|---|");
    for (network, make) in growth::NETWORKS {
        let graphs = NODES.map(make);
        // Sizes in turns, so that what else happens falls on all of them.
        let rounds: Vec<_> = (0..ROUNDS)
            .map(|_| {
                graphs
                    .each_ref()
                    .map(|graph| growth::steps(black_box(graph), time))
            })
            .collect();
        for (k, (step, _)) in rounds[0][0].iter().enumerate() {
            let cells = [0, 1, 2].map(|size| {
                let mut taken: Vec<Duration> =
                    rounds.iter().map(|round| round[size][k].1).collect();
                taken.sort();
                let node = |taken: Duration| taken.as_secs_f64() * 1e6 / NODES[size] as f64;
                let [low, median, high] =
                    [ROUNDS / 4, ROUNDS / 2, ROUNDS * 3 / 4].map(|k| node(taken[k]));
                format!("{median:.2} ({low:.2}, {high:.2})")
            });
            println!("| {network} | {step} | {} |", cells.join(" | "));
        }
    }
}
