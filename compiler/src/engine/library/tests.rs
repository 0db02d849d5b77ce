use rayon::prelude::*;

use super::*;
use crate::engine::Engine;
use crate::graph::{Graph, Node, Op, ValueId};
use crate::onnx;
use crate::qgraph::window::{Pads, Window};

/// A graph of values and nodes `(name, op, inputs, output)`; the first value is the input, the last
/// the output.
fn graph(
    values: &[(&str, &[usize], Option<Data>)],
    nodes: &[(&str, Op, &[usize], usize)],
) -> Graph {
    let value = |(name, shape, data): &(&str, &[usize], Option<Data>)| {
        crate::graph::Value::new(*name, shape.to_vec(), data.clone())
    };
    let node = |(name, op, inputs, output): &(&str, Op, &[usize], usize)| Node {
        name: (*name).to_owned(),
        op: op.clone(),
        inputs: inputs.iter().map(|&i| ValueId(i)).collect(),
        output: ValueId(*output),
    };
    Graph {
        name: "test".to_owned(),
        values: values.iter().map(value).collect(),
        nodes: nodes.iter().map(node).collect(),
        inputs: vec![ValueId(0)],
        outputs: vec![ValueId(values.len() - 1)],
        ..Graph::default()
    }
}

fn floats(shape: &[usize], values: impl IntoIterator<Item = f32>) -> Tensor {
    let (shape, data) = (shape.to_vec(), Data::F32(values.into_iter().collect()));
    Tensor { shape, data }
}

/// Numbers of a fixed sequence within +-1.
fn noise(n: usize, seed: u32) -> Vec<f32> {
    let next = |x: &u32| Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let all = std::iter::successors(next(&seed), next);
    all.take(n)
        .map(|x| x as f32 / 2f32.powi(31) - 1.0)
        .collect()
}

/// A convolution with one weight of 2 and one of 3 a channel, and a Relu after it.
fn small() -> Vec<u8> {
    let window = Window::whole([1, 1]);
    let graph = graph(
        &[
            ("x", &[1, 1, 2, 2], None),
            ("w", &[2, 1, 1, 1], Some(Data::F32(vec![2.0, -3.0]))),
            ("sum", &[1, 2, 2, 2], None),
            // A node and a value of one name.
            ("relu", &[1, 2, 2, 2], None),
        ],
        &[
            ("conv", Op::Conv { window, group: 1 }, &[0, 1], 2),
            ("relu", Op::Relu, &[2], 3),
        ],
    );
    onnx::save(&graph)
}

#[test]
fn values_are_given_in_the_order_in_which_they_are_asked_for() {
    let engine = Engine::new(small()).unwrap();
    let x = floats(&[1, 1, 2, 2], [1.0, -2.0, 0.5, 0.0]);
    let sum = floats(&[1, 2, 2, 2], [2.0, -4.0, 1.0, 0.0, -3.0, 6.0, -1.5, 0.0]);
    let relu = floats(&[1, 2, 2, 2], [2.0, 0.0, 1.0, 0.0, 0.0, 6.0, 0.0, 0.0]);
    let weights = floats(&[2, 1, 1, 1], [2.0, -3.0]);
    let run = |outputs: &[&str]| engine.run(&[Lent::of("x", &x)], outputs).unwrap();
    assert_eq!(run(&["relu"])[0], relu);
    let all = run(&["relu", "sum", "x", "sum", "w"]);
    assert_eq!(all, [relu.clone(), sum.clone(), x.clone(), sum, weights]);
    assert_eq!(run(&[]), []);
    // A value in the middle may be given instead.
    let given = floats(&[1, 2, 2, 2], [-1.0; 8]);
    let out = engine.run(&[Lent::of("sum", &given)], &["relu"]).unwrap();
    assert_eq!(out, [floats(&[1, 2, 2, 2], [0.0; 8])]);
}

#[test]
fn what_does_not_fit_is_an_error_that_says_where() {
    let engine = Engine::new(small()).unwrap();
    let x = floats(&[1, 1, 2, 2], [0.0; 4]);
    let run = |inputs: &[(&str, &Tensor)], output| {
        let inputs = inputs.iter().map(|(name, tensor)| Lent::of(name, tensor));
        let inputs: Vec<Lent<'_>> = inputs.collect();
        engine.run(&inputs, &[output]).unwrap_err()
    };
    let missing = |name: &str| EngineError::Name(name.to_owned());
    assert_eq!(run(&[("x", &x)], "y"), missing("y"));
    assert_eq!(run(&[("z", &x)], "relu"), missing("z"));
    assert!(matches!(run(&[], "relu"), EngineError::Run(_)));
    for (shape, expected) in [(vec![1, 1, 2, 3], 6), (vec![usize::MAX, 2], usize::MAX)] {
        let name = "x".to_owned();
        let data = Data::F32(vec![0.0; 4]);
        let error = run(&[("x", &Tensor { shape, data })], "relu");
        let found = 4;
        assert_eq!(
            error,
            EngineError::Length {
                name,
                found,
                expected
            }
        );
    }
    let wrong = floats(&[1, 2, 1, 2], [0.0; 4]);
    let error = run(&[("x", &wrong)], "relu").to_string();
    assert!(error.contains("\"x\""), "{error}");
    let bytes = Tensor {
        shape: vec![1, 1, 2, 2],
        data: Data::I8(vec![0; 4]),
    };
    assert!(matches!(run(&[("x", &bytes)], "relu"), EngineError::Run(_)));
    let add = graph(
        &[
            ("x", &[1, 4], None),
            ("c", &[3], Some(Data::F32(vec![0.0; 3]))),
            ("y", &[1, 4], None),
        ],
        &[("a sum", Op::Add, &[0, 1], 2)],
    );
    let add = Engine::new(onnx::save(&add)).unwrap();
    let x = floats(&[1, 4], [0.0; 4]);
    let error = add
        .run(&[Lent::of("x", &x)], &["y"])
        .unwrap_err()
        .to_string();
    assert!(error.contains("a sum"), "{error}");
    for bytes in [&b""[..], b"no model", &small()[..40]] {
        assert!(matches!(Engine::new(bytes), Err(EngineError::Load(_))));
    }
}

#[test]
fn integers_go_through_as_they_are() {
    let chosen = [
        Data::I8(vec![-128, 127]),
        Data::U8(vec![0, 255]),
        Data::I32(vec![i32::MIN, i32::MAX]),
    ];
    for data in chosen {
        let shape = vec![2];
        let x = Tensor { shape, data };
        let given = value(&Lent::of("x", &x)).unwrap();
        let ValueOrView::View(view) = given else {
            panic!("{x:?} is copied");
        };
        assert_eq!(tensor(view.to_owned()).unwrap(), x);
    }
    let wide = Tensor {
        shape: vec![3],
        data: Data::I64(vec![i64::MIN, 5, i64::MAX]),
    };
    let ValueOrView::Value(narrow) = value(&Lent::of("x", &wide)).unwrap() else {
        panic!("it is lent");
    };
    let expected = Data::I32(vec![i32::MIN, 5, i32::MAX]);
    assert_eq!(tensor(narrow).unwrap().data, expected);
    let truth = Tensor {
        shape: vec![2],
        data: Data::Bool(vec![true, false]),
    };
    let ValueOrView::Value(numbers) = value(&Lent::of("x", &truth)).unwrap() else {
        panic!("it is lent");
    };
    assert_eq!(tensor(numbers).unwrap().data, Data::I32(vec![1, 0]));
}

/// A convolution, a mean of each channel and a dense layer, whose sums the library would divide
/// among the threads of a larger pool.
fn sums() -> Vec<u8> {
    let window = Window {
        kernel: [7, 7],
        stride: [16, 16],
        pads: Pads::default(),
        dilation: [1, 1],
    };
    let (conv, dense) = (noise(512 * 3 * 49, 1), noise(500 * 512, 2));
    let graph = graph(
        &[
            ("x", &[1, 3, 112, 112], None),
            ("w", &[512, 3, 7, 7], Some(Data::F32(conv))),
            ("sum", &[1, 512, 7, 7], None),
            ("mean", &[1, 512, 1, 1], None),
            ("flat", &[1, 512], None),
            ("v", &[500, 512], Some(Data::F32(dense))),
            ("y", &[1, 500], None),
        ],
        &[
            ("conv", Op::Conv { window, group: 1 }, &[0, 1], 2),
            ("mean", Op::GlobalAveragePool, &[2], 3),
            ("flat", Op::Flatten, &[3], 4),
            ("dense", Op::Gemm { trans_b: true }, &[4, 5], 6),
        ],
    );
    onnx::save(&graph)
}

#[test]
fn results_depend_on_no_number_of_threads() {
    let engine = Library::new(sums()).unwrap();
    let x = floats(&[1, 3, 112, 112], noise(3 * 112 * 112, 3));
    let run = || engine.run(&[Lent::of("x", &x)], &["y"]).unwrap();
    let alone = run();
    // Two threads would give other bits: without that this test proves nothing.
    let options = RunOptions::default();
    let pool = Arc::new(ThreadPool::with_num_threads(2));
    let wanted = [engine.id("y").unwrap()];
    let given = vec![(engine.id("x").unwrap(), value(&Lent::of("x", &x)).unwrap())];
    let two = engine
        .model
        .run(given, &wanted, Some(options.with_thread_pool(Some(pool))));
    let two = tensor(two.unwrap().remove(0)).unwrap();
    assert_ne!(two, alone[0]);
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().unwrap();
        let all: Vec<_> = pool.install(|| (0..8).into_par_iter().map(|_| run()).collect());
        assert!(all.iter().all(|y| *y == alone), "{threads} threads");
    }
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        assert!(runs.into_iter().all(|y| y.join().unwrap() == alone));
    });
}

#[test]
fn a_pool_that_waits_for_a_run_starts_no_other() {
    // A worker that took a second run while it waits for the first would hold two at once.
    let (most, now) = (Mutex::new(0), Mutex::new(0));
    let work = |_pool| {
        let mut running = now.lock().unwrap();
        *running += 1;
        let mut most = most.lock().unwrap();
        *most = (*most).max(*running);
        drop((running, most));
        std::thread::sleep(std::time::Duration::from_millis(5));
        *now.lock().unwrap() -= 1;
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
    let pool = pool.build().unwrap();
    // The first time starts threads, the later ones find them.
    for _ in 0..3 {
        pool.scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|_| on_one_thread(work).unwrap().unwrap());
            }
        });
    }
    assert!(*most.lock().unwrap() <= 2);
}

#[test]
fn panics_are_errors_and_leave_the_thread_to_the_next_run() {
    for _ in 0..3 {
        let done = on_one_thread(|_| panic!("five {}", "words")).unwrap();
        assert_eq!(done, Err::<(), _>("five words".to_owned()));
        assert_eq!(on_one_thread(|_| 7).unwrap(), Ok(7));
    }
}

#[test]
fn engines_are_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Engine>();
}

#[test]
fn products_are_those_of_loops_and_the_same_on_any_number_of_threads() {
    for ([rows, inner, columns], turned) in [
        ([1, 1, 1], false),
        ([1, 300, 70], false),
        ([33, 257, 129], false),
        ([16, 900, 16], true),
        ([130, 75, 130], true),
    ] {
        let value = |i: usize| (i * 7919 % 211) as f32 / 211.0 - 0.4;
        let left: Vec<f32> = (0..rows * inner).map(value).collect();
        let right: Vec<f32> = (0..inner * columns).map(|i| value(i + 3)).collect();
        let product = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let mut sums: Vec<f32> = (0..rows * columns).map(value).collect();
            let [left, right] = [
                ([rows, inner], &left, turned),
                ([inner, columns], &right, false),
            ]
            .map(|(sizes, values, turned)| Matrix {
                values,
                sizes,
                strides: if turned { [1, sizes[0]] } else { [sizes[1], 1] },
            });
            let add = || add_product(&mut sums, left, right);
            pool.build().unwrap().install(add);
            sums
        };
        let found = product(1);
        assert_eq!(found, product(3));
        for (at, found) in found.into_iter().enumerate() {
            let of = |k: usize| {
                let row = at / columns;
                let left = left[if turned {
                    k * rows + row
                } else {
                    row * inner + k
                }];
                f64::from(left) * f64::from(right[k * columns + at % columns])
            };
            let expected = f64::from(value(at)) + (0..inner).map(of).sum::<f64>();
            assert!((f64::from(found) - expected).abs() < 1e-4 * inner as f64);
        }
    }
}
